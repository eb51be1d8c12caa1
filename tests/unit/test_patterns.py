"""Every regular expression of the project takes linear time on texts that are made to keep it searching.

And it means the same to every version of Python.
"""

import importlib
import pkgutil
import re
import signal
from collections.abc import Iterator
from re import _compiler, _parser  # type: ignore[attr-defined]
from re import _constants as ops  # type: ignore[attr-defined]
from types import FrameType
from typing import Any

import pytest

import seq2seq
from seq2seq.errors import UserError

LENGTH = 20_000  # repetitions; in quadratic time they take many seconds
SECONDS = 1.0  # of processor time; in linear time a search takes milliseconds
CHARACTERS = "a1 _-/<>&;:.\"'=\n\tñ(){}[]\\#%$@!?,*`~|+^A"
ONLY = {  # the method that the project uses, where it is not a search
    "seq2seq.apps.documents.markdown._BLOCK_START.0": "match",
    "seq2seq.apps.documents.markdown._BREAK.0": "fullmatch",
    "seq2seq.apps.documents.markdown_dialects._OPENING.0": "match",
    **{f"seq2seq.apps.documents.markdown_dialects._TITLES.{number}": "match" for number in range(4)},
    "seq2seq.apps.documents.subtitles._DASH.0": "match",
    "seq2seq.apps.documents.xml._TAG.0": "match",
    "seq2seq.settings.bundle._HUB_NAME.0": "fullmatch",
}
BOUNDED = {"seq2seq.text.sentences._LAST_WORDS.0": 24}  # the most characters that it is given
REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)


def patterns() -> dict[str, re.Pattern[str]]:
    """Return all patterns that modules of the project have as attributes, by module and name."""
    result = {}
    for module in pkgutil.walk_packages(seq2seq.__path__, "seq2seq."):
        try:
            names = vars(importlib.import_module(module.name))
        except (ImportError, UserError):  # of a package that is not installed
            continue
        for name, value in names.items():
            for number, pattern in enumerate(value.values() if isinstance(value, dict) else [value]):
                if isinstance(pattern, re.Pattern) and isinstance(pattern.pattern, str):
                    result[f"{module.name}.{name}.{number}"] = pattern
    return result


def inner_patterns(op: Any, argument: Any) -> list[Any]:
    if op in REPEATS:
        return [argument[2]]
    if op is ops.BRANCH:
        return argument[1]
    if op is ops.SUBPATTERN:
        return [argument[3]]
    return [argument] if op is ops.ATOMIC_GROUP else []


def sample(parsed: Any) -> str:
    """Return a short text for a parsed pattern; it need not match."""
    text = ""
    for op, argument in parsed:
        if op is ops.LITERAL:
            text += chr(argument)
        elif op in (ops.NOT_LITERAL, ops.ANY, ops.IN):
            compiled = _compiler.compile(_parser.SubPattern(parsed.state, [(op, argument)]))
            text += next(filter(compiled.match, CHARACTERS), "a")
        elif inner := inner_patterns(op, argument):
            text += sample(inner[0]) * (max(1, argument[0]) if op in REPEATS else 1)
    return text  # without assertions and references


def pumped(parsed: Any, before: str = "") -> Iterator[str]:
    """Yield texts in which one repeated part of the pattern is repeated often, and what should follow is missing."""
    for number, (op, argument) in enumerate(parsed):
        inner = inner_patterns(op, argument)
        if op in REPEATS and argument[1] > 20 and (part := sample(inner[0])):
            yield before + part * LENGTH
            yield before + part * LENGTH + "\0"
        for pattern in inner:
            yield from pumped(pattern, before)
        before += sample(parsed[number : number + 1])
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


@pytest.mark.slow
def test_all_patterns_search_in_linear_time() -> None:
    slow = {}
    for name, pattern in patterns().items():
        method, most = ONLY.get(name, "search"), BOUNDED.get(name, LENGTH**2)
        if text := slow_text(pattern, method, most):
            slow[name] = text
    assert slow == {}


def possessive_groups(parsed: Any) -> int:
    """Count possessive repeats of more than one character."""
    count = 0
    for op, argument in parsed:
        inner = inner_patterns(op, argument)
        single = len(inner) == 1 and len(inner[0]) == 1 and not inner_patterns(*inner[0][0])
        count += (op is ops.POSSESSIVE_REPEAT and not single) + sum(map(possessive_groups, inner))
    return count


@pytest.mark.slow
def test_groups_are_repeated_in_atomic_groups() -> None:
    # (?:ab?)*+ takes too much in Python before 3.11.5 (python/cpython#106052); (?>(?:ab?)*) does not
    assert possessive_groups(_parser.parse("(?:ab)*+a++(?>(?:ab?)*)(?:(c|de)?+)")) == 2
    assert [name for name, one in patterns().items() if possessive_groups(_parser.parse(one.pattern, one.flags))] == []
