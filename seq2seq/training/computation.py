"""Other ways to compute the same results in training: recomputed layers, compiled kernels."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from seq2seq.errors import UserError
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.kernels import is_fused_kernels
from seq2seq.text.tokenizer import PAD

BACKEND = "inductor"
WIDTH = 8  # positions; kernels prefer sources and targets that are padded to a multiple of WIDTH


def recompute_layers(model: EncoderDecoder) -> None:
    """Keep only each layer's input for the backward pass, which computes the layer again (Chen et al. 2016).

    The same dropout is drawn again, so gradients are the same; validation and search do not change.
    """
    for layer in model.layers():
        layer.forward = functools.partial(_forward, layer.forward)


def _forward(forward: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*arguments, **named)
    return checkpoint(forward, *arguments, use_reentrant=False, **named)


def compile_forward(model: EncoderDecoder) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the model's forward pass, `compiled`; validation, search and checkpoints use the model as it is."""
    warnings.filterwarnings("ignore", "Dynamo detected a call to a `functools.lru_cache`")  # positions are cached
    compute = compiled(model.forward)
    return lambda src, tgt_in: compute(widen(src), widen(tgt_in))[:, : tgt_in.shape[1]]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as compiled kernels (torch.compile), compiled once for tensors of all sizes.

    The returned function raises a UserError if kernels cannot be compiled, for example without a C++ compiler.
    """
    from torch._dynamo.exc import BackendCompilerFailed  # imported here: it imports the compiler, which few runs use

    torch.compiler.assume_constant_result(is_fused_kernels.__wrapped__)  # it reads code, which is no tensor operation
    compute = torch.compile(function, backend=BACKEND, dynamic=True)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return compute(*arguments)
        except BackendCompilerFailed as error:
            lines = [line.strip() for line in str(error.inner_exception).splitlines() if line.strip()]
            reason = next((line for line in lines if "error:" in line), lines[0] if lines else str(error))
            raise UserError(
                f"trainer.compile=true cannot make its kernels here ({reason:.200}): it needs a working C++ compiler, "
                "such as g++; install one, or leave trainer.compile out"
            ) from error

    return call


def widen(ids: Tensor) -> Tensor:
    """Return token ids, padded on the right to a multiple of WIDTH positions."""
    return F.pad(ids, (0, -ids.shape[1] % WIDTH), value=PAD)
