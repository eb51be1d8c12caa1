"""Only the words of a page change; its markup stays byte for byte."""

import re
import time
from collections.abc import Callable, Sequence

import pytest

from seq2seq.apps.documents import html

Run = Callable[..., str]
PAGE = """<!DOCTYPE html>
<html lang="en-US" data-x=1><head><meta charset="utf-8">
<title>The cat &amp; dog</title><style>p > b { color: red }</style>
<script>if (a < b) document.write("<p>Hello</p>")</script></head>
<BODY>
  <!-- Not this <p> -->
  <p class='x' title="a > b">Hello
     &quot;world&quot;, it costs 5&nbsp;€.<br>Caf&eacute; <code>print(x)</code> here</p>
  <ul><li>One <a href="/one.html?a=b&amp;c">two <em>three</em></a>, four</li><li>{name} is %s</ul>
  <p translate="no">Brand <b>Name</b></p><p>Some <span class="a notranslate">Brand <span>X</span></span> text</p>
  <pre>keep   this</pre><img alt="keep" src=x.png>1 < 2 &lt;tag&gt; <p>
  last</BODY></html>
"""
SHOUTED = """<!DOCTYPE html>
<html lang="es" data-x=1><head><meta charset="utf-8">
<title>THE CAT &amp; DOG</title><style>p > b { color: red }</style>
<script>if (a < b) document.write("<p>Hello</p>")</script></head>
<BODY>
  <!-- Not this <p> -->
  <p class='x' title="a > b">HELLO "WORLD", IT COSTS 5&nbsp;€.<br>CAFÉ <code>print(x)</code> HERE</p>
  <ul><li>ONE <a href="/one.html?a=b&amp;c">TWO <em>THREE</em></a>, FOUR</li><li>{name} IS %s</ul>
  <p translate="no">Brand <b>Name</b></p><p>SOME <span class="a notranslate">Brand <span>X</span></span> TEXT</p>
  <pre>keep   this</pre><img alt="keep" src=x.png>1 < 2 &lt;tag&gt; <p>
  LAST</BODY></html>
"""


def test_a_page_keeps_all_but_its_words_and_a_text_that_does_not_change_its_entities_and_line_breaks(run: Run):
    assert run(".html", PAGE) == SHOUTED
    assert run(".html", PAGE, list) == PAGE.replace('lang="en-US"', 'lang="es"')


@pytest.mark.parametrize(
    "page",
    [
        "<p>\n\t\tThe black cat\n\t\tdrank the\n\t\tmilk!\n\t</p>\n",
        '<a href="#">\n <em>\n  <i class="a">\n   The black cat\n  </i>\n </em>\n '
        '<em>\n  <i class="b">\n   drank the milk!\n  </i>\n </em>\n</a>\n',
    ],
)
def test_neither_line_breaks_nor_tags_within_tags_cut_a_sentence(run: Run, page: str):
    def model(texts: Sequence[str]) -> list[tuple[str, list[tuple[int, int]]]]:
        assert [text.split() for text in texts] == [["The", "black", "cat", "drank", "the", "milk!"]]
        return [("¡El gato negro bebió la leche!", [(0, 0), (1, 2), (2, 1), (3, 3), (4, 4), (5, 5)])]

    translation = run(".html", page, model)
    assert re.sub("<[^<>]*>", "", translation).split() == ["¡El", "gato", "negro", "bebió", "la", "leche!"]
    assert re.findall("<[^<>]*>", translation) == re.findall("<[^<>]*>", page)


def test_characters_that_mean_markup_are_escaped(run: Run):
    assert run(".html", "<p>less</p>", lambda texts: ["a < b & c" for _ in texts]) == "<p>a &lt; b &amp; c</p>"


@pytest.mark.parametrize("page", ["", "plain", "<p>unclosed <b>tag", "</p>stray</p>", "a<", "<p", "&amp"])
def test_broken_pages_are_kept(run: Run, page: str):
    assert run(".html", page, list) == page


def test_another_encoding_is_refused(run: Run):
    with pytest.raises(ValueError, match=r"in.html: it declares charset=iso-8859-1, expected utf-8: convert it"):
        run(".html", '<meta http-equiv="Content-Type" content="text/html; charset=iso-8859-1"><p>x')


ENDLESS = (
    "<!--", "<!-- >", "<![", "<![CDATA[", "<![CDATA[>", "<!x", "<?", "<?x>", "<?x ?", "<%", "<script>", "<script></x>",
    "</a", "<a ", "<a b='", "<a b='>", '<a x="><a " ', "<a b=", "<a/", "&", "&#", "&#;", "&nbsp", "<meta ", "<html ",
    "--", "<code>", "<", "</",
)  # fmt: skip


def test_links_are_translated_one_by_one_where_nothing_else_has_words(run: Run):
    page = "<p><a>{} {}</a> <a>{}</a> | <b><a>{}</a></b><p>{} <a>{}</a> <a>{}</a>"
    assert run(".html", page.format(*"abcdefg"), backwards) == page.format(*"bacdgfe")
    assert run(".html", "<a>core</a>::<a>arch</a>") == "<a>core</a>::<a>arch</a>"


