"""What must not change does not, whatever the model does to it."""

import re
import time
from collections.abc import Callable, Sequence
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shouting import shout, translate_texts

from seq2seq.apps.documents.kept_strings import cut_sentences, translate_marked
from seq2seq.apps.documents.marked_text import KEPT, Kind, Mark, Marked, MarkedSegment
from seq2seq.errors import UserError
from seq2seq.text.sentences import split_text


def through(model: Callable[[str], str]) -> Callable[[Sequence[str], bool], list[tuple[str, None]]]:
    """What translates text by text, and aligns nothing."""
    return lambda texts, align: [(model(text), None) for text in texts]


upper = through(shout)


SYNTAX = (
    *("{name}", "{0}", "{user.name}", "${total}", "%{count}", "{{ page }}", "#{x}", "$name", "%1", "%PATH%", "%%"),
    *("%s", "%d", "%5.2f", "%(count)d", "%1$s", "%-3d", "%lu", "\\n", "`ls -l`", "``a`b``", "{\\an8}", "⟨3⟩"),
    *("<b>", "</b>", "<br/>", "<a href='x. Y'>", "<!-- x -->", "&nbsp;", "&#160;", "&#xA0;", "__name__"),
)


@pytest.mark.parametrize("kept", SYNTAX)
def test_a_sentence_whose_syntax_the_model_loses_stays(kept: str, caplog: pytest.LogCaptureFixture):
    assert translate_texts([f"open {kept}, or. Shut"], upper) == [f"OPEN {kept}, OR. SHUT"]
    lose = through(lambda text: text.replace(kept, "").upper())
    assert translate_texts([f"open {kept}, or. Shut"], lose) in (
        [f"open {kept}, or. SHUT"],
        [f"OPEN {kept}, OR. SHUT"],  # a tag is placed
    )


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("It weighs 5\u00a0kg today", "Hoy pesa 5 kg", "Hoy pesa 5\u00a0kg"),
        ("It weighs 5&nbsp;kg today", "Hoy pesa 5 kg", "Hoy pesa 5&nbsp;kg"),
        ("5\u202fMB of 20\u00a0MB", "De 20 MB, 5 MB", "De 20\u00a0MB, 5\u202fMB"),
        ("some 10\u202f000\u00a0km away", "a unos 10\u202f000 km", "a unos 10\u202f000\u00a0km"),
        ("Mr.\u00a0Smith", "Sr. Smith", "Sr.\u00a0Smith"),
    ],
)
def test_a_no_break_space_stays_beside_its_number(text: str, translation: str, expected: str):
    assert translate_texts([text], through(lambda _: translation)) == [expected]


@pytest.mark.parametrize("text", ["100% sure", "a < b > c", "5 $ or $5", "AT&T", "it's 50%.", "a = b; c", "me@home"])
def test_what_only_looks_like_a_placeholder_is_translated(text: str):
    assert translate_texts([text], upper) == [text.upper()]


def test_a_sentence_whose_placeholders_survive_is_translated_as_a_whole():
    model = Mock(side_effect=through({"Hello {name}": "¡Hola, {name}!"}.__getitem__))
    assert translate_texts(["Hello {name}"], model) == ["¡Hola, {name}!"]
    model.assert_called_once()


def test_a_placeholder_that_the_model_invents_is_not_let_in(caplog: pytest.LogCaptureFixture):
    assert translate_texts(["Hello world", "bye"], through(lambda text: text + " %s")) == ["Hello world", "bye"]
    assert "has other placeholders" in caplog.text


def test_sentences_are_translated_one_by_one_and_the_space_between_them_stays():
    model = Mock(side_effect=upper)
    text = "  One. Two?  “Three!” Mr. Four v. 1.5, e.g. five\n\n six {a. B} \n"
    assert translate_texts([text], model) == ["  ONE. TWO?  “THREE!” MR. FOUR V. 1.5, E.G. FIVE\n\n SIX {a. B} \n"]
    assert model.call_args.args[0][:4] == ["One.", "Two?", "“Three!”", "Mr. Four v. 1.5, e.g. five"]


