"""Equality: translations of this project, CTranslate2 and Hugging Face, with the same weights."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.command import Options, Results, Table
from benchmarks.data import joint, read_test
from benchmarks.decoding import LIMIT, contestants, cut, row_name
from benchmarks.decoding import Plan as DecodingPlan
from seq2seq.translate.bundle import load_bundle
from seq2seq.translate.translator import Translator


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `equality`."""

    data: Path  # folder with test.tsv, whose sentences are translated
    model: Path  # bundle of the published style (model/style=vaswani), the only style that all programs can compute
    sentences: int = 500  # sentences to translate, from the beginning of test.tsv


@dataclass(frozen=True)
class Difference:
    """A sentence with two different translations, and our model's scores of both (score / length, nats)."""

    source: str
    ours: str
    theirs: str
    our_score: float
    their_score: float


def run(plan: Plan, device: torch.device) -> Results:
    """Translate greedily and with beam 5, and list every difference.

    Sentences are translated one by one, so that every program has the same limit of length.
    """
    bundle = load_bundle(plan.model)
    tokenizer, model = joint(bundle.tokenizer), bundle.model.to(device).eval()
    translator = Translator(model, bundle.tokenizer, search=LIMIT, device=device, dtype=torch.float32)
    values, rows = {}, []
    for beam in (1, 5):
        options = DecodingPlan(data=plan.data, model=plan.model, sentences=plan.sentences, batch=1, beam=beam)
        blocks = cut(read_test(plan.data), tokenizer, options)
        with tempfile.TemporaryDirectory() as folder:
            entered = contestants(bundle, tokenizer, options, device, Path(folder))
        first = "ours" if beam > 1 else "ours-early"
        ours, sources = [entered[first](block)[0] for block in blocks], [block.texts[0] for block in blocks]
        for name in [one for one in (f"{first}-textbook", "ct2", "hf") if one in entered]:
            theirs = [entered[name](block)[0] for block in blocks]
            listed = differences(translator, sources, ours, theirs)
            worse = sum(one.our_score < one.their_score - 1e-5 for one in listed)
            share, search = f"{1 - len(listed) / len(blocks):.1%}", f"beam {beam}" if beam > 1 else "greedy"
            rows.append([search, row_name(name, beam), share, str(len(listed)), str(worse)])
            values[f"{name}, beam {beam}"] = [vars(one) for one in listed]
    header = ["search", "compared with", "equal", "different", "of these, ours scores lower"]
    return values, [Table("Equality", header, rows)]


def differences(translator: Translator, sources: list[str], ours: list[str], theirs: list[str]) -> list[Difference]:
    """Return the sentences with different translations, each with both scores by forced decoding."""
    pairs = [pair for pair in zip(sources, ours, theirs, strict=True) if pair[1] != pair[2]]
    sources, *both = ([pair[side] for pair in pairs] for side in range(3))
    scores = [[one.normalised_score for one in translator.score(sources, texts, length_penalty=1.0)] for texts in both]
    return [Difference(*pair, *of_both) for pair, *of_both in zip(pairs, *scores, strict=True)]
