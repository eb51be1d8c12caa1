"""Count transfers for which the host would wait for a GPU, without a GPU.

On PyTorch's `meta` device, tensors have shapes but no values, and code follows the same paths as on a GPU. A
`TorchFunctionMode` sees every request for a value (`item`, `tolist`, `bool`, a boolean index, …) and every copy to the
device. On a GPU, a request for a value waits until the GPU has finished all its work. The mode answers requests with a
number instead of the value.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest import mock

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

META = torch.device("meta")
NUMBER = 5  # replaces every whole number: all hypotheses of a beam are live, and a token is never EOS
_READS: frozenset[Any] = frozenset(
    {
        Tensor.item,
        Tensor.tolist,
        Tensor.__bool__,
        Tensor.__int__,
        Tensor.__float__,
        Tensor.__index__,
        Tensor.cpu,
        Tensor.numpy,
        Tensor.nonzero,
        Tensor.masked_select,
        Tensor.unique,
        Tensor.equal,
        torch.nonzero,
        torch.masked_select,
        torch.unique,
        torch.equal,
    }
)
_MAKES: frozenset[Any] = frozenset({torch.tensor, torch.as_tensor, Tensor.new_tensor})
_INDEXES: frozenset[Any] = frozenset({Tensor.__getitem__, Tensor.__setitem__})


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
    """Counts transfers between the host and a device while the mode is active; on `meta`, it replaces values."""

    def __init__(self, device: torch.device = META) -> None:
        super().__init__()
        self.device = device
        self.seen: Counter[Transfer] = Counter()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _READS and args[0].device == self.device:
            self._count(func.__name__)
            if self.device == META:
                return _stand_in(func, args[0])
        elif func in _MAKES and self._is_made_there(func, args, kwargs):
            self._count(func.__name__)
        elif func is Tensor.to and (target := _target(args[1:], kwargs)) not in (None, args[0].device):
            self._count("to", waits=target.type == "cpu" or not kwargs.get("non_blocking"))
            if target.type == "cpu":
                return torch.zeros(args[0].shape, dtype=args[0].dtype)
        elif func in _INDEXES and args[0].device == self.device and any(map(_is_data, _indexes(args[1]))):
            self._count("index")
            if self.device == META and func is Tensor.__getitem__:
                index = args[1]
                if isinstance(index, tuple):  # (..., mask, :)
                    return args[0].flatten(-1 - index[1].ndim, -2)
                return args[0].flatten(0, index.ndim - 1)  # as if the mask were all True
        return func(*args, **kwargs)

    def _is_made_there(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        default = args[0].device if func is Tensor.new_tensor else "cpu"
        return torch.device(kwargs.get("device") or default) == self.device

    def _count(self, what: str, *, waits: bool = True) -> None:
        self.seen[Transfer(what, _line(), waits)] += 1


def _target(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the device in the arguments of `Tensor.to`, if any."""
    given = [one for one in (*args, kwargs.get("device")) if isinstance(one, (str, torch.device))]
    return torch.device(given[0]) if given else None


def _indexes(index: Any) -> Sequence[Any]:
    return cast(Sequence[Any], index) if isinstance(index, tuple) else (index,)


def _is_data(index: Any) -> bool:
    """Return whether an index is a mask or a list, which the host must read or make."""
    return isinstance(index, list) or (isinstance(index, Tensor) and index.dtype == torch.bool)


def _stand_in(func: Any, x: Tensor) -> Any:
    """Return a replacement for requested values.

    Raises:
        RuntimeError: the shape of the answer depends on the values.
    """
    whole = not x.dtype.is_floating_point
    if func is Tensor.tolist:
        return torch.full(x.shape, NUMBER if whole else 1.0, dtype=x.dtype, device="cpu").numpy().tolist()
    if func is Tensor.cpu:
        return torch.zeros(x.shape, dtype=x.dtype)
    answers: dict[Any, Any] = {
        Tensor.__bool__: True,
        Tensor.__float__: 1.0,
        Tensor.__int__: NUMBER,
        Tensor.__index__: NUMBER,
        Tensor.item: NUMBER if whole else 1.0,
    }
    if func not in answers:
        raise RuntimeError(f"{func.__name__} at {_line()} needs values")
    return answers[func]


def _line() -> str:
    """Return the innermost running line of the project, or else of Lightning or PyTorch's optimizers."""
    frame, found = sys._getframe(1), ""
    while frame:
        path = Path(frame.f_code.co_filename)
        for package in ("seq2seq", "lightning", "torch/optim"):
            if f"/{package}/" in path.as_posix() and (not found or package == "seq2seq"):
                found = f"{package}/{path.as_posix().rpartition(f'/{package}/')[2]}:{frame.f_lineno}"
                if package == "seq2seq":
                    return found
        frame = cast(Any, frame.f_back)
    return found or "elsewhere"


@contextmanager
def as_on_a_gpu() -> Iterator[Transfers]:
    """Yield a counter of transfers; inside the block, `meta` has the fused optimizer and no autocast."""
    enabled, autocast = torch.is_autocast_enabled, torch.autocast

    def is_enabled(device: str = "cpu") -> bool:
        return device != "meta" and enabled(device)

    def cast_for(device: str, *args: Any, **kwargs: Any) -> Any:
        return autocast("cpu", enabled=False) if device == "meta" else autocast(device, *args, **kwargs)

    with (
        mock.patch.object(torch, "is_autocast_enabled", is_enabled),
        mock.patch.object(torch, "autocast", cast_for),
        mock.patch.object(
            sys.modules[Optimizer.__module__], "_get_fused_kernels_supported_devices", return_value=["meta"]
        ),
        Transfers() as transfers,
    ):
        yield transfers
