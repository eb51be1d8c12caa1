"""A bundle of the first commits (version 0.1.0) must load and translate identically ever after."""

import json
from pathlib import Path

import pytest

from seq2seq.translate.translator import Translator

FOLDER = Path(__file__).parent
EXPECTED = FOLDER / "translations.json"
SOURCES = ["The cat sees the milk.", "The cow brings an apple.", "The bird wants a ball.", "A dog?", "", "€ 5 → ñ"]


def test_the_stored_bundle_translates_as_it_did(request: pytest.FixtureRequest) -> None:
    translator = Translator.load(FOLDER / "bundle", "cpu")
    results = [
        [{"text": t.text, "score": round(t.score, 4)} for t in translations]
        for translations in translator.translate_nbest(SOURCES, 2)
    ]
    if request.config.getoption("--update-golden"):
        EXPECTED.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    assert [[t["text"] for t in n_best] for n_best in results] == [[t["text"] for t in n_best] for n_best in expected]
    for n_best, stored in zip(results, expected, strict=True):
        assert [t["score"] for t in n_best] == pytest.approx([t["score"] for t in stored], abs=2e-3)