def test_sentences_end_where_a_long_text_would_be_cut():
    text = (
        "Mr. Brown reads J. R. R. Tolkien, e.g. at 10 a.m. Monday. 3 dogs wait. He left (“Why?” she asked). See fig. 2."
    )
    sentences = cut_sentences(text)[::2]
    assert sentences == split_text(text, 1, lambda texts: [1] * len(texts))
    assert sentences[1:3] == ["Monday.", "3 dogs wait."]


def test_no_sentence_ends_within_a_kept_string():
    text = "Run `a. B`, see https://a.org/x. Then {b. C}.\nNew line. 好。好\n1 a.|{b} c.|| `d.|e` d|e"
    parts = ["Run `a. B`, see https://a.org/x.", " ", "Then {b. C}.", "\n", "New line.", " ", "好。", "", "好"]
    parts += ["\n", "1 a.", "|", "{b} c.|| `d.|e` d|e"]
    assert cut_sentences(text) == parts


def test_equal_sentences_are_translated_once_and_texts_without_words_never():
    model, others = Mock(side_effect=upper), ["", " ", "1,5 €", "{name}: %d"]
    assert translate_texts(["a", "a", " a ", *others], model) == ["A", "A", " A ", *others]
    assert set(model.call_args.args[0]) == {"a"}


def test_objects_may_change_places():
    model = {"Press \x010\x01 or \x011\x01.": "Pulsa \x011\x01 o \x010\x01."}
    segment = MarkedSegment[str]()
    for part in ("Press ", "A", " or ", "B", "."):
        (segment.add_object if part in "AB" else segment.add_text)(part)
    (translated,) = translate_marked([segment.marked], through(model.__getitem__))
    assert "".join(text + (markup or "") for text, markup in segment.fill(translated)) == "Pulsa B o A."


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
    [*SYNTAX, "\x010\x01", "https://a.org/x", "The", "cat.", "Is", "it?", " ", "  ", "\n", ",", "_", "%", "`", "{"]
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)


MARKED = st.tuples(TEXTS, st.lists(st.tuples(st.integers(0, 40), st.sampled_from(Kind)), max_size=6))


def make(text: str, marks: list[tuple[int, Kind]]) -> Marked:
    """Make a text with marks at the given places, or at its end, but not within a symbol."""
    within = {place: symbol.end() for symbol in re.finditer("\x01\\d\x01", text) for place in range(*symbol.span())[1:]}
    placed = sorted((within.get(place, min(place, len(text))), kind.value) for place, kind in marks)
    return Marked(text, tuple(Mark(place, Kind(kind), number) for number, (place, kind) in enumerate(placed)))


@pytest.mark.slow
@pytest.mark.parametrize("model", HOSTILE)
@given(given_texts=st.lists(MARKED, max_size=3))
def test_no_model_can_change_what_is_kept(model: str, given_texts: list[tuple[str, list[tuple[int, Kind]]]]):
    texts = [make(*one) for one in given_texts]
    for source, translation in zip(texts, translate_marked(texts, through(HOSTILE[model])), strict=True):
        assert sorted(KEPT.findall(translation.text)) == sorted(KEPT.findall(source.text))
        assert {(mark.kind, mark.number) for mark in translation.marks} == {
            (mark.kind, mark.number) for mark in source.marks
        }
        assert len(translation.marks) == len(source.marks)


@given(given_texts=st.lists(MARKED, max_size=3))
def test_a_model_that_changes_nothing_changes_nothing(given_texts: list[tuple[str, list[tuple[int, Kind]]]]):
    texts = [make(*one) for one in given_texts]
    assert translate_marked(texts, through(str)) == texts


@pytest.mark.parametrize("text", ["a" * 50_000, "_" * 50_000, "a." + " " * 50_000 + "b"])
def test_a_long_run_takes_linear_time(text: str):
    """A server looks at texts of strangers; with quadratic time these took 20 s and more."""
    start = time.perf_counter()
    assert KEPT.search(text) is None
    assert "".join(cut_sentences(text)) == text
    assert time.perf_counter() - start < 5


def test_space_before_a_line_end_belongs_to_the_gap():
    assert cut_sentences("a \t \n b  \n\n c@d.e \n") == ["a", " \t \n ", "b", "  \n\n ", "c@d.e", " \n", ""]
