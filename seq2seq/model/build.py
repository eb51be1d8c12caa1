"""Builds the network that the settings name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.transformer import Transformer
from seq2seq.model.variants.ablations import ablate
from seq2seq.model.variants.recurrent import Recurrent
from seq2seq.settings.checks import ARCHITECTURE, registered
from seq2seq.settings.model import ModelConfig


def build_model(config: ModelConfig, vocab_size: int, source_vocab_size: int | None = None) -> EncoderDecoder:
    """Return the network of `config.architecture` with random weights, without the parts that the config ablates.

    Without source_vocab_size, sources have the ids of targets.
    """
    networks = {"transformer": Transformer, "recurrent": Recurrent, **registered(ARCHITECTURE)}
    model = networks[config.architecture](config, vocab_size, source_vocab_size)
    if isinstance(model, Transformer):
        ablate(model)
    model.reset_parameters()
    return model


def build_without_values(config: ModelConfig, vocab_size: int, source_vocab_size: int | None = None) -> EncoderDecoder:
    """Return the network with weights that have shapes but no values (on the meta device), to be assigned."""
    with torch.device("meta"), _WithoutRandomValues():
        return build_model(config, vocab_size, source_vocab_size)


class _WithoutRandomValues(TorchFunctionMode):
    """Skips random initialisation: on the meta device, PyTorch would import its compiler for it and need seconds."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        keywords: Mapping[str, Any] = kwargs or {}
        if func in (Tensor.normal_, Tensor.uniform_) or getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else keywords["tensor"]
        return func(*args, **keywords)
