"""Unusual texts, translated by this project and by transformers' `generate` with the same weights."""

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.command import Options, Results, Table
from benchmarks.data import read_test
from benchmarks.pipelines import load_both
from seq2seq.evaluation.robustness import HEADINGS, PROBES, make_probes, measure, to_plain
from seq2seq.files import find_model
from seq2seq.translator import Translator


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `robustness`."""

    model: Path  # run or bundle in the published style (model/style=vaswani)
    data: Path | None = None  # folder with test.tsv; without it, the bundled sentences that were written by hand
    probes: int = PROBES  # unusual texts, of all families together
    batch: int = 32  # sentences of a call of `generate`, sorted by their length
    beam: int = 5  # hypotheses that both searches keep


def run(plan: Plan, device: torch.device) -> Results:
    """Translate the same unusual texts with both, and count the faults of each.

    Raises:
        UserError: no probe can be made of the test set, or the model has another style.
    """
    probes = make_probes(read_test(plan.data), plan.probes)
    with tempfile.TemporaryDirectory() as name:
        _, generate = load_both(plan.model, Path(name), plan.beam, device)
        translator = Translator.load(find_model(plan.model), device, torch.float32)

        def theirs(texts: list[str]) -> list[str]:
            order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
            found: dict[int, str] = {}
            for start in range(0, len(order), plan.batch):
                chosen = order[start : start + plan.batch]
                found |= zip(chosen, generate([texts[index] for index in chosen]), strict=True)
            return [found[index] for index in range(len(texts))]

        def ours(texts: list[str]) -> list[str]:
            return translator.translate(texts, beam=plan.beam)

        families = [measure(probes, translate, translator.tgt_lang) for translate in (ours, theirs)]
    rows = []
    for name, of_both in ((name, [of_one[name] for of_one in families]) for name in probes):
        (count, *own), (_, *others) = (["" if v is None else f"{v}" for v in asdict(one).values()] for one in of_both)
        rows.append([name, count, *(a if a == b else f"{a} / {b}" for a, b in zip(own, others, strict=True))])
    values: dict[str, Any] = dict(zip(("this project", "transformers"), map(to_plain, families), strict=True))
    return values, [Table(f"Unusual texts: this project / transformers, beam {plan.beam}", list(HEADINGS), rows)]
