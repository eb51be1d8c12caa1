"""Inputs to break readers with: arbitrary ones, and good ones with a few edits."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from seq2seq.errors import UserError

LASTING = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
COSTLY = settings(LASTING, max_examples=max(settings().max_examples // 4, 8))  # each reads all settings, or translates
SECRET = "hunter2"  # the content of a file that no input may make a reader open
PLACE = "/SECRET/PLACE"  # in an input stands for the path of that file

CHARACTERS = "<>&;\"'`*_[](){}#|\\%$@=/!?-:.,~^\t\n\r \0\1\x0b\x0c\x1b\x1c\x7f\x85\xa0\xad\u2028\ufeffé😀"
WORDS = ("One", "two", "cat.", "Is it?", "1", "{name}", "%s", "https://a.org/x", "a_b", "e\u0301")


def arbitrary(snippets: Sequence[str]) -> st.SearchStrategy[str]:
    """Any text, mostly of pieces that mean something to a parser."""
    return st.lists(st.sampled_from([*snippets, *CHARACTERS, *WORDS]) | st.text(max_size=5), max_size=30).map("".join)


def mutated(seeds: Iterable[str], snippets: Sequence[str]) -> st.SearchStrategy[str]:
    """Good inputs with up to six places cut out, doubled or overwritten."""
    pieces = st.sampled_from([*snippets, *CHARACTERS, *WORDS]) | st.text(max_size=3)
    edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30), st.just("") | pieces, st.booleans()), max_size=6)
    return st.builds(mutate, st.sampled_from(list(seeds)), edits)


def mutate(text: str, edits: list[tuple[float, int, str, bool]]) -> str:
    """Make edits: a place (share of the length), how many characters, what is put there, and whether they stay."""
    for place, length, piece, is_doubled in edits:
        start = int(place * len(text))
        end = start + length
        text = text[:start] + piece + (text[start:end] * 2 if is_doubled else "") + text[end:]
    return text


def mutated_bytes(data: bytes, start: int | None = None) -> st.SearchStrategy[bytes]:
    """Good bytes with up to four places overwritten, cut out or lengthened, half of them among the first `start`."""
    places = st.integers(0, min(start or len(data), len(data))) | st.integers(0, len(data))
    edits = st.lists(st.tuples(places, st.sampled_from([0, 1, 1, 1, 8, 1000]), st.binary(max_size=8)), max_size=4)

    def change(edits: list[tuple[int, int, bytes]]) -> bytes:
        changed = data
        for place, length, piece in edits:
            changed = changed[:place] + piece + changed[place + length :]
        return changed

    return st.builds(change, edits)


def with_place(text: str, secret: Path) -> str:
    """Name the file that must not be opened."""
    return text.replace(PLACE, str(secret))


def refusal_of(run: Callable[[], object]) -> str | None:
    """Run something; gives the message with which it refuses to."""
    try:
        run()
    except UserError as error:
        return str(error)
    return None
