"""What is kept of a training corpus: each pair is normalised, then checked, and every drop is counted by its reason."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

from rich import box
from rich.table import Table

from seq2seq.settings.data import DataConfig
from seq2seq.text.language import LanguageCheck
from seq2seq.text.normalise import normalise

# In the order of the checks: a pair is counted under the first that it fails. Cleaner does all but the last two, which
# follow in preparation, once test sets and tokenizer are known.
REASONS = (
    "empty",
    "characters",
    "ratio",
    "identical",
    "language",
    "duplicate",
    "overlap",
    "tokens",
)
HELD_OUT = "held out"  # not dropped, but taken for validation or test
_RATIO_FROM = 20  # characters of the longer side up to which any length ratio is fine ("No." ~ "De ninguna manera.")


class Checks:
    """The checks that need to see no other pair."""

    def __init__(self, config: DataConfig) -> None:
        """Take the limits of the settings.

        Raises:
            UserError: languages are to be told and the package for it is missing, or does not know them.
        """
        self._config = config
        self._languages = LanguageCheck(config) if config.language_filter else None

    def reason(self, src: str, tgt: str) -> str | None:
        """Tell why a normalised pair is to be dropped; None: it is not."""
        config = self._config
        shorter, longer = sorted((len(src), len(tgt)))
        if shorter == 0:
            return "empty"
        if longer > config.max_characters:
            return "characters"
        if longer > _RATIO_FROM and longer > config.max_ratio * shorter:
            return "ratio"
        if config.drop_identical and src == tgt:
            return "identical"
        if self._languages is not None and not self._languages.fit(src, tgt):
            return "language"
        return None


class Cleaner:
    """Normalises and drops pairs of all training corpora in turn; remembers what it has seen to find duplicates."""

    def __init__(self, config: DataConfig, checks: Checks | None = None) -> None:
        """Forget what other cleaners have seen; checks may be shared with them, since making some takes a while."""
        self._checks, self._drop_duplicates = checks or Checks(config), config.drop_duplicates
        self._seen: set[bytes] = set()

    def clean(self, pairs: Iterable[tuple[str, str]], counts: Counter[str]) -> Iterator[tuple[str, str]]:
        """Yield the pairs worth training on, normalised; add what happened to counts ("read", "kept", each reason)."""
        for raw_src, raw_tgt in pairs:
            src, tgt = normalise(raw_src), normalise(raw_tgt)
            reason = self._checks.reason(src, tgt)
            if reason is None and self._drop_duplicates and self._is_duplicate(src, tgt):
                reason = "duplicate"
            counts["read"] += 1
            counts[reason or "kept"] += 1
            if reason is None:
                yield src, tgt

    def _is_duplicate(self, src: str, tgt: str) -> bool:
        digest = digest_pair(src, tgt)
        if digest in self._seen:
            return True
        self._seen.add(digest)
        return False


def digest_pair(src: str, tgt: str) -> bytes:
    """Hash a normalised pair to 12 bytes, by which duplicates are found; two of 10⁹ pairs collide: 1 in 10¹¹."""
    return blake2b(f"{src}\t{tgt}".encode(), digest_size=12).digest()


def drop_table(report: Mapping[str, Any]) -> Table:
    """Show what preparation read, dropped (why) and kept, one row a training file."""
    files = report["files"]
    columns = ["read", *(key for key in (*REASONS, HELD_OUT) if any(file.get(key) for file in files)), "kept"]
    table = Table(title="Training pairs", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("corpus", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for file in files:
        table.add_row(file["name"], *(f"{file.get(column, 0):,}" for column in columns))
    if len(files) > 1:
        table.add_section()
        table.add_row("total", *(f"{sum(file.get(column, 0) for file in files):,}" for column in columns))
    return table
