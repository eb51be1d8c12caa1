"""The words of a run's target text; a translation's words that are in neither this text nor the source are invented."""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from seq2seq.data.dataset import Pairs
from seq2seq.data.prepare import find_prepared
from seq2seq.errors import UserError
from seq2seq.evaluation.faults import separates_words, word_forms
from seq2seq.settings.loading import load_config
from seq2seq.text.vocabulary import load_tokenizers
from seq2seq.training.run_files import write_text

WORDS = "words.txt"  # in the folder of prepared text; preparation does not write it, and its manifest does not name it
_CHUNK = 10_000  # pairs decoded at a time


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
