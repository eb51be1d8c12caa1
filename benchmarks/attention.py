"""Attention speed: PyTorch's fused kernel and separate operations in turns, by the length of sentences.

The figures decide where `seq2seq/model/kernels.py` uses separate operations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.command import Options, Results, Table
from benchmarks.ours import precision_on
from benchmarks.race import race
from seq2seq.model.attention import attention_weights

HEADS, CHANNELS = 4, 64  # as in the small model
TOKENS = 2048  # positions of a training batch
SENTENCES, BEAM = 32, 5
LENGTHS = (8, 16, 32, 64, 128, 256, 512)  # tokens of a sentence: the keys
REPEATS = 10  # calls of a round, since one call is short

Form = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # of queries, keys, values and mask
FORMS: dict[str, Form] = {
    "fused": F.scaled_dot_product_attention,
    "separate": lambda queries, keys, values, mask: attention_weights(queries, keys, mask) @ values,
}


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `attention`."""

    rounds: int = 5  # times that everything is measured; the table shows medians and ranges
    precision: Literal["auto", "32-true", "bf16-mixed"] = "auto"  # precision of training; searches are in float32


def run(plan: Plan, device: torch.device) -> Results:
    """Measure the forward and backward pass of a training batch, and a step of beam search, for each length."""
    torch.manual_seed(1)
    dtype = torch.bfloat16 if precision_on(device, plan.precision) == "bf16-mixed" else torch.float32
    values, rows = {}, []
    for length in LENGTHS:
        row = [str(length)]
        for case, runs in (("training", training(length, device, dtype)), ("search", search(length, device))):
            result = race(runs, [None] * REPEATS, work=REPEATS, rounds=plan.rounds, device=device)
            row += [f"{1000 / result.rate(form).median:.2f}" for form in FORMS]
            row.append(result.ratio("separate", "fused").show(2))
            values[f"{case}, {length} keys"] = result.seconds
        rows.append(row)
    cells = ("fused ms", "separate ms", "separate × faster")
    header = ["keys", *(f"{case}: {cell}" for case in ("training", "search") for cell in cells)]
    return {"seconds": values, "calls": REPEATS}, [Table("Attention", header, rows)]


def training(length: int, device: torch.device, dtype: torch.dtype) -> dict[str, Callable[[None], None]]:
    """Return self-attention over a batch of 2,048 positions, forward and backward, for each form."""
    shape = (TOKENS // length, length, HEADS, CHANNELS)
    *inputs, grad = (torch.randn(shape, device=device, dtype=dtype).transpose(1, 2) for _ in range(4))
    queries, keys, values = (one.requires_grad_() for one in inputs)
    mask = torch.ones(shape[0], 1, 1, length, dtype=torch.bool, device=device)
    return {name: lambda _, f=form: f(queries, keys, values, mask).backward(grad) for name, form in FORMS.items()}


def search(length: int, device: torch.device) -> dict[str, Callable[[None], object]]:
    """Return cross-attention in a step of beam search, 32 sentences with five beams each, in float32, for each form."""
    queries = torch.randn(SENTENCES, HEADS, BEAM, CHANNELS, device=device)
    keys, values = (torch.randn(SENTENCES, HEADS, length, CHANNELS, device=device) for _ in range(2))
    mask = torch.ones(SENTENCES, 1, 1, length, dtype=torch.bool, device=device)
    return {name: lambda _, f=form: f(queries, keys, values, mask) for name, form in FORMS.items()}
