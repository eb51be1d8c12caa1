"""What must not change does not, whatever the model does to it; markup goes where its words went."""

import itertools
import re
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.documents.keeping import BOUNDARY, KEPT, OBJECT, _find_cuts, cut_sentences, translate_texts
from seq2seq.errors import UserError

SPANISH = {
    "The black cat sleeps.": "El gato negro duerme.",
    "The": "El",
    "black": "Negro.",
    "cat sleeps.": "El gato duerme.",
    "Click here now!": "¡Haz clic aquí ahora!",
    "Click": "Clic",
    "here": "aquí",
    "now!": "¡ahora!",
    "Hello": "Hola",
    "world": "Mundo",
    "Hello world": "Buenos días",
}


def to_spanish(texts: Sequence[str]) -> list[str]:
    return [SPANISH[text] for text in texts]


def upper(texts: Sequence[str]) -> list[str]:
    return [text.upper() for text in texts]


def shown(text: str) -> str:
    """Write the boundaries of a text as numbers in brackets."""
    numbers = itertools.count(1)
    return re.sub(BOUNDARY, lambda _: f"[{next(numbers)}]", text)


PLACEHOLDERS = (
    *("{name}", "{0}", "{user.name}", "${total}", "%{count}", "{{ page }}", "#{x}", "$name", "%1", "%PATH%", "%%"),
    *("%s", "%d", "%5.2f", "%(count)d", "%1$s", "%-3d", "%lu", "\\n", "file_name", "`ls -l`", "``a`b``"),
    *("<b>", "</b>", "<br/>", "<a href='x. Y'>", "<!-- x -->", "&nbsp;", "&#160;", "&#xA0;"),
    *("https://example.org/a?b=c&d=(e)", "www.example.org/x", "me@example.org"),
)


@pytest.mark.parametrize("kept", PLACEHOLDERS)
def test_placeholders_survive_a_model_that_changes_them(kept: str):
    assert translate_texts([f"open {kept}, or"], upper) == [f"OPEN {kept}, OR"]


@pytest.mark.parametrize("text", ["100% sure", "a < b > c", "5 $ or $5", "AT&T", "it's 50%.", "a = b; c", "me@home"])
def test_what_only_looks_like_a_placeholder_is_translated(text: str):
    assert translate_texts([text], upper) == [text.upper()]


def test_a_sentence_whose_placeholders_survive_is_translated_as_a_whole():
    given_texts = []

    def reverse_around(texts: Sequence[str]) -> list[str]:
        given_texts.extend(texts)
        return [text.replace("Hello {name}", "¡Hola, {name}!") for text in texts]

    assert translate_texts(["Hello {name}"], reverse_around) == ["¡Hola, {name}!"]
    assert given_texts == ["Hello {name}"]


def test_a_placeholder_that_the_model_invents_is_not_let_in(caplog: pytest.LogCaptureFixture):
    assert translate_texts(["Hello world", "bye"], lambda texts: [text + " %s" for text in texts]) == [
        "Hello world",
        "bye",
    ]
    assert "has other placeholders" in caplog.text


def test_sentences_are_translated_one_by_one_and_the_space_between_them_stays():
    given_texts = []

    def collect(texts: Sequence[str]) -> list[str]:
        given_texts.extend(texts)
        return upper(texts)

    text = "  One. Two?  “Three!” Mr. Four v. 1.5, e.g. five\n\n six {a. B} \n"
    assert translate_texts([text], collect) == ["  ONE. TWO?  “THREE!” MR. FOUR V. 1.5, E.G. FIVE\n\n SIX {a. B} \n"]
    assert given_texts[:4] == ["One.", "Two?", "“Three!”", "Mr. Four v. 1.5, e.g. five"]


def test_equal_sentences_are_translated_once_and_texts_without_words_never():
    given_texts = []

    def collect(texts: Sequence[str]) -> list[str]:
        given_texts.extend(texts)
        return upper(texts)

    assert translate_texts(["a", "a", " a ", "", " ", "1,5 €", "{name}: %d"], collect) == [
        *("A", "A", " A ", "", " ", "1,5 €", "{name}: %d")
    ]
    assert sorted(set(given_texts)) == ["a"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("The \0black\0 cat sleeps.", "El gato [1]negro[2] duerme."),  # its words moved
        ("Click \0here\0 now!", "¡Haz clic [1]aquí[2] ahora!"),
        ("\0Hello\0", "[1]Hola[2]"),
        ("Hello \0world", "Buenos [1]días"),  # no word in common: by length
        (" Hello\0\0 world ", " Buenos[1][2] días "),
    ],
)
def test_markup_goes_where_its_words_went(source: str, expected: str):
    assert shown(translate_texts([source], to_spanish)[0]) == expected


