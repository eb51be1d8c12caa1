"""Repeat a computation on the CPU as a CUDA graph does: the same operations on the same memory, without its Python."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

_ATEN = torch.ops.aten
_NOT_IN_A_GRAPH = (
    _ATEN._local_scalar_dense, _ATEN.lift_fresh, _ATEN.nonzero, _ATEN.equal, _ATEN.masked_select, _ATEN._unique2
)  # fmt: skip


class Recording(TorchDispatchMode):
    """Keeps every operation that is dispatched while the mode is active, with its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Sequence[Any], dict[str, Any], list[Tensor]]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Compute and keep one operation.

        Raises:
            RuntimeError: the operation asks for a value or takes one from the host, which no graph can. `numpy` and
                `tolist` are no operations: `benchmarks/transfers.py` sees them.
        """
        packet = func.overloadpacket
        has_mask = packet is _ATEN.index and any(one is not None and one.dtype == torch.bool for one in args[1])
        if has_mask or packet in _NOT_IN_A_GRAPH:
            raise RuntimeError(f"{func} cannot be recorded")
        result = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, [one for one in tree_leaves(result) if isinstance(one, Tensor)]))
        return result

    def repeat(self) -> None:
        """Make all operations again; their results take the place of the earlier ones, in the same memory.

        Modes that watch operations do not see these, as they do not see a graph's.
        """
        with _disable_current_modes():
            for func, args, kwargs, results in self.calls:
                if not _makes_a_view(func):
                    again = [one for one in tree_leaves(func(*args, **kwargs)) if isinstance(one, Tensor)]
                    for old, new in zip(results, again, strict=True):
                        if old is not new:
                            old.copy_(new)
            self.forget()

    def forget(self) -> None:
        """Make all intermediate results NaN: after a graph, they lie in memory that other graphs overwrite."""
        for func, _, _, results in self.calls:
            if all(one.alias_info is None for one in func._schema.returns):
                for one in results:
                    if one.is_floating_point():
                        one.fill_(torch.nan)


def _makes_a_view(func: Any) -> bool:
    aliases = [one.alias_info for one in func._schema.returns]
    return any(one is not None and not one.is_write for one in aliases)


def record(compute: Callable[[], None]) -> Callable[[], None]:
    """Run and record a computation; return the function that repeats it."""
    with Recording() as recording:
        compute()
    recording.forget()
    return recording.repeat
