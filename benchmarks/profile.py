"""Measure the time of each part of an update, and of its matrix products alone on the same machine."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.data import to_device
from benchmarks.ours import Updates
from benchmarks.race import Spread
from benchmarks.tables import Table
from seq2seq.model.build import build_model
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.batching import Batch
from seq2seq.text.tokenizer import PAD
from seq2seq.training.loss import chunk_of, cross_entropy

PARTS = ("loader", "forward", "loss", "backward", "clipping", "optimizer")
SQUARE = {"cpu": 2048, "cuda": 8192}  # side of the square product that measures the machine's speed
TOLD = {"loader": "loader: batch made and moved", "loss": "loss, with its gradients"}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of the measurement."""

    rounds: int = 5
    batches: int = 6  # updates per round
    max_tokens: int = 2048  # most source or target positions of a batch, padding included
    precision: str = "bf16-mixed"  # or 32-true
    seed: int = 1

    @property
    def dtype(self) -> torch.dtype:
        """The precision of matrix products."""
        return torch.bfloat16 if self.precision == "bf16-mixed" else torch.float32


@dataclass(frozen=True)
class Product:
    """A matrix product (m, k) · (k, n) that an update computes `times` times."""

    m: int
    k: int
    n: int
    times: int = 1
    backward: bool = True  # also compute two products of the same size: the gradients of input and weight

    @property
    def flops(self) -> int:
        """Number of multiplications and additions, those of the backward pass included."""
        return 2 * self.m * self.k * self.n * self.times * (3 if self.backward else 1)


def products(config: ModelConfig, vocab_size: int, batch: Batch) -> list[Product]:
    """Return every product with a weight matrix in one update, without attention's products of activations.

    The output projection counts only target tokens that are not padding, in chunks of the size that the loss uses.
    """
    d, (rows, src), tgt = config.d_model, batch.src.shape, batch.tgt_in.shape[1]
    gated = config.activation == "swiglu"
    hidden = max(1, round(config.d_ff * 2 / 3 / 8)) * 8 if gated else config.d_ff
    encoder, decoder = config.num_encoder_layers, config.num_decoder_layers
    found = [
        Product(rows * src, d, d, 4 * encoder + 2 * decoder),  # 2: cross-attention's keys and values
        Product(rows * tgt, d, d, 6 * decoder),
    ]
    for positions, layers in ((rows * src, encoder), (rows * tgt, decoder)):
        found += [Product(positions, d, hidden, (2 if gated else 1) * layers), Product(positions, hidden, d, layers)]
    tokens = int((batch.tgt_out != PAD).sum())
    chunk = chunk_of(batch.src.device)
    chunks = [min(chunk, tokens - start) for start in range(0, tokens, chunk)]
    found += [Product(size, d, vocab_size, chunks.count(size)) for size in sorted(set(chunks))]
    return found


def run(
    loader: Iterable[Batch], vocab_size: int, config: ModelConfig, plan: Plan, device: torch.device
) -> dict[str, Any]:
    """Measure the parts of updates, and in turns the same products alone; return JSON values.

    loader must provide at least rounds · batches + 1 batches.
    """
    torch.manual_seed(plan.seed)
    settings = TrainingConfig(max_tokens=plan.max_tokens, learning_rate=1e-4)
    updates = Updates(build_model(config, vocab_size).to(device), settings, plan.precision)
    drawn = iter(loader)
    warm_up = to_device(next(drawn), str(device))
    for _ in range(2):
        updates.update(warm_up)
    time_products(products(config, vocab_size, warm_up), plan.dtype, device)
    square_rate(plan.dtype, device)
    parts: dict[str, list[float]] = {part: [] for part in PARTS}
    wholes: list[float] = []
    alone: list[float] = []
    peaks: list[float] = []
    flops: list[int] = []
    tokens: list[int] = []
    for _ in range(plan.rounds):
        apart: dict[str, float] = {part: 0.0 for part in PARTS}
        batches = []
        for _ in range(plan.batches):
            batch, seconds = timed(lambda: to_device(next(drawn), str(device)), device)
            batches.append(batch)
            apart["loader"] += seconds
            for part, seconds in update_in_parts(updates, batch, device):
                apart[part] += seconds
        for part, seconds in apart.items():
            parts[part].append(seconds)
        wholes.append(timed(lambda b=batches: [updates.update(batch) for batch in b], device)[1])
        needed = [products(config, vocab_size, batch) for batch in batches]
        alone.append(sum(time_products(of_batch, plan.dtype, device) for of_batch in needed))
        peaks.append(square_rate(plan.dtype, device))
        flops.append(sum(product.flops for of_batch in needed for product in of_batch))
        tokens.append(sum(int((batch.tgt_out != PAD).sum()) for batch in batches))
    return {
        "plan": asdict(plan),
        "model": asdict(config),
        "vocab_size": vocab_size,
        "seconds": parts,
        "whole_seconds": wholes,
        "products_seconds": alone,
        "flops": flops,
        "tokens": tokens,
        "square_rates": peaks,
        "tables": [asdict(table(parts, wholes, alone, flops, tokens, peaks, SQUARE[device.type], plan))],
    }


