"""The device on which PyTorch computes, and transfers of values to and from it; knows nothing else."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2seq.errors import UserError


def choose_device(wanted: str | torch.device) -> torch.device:
    """Return the device that a user named: cpu, cuda, cuda:N, or auto for a GPU if there is one."""
    name = str(wanted)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise UserError(f"device {name!r} is not known: use cpu, cuda, cuda:N or auto")
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"device {name} is asked for but no CUDA device is there: use cpu or install a CUDA build of PyTorch"
        )
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise UserError(
            f"device {name} is not there: this machine has {torch.cuda.device_count()} (cuda:0 is the first)"
        )
    return torch.device(name)


def prepare(device: torch.device) -> None:
    """Switch off two defaults of cuDNN if device is a GPU: attention with a new graph for every shape, and TF32."""
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.backends.cudnn.allow_tf32 = False  # which an LSTM uses


@contextlib.contextmanager
def tf32_products(device: torch.device) -> Iterator[None]:
    """Within this context, let a GPU multiply float32 matrices in TF32: several times faster, 10 bits of mantissa."""
    before, cudnn_before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = cudnn_before


def tensor_on(
    device: torch.device | str, values: Sequence[Any] | np.ndarray, dtype: torch.dtype = torch.long
) -> Tensor:
    """Return the host's numbers as a tensor on device; a GPU copies them from pinned memory while the host goes on.

    On the CPU the tensor shares an array's memory: the array must not change afterwards.
    """
    made = torch.as_tensor(values, dtype=dtype)
    if torch.device(device).type == "cuda":
        made = made.pin_memory()
    return made.to(device, non_blocking=True)


def on_host(*tensors: Tensor) -> list[np.ndarray]:
    """Return tensors as arrays on the host, from a GPU in one transfer; CPU tensors share their memory with the arrays.

    The host waits once for all tensors.
    """
    if all(one.device.type == "cpu" for one in tensors):
        return [one.numpy() for one in tensors]
    together = torch.cat([one.double().flatten() for one in tensors]).cpu()
    parts = together.split([one.numel() for one in tensors])
    return [part.view(one.shape).to(one.dtype).numpy() for part, one in zip(parts, tensors, strict=True)]


def default_dtype(device: torch.device) -> torch.dtype:
    """Return the default precision of matrix products in translation: bfloat16 on a GPU, float32 elsewhere."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32
