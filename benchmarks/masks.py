"""Masks: strings of each family that stay exact if they are masked, or copied as subwords; pairs a second."""

import random
import re
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from sacrebleu.metrics.chrf import CHRF

from benchmarks.command import Options, Results, Table
from benchmarks.data import BUNDLED, search_alone
from benchmarks.race import timed
from seq2seq.data.corpus import open_corpora
from seq2seq.data.formats import Pair
from seq2seq.data.modifiers import FAMILIES as MODIFIERS
from seq2seq.data.modifiers import Modifiers
from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from seq2seq.settings.training import ModifiersConfig
from seq2seq.storage.output import find_model
from seq2seq.text.masks import FAMILIES, Masker, any_of
from seq2seq.text.normalise import normalise
from seq2seq.translate.translator import Translator

_DRAWS = 200  # modified pairs for each sentence that a family needs, before the command goes on with fewer
Probe = tuple[str, str, str]  # a sentence, the string that was put in, and the reference


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `masks`."""

    model: Path | None = None  # run or bundle with masks; without it, only the pairs a second are measured
    data: str = str(BUNDLED / "everyday.test.tsv")  # files of pairs, English first; may be a pattern such as FOLDER/*
    pairs: int = 100_000  # pairs that are read, as many from each file
    sentences: int = 100  # sentences of each family that are translated
    seed: int = 1  # seed of the strings


def run(plan: Plan, device: torch.device) -> Results:
    """Mask pairs, and translate sentences that have a string."""
    corpora, masker = open_corpora(plan.data, None, DataConfig()), Masker(8)
    pairs = [pair for corpus in corpora for pair in islice(corpus.pairs(), max(1, plan.pairs // len(corpora)))]
    plain, seconds = timed(lambda: [(normalise(src), normalise(tgt)) for src, tgt in pairs], device)
    masked, more = timed(lambda: [masker.mask_pair(*pair) for pair in plain], device)
    rates = {"normalised": len(pairs) / seconds, "normalised and masked": len(pairs) / (seconds + more)}
    share = sum(one != other for one, other in zip(masked, plain, strict=True)) / len(pairs)
    rows = [[name, f"{rate:,.0f}"] for name, rate in rates.items()]
    speed = Table(f"{len(pairs):,} pairs, {share:.1%} with a mask", ["", "pairs/s"], rows)
    if plan.model is None:
        return {"rates": rates, "share": share}, [speed]
    translator = Translator.load(find_model(plan.model), device)
    if translator.tokenizer.masker is None:
        raise UserError(f"{plan.model} has no masks: give a model that was trained with tokenizer.masks")
    rows = [[name, *measure(translator, probes)] for name, probes in make_probes(plan, translator, plain).items()]
    header = ["family", "sentences", "% at once", "% masked", "% copied", "chrF++ masked", "chrF++ copied"]
    return {"rates": rates, "share": share, "families": rows}, [Table("Exact strings", header, rows), speed]


def make_probes(plan: Plan, translator: Translator, pairs: list[Pair]) -> dict[str, list[Probe]]:
    """Put a string, as modifiers draw them, into sentences that have none; return the sentences of each family."""
    rng, masker = random.Random(plan.seed), Masker(99)
    weights: dict[str, Any] = dict.fromkeys(MODIFIERS, 0.0) | {"code": 3.0, "symbols": 1.0}
    modifiers = Modifiers(ModifiersConfig(**weights), (translator.src_lang, translator.tgt_lang), translator.tokenizer)
    pairs = [pair for pair in pairs if not any(masker.mask(text).strings for text in pair)]
    patterns = {name: re.compile(f"(?:{any_of([name])})+") for name in FAMILIES}
    probes: dict[str, list[Probe]] = {name: [] for name in FAMILIES}
    for _ in range(_DRAWS * plan.sentences):
        text, reference = modifiers.modify(rng.choice(pairs), rng.choice(pairs), rng)
        strings = masker.mask(text).strings
        name = next((name for name in FAMILIES if len(strings) == 1 and patterns[name].fullmatch(strings[0])), None)
        if name and len(probes[name]) < plan.sentences:
            probes[name].append((text, strings[0], reference))
    return {name: of_family for name, of_family in probes.items() if of_family}


def measure(translator: Translator, probes: list[Probe]) -> list[str]:
    """Return the number of probes, the shares of exact strings, and chrF++ without the strings."""
    texts = [text for text, _, _ in probes]
    masked = [translator.tokenizer.mask(text) for text in texts]
    plain, symbols = (
        replace(translator.search, repair=False),
        [[token] for token in translator.tokenizer.target.mask_ids],
    )
    first = search_alone(translator, [one.text for one in masked], plain)
    shares, scores = [sum(not one.lost(text) for one, text in zip(masked, first, strict=True))], list[float]()
    references = [reference.replace(string, "") for _, string, reference in probes]
    copied = search_alone(translator, texts, plain, banned=symbols)
    for translations in (translator.translate(texts, repair=False), copied):
        found = list(zip(translations, probes, strict=True))
        shares.append(sum(string in text for text, (_, string, _) in found))
        rest = [text.replace(string, "") for text, (_, string, _) in found]
        scores.append(CHRF(word_order=2).corpus_score(rest, [references]).score)
    percentages = [f"{100 * share / len(probes):.0f}" for share in shares]
    return [f"{len(probes)}", *percentages, *(f"{score:.1f}" for score in scores)]
