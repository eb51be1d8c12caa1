"""Small models, and ids for them, that the tests of models share."""

from typing import Any

import torch
from torch import Tensor

from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.transformer import Transformer
from seq2seq.model.variants.recurrent import Recurrent
from seq2seq.settings.model import ModelConfig
from seq2seq.text.tokenizer import PAD
from tests.unit.searches import MODERN

V = 31
FIRST = torch.tensor([4, 5, 6, 7])  # a first token for each of `sources`
STYLES: dict[str, dict[str, Any]] = {"vaswani": {}, "modern": {**MODERN, "bias": False}}
FORKING = [  # in each step: the old rows that the new rows continue, a line for each sentence that is left
    [[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3]],
    [[2, 0, 0], [4, 3, 3], [7, 6, 8], [9, 9, 9]],  # rows change their order, and some continue twice
    [[1, 0], [4, 5], [11, 10]],  # a sentence is dropped, and each has fewer rows
    [[0], [3], [4]],
    [[1, 1], [2, 2]],
    [[3]],
]


def token_ids(rows: int, length: int) -> Tensor:
    return torch.randint(4, V, (rows, length))


def other_ids(ids: Tensor) -> Tensor:
    return (ids - 4 + 1) % (V - 4) + 4


def sources() -> Tensor:
    """Four sentences for `FORKING`, two of them padded."""
    src = token_ids(4, 7)
    src[1, 5:], src[3, 2:] = PAD, PAD
    return src


def pair() -> tuple[Tensor, Tensor]:
    """Two sources and targets; the second of each is padded."""
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    src[1, 5:], tgt_in[1, 3:] = PAD, PAD
    return src, tgt_in


def decode_in_parts(model: EncoderDecoder, src: Tensor, tgt_in: Tensor, lengths: list[int]) -> Tensor:
    """Return the logits of targets that are decoded in parts of these lengths."""
    state, parts = model.encode(src), []
    for part in tgt_in.split(lengths, dim=1):
        logits, state = model.decode(part, state)
        parts.append(logits)
    return torch.cat(parts, 1)


def sizes(**changes: Any) -> ModelConfig:
    small: dict[str, Any] = {"d_model": 12, "num_heads": 3, "d_ff": 20, "num_encoder_layers": 2}
    return ModelConfig(**{**small, "num_decoder_layers": 2, **changes})


def make_transformer(vocab_size: int = V, *, scale: float = 1.0, noise: float = 0.0, **changes: Any) -> Transformer:
    """Draw weights with seed 0; a large scale takes attention far from uniform, noise makes every weight matter."""
    torch.manual_seed(0)
    model = build_model(sizes(**changes), vocab_size).eval()
    assert isinstance(model, Transformer)
    for parameter in model.parameters():
        parameter.data.mul_(scale)
        if noise:
            parameter.data += noise * torch.randn_like(parameter)
    if model.output_bias is not None:
        model.output_bias.normal_()
    return model


def recurrent_sizes(**changes: Any) -> ModelConfig:
    small: dict[str, Any] = {"d_model": 11, "num_encoder_layers": 1, "num_decoder_layers": 1}
    return ModelConfig(architecture="recurrent", **{**small, **changes})


def make_recurrent(**changes: Any) -> Recurrent:
    torch.manual_seed(0)
    model = build_model(recurrent_sizes(**changes), V).eval()
    assert isinstance(model, Recurrent)
    return model
