"""Training speed: this project and Hugging Face in turns, on identical batches from the same first weights."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import torch

from benchmarks import huggingface
from benchmarks.command import Results, Table
from benchmarks.data import epochs_of, read_or_draw, to_device
from benchmarks.ours import SEED, TrainingOptions, Updates, model_config, precision_on
from benchmarks.race import Race, race
from seq2seq.apps.exchange.huggingface import to_marian
from seq2seq.data.batching import Batch
from seq2seq.errors import UserError
from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.tokenizer import PAD
from seq2seq.training.loss import cross_entropy
from seq2seq.training.module import TranslationModule

TOLERANCE = 1e-3  # nats; more than the rounding errors of thousands of float32 losses
LEARNING_RATE = 1e-4  # small, so that losses stay normal over the rounds; no effect on time
TURN = 3  # batches that a contestant trains on before the next contestant does
OURS = "this project"
RIVALS = {"Hugging Face": "sdpa", "Hugging Face, eager attention": "eager"}  # name, and transformers' kernel


@dataclass(frozen=True, kw_only=True)
class Plan(TrainingOptions):
    """The options of `training`."""

    # folder with train.tsv, validation.tsv and test.tsv; without it, random ids in sentences of everyday lengths
    data: Path | None = None
    rounds: int = 5  # times that every program trains on all batches; the table shows the median and the range
    batches: int = 12  # batches of a round, the same for every program


def run(plan: Plan, device: torch.device) -> Results:
    """Compare the first losses, then measure training."""
    pairs = read_or_draw(plan.data, plan.vocab_size, 20_000, SEED)
    drawn = islice(epochs_of(pairs, plan.max_tokens, SEED), plan.batches)
    batches = [to_device(batch, str(device)) for batch in drawn]
    torch.manual_seed(SEED)
    model = build_model(model_config(plan.size), plan.vocab_size).to(device)
    losses = first_losses(model, batches[0])
    blocks = [batches[start : start + TURN] for start in range(0, len(batches), TURN)]
    tokens = sum(int((batch.tgt_out != PAD).sum()) for batch in batches)
    precision = precision_on(device, plan.precision)
    result = race(contestants(model, plan, precision), blocks, work=tokens, rounds=plan.rounds, device=device)
    values = {
        "unit": "target tokens/s",
        "model": asdict(model.config),
        "first_losses": losses,
        "work": result.work,
        "seconds": result.seconds,
    }
    return values, [table(result, losses, precision)]


def contestants(model: EncoderDecoder, plan: Plan, precision: str) -> dict[str, Callable[[Sequence[Batch]], object]]:
    """Return, for each contestant, a function that trains on a block of batches; all start from the same weights."""
    settings = TrainingConfig(
        max_tokens=plan.max_tokens, learning_rate=LEARNING_RATE, label_smoothing=0.1, clip_norm=1.0
    )
    ours = Updates(TranslationModule(copy.deepcopy(model), settings), precision)
    runs: dict[str, Callable[[Sequence[Batch]], object]] = {OURS: lambda block: [ours.update(batch) for batch in block]}
    for name, attention in RIVALS.items():
        marian = to_marian(model, attention).train()
        optimizer = huggingface.make_optimizer(marian, LEARNING_RATE)
        runs[name] = lambda block, m=marian, o=optimizer: [huggingface.update(m, o, b, precision) for b in block]
    return runs


@torch.no_grad()
def first_losses(model: EncoderDecoder, batch: Batch) -> dict[str, float]:
    """Return each contestant's smoothed loss per target token (nats): same weights and batch, no dropout, float32."""
    model.eval()
    hidden = model(batch.src, batch.tgt_in)
    total, _, tokens = cross_entropy(hidden, model.embedding.weight, batch.tgt_out, pad=PAD, smoothing=0.1)
    losses = {OURS: float(total / tokens)}
    for name, attention in RIVALS.items():
        losses[name] = float(huggingface.mean_loss(to_marian(model, attention), batch, smoothing=0.1))
    if max(losses.values()) - min(losses.values()) > TOLERANCE:
        raise UserError(f"the losses of the same weights differ: {losses}; the comparison would mean nothing")
    return losses


def table(result: Race, losses: dict[str, float], precision: str) -> Table:
    """Return a table with one row per contestant; its ratios say how much faster this project is."""
    rows = []
    for name in result.seconds:
        faster = result.ratio(OURS, name).show(2) if name != OURS else ""
        rows.append([name, result.rate(name).show(0), faster, f"{losses[name]:.5f}"])
    header = [f"training, {precision}", "target tokens/s (range)", "× faster (range)", "first loss (nats)"]
    return Table("Training", header, rows)
