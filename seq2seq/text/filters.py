"""What is kept of a training corpus: each pair is normalised, then checked, and every drop is counted by its reason."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

from rich import box
from rich.table import Table

from seq2seq.config import DataConfig
from seq2seq.text.language import LanguageCheck
from seq2seq.text.normalise import normalise

# In the order of the checks: a pair is counted under the first check that it fails. Cleaner does all but the last two;
# preparation does those, once test sets and tokenizer are known.
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


class Cleaner:
    """Normalises pairs, drops those that fail a check, and counts every drop by its reason."""

    def __init__(self, config: DataConfig) -> None:
        """Take the limits of the settings.

        Raises:
            UserError: languages are to be told and the package for it is missing, or does not know them.
        """
        self._config = config
        self._languages = LanguageCheck(config) if config.language_filter else None

    def clean(
        self, pairs: Iterable[tuple[str, str]], counts: Counter[str], seen: set[bytes] | None = None
    ) -> Iterator[tuple[str, str]]:
        """Yield the pairs to train on, normalised.

        Args:
            pairs: source and target texts as written.
            counts: updated for each pair under "read" and under "kept" or the reason for the drop.
            seen: digests of earlier pairs, updated: a pair with the same digest is a duplicate. None: keep duplicates.
        """
        for raw_src, raw_tgt in pairs:
            src, tgt = normalise(raw_src), normalise(raw_tgt)
            reason = self._reason(src, tgt)
            if reason is None and seen is not None:
                digest = digest_pair(src, tgt)
                reason = "duplicate" if digest in seen else None
                seen.add(digest)
            counts["read"] += 1
            counts[reason or "kept"] += 1
            if reason is None:
                yield src, tgt

    def _reason(self, src: str, tgt: str) -> str | None:
        """Return the reason to drop a normalised pair, or None."""
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
