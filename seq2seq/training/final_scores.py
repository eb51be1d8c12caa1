"""What the shipped model is measured by: test sets, confidences, unusual texts, and the words that it learned from."""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from sacrebleu.metrics.chrf import CHRF

from seq2seq.data.corpus import Pair
from seq2seq.data.dataset import Pairs
from seq2seq.data.prepare import find_prepared
from seq2seq.errors import UserError
from seq2seq.evaluation.faults import separates_words, word_forms
from seq2seq.evaluation.robustness import Family, make_probes, measure
from seq2seq.progress import phase
from seq2seq.settings.bundle import Calibration
from seq2seq.settings.config import Config
from seq2seq.settings.loading import load_config
from seq2seq.text.vocabulary import load_tokenizers
from seq2seq.training.calibration import LEAST, Reliability, are_acceptable, calibrate, measure_reliability
from seq2seq.training.run_files import write_text
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import Translation

log = logging.getLogger(__name__)
_WORST = 20  # translations in the model card
_CALIBRATION = 2000  # most validation pairs from which confidences are learnt
Tests = Mapping[str, Sequence[Pair]]  # by test set: source and reference
WORDS = "words.txt"  # in the folder of prepared text; preparation does not write it, and its manifest does not name it
_CHUNK = 10_000  # pairs decoded at a time


def run_translator(model: Path, config: Config, device: torch.device) -> Translator:
    """Return a translator with a run's model; after training in float32 it uses float32, else `translate.py`'s type."""
    return Translator.load(model, device, torch.float32 if config.trainer.precision == "32-true" else None)


def translate_tests(translator: Translator, tests: Tests) -> dict[str, list[Translation]]:
    """Return the best translations of every test set."""
    return {
        name: _translate(translator, [src for src, _ in pairs], f"translating test set {name}")
        for name, pairs in tests.items()
    }


def _translate(translator: Translator, texts: Sequence[str], name: str) -> list[Translation]:
    """Return the best translations in a phase of the name."""
    with phase(name, len(texts), "sentences") as advance:
        return [best for best, *_ in translator.translate_nbest(texts, 1, on_progress=advance)]


def calibrate_on(translator: Translator, validation: Sequence[Pair]) -> Calibration | None:
    """Learn from at most _CALIBRATION validation pairs, evenly chosen, how likely a translation is acceptable."""
    pairs = validation[:: math.ceil(len(validation) / _CALIBRATION) or 1]
    if len(pairs) < LEAST:
        log.info("the model gives no confidences: these need %d validation pairs, and there are %d", LEAST, len(pairs))
        return None
    translated = _translate(translator, [src for src, _ in pairs], "translating validation pairs, for confidences")
    of_pairs = zip(translated, pairs, strict=True)
    whole = [(best, tgt) for best, (_, tgt) in of_pairs if len(best.parts) == 1]  # confidences are of segments
    hypotheses = [(best.score, len(best.parts[0].ids) + 1) for best, _ in whole]
    acceptable = are_acceptable([best.text for best, _ in whole], [tgt for _, tgt in whole])
    calibration = calibrate(hypotheses, acceptable)
    if calibration is None:
        log.info("the model gives no confidences: %d of %d translations are acceptable", sum(acceptable), len(whole))
    return calibration


def reliabilities(translations: Mapping[str, Sequence[Translation]], tests: Tests) -> dict[str, Reliability]:
    """Compare the confidences of every test set with the share of acceptable translations."""
    return {
        name: measure_reliability(of_set, [tgt for _, tgt in tests[name]])
        for name, of_set in translations.items()
        if any(translation.confidence is not None for translation in of_set)
    }


def probe(translator: Translator, tests: Tests, count: int, known: Collection[str] | None) -> dict[str, Family]:
    """Translate unusual forms of the test sentences; none if there are too few sentences, or none are wanted."""
    pairs = [pair for of_set in tests.values() for pair in of_set]
    if not count or not pairs:
        return {}
    try:
        probes = make_probes(pairs, min(count, len(pairs)))
    except UserError:  # single words
        return {}

    def translate(texts: list[str]) -> list[str]:
        return [best.text for best in _translate(translator, texts, "translating unusual texts")]

    return measure(probes, translate, translator.tgt_lang, known)


def worst(tests: Tests, translations: Mapping[str, Sequence[str]]) -> list[tuple[str, str, str]]:
    """Return the worst translations by sentence chrF, as (source, reference, translation), the worst first."""
    chrf = CHRF()
    samples = [
        (*pair, line) for name, pairs in tests.items() for pair, line in zip(pairs, translations[name], strict=True)
    ]
    return sorted(samples, key=lambda sample: chrf.sentence_score(sample[2], [sample[1]]).score)[:_WORST]


def target_words(prepared: Path, tgt_lang: str) -> Collection[str] | None:
    """Return the words of the targets of prepared text, in lower case; None: the language has no spaces between words.

    The first call writes the words to WORDS. Masked strings have none.
    """
    if not separates_words(tgt_lang):
        return None
    path = prepared / WORDS
    if path.exists():
        return frozenset(path.read_text(encoding="utf-8").split())
    pairs, tokenizer, words = Pairs.load(prepared / "train"), load_tokenizers(prepared).target, set[str]()
    for start in range(0, len(pairs), _CHUNK):
        rows = [pairs[index][1].tolist() for index in range(start, min(start + _CHUNK, len(pairs)))]
        words.update(*map(word_forms, tokenizer.decode(rows)))
    with suppress(OSError, UserError):  # a disk that is full or only read, or another process writes the same words
        write_text(path, "".join(f"{word}\n" for word in sorted(words)))
    return words


def words_of_run(run: Path) -> Collection[str] | None:
    """Return the words of the target text of the run in a folder; None: there is no run, or no prepared text of it."""
    with suppress(UserError):
        config = load_config(str(run), [], "--model ")
        prepared = find_prepared(config.data, config.tokenizer)
        return None if prepared is None else target_words(prepared, config.data.tgt_lang)
    return None
