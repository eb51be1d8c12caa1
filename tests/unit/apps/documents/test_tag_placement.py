"""Markup goes where its words went, and none of it is lost."""

import re
import time
from collections.abc import Sequence
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shouting import translate_texts

from seq2seq.apps.documents.kept_strings import translate_marked
from seq2seq.apps.documents.marked_text import Kind, Mark, Marked

pytestmark = pytest.mark.slow

Alignment = list[tuple[int, int]]
CAT = ("The black cat sleeps.", "El gato negro duerme.", [(0, 0), (2, 1), (1, 2), (3, 3)])
MODEL = {
    source: (translation, alignment)
    for source, translation, alignment in (
        CAT,
        ("The black cat, he sleeps!", "¡El gato negro duerme!", [(0, 0), (2, 1), (1, 2), (4, 3)]),
        ("Does he sleep?", "¿Duerme?", [(2, 0)]),
        ("Click on this now.", "Haz clic ahora aquí.", [(0, 0), (0, 1), (3, 2), (2, 3)]),
        ("One two three", "Uno dos tres cuatro", [(0, 0), (1, 1), (0, 2), (2, 3)]),
        ("It sleeps.", "Duerme.", [(1, 0)]),
        ("Black cats sleep", "Gatos negros duermen", [(1, 0), (0, 1), (2, 2)]),
        ("so big", "tan y tan grande", [(0, 0), (0, 2), (1, 3)]),
        ("a big cat", "un gran gato", [(1, 0), (1, 1), (2, 2)]),
        ("see {x} here", "vea aquí {x}", [(0, 0), (2, 1), (1, 2)]),
        ("Hello world", "Buenos días", None),
        ("his/her on–off key", "su tecla de encendido / apagado", [(0, 0), (2, 1), (1, 3), (1, 4), (1, 5)]),
    )
}


def words(texts: Sequence[str], align: bool) -> list[tuple[str, Alignment | None]]:
    return [(translation, alignment if align else None) for translation, alignment in map(MODEL.__getitem__, texts)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("The <b>black</b> cat sleeps.", "El gato <b>negro</b> duerme."),
        ("The black <b>cat</b> sleeps.", "El <b>gato</b> negro duerme."),
        ("The <b>black</b> <i>cat</i> sleeps.", "El <i>gato</i> <b>negro</b> duerme."),
        ("The <a href='x'>black <i>cat</i></a> sleeps.", "El <a href='x'><i>gato</i> negro</a> duerme."),
        ("<b>The black cat sleeps.</b>", "<b>El gato negro duerme.</b>"),
        ("<p><b>The black cat sleeps.</b></p>", "<p><b>El gato negro duerme.</b></p>"),
        ("The black cat <b>sleeps</b>.", "El gato negro <b>duerme</b>."),
        ("The black cat <b>sleeps.</b>", "El gato negro <b>duerme.</b>"),
        ("<b>The</b> black cat, he sleeps!", "¡<b>El</b> gato negro duerme!"),
        ("<b>Does he sleep?</b>", "<b>¿Duerme?</b>"),
        ("Does he <b>sleep</b>?", "¿<b>Duerme</b>?"),
        ("Click <b>on</b> this now.", "Haz <b>clic</b> ahora aquí."),  # no word is aligned with it
        ("<b>It</b> sleeps.", "<b>Duerme</b>."),
        ("<b>It</b> <i>sleeps</i>.", "<b></b><i>Duerme</i>."),  # nor is one free
        ("<b>One</b> two three", "<b>Uno</b> dos tres cuatro"),  # the word apart is left out
        ("<b>so</b> big", "<b>tan y tan</b> grande"),  # a word of no tag in between is not
        ("<u>Black <b>cats</b></u> sleep", "<u><b>Gatos</b> negros</u> duermen"),
        ("Bl<b>ack</b> cats sleep", "Gatos ne<b>gros</b> duermen"),
        ("Black cat<u><b>s</b></u> sleep", "Gato<u><b>s</b></u> negros duermen"),
        ("a b<b>i</b>g cat", "un g<b>ra</b>n gato"),
        ("B<b>la</b>ck <i>c</i>ats <br>sleep", "<i>G</i>atos n<b>egr</b>os <br>duermen"),
        ("<b>his</b>/her <i>on</i>–<u>off</u> key", "<b>su</b> tecla de <i>encendido</i> / <u>apagado</u>"),
        ("Black<br>cats sleep", "<br>Gatos negros duermen"),
        ("Black cats<br/> sleep", "Gatos negros<br/> duermen"),
        ("Black cats <img src=x> sleep", "Gatos negros <img src=x> duermen"),
        ("see <b>{x}</b> here", "vea aquí <b>{x}</b>"),
        ("<b>see</b> {x} here", "<b>vea</b> aquí {x}"),
        ("Hello <b>world</b>", "Buenos <b>días</b>"),  # without an alignment: by position
        ("<b>Hello world\nIt sleeps.</b>", "<b>Buenos días\nDuerme.</b>"),
        ("It sleeps. <b>It sleeps. Black</b> cats sleep", "Duerme. <b>Duerme. Gatos negros</b> duermen"),
        ("Black <b>cats sleep\nIt</b> sleeps.", "<b>Gatos negros duermen\n</b>Duerme."),
    ],
)
def test_markup_goes_where_its_words_went(source: str, expected: str):
    assert translate_texts([source], words) == [expected]


