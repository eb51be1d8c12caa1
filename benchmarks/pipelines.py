"""`seq2seq.pipeline` beside transformers' `generate` with the same weights: equal tokens, and speed."""

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.checkpoints import marian_tokenizer
from benchmarks.command import Options, Results, Table
from benchmarks.data import read_test
from benchmarks.race import race
from seq2seq.apps.exchange.huggingface import export_huggingface
from seq2seq.apps.pipeline import TranslationPipeline, pipeline
from seq2seq.errors import UserError
from seq2seq.settings.missing_packages import require_package
from seq2seq.storage.output import find_model
from seq2seq.translate.segmenter import MAX_SOURCE_TOKENS

with require_package("huggingface"):
    from transformers import AutoModelForSeq2SeqLM

OURS, THEIRS = "this project", "transformers"


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `pipelines`."""

    # run or bundle in the published style (model/style=vaswani), which is exported to Hugging Face's layout
    model: Path
    data: Path | None = None  # folder with test.tsv; without it, the bundled sentences that were written by hand
    sentences: int = 500  # sentences to translate, from the beginning of the file
    batch: int = 32  # sentences of a call, beside calls with one sentence
    beam: int = 4  # hypotheses that both searches keep
    rounds: int = 3  # times that both translate all sentences; the table shows the median and the range


def run(plan: Plan, device: torch.device) -> Results:
    """Translate the same sentences with both, in turns, and compare the translations."""
    values: dict[str, Any] = {}
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as name:
        ours, theirs = load_both(plan.model, Path(name), plan.beam, device)

        def own(texts: list[str]) -> list[str]:
            found = ours(texts, num_beams=plan.beam, max_new_tokens=MAX_SOURCE_TOKENS)
            return [one["translation_text"] for one in found]

        texts = [source for source, _ in read_test(plan.data)[: plan.sentences]]
        longest = ours.translator.trained_length or MAX_SOURCE_TOKENS
        chosen = [
            text for text, size in zip(texts, ours.translator.count_subwords(texts), strict=True) if 0 < size <= longest
        ]
        if not chosen:
            raise UserError("no sentence is short enough to be translated as a whole: give --data with a test.tsv")
        for size in (1, plan.batch):
            blocks = [chosen[start : start + size] for start in range(0, len(chosen), size)]
            result = race({OURS: own, THEIRS: theirs}, blocks, work=len(chosen), rounds=plan.rounds, device=device)
            found = [list(itertools.chain(*result.outputs[name])) for name in (OURS, THEIRS)]
            same = sum(a == b for a, b in zip(*found, strict=True))
            values[f"batch {size}"] = {"seconds": result.seconds, "same": same, "sentences": len(chosen)}
            speeds = [result.rate(name).show(1) for name in (OURS, THEIRS)]
            rows.append([f"{size}", *speeds, result.ratio(OURS, THEIRS).show(2), f"{same} of {len(chosen)}"])
    header = ["sentences a call", f"{OURS}, sentences/s (range)", f"{THEIRS} (range)", "ratio (range)", "equal"]
    return values, [Table(f"Pipelines, beam {plan.beam}", header, rows)]


def load_both(
    model: Path, folder: Path, beam: int, device: torch.device
) -> tuple[TranslationPipeline, Callable[[list[str]], list[str]]]:
    """Export a model into folder, and return this project's pipeline of the export and transformers' `generate`."""
    export_huggingface(find_model(model), folder / "export")
    ours = pipeline("translation", folder / "export", device=device)
    network = AutoModelForSeq2SeqLM.from_pretrained(folder / "export").eval().to(device)
    tokenizer = marian_tokenizer(folder / "export")

    def theirs(texts: list[str]) -> list[str]:
        batch = tokenizer(texts, return_tensors="pt", padding=True).to(device)
        found = network.generate(**batch, num_beams=beam, max_new_tokens=MAX_SOURCE_TOKENS)
        return [" ".join(text.split()) for text in tokenizer.batch_decode(found, skip_special_tokens=True)]

    return ours, theirs
