"""Every regular expression of the project takes linear time on texts that are made to keep it searching."""

import importlib
import pkgutil
import re
import signal
from collections.abc import Iterator
from re import _constants as ops  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from types import FrameType
from typing import Any

import seq2seq
from seq2seq.errors import UserError

LENGTH = 20_000  # repetitions; in quadratic time they take many seconds
SECONDS = 1.0  # of processor time; in linear time a search takes milliseconds
CHARACTERS = "a1 _-/<>&;:.\"'=\n\tñ(){}[]\\#%$@!?,*`~|+^A"
ONLY = {  # the method that the project uses, where it is not a search
    "seq2seq.documents.markdown._BLOCK_START.0": "match",
    "seq2seq.documents.markdown._BREAK.0": "fullmatch",
    "seq2seq.documents.subtitles._DASH.0": "match",
    "seq2seq.documents.tree._TAG.0": "match",
    "seq2seq.settings.bundle._HUB_NAME.0": "fullmatch",
}
BOUNDED = {"seq2seq.segments._LAST_WORDS.0": 24}  # the most characters that it is given
CATEGORIES = {
    ops.CATEGORY_DIGIT: str.isdigit, ops.CATEGORY_SPACE: str.isspace,
    ops.CATEGORY_WORD: lambda one: one.isalnum() or one == "_",
    ops.CATEGORY_NOT_DIGIT: lambda one: not one.isdigit(), ops.CATEGORY_NOT_SPACE: lambda one: not one.isspace(),
    ops.CATEGORY_NOT_WORD: lambda one: not (one.isalnum() or one == "_"),
}  # fmt: skip


def patterns() -> dict[str, re.Pattern[str]]:
    """All patterns that modules of the project have as attributes, by module and name."""
    found = {}
    for module in pkgutil.walk_packages(seq2seq.__path__, "seq2seq."):
        try:
            names = vars(importlib.import_module(module.name))
        except (ImportError, UserError):  # of a package that is not installed
            continue
        for name, value in names.items():
            values = value.values() if isinstance(value, dict) else [value]
            for number, one in enumerate(values):
                if isinstance(one, re.Pattern) and isinstance(one.pattern, str):
                    found[f"{module.name}.{name}.{number}"] = one
    return found


def sample(parsed: Any) -> str:
    """Return a short text for a parsed pattern; it need not match."""
    return "".join(_sample_of(op, argument) for op, argument in parsed)


def _sample_of(op: Any, argument: Any) -> str:
    if op is ops.LITERAL:
        return chr(argument)
    if op is ops.NOT_LITERAL:
        return "a" if argument != ord("a") else "b"
    if op is ops.ANY:
        return "a"
    if op is ops.IN:
        return next((one for one in CHARACTERS if _is_in(one, argument)), "a")
    if op is ops.BRANCH:
        return sample(argument[1][0])
    if op is ops.SUBPATTERN:
        return sample(argument[3])
    if op is ops.ATOMIC_GROUP:
        return sample(argument)
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
        return sample(argument[2]) * max(1, argument[0])
    return ""  # assertions, references


def _is_in(character: str, items: list[Any]) -> bool:
    is_negated = items[0][0] is ops.NEGATE
    found = any(
        (op is ops.LITERAL and ord(character) == argument)
        or (op is ops.RANGE and argument[0] <= ord(character) <= argument[1])
        or (op is ops.CATEGORY and CATEGORIES[argument](character))
        for op, argument in items
    )
    return found != is_negated


def pumped(parsed: Any, before: str = "") -> Iterator[str]:
    """Yield texts in which one repeated part of the pattern is repeated often, and what should follow is missing."""
    for op, argument in parsed:
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT):
            if argument[1] > 20 and (part := sample(argument[2])):
                yield before + part * LENGTH
                yield before + part * LENGTH + "\0"
            yield from pumped(argument[2], before)
        elif op is ops.BRANCH:
            for branch in argument[1]:
                yield from pumped(branch, before)
        elif op is ops.SUBPATTERN:
            yield from pumped(argument[3], before)
        elif op is ops.ATOMIC_GROUP:
            yield from pumped(argument, before)
        before += _sample_of(op, argument)
    if before:
        yield before * (LENGTH // len(before))


def stop(number: int, frame: FrameType | None) -> None:
    raise TimeoutError


def slow_text(pattern: re.Pattern[str], method: str = "search", most: int = LENGTH**2) -> str | None:
    """Return a text on which the pattern takes longer than `SECONDS`, or None."""
    previous = signal.signal(signal.SIGVTALRM, stop)
    try:
        for text in pumped(_parser.parse(pattern.pattern, pattern.flags)):
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            try:
                getattr(pattern, method)(text[-most:])
            except TimeoutError:
                return text[:30]
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:
        signal.signal(signal.SIGVTALRM, previous)
    return None


def test_all_patterns_search_in_linear_time() -> None:
    slow = {}
    for name, pattern in patterns().items():
        method, most = ONLY.get(name, "search"), BOUNDED.get(name, LENGTH**2)
        if text := slow_text(pattern, method, most):
            slow[name] = text
    assert slow == {}


def test_a_quadratic_pattern_would_be_found() -> None:
    found = slow_text(re.compile(r"charset\s*=\s*[\"']?\s*(\w)"))
    assert found is not None
    assert found.startswith("charset")
