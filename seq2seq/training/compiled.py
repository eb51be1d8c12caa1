"""The forward pass of training as compiled kernels (torch.compile), for few shapes of batches. Knows no loss."""

import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.text.tokenizer import PAD

BACKEND = "inductor"
WIDTH = 8  # positions; sources and targets are padded to multiples of it, so that kernels know what divides a row


def compile_forward(model: EncoderDecoder) -> Callable[[Tensor, Tensor], Tensor]:
    """What the model computes of (src, tgt_in), compiled once for batches of all sizes.

    The model itself is left as it is: validation, search and checkpoints do not notice. What is returned raises a
    UserError where kernels cannot be made, as without a C++ compiler.
    """
    from torch._dynamo.exc import BackendCompilerFailed  # here: it imports the compiler, which few runs use

    warnings.filterwarnings("ignore", "Dynamo detected a call to a `functools.lru_cache`")  # positions: made inside
    compute = torch.compile(model.forward, backend=BACKEND, dynamic=True)

    def forward(src: Tensor, tgt_in: Tensor) -> Tensor:
        try:
            return compute(widen(src), widen(tgt_in))[:, : tgt_in.shape[1]]
        except BackendCompilerFailed as error:
            lines = [line.strip() for line in str(error.inner_exception).splitlines() if line.strip()]
            reason = next((line for line in lines if "error:" in line), lines[0] if lines else str(error))
            raise UserError(
                f"trainer.compile=true cannot make its kernels here ({reason:.200}): it needs a working C++ compiler, "
                "such as g++; install one, or leave trainer.compile out"
            ) from error

    return forward


def widen(ids: Tensor) -> Tensor:
    """Token ids, padded on the right to a multiple of WIDTH positions."""
    return F.pad(ids, (0, -ids.shape[1] % WIDTH), value=PAD)
