"""No document, however broken, ends a translation with anything but one line, opens another file, or loses markup.

For an hour, on new inputs each time:

    export HYPOTHESIS_PROFILE=fuzz FUZZ_EXAMPLES=500
    SECONDS=0; while [ $SECONDS -lt 3600 ] && pytest -q -n 0 -m slow tests/fuzz; do :; done

It ends with the first input that fails; `--hypothesis-seed` or the printed decorator repeats it.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]  # has no stubs
from markdown_it import MarkdownIt

from seq2seq.apps.documents.document import translate_document
from seq2seq.apps.documents.gettext import _parse
from seq2seq.apps.documents.html import _tokenize
from seq2seq.apps.documents.kept_strings import Translate
from seq2seq.apps.documents.marked_text import KEPT
from tests.fuzz import seeds
from tests.fuzz.mutating import LASTING, PLACE, SECRET, arbitrary, mutated, refusal_of, with_place
from tests.unit.shouting import translate_texts

pytestmark = pytest.mark.slow
MARKUP = (
    *("<b>", "</b>", "<br>", "<img src=x>", "<!--", "-->", "<a href='", "&lt;", "&#1;", "&#xD800;", "&amp;", "<code>"),
)
IN_HTML = (
    *(*MARKUP, "<p>", "</p>", "<![", "<?", "<!DOCTYPE", "<script>", "</script>", "<pre>", "translate=no", "lang=en"),
)
IN_MARKDOWN = (
    *(*MARKUP, "**", "_", "~~", "`", "```\n", "\n\n", "\n> ", "\n- ", "\n1. ", "  \n", "\\\n", "[a](b)", "![a](b)"),
    *("\n| a | b |\n|---|---|\n| c | d |\n", "[a]: b\n", "---\n", "\t", "\r", "\r\n", "    "),
)
IN_SUBTITLES = (*MARKUP, "1\n00:00:01,000 --> 00:00:02,000\n", "\n\n", "\r\n", "- ", "{\\an8}", "-->", "<i>", "</i>")
IN_WEBVTT = (
    *(*MARKUP, "00:01.000 --> 00:02.000\n", "\n\n", "\r\n", "- ", "<00:01.000>", "-->", "NOTE ", "<c.a>", "WEBVTT"),
)
IN_CATALOGUES = (
    *(*MARKUP, 'msgid "', 'msgstr "', '"\n', "\\n", "\\", "#, fuzzy\n", "#~ ", "msgctxt", PLACE, "\r\n", "nplurals="),
)
ENTITY = f'<!DOCTYPE tmx [<!ENTITY e SYSTEM "file://{PLACE}"><!ENTITY l "lol&#49;">]>'
INCLUSION = f'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="{PLACE}"/>'
ENCODINGS = tuple(f'<?xml version="1.0" encoding="{name}"?>' for name in ("utf-16", "latin1", "x-y", "ebcdic-cp-fr"))
IN_XML = (
    *(*MARKUP, *ENCODINGS, ENTITY, INCLUSION, "&e;", "&l;", "<g id='1'>", "</g>", "<x/>", "<bpt>", "</ept>"),
    *("<?a b?>", "<![CDATA[x]]>", "xmlns=''", "<source>", "</target>"),
)
SEEDS = {
    ".html": ([seeds.HTML], IN_HTML),
    ".md": ([seeds.MARKDOWN], IN_MARKDOWN),
    ".srt": ([seeds.SUBTITLES], IN_SUBTITLES),
    ".vtt": ([seeds.WEBVTT], IN_WEBVTT),
    ".po": ([seeds.CATALOGUE], IN_CATALOGUES),
    ".xliff": ([seeds.XLIFF, seeds.XLIFF_2], IN_XML),
    ".tmx": ([seeds.TMX], IN_XML),
}
TEXTS = {name: mutated(good, snippets) | arbitrary(snippets) for name, (good, snippets) in SEEDS.items()}
ALIGNMENTS = st.none() | st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12)


def inventing(text: str) -> str:
    return f"\x1b{text} <b> *a* `b` \0 {{x}} - 1. \u2028"


def breaking_out(text: str) -> str:
    return f"\n\n2\n00:01.000 --> 00:02.000\n# {text} <x & 100 % {{ |\n> \r---\n\ud800"


MODELS = st.sampled_from(
    [str.upper, str, inventing, breaking_out, lambda text: "", lambda text: " ".join(text.split()[::-1])]
)


def with_model(model: Callable[[str], str], alignment: Any, seen: list[str]) -> Translate:
    def translate(texts: Sequence[str], align: bool) -> list[tuple[str, Any]]:
        seen.extend(texts)
        return [(model(text), alignment) for text in texts]

    return translate


def markup_of(name: str, text: str) -> object:
    """What a translation must leave as it is, in any order where tags may change places."""
    if name == ".html":
        tags = [text[start:end] for kind, _, start, end in _tokenize(text) if kind != "text"]
        return Counter(re.sub(r"(lang\s*=\s*[\"']?)(?:en|es)\b[-\w]*", r"\1", tag).rstrip(";") for tag in tags)
    if name == ".md":
        page = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text)
        return Counter(re.findall("<[^<>]*>", page))
    if name in (".srt", ".vtt"):
        return Counter(re.findall(r"^.*-->.*$|<[\d:.]+>|</?[A-Za-z][^<>\n]*>|\{\\[^{}]*\}", text, re.MULTILINE))
    if name == ".po":
        return [
            (one.msgctxt, one.msgid, one.msgid_plural, one.comment, one.tcomment, one.occurrences, one.obsolete)
            for one in _parse(text)  # polib alone would end lines at U+2028
        ]
    root = etree.fromstring(text.encode(), etree.XMLParser(resolve_entities=False))
    kept = "{*}source" if name == ".xliff" else "{*}tuv"
    sources = [etree.tostring(one, with_tail=False) for one in root.iter(kept)]
    return Counter(one for one in sources if b'"es"' not in one)


@pytest.mark.parametrize("name", sorted(SEEDS))
@LASTING
@given(data=st.data(), model=MODELS, alignment=ALIGNMENTS)
def test_a_document_is_translated_or_refused_in_one_line(name, data, model, alignment, folder, watched_files):
    text = data.draw(TEXTS[name])
    path_in, path_out = folder / f"in{name}", folder / f"out{name}"
    path_in.write_bytes(with_place(text, folder.parent / "secret.po").encode("utf-8", "surrogatepass"))
    seen: list[str] = []
    with watched_files() as opened:
        translate = with_model(model, alignment, seen)
        refusal = refusal_of(lambda: translate_document(path_in, path_out, translate, "en", "es"))
    assert [one for one in opened if one.endswith("secret.po")] == []
    assert SECRET not in " ".join(seen)
    if refusal is not None:
        assert "\n" not in refusal
        return
    before, after = path_in.read_bytes().decode(), path_out.read_bytes().decode()
    assert SECRET not in after
    assert markup_of(name, after.removeprefix("\ufeff")) == markup_of(name, before.removeprefix("\ufeff"))


@LASTING
@given(name=st.sampled_from(sorted(SEEDS)), data=st.binary(max_size=200))
def test_bytes_are_translated_or_refused_in_one_line(name: str, data: bytes, folder: Path) -> None:
    path = folder / f"bytes{name}"
    path.write_bytes(data)
    translate = with_model(str.upper, None, [])
    assert "\n" not in (refusal_of(lambda: translate_document(path, path, translate, "en", "es")) or "")


@given(
    texts=st.lists(mutated([seeds.HTML, seeds.MARKDOWN], MARKUP) | arbitrary(MARKUP), max_size=3),
    model=MODELS,
    alignment=ALIGNMENTS,
)
def test_a_text_keeps_what_is_kept(texts: list[str], model: Callable[[str], str], alignment: Any) -> None:
    found: list[str] = []
    refusal = refusal_of(lambda: found.extend(translate_texts(texts, with_model(model, alignment, []))))
    assert refusal is None or "\n" not in refusal
    for source, translation in zip(texts, found, strict=refusal is None):
        assert Counter(KEPT.findall(translation)) == Counter(KEPT.findall(source))