@pytest.mark.slow
@pytest.mark.parametrize("piece", ENDLESS)
def test_the_time_to_read_a_page_grows_with_its_length(piece: str):
    def seconds(length: int) -> float:
        page = piece * (length // len(piece)) + "'"
        start = time.process_time()
        document = html.read(page, "en", "es")
        document.write(document.segments)
        return time.process_time() - start

    short, long = (min(seconds(length) for _ in range(3)) for length in (5_000, 40_000))
    assert long < 0.01 + 24 * short  # 8 times the text; where every piece is searched to the end, 64 times the time


@pytest.mark.parametrize("opening", ["<!-- ", "<![CDATA[", "<script>", "<style>"])
def test_what_a_browser_hides_to_the_end_of_a_page_is_kept(run: Run, opening: str):
    assert run(".html", f"<p>one</p>{opening}two <b>three") == f"<p>ONE</p>{opening}two <b>three"


@pytest.mark.parametrize(
    ("page", "translated"),
    [
        ("<![x[y]]>z", "<![x[y]]>Z"),
        ("<p>&#; &#; <b>bold</b> x", "<p>&amp;#; &amp;#; <b>BOLD</b> X"),
        ("<a href='x>one</a> two", "<a href='x>ONE</a> TWO"),
        ("<a href=/x/>one</a><br/>two", "<a href=/x/>ONE</a><br/>TWO"),
        ("<a title='>' href=\"'\">one</a>", "<a title='>' href=\"'\">ONE</a>"),
        ("<!-->one<p><!--->two<p><!-- --!>three", "<!-->ONE<p><!--->TWO<p><!-- --!>THREE"),
    ],
)
def test_odd_markup_is_read_as_browsers_do(run: Run, page: str, translated: str):
    assert run(".html", page) == translated


@pytest.mark.parametrize(
    "translated",
    [
        "<ul><li>A<li translate=no>b<p>c<li>D<ul><li>E</ul></ul>F",
        "<p translate=no>a <b>b</b><h2>C</h2>",
        "<div><p translate=no>a</div>B",
        "<dl><dt translate=no>a<dd>B<dd translate=no>c<dt>D",
        "<tr><td translate=no>a<th>B<tr translate=no><td>c<tr><td>D",
        "<option translate=no>a<option>B<optgroup translate=no><option>c<optgroup><option>D",
        "<caption translate=no>a<thead translate=no><tr><td>b<tbody><tr><td>C",
        "A<br translate=no>B <img translate='no'> C",
        "<div translate=no>a<p translate=yes>B</p>c</div>D",
        "A <i translate=no>b <b translate>C</b> d</i> E",
        "<p data-translate=no title='translate=no'>A<p class=my-notranslate>B",
        "<p class=notranslate>a<p><code translate=yes>B</code>",
        "<p>A <i translate=no>b<p>C",
        "5\u00a0KM, 6&#8239;M",
        "<p>A <img src=x> B<br>\n  C&nbsp;D<!-- e --> F<wbr> <b>G</b><br></p>",
        "<p>A WORD<sup>1</sup> AND H<sub>2</sub>O ON THE 1<sup>st</sup></p>",
        '<p><a href=x><i class="fa"></i> HOME <i></i> PAGE</a><a name="x"></a></p>',
        "{% extends 'b' %}\n{% load c %}\n{# d #}\n{% e %}F{% g %}\n<b>H</b>",
        "<p>A <ruby>b<rt>c<rp>)</ruby> D</p>THE <ruby><rb>e<rt>f</rt></ruby>.",
        '<a href=b><img src=c> D</a><p>{% if a > 1 %}MANY{% endif %} {{ b | c("<d>", "&") }} E</p><p><%= a > b %> F',
        "<?php if ($a > 1): ?><p>ONE <?= $a->b ?> TWO</p><?a b>c?>X <?a> Y<p>D <?b c->d?> E<?php\n\n'<p>f' > 1",
        "<a href=b>C</a><a href=d>E</a><i>F</i> G<p><a>D</a>/<a>E</a>|<b>F</b> A <i>G</i>—<b>H</b><i>I J</i>",
    ],
)
def test_markup_says_what_is_translated_and_stays_where_it_is(run: Run, translated: str):
    assert run(".html", translated.lower()) == translated


def backwards(texts: Sequence[str]) -> list[str]:
    return [" ".join(text.split()[::-1]) for text in texts]


def test_what_has_no_end_stays_and_an_entity_gets_one(run: Run):
    assert run(".html", "<p>one&nbsp€ two</p>", backwards) == "<p>two&nbsp;€ one</p>"
    assert run(".html", "<p>10&#8239;000 miles", backwards) == "<p>miles 10&#8239;000"
    assert run(".html", "<p>one two <code>x</p><p>three", backwards) == "<p>two one <code>x</p><p>three"
