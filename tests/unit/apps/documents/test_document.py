"""Files are read, written and refused as users expect."""

import re
import sys
from html import unescape
from pathlib import Path
from unittest.mock import Mock

import pytest
from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]  # has no stubs
from shouting import shout_all

from seq2seq.apps.documents import html, markdown, subtitles
from seq2seq.apps.documents.document import is_document, require_plain, translate_document
from seq2seq.apps.documents.gettext import _parse
from seq2seq.apps.documents.marked_text import Document, Marked
from seq2seq.errors import UserError


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("a.srt a.vtt a.po a.pot a.xliff a.xlf a.tmx a.html a.htm a.xhtml a.md a.markdown a.mdx A.HTML", True),
        ("a.txt a html a.en", False),
    ],
)
def test_documents_are_known_by_their_ending(names: str, expected: bool):
    assert {is_document(Path(name)) for name in names.split()} == {expected}


@pytest.mark.parametrize("name", ["a.ass", "a.IPYNB", "a.json.gz", "a.md.xz"])
def test_a_file_with_markup_is_not_translated_line_by_line(name: str):
    require_plain(Path("a.en.gz"))
    with pytest.raises(UserError, match=rf"{name}: \.\w+(\.gz|\.xz)? files are not translated, only lines and"):
        require_plain(Path(name))


def test_the_number_of_texts_is_told_and_a_file_may_replace_itself(tmp_path: Path):
    path = tmp_path / "a.html"
    path.write_text("<p>one</p><p>two</p>")
    assert translate_document(path, path, shout_all, "en", "es") == 2
    assert path.read_text() == "<p>ONE</p><p>TWO</p>"


def test_an_error_leaves_what_was_there_and_no_other_file(tmp_path: Path):
    (tmp_path / "a.html").write_text("<p>one</p>")
    (tmp_path / "b.html").write_text("before")

    with pytest.raises(KeyError):
        translate_document(tmp_path / "a.html", tmp_path / "b.html", Mock(side_effect=KeyError), "en", "es")
    assert (tmp_path / "b.html").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.html"]


@pytest.mark.parametrize(
    ("content", "out", "message"),
    [
        (b"x", "a.md", r"a.html cannot become .*a.md: both need the same ending, one of .srt, .vtt, .po, "),
        (b"x", "none/b.html", r"none/b.html cannot be written: No such file"),
        (b"ni\xf1o", "b.html", r"a.html: 'utf-8' codec can't decode byte 0xf1 in position 2: .*: convert the file to"),
        (b"a\0b", "b.html", r"a.html: it is binary \(it has bytes 0 or 1\), expected text"),
        (b"a\1b", "b.html", r"a.html: it is binary \(it has bytes 0 or 1\), expected text"),
        (b"{n, plural, other {x}}", "b.html", r"a.html: '\{n, plural, other \{x\}\}' has ICU plural"),
    ],
)
def test_a_defect_is_one_line_that_names_the_file(tmp_path: Path, content: bytes, out: str, message: str):
    (tmp_path / "a.html").write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        translate_document(tmp_path / "a.html", tmp_path / out, shout_all, "en", "es")
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.md").write_text("x")
    monkeypatch.setitem(sys.modules, "seq2seq.apps.documents.markdown", None)
    with pytest.raises(UserError, match=r"a.md: this format needs the package .*: pip install -e '.*\[documents\]'$"):
        translate_document(tmp_path / "a.md", tmp_path / "b.md", shout_all, "en", "es")


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o750])
def test_a_new_file_has_the_permissions_of_its_source(tmp_path: Path, mode: int):
    (tmp_path / "a.html").write_text("<p>one</p>")
    (tmp_path / "a.html").chmod(mode)
    translate_document(tmp_path / "a.html", tmp_path / "b.html", shout_all, "en", "es")
    assert (tmp_path / "b.html").stat().st_mode & 0o777 == mode


def test_a_link_to_itself_is_replaced(tmp_path: Path):
    (tmp_path / "a.html").write_text("<p>one</p>")
    (tmp_path / "b.html").symlink_to(tmp_path / "b.html")
    translate_document(tmp_path / "a.html", tmp_path / "b.html", shout_all, "en", "es")
    assert (tmp_path / "b.html").read_text() == "<p>ONE</p>"