def update_in_parts(updates: Updates, batch: Batch, device: torch.device) -> Iterator[tuple[str, float]]:
    """Compute one update as `Updates.update` does; yield the name and the seconds of each part."""
    module, optimizer = updates.module, updates.optimizer
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device.type, torch.bfloat16, enabled=updates.is_mixed):
        hidden, seconds = timed(lambda: module.model(batch.src, batch.tgt_in), device)
        yield "forward", seconds
        weight, smoothing = module.model.embedding.weight, module.config.label_smoothing
        (loss, _, count), seconds = timed(
            lambda: cross_entropy(hidden, weight, batch.tgt_out, pad=PAD, smoothing=smoothing), device
        )
        yield "loss", seconds
    yield "backward", timed((loss / module.config.max_tokens).backward, device)[1]
    module._tokens = count
    yield "clipping", timed(lambda: module.configure_gradient_clipping(optimizer), device)[1]
    yield "optimizer", timed(optimizer.step, device)[1]


def time_products(wanted: Sequence[Product], dtype: torch.dtype, device: torch.device) -> float:
    """Return the seconds of the products and of the products of their backward passes, without other work."""
    total = 0.0
    for product in wanted:
        x = torch.randn(product.m, product.k, device=device, dtype=dtype)
        weight = torch.randn(product.n, product.k, device=device, dtype=dtype)
        y = torch.randn(product.m, product.n, device=device, dtype=dtype)

        def once(x: torch.Tensor = x, weight: torch.Tensor = weight, y: torch.Tensor = y, p: Product = product) -> None:
            for _ in range(p.times):
                torch.mm(x, weight.T)
                if p.backward:
                    torch.mm(y, weight)
                    torch.mm(y.T, x)

        total += timed(once, device)[1]
    return total


def square_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Return GFLOP/s of one large square product, as an estimate of the machine's highest speed."""
    side = SQUARE[device.type]
    x = torch.randn(side, side, device=device, dtype=dtype)
    repeats = 20 if device.type == "cuda" else 1
    return 2 * side**3 * repeats / timed(lambda: [x @ x for _ in range(repeats)], device)[1] / 1e9


def timed(work: Callable[[], Any], device: torch.device) -> tuple[Any, float]:
    """Return the result of `work` and its seconds, until the device has finished."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return result, time.perf_counter() - start


def table(
    parts: dict[str, list[float]],
    wholes: list[float],
    alone: list[float],
    flops: list[int],
    tokens: list[int],
    peaks: list[float],
    side: int,
    plan: Plan,
) -> Table:
    """Return a table with one row per part, then the time and rate of the products."""
    sums = [sum(values) for values in zip(*parts.values(), strict=True)]
    rows = []
    for part, values in parts.items():
        share = Spread.of([value / whole for value, whole in zip(values, sums, strict=True)])
        rows.append([TOLD.get(part, part), f"{_milliseconds(values, plan):.2f}", _percent(share)])
    rows.append(["all parts", f"{_milliseconds(sums, plan):.2f}", "100"])
    rows.append(["the update in one piece, without the loader", f"{_milliseconds(wholes, plan):.2f}", ""])
    of_whole = Spread.of([needed / whole for needed, whole in zip(alone, wholes, strict=True)])
    rows.append(["its matrix products alone", f"{_milliseconds(alone, plan):.2f}", f"{_percent(of_whole)} of it"])
    for told, seconds in (("their rate alone", alone), ("their rate within updates (model FLOP utilisation)", wholes)):
        rates = [count / of_round / 1e9 for count, of_round in zip(flops, seconds, strict=True)]
        share = Spread.of([rate / peak for rate, peak in zip(rates, peaks, strict=True)])
        rows.append([f"{told}, GFLOP/s", Spread.of(rates).show(0), f"{_percent(share)} of a square one's"])
    rows.append([f"one product of {side} × {side}, GFLOP/s", Spread.of(peaks).show(0), ""])
    speed = Spread.of([count / seconds for count, seconds in zip(tokens, wholes, strict=True)])
    rows.append(["target tokens/s", speed.show(0), ""])
    return Table("Where an update's time goes", [f"part of an update, {plan.precision}", "ms", "% (range)"], rows)


def _milliseconds(seconds: Sequence[float], plan: Plan) -> float:
    return Spread.of(seconds).median / plan.batches * 1e3


def _percent(spread: Spread) -> str:
    return Spread(*(100 * value for value in (spread.median, spread.lowest, spread.highest))).show(1)
