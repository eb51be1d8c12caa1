"""The benchmark of documents compares all that a translation must leave as it is."""

from pathlib import Path

import pytest
import torch

from benchmarks import documents

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
FILES = {
    "a.html": '<html lang="en"><p>one &quot;two&quot;\n three</p></html>',
    "b.md": "# one\n\ntwo\nthree\n",
    "c.srt": "1\n00:00:01,000 --> 00:00:02,000\none\n",
    "d.po": HEADER + '#, fuzzy\n#| msgid "b"\nmsgid "a"\nmsgstr "x"\n\nmsgid "b"\nmsgstr ""\n# end',
    "deep/e.xlf": "<xliff ><file source-language='de'>\n<trans-unit> <source>a</source></trans-unit></file></xliff>",
    "deep/f.tmx": '<tmx ><tu>\n <tuv  xml:lang="en"><seg>a</seg></tuv></tu></tmx>',
    "g.html": '<meta charset="latin1">',
}
UTF_16 = '<?xml version="1.0" encoding="utf-16"?>\n'


def measure(folder: Path) -> dict[str, dict]:
    results, tables = documents.run(documents.Plan(folder=folder), torch.device("cpu"))
    assert tables[0].rows[0][0] == "HTML"
    return results


def test_every_format_is_counted(tmp_path: Path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "h.xlf").write_bytes((UTF_16 + FILES["deep/e.xlf"]).encode("utf-16"))
    results = measure(tmp_path)
    assert results["XLIFF"].pop("identical") == 2
    assert {name: result.pop("identical", 1) for name, result in results.items()} == dict.fromkeys(results, 1)
    assert list(results) == ["HTML", "Markdown", "SubRip", "PO", "XLIFF", "TMX"]
    assert results["HTML"]["refused"] == {
        "it declares charset=latin…, expected utf-…: convert it and its <meta charset>": 1
    }


def test_a_file_that_changes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.html").write_text(FILES["a.html"], encoding="utf-8")
    monkeypatch.setattr(documents, "unchanged", lambda texts, align: [("other", None) for _ in texts])
    assert measure(tmp_path)["HTML"]["different"] == [f"{tmp_path / 'a.html'}"]