def test_alignments_are_asked_for_only_where_there_is_markup():
    model = Mock(side_effect=words)
    translate_texts([CAT[0]], model)
    translate_texts([CAT[0], "It <b>sleeps</b>."], model)
    assert [align for (_, align), _ in model.call_args_list] == [False, True]


def structure(marks: Sequence[Mark]) -> dict[int, tuple[int | None, int | None]]:
    """The partner of every mark, and what encloses it; marks pair like brackets."""
    partners, enclosing, stack = {}, {}, []
    for mark in marks:
        if mark.kind is Kind.CLOSE and stack:
            partners[mark.number], partners[stack[-1]] = stack[-1], mark.number
            stack.pop()
        enclosing[mark.number] = stack[-1] if stack else None
        if mark.kind is Kind.OPEN:
            stack.append(mark.number)
    return {mark.number: (partners.get(mark.number), enclosing[mark.number]) for mark in marks}


PARTS = st.sampled_from(["a", "bc", " ", "  ", ". ", ".", "\n", "B", "¿", "{x}", "5", '"', *Kind])


def make(parts: list[str | Kind]) -> Marked:
    """Make a text of strings and of marks between them."""
    text, marks = "", []
    for part in parts:
        if isinstance(part, Kind):
            marks.append(Mark(len(text), part, len(marks)))
        else:
            text += part
    return Marked(text, tuple(marks))


@given(
    given_texts=st.lists(st.lists(PARTS, max_size=16), max_size=3),
    translation=st.lists(st.sampled_from(["x", "¿Y", "z.", "21", "(w)"]), max_size=6).map(" ".join),
    alignment=st.none() | st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=8),
)
def test_all_markup_survives_once_and_nested_as_before(
    given_texts: list[list[str | Kind]], translation: str, alignment: Alignment | None
):
    texts = [make(parts) for parts in given_texts]

    def model(texts: Sequence[str], align: bool) -> list[tuple[str, Alignment | None]]:
        return [(translation, alignment) for _ in texts]

    plain = translate_texts([text.text for text in texts], model)
    for source, expected, found in zip(texts, plain, translate_marked(texts, model), strict=True):
        assert found.text == expected
        assert structure(found.marks) == structure(source.marks)
        assert [mark.position for mark in found.marks] == sorted(mark.position for mark in found.marks)
        assert all(0 <= mark.position <= len(found.text) for mark in found.marks)


@pytest.mark.parametrize(
    "text", ["a<b> " * 5000, "a </b>" * 5000, "<b>a " * 5000 + "</b>" * 5000, "<b>a</b> " * 5000, "<br>a " * 5000]
)
def test_time_is_linear_in_the_tags(text: str):
    """A server looks at texts of strangers; the time was cubic, and 1,250 tags took 20 s."""

    def model(texts: Sequence[str], align: bool) -> list[tuple[str, Alignment]]:
        reversed_words = [text.split()[::-1] for text in texts]
        return [(" ".join(one), [(len(one) - 1 - i, i) for i in range(len(one))]) for one in reversed_words]

    kinds = {"<b>": Kind.OPEN, "</b>": Kind.CLOSE, "<br>": Kind.POINT}
    source = make([kinds.get(part, part) for part in re.split("(<[^>]*>)", text)])
    start = time.perf_counter()
    (found,) = translate_marked([source], model)
    assert len(found.marks) == len(source.marks) >= 5000
    assert time.perf_counter() - start < 20
