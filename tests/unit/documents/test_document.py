"""Files are read, written and refused as users expect."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from seq2seq.documents.document import is_document, translate_document
from seq2seq.errors import UserError


def shout(texts: Sequence[str], align: bool) -> list[tuple[str, None]]:
    return [(text.upper(), None) for text in texts]


@pytest.mark.parametrize("name", ["a.srt", "a.po", "a.xliff", "a.xlf", "a.tmx", "a.html", "a.htm", "a.md", "A.HTML"])
def test_documents_are_known_by_their_ending(name: str):
    assert is_document(Path(name))


@pytest.mark.parametrize("name", ["a.txt", "a", "html", "a.en"])
def test_other_files_are_no_documents(name: str):
    assert not is_document(Path(name))


def test_the_number_of_texts_is_told_and_a_file_may_replace_itself(tmp_path: Path):
    path = tmp_path / "a.html"
    path.write_text("<p>one</p><p>two</p>")
    assert translate_document(path, path, shout, "en", "es") == 2
    assert path.read_text() == "<p>ONE</p><p>TWO</p>"


def test_an_error_leaves_what_was_there_and_no_other_file(tmp_path: Path):
    (tmp_path / "a.html").write_text("<p>one</p>")
    (tmp_path / "b.html").write_text("before")

    def fail(texts: object, align: bool) -> list[tuple[str, None]]:
        raise KeyError

    with pytest.raises(KeyError):
        translate_document(tmp_path / "a.html", tmp_path / "b.html", fail, "en", "es")
    assert (tmp_path / "b.html").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.html"]


@pytest.mark.parametrize(
    ("content", "out", "message"),
    [
        (b"x", "a.md", r"a.html cannot become .*a.md: give two names with the same ending, one of .srt, .po, .html"),
        (None, "b.html", r"a.html cannot be read: No such file"),
        (b"x", "none/b.html", r"none/b.html cannot be written: No such file"),
        (b"ni\xf1o", "b.html", r"a.html: byte 3 \(0xf1\) is not UTF-8: convert the file first"),
        (b"a\0b", "b.html", r"a.html: it is binary \(it has bytes 0 or 1\), expected text"),
        (b"a\1b", "b.html", r"a.html: it is binary \(it has bytes 0 or 1\), expected text"),
        (b"{n, plural, other {x}}", "b.html", r"a.html: '\{n, plural, other \{x\}\}' has ICU plural"),
    ],
)
def test_a_defect_is_one_line_that_names_the_file(tmp_path: Path, content: bytes | None, out: str, message: str):
    if content is not None:
        (tmp_path / "a.html").write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        translate_document(tmp_path / "a.html", tmp_path / out, shout, "en", "es")
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.md").write_text("x")
    monkeypatch.setitem(sys.modules, "seq2seq.documents.markdown", None)
    with pytest.raises(UserError, match=r"a.md: this format needs the package .*: pip install -e '.*\[documents\]'$"):
        translate_document(tmp_path / "a.md", tmp_path / "b.md", shout, "en", "es")