def score(words: list[str], cuts: Sequence[int], theirs: list[list[str]]) -> float:
    """Add up what the placing of boundaries is to make as large as can be."""
    total, lengths = 0.0, [len(own) for own in theirs]
    for i, (own, (start, end)) in enumerate(zip(theirs, itertools.pairwise([0, *cuts, len(words)]), strict=True)):
        for word in words[start:end]:
            inner = i % 2
            total += (0.5 if word == "," else 1.5 if inner else 1.0) if word in own else -0.5 * inner
        if (own and start == end) or (not own and start < end):
            total -= 3.0 if own else 1000.0
        total -= 0.1 * abs(end / len(words) - sum(lengths[: i + 1]) / sum(lengths))
    return total


WORDS = st.lists(st.sampled_from(["a", "b", "c", ","]), max_size=3)


@given(words=WORDS.filter(len), more=WORDS, theirs=st.lists(WORDS, min_size=1, max_size=4).filter(any))
def test_boundaries_are_placed_as_by_trying_every_place(words: list[str], more: list[str], theirs: list[list[str]]):
    words = words + more
    ends = _find_cuts(" ".join(words), [" ".join(own) for own in theirs])
    found = [len(" ".join(words)[:end].split()) for end in ends[:-1]]
    every = itertools.combinations_with_replacement(range(len(words) + 1), len(theirs) - 1)
    assert score(words, found, theirs) == pytest.approx(max(score(words, cuts, theirs) for cuts in every))


def test_an_object_goes_with_its_sentence_if_the_model_keeps_it():
    model = {"Run 21 now.": "Ejecuta ahora 21.", "Press 21 22.": "Pulsa 22 21.", "Press": "Pulse"}
    found = translate_texts(
        [f"Run {OBJECT} now.", f"Press {OBJECT} {OBJECT}."], lambda texts: [model[t] for t in texts]
    )
    assert found == [f"Ejecuta ahora {OBJECT}.", f"Pulse {OBJECT} {OBJECT}."]


def test_plural_forms_of_icu_are_refused():
    with pytest.raises(UserError, match=r"has ICU plural or select forms, which cannot be kept: take it out"):
        translate_texts(["{n, plural, one {# file} other {# files}}"], upper)


HOSTILE = {
    "drops": lambda text: KEPT.sub("", text),
    "doubles": lambda text: f"{text} {text}",
    "reverses": lambda text: " ".join(reversed(text.split())),
    "cuts": lambda text: text[: len(text) // 2],
    "invents": lambda text: "{name} %s `" + text + "_a <b",
    "shouts": str.upper,
}
PIECES = st.sampled_from(
    [*PLACEHOLDERS, BOUNDARY, OBJECT, "The", "cat.", "Is", "it?", " ", "  ", "\n", ",", "_", "%", "`", "{"]
)


@pytest.mark.parametrize("model", HOSTILE)
@given(texts=st.lists(st.lists(PIECES, max_size=8).map("".join), max_size=3))
def test_no_model_can_change_what_is_kept(model: str, texts: list[str]):
    found = translate_texts(texts, lambda given_texts: [HOSTILE[model](text) for text in given_texts])
    for source, translation in zip(texts, found, strict=True):
        assert KEPT.findall(translation) == KEPT.findall(source)


@given(texts=st.lists(st.lists(PIECES, max_size=12).map("".join), max_size=3))
def test_a_model_that_changes_nothing_changes_nothing(texts: list[str]):
    assert translate_texts(texts, list) == texts


@pytest.mark.parametrize("text", ["a" * 50_000, "_" * 50_000, "a." + " " * 50_000 + "b"])
def test_a_long_run_takes_linear_time(text: str):
    """A server looks at texts of strangers; with quadratic time these took 20 s and more."""
    start = time.perf_counter()
    assert KEPT.search(text) is None
    assert "".join(cut_sentences(text)) == text
    assert time.perf_counter() - start < 5


def test_space_before_a_line_end_belongs_to_the_gap():
    assert cut_sentences("a \t \n b  \n\n c@d.e \n") == ["a", " \t \n ", "b", "  \n\n ", "c@d.e", " \n", ""]
