"""Speed-runs: a change of a recipe beside the record, from the same seeds, after equal computing time.

The computing time of an update is measured in turns for both recipes; the changed one then makes as many updates as the
record's time allows. Each run is `train.py`, and what it translates at the end is its validation set.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import lightning as L
import torch

from benchmarks import processes
from benchmarks.command import Options, Results, Table
from benchmarks.data import to_device
from benchmarks.ours import Updates, precision_on
from benchmarks.race import Spread, race
from seq2seq.data.batching import Batch
from seq2seq.data.loading import training_feed
from seq2seq.data.prepare import prepare
from seq2seq.errors import UserError
from seq2seq.settings.compose import compose
from seq2seq.settings.missing_packages import require_package
from seq2seq.training.auto_values import resolve_numbers
from seq2seq.training.processes import choose_devices
from seq2seq.training.run import make_module

RECORD, CHANGED = "record", "changed"
MEASURED = [
    "trainer.max_time=null",
    "training.keep_best=1",
    "training.monitor=loss",
    "training.bleu_sentences=0",
    "training.probes=0",
]


@dataclass(frozen=True)
class Track:
    """A text and the time to train on it."""

    settings: list[str]  # of train.py; among them the validation set as the only test set
    updates: int  # of the record, in the track's time on the machine of its record


NEWS = "data.test=[tests/newstest2012.en+tests/newstest2012.es]"
TRACKS = {
    "tatoeba": Track(["experiment=tatoeba_cpu", "data.test=[validation.tsv]"], 5600),
    "mixed": Track(["experiment=mixed_cpu", NEWS], 18_000),
    "bundled": Track(["data.test=[grammar.validation.tsv]"], 2000),
    "gpu": Track(["experiment=mixed_gpu", NEWS], 12_000),
}


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `speedrun`."""

    track: Literal["tatoeba", "mixed", "bundled", "gpu"] = "tatoeba"  # text and time, see docs/speedrun.md
    data: Path | None = None  # folder of the track's text, as data.root of train.py; the track `bundled` needs none
    # setting that the changed recipe has, as for train.py; may be given several times; without it, only the record runs
    change: list[str] = field(default_factory=list)
    seeds: int = 3  # runs of each recipe, with the seeds 1, 2, …
    updates: int = 0  # updates of the record's runs; 0: those of the track


def run(plan: Plan, device: torch.device) -> Results:
    """Measure the cost of an update, train both recipes from every seed in turns, and compare them."""
    if (plan.data is None) != (plan.track == "bundled"):
        raise UserError(
            f"the track {plan.track} " + ("has its own text: leave out" if plan.data else "needs") + " --data"
        )
    track = TRACKS[plan.track]
    settings = [*track.settings, *MEASURED, f"trainer={'cpu' if device.type == 'cpu' else 'gpu'}"]
    settings += [f"data.root={plan.data.resolve()}"] if plan.data else []
    recipes = {RECORD: settings, **({CHANGED: [*settings, *plan.change]} if plan.change else {})}
    updates = plan.updates or track.updates
    with tempfile.TemporaryDirectory() as name:
        cost = costs(recipes, device, Path(name)) if plan.change else {}
        counts = {RECORD: updates, **{recipe: round(updates / spread.median) for recipe, spread in cost.items()}}
        runs: dict[str, list[dict[str, Any]]] = {recipe: [] for recipe in recipes}
        for seed in range(1, plan.seeds + 1):
            for recipe in list(recipes)[:: 1 if seed % 2 else -1]:
                folder = Path(name) / f"{recipe}-{seed}"
                runs[recipe].append(train(recipes[recipe], seed, counts[recipe], folder, plan.threads))
    values = {"runs": runs, "updates": counts, "cost": {recipe: vars(spread) for recipe, spread in cost.items()}}
    return values, [table(plan, runs, counts, cost)]


def costs(recipes: dict[str, list[str]], device: torch.device, folder: Path) -> dict[str, Spread]:
    """Return the time of the changed recipe's update as a multiple of the record's: a median and its range."""
    contestants: dict[str, Callable[[Sequence[Batch]], object]] = {}
    batches: list[Batch] = []
    for recipe, settings in recipes.items():
        config = compose(settings)
        data = prepare(config.data, config.tokenizer)
        choose_devices(config.trainer)
        resolve_numbers(config, folder, data)
        L.seed_everything(config.seed, verbose=False)
        module = make_module(config, data, resumed=False).to(device)
        updates = Updates(module, precision_on(device, config.trainer.precision))
        feed = islice(training_feed(config, data, rank=0, world_size=1, pin=False), 12)
        of_recipe = [to_device(batch, str(device)) for batch in feed]
        batches = batches or of_recipe
        contestants[recipe] = lambda block, u=updates, own=of_recipe: [u.update(batch) for batch in own[: len(block)]]
    blocks = [batches[start : start + 3] for start in range(0, len(batches), 3)]
    result = race(contestants, blocks, work=1, rounds=5, device=device)
    return {CHANGED: Spread.of_ratios(result.seconds[CHANGED], result.seconds[RECORD])}


def train(settings: Sequence[str], seed: int, updates: int, folder: Path, threads: int) -> dict[str, Any]:
    """Run `train.py` in a folder; return its validation loss (nats a token), and its BLEU on the validation set."""
    folder.mkdir()
    program = [sys.executable, str(processes.REPOSITORY / "train.py"), *settings, f"seed={seed}", "name=run"]
    program += [f"trainer.max_steps={updates}", f"trainer.validate_every={max(1, updates // 4)}"]
    processes.run(program, folder=folder, OMP_NUM_THREADS=str(threads or torch.get_num_threads()))
    results = json.loads((folder / "runs/run/results.json").read_text(encoding="utf-8"))
    (scores,) = results["scores"].values()
    return {"seed": seed, "loss": results["validation_loss"], "bleu": scores["bleu"]["value"]}


def table(plan: Plan, runs: dict[str, list[dict[str, Any]]], counts: dict[str, int], cost: dict[str, Spread]) -> Table:
    """Return a row for each recipe; p is that of a t-test of the differences of seeds."""
    rows = []
    for recipe, of_recipe in runs.items():
        name = f"`{' '.join(plan.change)}`" if recipe == CHANGED else "the record"
        losses, scores = ([one[key] for one in of_recipe] for key in ("loss", "bleu"))
        p = significance(losses, [one["loss"] for one in runs[RECORD]]) if recipe == CHANGED and plan.seeds > 1 else ""
        spread = cost[recipe].show(3) if recipe in cost else "1"
        rows.append([name, spread, f"{counts[recipe]:,}", shown(losses, 4), p, shown(scores, 2)])
    header = ["recipe", "cost of an update (range)", "updates", "validation loss ± deviation", "p", "validation BLEU"]
    return Table(f"Speed-run `{plan.track}`, {plan.seeds} seeds", header, rows)


def shown(values: Sequence[float], digits: int) -> str:
    """Return the mean and the standard deviation as text."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def significance(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return p of a two-sided paired t-test."""
    with require_package("lab"):
        from scipy.stats import ttest_rel
    return f"{ttest_rel(ours, theirs).pvalue:.2g}"
