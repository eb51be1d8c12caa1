"""Time of each part of an update, and of the update's matrix products alone, in turns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.command import Results, Table
from benchmarks.data import epochs_of, read_or_draw, to_device
from benchmarks.ours import SEED, TrainingOptions, Updates, model_config, precision_on
from benchmarks.race import Spread, timed
from seq2seq.data.batching import Batch
from seq2seq.model.build import build_model
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.tokenizer import PAD
from seq2seq.training.loss import chunk_of, cross_entropy
from seq2seq.training.module import TranslationModule

LOADER, LOSS = "loader: batch made and moved", "loss, with its gradients"
PARTS = (LOADER, "forward", LOSS, "backward", "clipping", "optimizer")
SQUARE = {"cpu": 2048, "cuda": 8192}  # side of the square product that measures the machine's speed
Round = dict[str, float]  # measurements by name: seconds, numbers of FLOPs and tokens, FLOP/s of a square product


@dataclass(frozen=True, kw_only=True)
class Plan(TrainingOptions):
    """The options of `profile`."""

    # folder with train.tsv, validation.tsv and test.tsv; without it, random ids in sentences of everyday lengths
    data: Path | None = None
    rounds: int = 5  # times that everything is measured; the table shows the median and the range
    batches: int = 6  # updates of a round


def run(plan: Plan, device: torch.device) -> Results:
    """Measure the parts of updates, and in turns the same products alone."""
    rounds = measure(plan, device)
    return {"rounds": rounds}, [table(rounds, plan, precision_on(device, plan.precision), SQUARE[device.type])]


@dataclass(frozen=True)
class Product:
    """A matrix product (m, k) · (k, n) that an update computes `times` times."""

    m: int
    k: int
    n: int
    times: int = 1

    @property
    def flops(self) -> int:
        """Number of multiplications and additions; the gradients of input and weight are two more such products."""
        return 3 * 2 * self.m * self.k * self.n * self.times


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


def measure(plan: Plan, device: torch.device) -> list[Round]:
    """Return the measurements of each round."""
    torch.manual_seed(SEED)
    count = 40 * (plan.rounds * plan.batches + 1) * plan.max_tokens // 100  # random pairs are about ten tokens long
    drawn = iter(epochs_of(read_or_draw(plan.data, plan.vocab_size, count, SEED), plan.max_tokens, SEED))
    config, precision = model_config(plan.size), precision_on(device, plan.precision)
    dtype = torch.bfloat16 if precision == "bf16-mixed" else torch.float32
    settings = TrainingConfig(max_tokens=plan.max_tokens, learning_rate=1e-4)
    updates = Updates(TranslationModule(build_model(config, plan.vocab_size).to(device), settings), precision)
    warm_up = to_device(next(drawn), str(device))
    for _ in range(2):
        updates.update(warm_up)
    time_products(products(config, plan.vocab_size, warm_up), dtype, device)
    square_rate(dtype, device)
    rounds: list[Round] = []
    for _ in range(plan.rounds):
        found: Round = dict.fromkeys(PARTS, 0.0)
        batches: list[Batch] = []
        for _ in range(plan.batches):
            batch, seconds = timed(lambda: to_device(next(drawn), str(device)), device)
            batches.append(batch)
            found[LOADER] += seconds
            for part, seconds in update_in_parts(updates, batch, device):
                found[part] += seconds
        found["all parts"] = sum(found.values())
        found["whole"] = timed(lambda b=batches: [updates.update(batch) for batch in b], device)[1]
        needed = [product for batch in batches for product in products(config, plan.vocab_size, batch)]
        found["products"] = time_products(needed, dtype, device)
        found["square rate"] = square_rate(dtype, device)
        found["flops"] = sum(product.flops for product in needed)
        found["tokens"] = sum(int((batch.tgt_out != PAD).sum()) for batch in batches)
        rounds.append(found)
    return rounds


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
        yield LOSS, seconds
    yield "backward", timed((loss / module.config.max_tokens).backward, device)[1]
    module._tokens = count
    yield "clipping", timed(lambda: module.configure_gradient_clipping(optimizer), device)[1]
    yield "optimizer", timed(optimizer.step, device)[1]


def time_products(wanted: Sequence[Product], dtype: torch.dtype, device: torch.device) -> float:
    """Return the seconds of the products and of the products of their backward passes, without other work."""

    def multiply(x: Tensor, weight: Tensor, y: Tensor, times: int) -> None:
        for _ in range(times):
            torch.mm(x, weight.T)
            torch.mm(y, weight)
            torch.mm(y.T, x)

    total = 0.0
    for one in wanted:
        shapes = ((one.m, one.k), (one.n, one.k), (one.m, one.n))
        x, weight, y = (torch.randn(shape, device=device, dtype=dtype) for shape in shapes)
        total += timed(partial(multiply, x, weight, y, one.times), device)[1]
    return total


def square_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Return the FLOP/s of one large square product, as an estimate of the machine's highest speed."""
    side = SQUARE[device.type]
    x = torch.randn(side, side, device=device, dtype=dtype)
    repeats = 20 if device.type == "cuda" else 1
    return 2 * side**3 * repeats / timed(lambda: [x @ x for _ in range(repeats)], device)[1]


def table(rounds: Sequence[Round], plan: Plan, precision: str, side: int) -> Table:
    """Return a table with one row per part, then the time and rate of the products."""

    def values(name: str) -> list[float]:
        return [found[name] for found in rounds]

    def milliseconds(name: str) -> str:
        return f"{Spread.of(values(name)).median / plan.batches * 1e3:.2f}"

    def percent(part: Sequence[float], whole: Sequence[float]) -> str:
        return Spread.of_ratios([100 * value for value in part], whole).show(1)

    rows = [[part, milliseconds(part), percent(values(part), values("all parts"))] for part in PARTS]
    rows.append(["all parts", milliseconds("all parts"), "100"])
    rows.append(["the update in one piece, without the loader", milliseconds("whole"), ""])
    share = percent(values("products"), values("whole"))
    rows.append(["its matrix products alone", milliseconds("products"), f"{share} of it"])
    for told, name in (("alone", "products"), ("within updates (model FLOP utilisation)", "whole")):
        rates = [found["flops"] / found[name] for found in rounds]
        share = percent(rates, values("square rate"))
        shown = Spread.of([rate / 1e9 for rate in rates]).show(0)
        rows.append([f"their rate {told}, GFLOP/s", shown, f"{share} of a square one's"])
    square = Spread.of([rate / 1e9 for rate in values("square rate")])
    rows.append([f"one product of {side} × {side}, GFLOP/s", square.show(0), ""])
    rows.append(["target tokens/s", Spread.of_ratios(values("tokens"), values("whole")).show(0), ""])
    return Table("Where an update's time goes", [f"part of an update, {precision}", "ms", "% (range)"], rows)
