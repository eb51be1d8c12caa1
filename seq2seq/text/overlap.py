"""Training text that gives a test away: pairs sharing a side with held-out sets; takes plain strings.

Sides are compared without case, punctuation and white space: "Hello, world!" is "hello world". How letters with accents
are composed (NFC or NFD) makes no difference either.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

_EXAMPLES = 3  # kept per held-out set


class _Ignored(dict[int, int | None]):
    """A translation table that learns by and by which characters are punctuation, white space or controls."""

    def __missing__(self, code: int) -> int | None:
        kept = None if unicodedata.category(chr(code))[0] in "PZC" else code
        self[code] = kept
        return kept


_ignored = _Ignored()


def fold(text: str) -> str:
    """Reduce a sentence to what is compared; one that is all punctuation stays as it is."""
    text = unicodedata.normalize("NFC", text)
    return text.translate(_ignored).casefold() or text


class OverlapIndex:
    """Knows every side of the held-out sets; told all training pairs in turn, it counts those that share one."""

    def __init__(self, held_out: Mapping[str, Iterable[tuple[str, str]]]) -> None:
        """Index held-out sets by name."""
        self._src_sets: dict[str, set[str]] = {}
        self._tgt_sets: dict[str, set[str]] = {}
        self._report: dict[str, dict[str, Any]] = {}
        for name, pairs in held_out.items():
            self._report[name] = {"pairs": 0, "source": 0, "target": 0, "examples": []}
            for src, tgt in pairs:
                for sets, side in ((self._src_sets, src), (self._tgt_sets, tgt)):
                    if side.strip():
                        sets.setdefault(fold(side), set()).add(name)

    def shares(self, src: str, tgt: str) -> bool:
        """Tell whether a training pair shares its source or target side with a held-out set, and count it."""
        src_sets = self._src_sets.get(fold(src), frozenset())
        tgt_sets = self._tgt_sets.get(fold(tgt), frozenset())
        for name in src_sets | tgt_sets:
            counts = self._report[name]
            counts["pairs"] += 1
            counts["source"] += name in src_sets
            counts["target"] += name in tgt_sets
            if len(counts["examples"]) < _EXAMPLES:
                counts["examples"].append([src, tgt])
        return bool(src_sets or tgt_sets)

    def report(self) -> dict[str, dict[str, Any]]:
        """Tell per held-out set how many training pairs share a side, the source, the target, and the first few."""
        return self._report


def name_held_out(
    validation: list[tuple[str, str]], tests: Mapping[str, list[tuple[str, str]]]
) -> dict[str, list[tuple[str, str]]]:
    """Put the validation set before the test sets, under a name that none of them has."""
    return {"the validation set" if "validation" in tests else "validation": validation, **tests}
