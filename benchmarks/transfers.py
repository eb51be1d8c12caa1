"""Counts transfers for which the host would wait for a GPU, without a GPU.

On PyTorch's `meta` device tensors have shapes and no values, and code takes the ways that it takes on a GPU. A mode
over all functions of PyTorch sees every request for a value (`item`, `tolist`, `bool`, a boolean index, …), which on a
GPU waits until all work given to it is done, and every copy to the device; it answers requests with a number that
stands in for the value.
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
NUMBER = 5  # replaces every whole number: as many live hypotheses as the beam, a token other than EOS
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

    what: str  # the function that made it
    line: str  # the line of code that called it
    waits: bool  # whether the host waits for the device


@dataclass
class Counts:
    """Transfers of each update, or of each step of a search, and of what came before the first and after the last."""

    steps: list[Counter[Transfer]] = field(default_factory=list)
    around: Counter[Transfer] = field(default_factory=Counter)

    def most(self, *, waits: bool) -> int:
        """The most transfers of one step, of those that wait or of those that do not."""
        return max(sum(count for one, count in step.items() if one.waits == waits) for step in self.steps)


class Transfers(TorchFunctionMode):
    """Counts transfers between the host and a device while it is active; on `meta`, values get stand-ins."""

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
                return args[0].flatten(0, index.ndim - 1)  # as if all were wanted
        return func(*args, **kwargs)

    def _is_made_there(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        default = args[0].device if func is Tensor.new_tensor else "cpu"
        return torch.device(kwargs.get("device") or default) == self.device

    def _count(self, what: str, *, waits: bool = True) -> None:
        self.seen[Transfer(what, _line(), waits)] += 1


def _target(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The device that `Tensor.to` was given, if any."""
    given = [one for one in (*args, kwargs.get("device")) if isinstance(one, (str, torch.device))]
    return torch.device(given[0]) if given else None


def _indexes(index: Any) -> Sequence[Any]:
    return cast(Sequence[Any], index) if isinstance(index, tuple) else (index,)


def _is_data(index: Any) -> bool:
    """Whether an index has to be read on the host or made there: a mask or a list."""
    return isinstance(index, list) or (isinstance(index, Tensor) and index.dtype == torch.bool)


def _stand_in(func: Any, x: Tensor) -> Any:
    """Return stand-ins for requested values.

    Raises:
        RuntimeError: the answer would have a shape that depends on values.
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
    """The innermost line of the project, or else of Lightning or PyTorch's optimizers, that is being run."""
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
    """Count transfers, on a `meta` device that has the fused optimizer and no autocast."""
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