CUES = "1\r\n00:00:01,000 --> 00:00:02,000\none\r\ntwo\nthree\r\n\n2\n00:00:03,000 --> 00:00:04,000\r\nfour\r\n"
ENTRIES = (
    '#\nmsgid ""\r\nmsgstr ""\n"Language: es\\n"\r\n"X-Other: x\\n"\n\n'
    '#: a:1\r\nmsgid "one"\nmsgstr "ONE"\r\n\r\n#: a:2\nmsgid "two"\r\nmsgstr "TWO"\r\n'
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.html", "<p>one</p>\r\n<p>two</p>\n<p>three</p>\r\n"),
        ("a.md", "---\r\nx: y\r\n---\n# one\r\n\ntwo\r\n\r\n> three\n\n- four\r\n- five\n"),
        ("a.srt", CUES),
        ("a.po", ENTRIES),
        ("a.html", "<p>one</p>\r<p>two</p>\r\n"),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_every_line_keeps_its_own_line_end(tmp_path: Path, name: str, text: str, encoding: str):
    path = tmp_path / name
    path.write_bytes((text.replace('msgstr "TWO"', 'msgstr ""') if name == "a.po" else text).encode(encoding))
    translate_document(path, path, shout_all, "en", "es")
    found = path.read_bytes().decode(encoding)
    assert found.lower() == text.lower()
    assert found.count("ONE") == 1


SYNTAX = [  # what a translation may be, and a format must not take for its own syntax
    "a --> b", "00:00:05,000 --> 00:00:06,000", "uno\n\n3\n00:05.000 --> 00:06.000\ndos", "x < y > z", "< \n\n >",
    "<3", "a <b", "NOTE", "R & D", "]]>", "<!--", 'say "hi"\\', "100 % da", "{ a", "# uno", "- uno", "1. uno",
    "> uno", ">>", "a | b", "```", "---", "uno\n===", "[a]: b", "", " \u00a0", "a\0b\x1bc\ufffe", "a\ud800",
    "a\u2028\x85\x0cb", "42",
]  # fmt: skip
DOCUMENTS = {
    ".srt": "1\n00:00:01,000 --> 00:00:02,000\n♪ one ♪\n\n2\n00:00:03,000 --> 00:00:04,000\ntwo\nlines\n",
    ".vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\n♪ one ♪\n\n00:03.000 --> 00:04.000\ntwo\nlines\n",
    ".po": 'msgid ""\nmsgstr ""\n"Language: en\\n"\n\nmsgid "one"\nmsgstr ""\n\n#, c-format\nmsgid "two"\nmsgstr ""\n',
    ".html": "<p>one</p><p>two <b>lines</b></p>",
    ".md": "# one\n\ntwo *lines*\n\n- three\n\n| a | b |\n|---|---|\n| c | d |\n\nhard  \nbreak\n",
    ".tmx": '<tmx><body><tu><tuv xml:lang="en"><seg>one</seg></tuv></tu></body></tmx>',
}


READERS = {
    ".srt": subtitles.read,
    ".vtt": subtitles.read_vtt,
    ".html": html.read,
    ".md": markdown.read,
    ".po": lambda text, *_: Document([Marked(entry.msgstr) for entry in _parse(text)], lambda _: ""),
    ".tmx": lambda text, *_: Document([Marked(text) for text in etree.fromstring(text).itertext()], lambda _: ""),
}


@pytest.mark.parametrize("translation", SYNTAX)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_translation_is_never_syntax_of_the_format(run, name: str, translation: str):
    written = run(name, DOCUMENTS[name], lambda texts: [translation for _ in texts])
    before, after = (READERS[name](text, "en", "es").segments for text in (DOCUMENTS[name], written))
    if name in (".srt", ".vtt"):  # where a line may be wrapped before a dash, and is then another speaker's
        assert written.count("-->") == 2
    else:
        assert len(after) == len(before) + (name == ".tmx")  # the text of the target
    if name != ".md" and len(after) <= 2:  # whose backslashes are read as objects
        plain = " ".join(re.sub("[\0\x1b\ufffe\ud800]", "", translation).split())
        texts = {" ".join(unescape(segment.text).split()) for segment in after}
        dashes = {"", plain[1:].strip(), plain.strip("-]")}  # before and after a speaker's dash, or in another tag
        assert texts <= {plain, *dashes, *(segment.text for segment in before), "one", "two", *plain.split(maxsplit=1)}
