"""Parts of benchmarks that need no model of their own."""

import shutil
from dataclasses import fields
from pathlib import Path

import pytest
import torch

from benchmarks import attacks, documents, serving
from benchmarks.groups import MODIFIERS, without_modifiers
from benchmarks.invented import dictionary_words
from seq2seq.apps.serve.limits import Limits
from seq2seq.settings.compose import compose
from seq2seq.settings.training import ModifiersConfig
from tests.refusing import refuses

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


def test_every_attack_stays_within_the_limits_of_a_request():
    limits = Limits()
    for texts in (attacks.white_space_documents(), attacks.subword_texts(), attacks.costly_documents()):
        assert all(len(text) <= limits.char_limit for text in texts)
    refused, accepted = attacks.costly_documents()
    assert refused.count("<b>") > limits.tag_limit == accepted.partition(".")[0].count("b>")
    heads = [request.partition(b"\r\n\r\n") for request in attacks.codec_requests("http://127.0.0.1:1")]
    assert all(len(body) <= limits.body_limit and b"Authorization" not in head for head, _, body in heads)
    assert limits.connections * 2 < attacks.IDLE


def test_documents_are_as_large_as_a_request_may_be():
    limits = Limits()
    text, page, texts = (values["q"] for values in serving.document_values(["The cat sees the milk.", "Yes."]))
    assert len(text) == len(page) == limits.char_limit
    assert len(texts) == serving.TEXTS <= limits.batch_limit
    assert sum(map(len, texts)) <= limits.char_limit


SETTINGS = ["experiment=mixed_cpu", "data.root=texts"]


def changed_pairs(settings: list[str]) -> dict[str, float]:
    """Return the share of the pairs that each family changes."""
    modifiers = compose(settings).training.modifiers
    weights = {name: value for name, value in vars(modifiers).items() if name not in ("share", "own")}
    return {name: modifiers.share * weight / sum(weights.values()) for name, weight in weights.items()}


def test_each_family_is_in_one_group() -> None:
    names = " ".join(MODIFIERS.values()).split()
    assert sorted(["share", "own", *names]) == sorted(one.name for one in fields(ModifiersConfig))


def test_without_a_group_every_other_family_changes_as_many_pairs() -> None:
    shares = changed_pairs([*SETTINGS, *without_modifiers(SETTINGS, "code dates")])
    assert shares == pytest.approx({**changed_pairs(SETTINGS), "code": 0, "dates": 0})


@pytest.mark.skipif(not shutil.which("hunspell"), reason="hunspell is not installed")
def test_words_of_the_dictionary_are_known_in_a_form_that_the_texts_have() -> None:
    texts = ["Madrid y MADRID, ¿o'neil?", "La casita rarucha; perrúcho 3"]
    assert dictionary_words(texts, "es_ES") == {"madrid", "y", "la", "casita"}
    refuses("no hunspell with the dictionary xx_YY: install both", dictionary_words, texts, "xx_YY")


def test_a_machine_without_hunspell_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    refuses("no hunspell with the dictionary es_ES: install both", dictionary_words, ["la"], "es_ES")
