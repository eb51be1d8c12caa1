"""Lines as people type them, fifty of each kind: their translations to read, and what each translation lost."""

from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path

import torch

from benchmarks.command import Options, Results, Table
from seq2seq.evaluation.faults import lost_numbers
from seq2seq.evaluation.robustness import has_loop
from seq2seq.storage.output import find_model
from seq2seq.text.masks import Masker
from seq2seq.text.sentences import sentence_ends
from seq2seq.translate.translator import Translator

MASKER = Masker(most=0)
LINES = Path(__file__).with_name("typed.tsv")  # kind and English line


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `typed`."""

    model: Path  # run or bundle
    kinds: str = ""  # kinds of lines to show, separated by commas; without it, the counts alone
    beam: int = 5  # hypotheses that the search keeps


@dataclass(frozen=True)
class Lost:
    """What a translation lacks."""

    strings: bool  # an address, a placeholder or another string that stays the same
    numbers: bool
    sentences: bool  # it has fewer sentences than the line
    loops: bool  # it repeats something endlessly


FAULTS = [one.name for one in fields(Lost)]


def run(plan: Plan, device: torch.device) -> Results:
    """Translate the lines with and without repair, and count what was lost."""
    lines = [line.split("\t") for line in LINES.read_text(encoding="utf-8").splitlines()]
    translator = Translator.load(find_model(plan.model), device)
    texts = [text for _, text in lines]
    found = {
        name: translator.translate(texts, beam=plan.beam, repair=repair)
        for name, repair in (("with repair", True), ("without", False))
    }
    losses = {
        name: list(map(lost, texts, of_one, [translator.tgt_lang] * len(texts))) for name, of_one in found.items()
    }
    rows = []
    for kind in dict.fromkeys(kind for kind, _ in lines):
        chosen = [i for i, (other, _) in enumerate(lines) if other == kind]
        counts = [[sum(vars(of_one[i])[fault] for i in chosen) for fault in FAULTS] for of_one in losses.values()]
        rows.append([kind, str(len(chosen)), *(f"{a} / {b}" for a, b in zip(*counts, strict=True))])
    tables = [Table("Lines that lost something, with / without repair", ["kind", "lines", *FAULTS], rows)]
    for kind in filter(None, plan.kinds.split(",")):
        chosen = [i for i, (other, _) in enumerate(lines) if other == kind]
        both = [[texts[i], *(of_one[i] for of_one in found.values())] for i in chosen]
        tables.append(Table(kind, ["line", *found], [[a, b, "the same" if b == c else c] for a, b, c in both]))
    return {"lines": lines, **found}, tables


def lost(text: str, translation: str, tgt_lang: str) -> Lost:
    """Return what the translation of a text lost."""
    kept = Counter(MASKER.mask(text).strings) - Counter(MASKER.mask(translation).strings)
    return Lost(
        bool(kept),
        bool(lost_numbers(text, translation, tgt_lang)),
        len(sentence_ends(translation)) < len(sentence_ends(text)),
        has_loop(text, translation),
    )
