"""Count transfers between host and device, and waits of the host, without a GPU.

On PyTorch's `meta` device, tensors have shapes but no values, and code follows the same paths as on a GPU. A
`TorchFunctionMode` sees every request for a value (`item`, `tolist`, `bool`, a boolean index, …) and every copy to the
device. On a GPU, a request for a value waits until the GPU has finished all its work. The mode answers requests with a
number instead of the value.
"""

import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

META = torch.device("meta")
NUMBER = 5  # replaces every whole number: all hypotheses of a beam are live, and a token is never EOS
_READS: tuple[Any, ...] = (
    Tensor.item, Tensor.tolist, Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__, Tensor.cpu,
    Tensor.numpy, Tensor.nonzero, Tensor.masked_select, Tensor.unique, Tensor.equal, torch.nonzero,
    torch.masked_select, torch.unique, torch.equal,
)  # fmt: skip
_MAKES: tuple[Any, ...] = (torch.tensor, torch.as_tensor, Tensor.new_tensor)
_INDEXES: tuple[Any, ...] = (Tensor.__getitem__, Tensor.__setitem__)


@dataclass(frozen=True, order=True)
class Transfer:
    """One kind of transfer between host and device."""

    what: str  # the function that makes the transfer
    line: str  # the line of code that calls the function
    waits: bool  # whether the host waits for the device


@dataclass
class Counts:
    """Transfers of each update or of each step of a search, and those before the first and after the last one."""

    steps: list[Counter[Transfer]] = field(default_factory=list)
    around: Counter[Transfer] = field(default_factory=Counter)

    def most(self, *, waits: bool) -> int:
        """Return the largest number of transfers in a step, counting only those that wait, or only the others."""
        return max(sum(count for one, count in step.items() if one.waits == waits) for step in self.steps)


class Transfers(TorchFunctionMode):
    """Counts transfers between the host and `meta` while the mode is active, and answers requests for values."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[Transfer] = Counter()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _READS and args[0].device == META:
            self._count(func.__name__)
            return _stand_in(func, args[0])
        if func in _MAKES and _is_made_there(func, args, kwargs):
            self._count(func.__name__)
        elif func is Tensor.to and (target := _target(args[1:], kwargs)) not in (None, args[0].device):
            self._count("to", waits=target.type == "cpu" or not kwargs.get("non_blocking"))
            if target.type == "cpu":
                return torch.zeros(args[0].shape, dtype=args[0].dtype)
        elif func in _INDEXES and args[0].device == META and _has_data(args[1]):
            self._count("index")
            if func is Tensor.__getitem__:
                index = args[1]
                if isinstance(index, tuple):  # (..., mask, :)
                    return args[0].flatten(-1 - index[1].ndim, -2)
                return args[0].flatten(0, index.ndim - 1)  # as if the mask were all True
        return func(*args, **kwargs)

    def _count(self, what: str, *, waits: bool = True) -> None:
        self.seen[Transfer(what, _line(), waits)] += 1


def _is_made_there(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    default = args[0].device if func is Tensor.new_tensor else "cpu"
    return torch.device(kwargs.get("device") or default) == META


def _target(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the device in the arguments of `Tensor.to`, if any."""
    given = [one for one in (*args, kwargs.get("device")) if isinstance(one, (str, torch.device))]
    return torch.device(given[0]) if given else None


def _has_data(index: Any) -> bool:
    """Return whether an index has a mask or a list, which the host must read or make."""
    parts: tuple[Any, ...] = index if isinstance(index, tuple) else (index,)
    return any(isinstance(one, list) or (isinstance(one, Tensor) and one.dtype == torch.bool) for one in parts)


def _stand_in(func: Any, x: Tensor) -> Any:
    """Return a replacement for requested values."""
    number = 1.0 if x.dtype.is_floating_point else NUMBER
    if func is Tensor.tolist:
        return torch.full(x.shape, number, dtype=x.dtype, device="cpu").numpy().tolist()
    if func is Tensor.cpu:
        return torch.zeros(x.shape, dtype=x.dtype)
    if func is Tensor.item:
        return number
    kinds: dict[Any, type] = {
        Tensor.__bool__: bool,
        Tensor.__float__: float,
        Tensor.__int__: int,
        Tensor.__index__: int,
    }
    if func not in kinds:
        raise RuntimeError(f"{func.__name__} at {_line()} needs values")
    return kinds[func](NUMBER if kinds[func] is int else 1)


def _line() -> str:
    """Return the innermost running line of the project."""
    for frame, number in traceback.walk_stack(None):
        _, package, path = frame.f_code.co_filename.rpartition("/seq2seq/")
        if package:
            return f"seq2seq/{path}:{number}"
    return "in Lightning or PyTorch"


@contextmanager
def as_on_a_gpu() -> Iterator[Transfers]:
    """Yield a counter of transfers; inside the block, `meta` has the fused optimizer and no autocast."""
    enabled, autocast, autocast_dtype = torch.is_autocast_enabled, torch.autocast, torch.get_autocast_dtype

    def is_enabled(device: str = "cpu") -> bool:
        return device != "meta" and enabled(device)

    def cast_for(device: str, *args: Any, **kwargs: Any) -> Any:
        return autocast("cpu", enabled=False) if device == "meta" else autocast(device, *args, **kwargs)

    def dtype_of(device: str) -> torch.dtype:
        return torch.float32 if device == "meta" else autocast_dtype(device)

    with (
        mock.patch.object(torch, "is_autocast_enabled", is_enabled),
        mock.patch.object(torch, "get_autocast_dtype", dtype_of),
        mock.patch.object(torch, "autocast", cast_for),
        mock.patch.object(
            sys.modules[Optimizer.__module__], "_get_fused_kernels_supported_devices", return_value=["meta"]
        ),
        Transfers() as transfers,
    ):
        yield transfers
