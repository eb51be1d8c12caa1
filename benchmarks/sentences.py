"""Lines of several sentences, translated whole and, as the product does, sentence by sentence."""

import random
from dataclasses import dataclass
from pathlib import Path

import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from benchmarks.command import Options, Results, Table
from benchmarks.data import read_test, search_alone
from seq2seq.settings.search import change_search
from seq2seq.storage.output import find_model
from seq2seq.text.sentences import sentence_ends
from seq2seq.translate.translator import Translator

WHOLE, CUT = "whole", "sentence by sentence"


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `sentences`."""

    model: Path  # run or bundle
    data: Path | None = None  # folder with test.tsv; without it, the bundled sentences that were written by hand
    lines: int = 500  # lines, each of two to five pairs of the test set
    beam: int = 5  # hypotheses that the search keeps
    seed: int = 1  # seed of the lines


def run(plan: Plan, device: torch.device) -> Results:
    """Translate the lines in both ways, and compare."""
    lines = joined(read_test(plan.data), plan.lines, plan.seed)
    translator = Translator.load(find_model(plan.model), device)
    num_sentences = sum(len(sentence_ends(line)) + 1 for line, _ in lines)
    texts = [line for line, _ in lines]
    found = {WHOLE: search_alone(translator, texts, change_search(translator.search, {"beam": plan.beam}))}
    found[CUT] = translator.translate(texts, beam=plan.beam)
    references = [[reference for _, reference in lines]]
    rows = []
    for way, translations in found.items():
        scores = [BLEU(), CHRF(word_order=2)]
        bleu, chrf = (metric.corpus_score(translations, references).score for metric in scores)
        short = sum(
            len(sentence_ends(one)) < len(sentence_ends(text)) for one, text in zip(translations, texts, strict=True)
        )
        rows.append([way, f"{bleu:.1f}", f"{chrf:.1f}", str(short)])
    title = f"{len(lines)} lines of {num_sentences / len(lines):.1f} sentences, beam {plan.beam}"
    return {"lines": lines, **found}, [
        Table(title, ["translated", "BLEU", "chrF++", "lines with fewer sentences"], rows)
    ]


def joined(pairs: list[tuple[str, str]], count: int, seed: int) -> list[tuple[str, str]]:
    """Return lines of two to five random pairs, whose sources end with a full stop or the like."""
    rng = random.Random(seed)
    whole = [pair for pair in pairs if pair[0][-1:] in ".!?"]
    chosen = [rng.sample(whole, rng.randint(2, 5)) for _ in range(count)]
    return [(" ".join(src for src, _ in line), " ".join(tgt for _, tgt in line)) for line in chosen]
