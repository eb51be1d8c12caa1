"""Compare attention by PyTorch's fused kernel and by separate operations, for `model.kernels.uses_fused_kernel`."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.race import Race, race
from benchmarks.tables import Table
from seq2seq.model.attention import attention_weights

HEADS, CHANNELS = 4, 64  # as in the small model
TOKENS = 2048  # positions of a training batch
SENTENCES, BEAM = 32, 5
LENGTHS = (8, 16, 32, 64, 128, 256, 512)  # keys

Form = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]  # queries, keys, values, mask


def fused(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Return attention by PyTorch's fused kernel, which never stores the N × N weights."""
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)


def in_the_open(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Return softmax(Q Kᵀ / √c) V by separate operations."""
    return attention_weights(queries, keys, mask) @ values


FORMS: dict[str, Form] = {"fused": fused, "open": in_the_open}


def random_text(length: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, None]:
    """Return queries, keys and values (1, HEADS, length, CHANNELS) of one text, and no mask."""
    queries, keys, values = (torch.randn(1, HEADS, length, CHANNELS, device=device) for _ in range(3))
    return queries, keys, values, None


@dataclass(frozen=True)
class Case:
    """Inputs of one attention; in training they require gradients."""

    name: str
    length: int  # keys
    inputs: tuple[Tensor, Tensor, Tensor]
    mask: Tensor  # True = may attend
    grad: Tensor | None  # gradient of the result; None: forward only


def run(rounds: int, device: torch.device, precision: str) -> dict[str, Any]:
    """Measure all lengths: the forward and backward pass of a training batch, and a float32 step of beam search."""
    torch.manual_seed(1)
    found: list[tuple[int, str, Race]] = []
    for length in LENGTHS:
        for case in (training_case(length, device, precision), search_case(length, device)):
            runs = {name: lambda c, f=form: compute(f, c) for name, form in FORMS.items()}
            repeated = [case] * 10
            found.append((length, case.name, race(runs, repeated, work=len(repeated), rounds=rounds, device=device)))
    cases = [{"keys": length, "case": name, **result.to_dict({"fused": "open"})} for length, name, result in found]
    return {"unit": "calls/s", "cases": cases, "precision": precision, "tables": [asdict(table(found))]}


def compute(form: Form, case: Case) -> None:
    """Run the forward pass, and for a training batch also the backward pass."""
    if case.grad is None:
        with torch.no_grad():
            form(*case.inputs, case.mask)
    else:
        form(*case.inputs, case.mask).backward(case.grad)


def training_case(length: int, device: torch.device, precision: str) -> Case:
    """Return the inputs of self-attention over a batch of 2,048 positions."""
    dtype = torch.bfloat16 if precision == "bf16-mixed" else torch.float32
    shape = (TOKENS // length, length, HEADS, CHANNELS)
    draws = [torch.randn(shape, device=device, dtype=dtype).transpose(1, 2) for _ in range(4)]
    queries, keys, values = (draw.requires_grad_() for draw in draws[:3])
    mask = torch.ones(shape[0], 1, 1, length, dtype=torch.bool, device=device)
    return Case("training", length, (queries, keys, values), mask, draws[3])


def search_case(length: int, device: torch.device) -> Case:
    """Return the inputs of cross-attention in a step of beam search: 32 sentences, five beams each, float32."""
    queries = torch.randn(SENTENCES, HEADS, BEAM, CHANNELS, device=device)
    keys, values = (torch.randn(SENTENCES, HEADS, length, CHANNELS, device=device) for _ in range(2))
    mask = torch.ones(SENTENCES, 1, 1, length, dtype=torch.bool, device=device)
    return Case("search", length, (queries, keys, values), mask, None)


def table(found: list[tuple[int, str, Race]]) -> Table:
    """Return a table with one row per length."""
    rows = []
    for length in LENGTHS:
        row = [str(length)]
        for of_length, _, result in found:
            if of_length == length:
                row += [f"{1000 / result.rate(name).median:.2f}" for name in ("fused", "open")]
                row.append(result.ratio("open", "fused").show(2))
        rows.append(row)
    columns = [f"{case} {cell}" for case in ("training:", "search:") for cell in ("fused ms", "open ms", "× faster")]
    return Table("Attention", ["keys", *columns], rows)
