"""What is kept of a training corpus: each pair is normalised, then checked, and every drop is counted by its reason."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

from rich import box
from rich.table import Table

from seq2seq.config import DataConfig
from seq2seq.text.normalise import normalise

# In the order of the checks: a pair is counted under the first that it fails. Cleaner does the first five; the last
# two follow in preparation, once test sets and tokenizer are known.
REASONS = (
    "empty",
    "characters",
    "ratio",
    "identical",
    "duplicate",
    "overlap",
    "tokens",
)
HELD_OUT = "held out"  # not dropped, but taken for validation or test
_RATIO_FROM = 20  # characters of the longer side up to which any length ratio is fine ("No." ~ "De ninguna manera.")


class Cleaner:
    """Normalises and drops pairs of all training corpora in turn; remembers what it has seen to find duplicates."""

    def __init__(self, config: DataConfig) -> None:
        self._config = config
        self._seen: set[bytes] = set()

    def clean(self, pairs: Iterable[tuple[str, str]], counts: Counter[str]) -> Iterator[tuple[str, str]]:
        """Yield the pairs worth training on, normalised; add what happened to counts ("read", "kept", each reason)."""
        for raw_src, raw_tgt in pairs:
            src, tgt = normalise(raw_src), normalise(raw_tgt)
            reason = self._reason(src, tgt)
            counts["read"] += 1
            counts[reason or "kept"] += 1
            if reason is None:
                yield src, tgt

    def _reason(self, src: str, tgt: str) -> str | None:
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
        if config.drop_duplicates and self._is_duplicate(src, tgt):
            return "duplicate"
        return None

    def _is_duplicate(self, src: str, tgt: str) -> bool:
        digest = blake2b(f"{src}\t{tgt}".encode(), digest_size=12).digest()  # two of 10⁹ pairs collide: 1 in 10¹¹
        if digest in self._seen:
            return True
        self._seen.add(digest)
        return False


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
