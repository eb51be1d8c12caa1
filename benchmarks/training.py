"""Compare target tokens per second of our training and Hugging Face's, on identical batches."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import huggingface, options
from benchmarks.data import draw_batches, drawn_pairs, read_folder, to_device
from benchmarks.ours import Updates
from benchmarks.race import Race, race
from benchmarks.tables import Table
from seq2seq.errors import UserError
from seq2seq.exchange.huggingface import to_marian
from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.batching import Batch
from seq2seq.text.tokenizer import PAD
from seq2seq.training.loss import cross_entropy

TOLERANCE = 1e-3  # nats; more than the rounding errors of thousands of float32 losses
LEARNING_RATE = 1e-4  # small, so that losses stay normal over the rounds; no effect on time
OPPONENTS = {"hf": "ours", "hf-eager": "ours"}
TOLD = {
    "ours": "this project",
    "compiled": "this project, `trainer.compile=true`",
    "hf": "Hugging Face",
    "hf-eager": "Hugging Face, eager attention",
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of the measurement."""

    rounds: int = 5
    batches: int = 12
    block: int = 3  # batches per turn of a contestant
    max_tokens: int = 2048  # most source or target positions of a batch, padding included
    precision: str = "bf16-mixed"  # or 32-true
    is_compiled: bool = False  # also measure `trainer.compile=true`
    seed: int = 1


def run_on(data: Path | None, plan: Plan, size: str, vocab_size: int, device: torch.device) -> dict[str, Any]:
    """Measure training on batches from a folder's text, or of random ids if `data` is None; return JSON values."""
    pairs = read_folder(data, vocab_size).train if data else drawn_pairs(20_000, vocab_size, plan.seed)
    batches = draw_batches(pairs, plan.batches, plan.max_tokens, plan.seed)
    found = run(batches, vocab_size, options.model_config(size), plan, device)
    return {"data": str(data) if data else "random", **found}


def run(
    batches: Sequence[Batch], vocab_size: int, config: ModelConfig, plan: Plan, device: torch.device
) -> dict[str, Any]:
    """Compare the first losses, then measure training; return JSON values.

    Raises:
        UserError: the losses differ, so that the contestants would not do the same work.
    """
    torch.manual_seed(plan.seed)
    batches = [to_device(batch, str(device)) for batch in batches]
    model = build_model(config, vocab_size).to(device)
    losses = first_losses(model, batches[0])
    blocks = [batches[start : start + plan.block] for start in range(0, len(batches), plan.block)]
    tokens = sum(int((batch.tgt_out != PAD).sum()) for batch in batches)
    result = race(contestants(model, plan), blocks, work=tokens, rounds=plan.rounds, device=device)
    return {
        "unit": "target tokens/s",
        "plan": asdict(plan),
        "model": asdict(config),
        "vocab_size": vocab_size,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "first_losses": losses,
        **result.to_dict(OPPONENTS),
        "tables": [asdict(table(result, losses, plan.precision))],
    }


def contestants(model: EncoderDecoder, plan: Plan) -> dict[str, Callable[[Sequence[Batch]], object]]:
    """Return, for each contestant, a function that trains on a block of batches; all start from the same weights."""
    marians = {"hf": to_marian(model, "sdpa").train(), "hf-eager": to_marian(model, "eager").train()}
    settings = TrainingConfig(
        max_tokens=plan.max_tokens, learning_rate=LEARNING_RATE, label_smoothing=0.1, clip_norm=1.0
    )
    ours = {"ours": Updates(copy.deepcopy(model), settings, plan.precision)}
    if plan.is_compiled:
        ours["compiled"] = Updates(copy.deepcopy(model), settings, plan.precision, is_compiled=True)
    runs: dict[str, Callable[[Sequence[Batch]], object]] = {
        name: lambda block, updates=updates: [updates.update(batch) for batch in block]
        for name, updates in ours.items()
    }
    for name, marian in marians.items():
        optimizer = huggingface.make_optimizer(marian, LEARNING_RATE)
        runs[name] = lambda block, m=marian, o=optimizer: [huggingface.update(m, o, b, plan.precision) for b in block]
    return runs


@torch.no_grad()
def first_losses(model: EncoderDecoder, batch: Batch) -> dict[str, float]:
    """Return each contestant's smoothed loss per target token (nats): same weights and batch, no dropout, float32.

    Raises:
        UserError: the losses differ.
    """
    model.eval()
    hidden = model(batch.src, batch.tgt_in)
    total, _, tokens = cross_entropy(hidden, model.embedding.weight, batch.tgt_out, pad=PAD, smoothing=0.1)
    losses: dict[str, Tensor] = {"ours": total / tokens}
    for name, attention in (("hf", "sdpa"), ("hf-eager", "eager")):
        losses[name] = huggingface.mean_loss(to_marian(model, attention), batch, smoothing=0.1)
    values = {name: float(loss) for name, loss in losses.items()}
    if max(values.values()) - min(values.values()) > TOLERANCE:
        raise UserError(f"the losses of the same weights differ: {values}; the comparison would mean nothing")
    return values


def table(result: Race, losses: dict[str, float], precision: str) -> Table:
    """Return a table with one row per contestant."""
    rows = []
    for name in result.seconds:
        ratio = result.ratio(OPPONENTS[name], name).show(2) if name in OPPONENTS else ""
        compiled = result.ratio("compiled", name).show(2) if "compiled" in result.seconds and name != "compiled" else ""
        rows.append([TOLD[name], result.rate(name).show(0), ratio, compiled, f"{losses.get(name, losses['ours']):.5f}"])
    header = [f"training, {precision}", "target tokens/s (range)", "× faster (range)", "compiled", "first loss (nats)"]
    if "compiled" not in result.seconds:
        header.remove("compiled")
        for row in rows:
            del row[3]
    return Table("Training", header, rows)
