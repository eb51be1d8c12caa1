"""The same code explains a recurrent model: one head of cross-attention, or none."""

from pathlib import Path

import pytest
from saved_runs import write_recurrent_bundle

from seq2seq.apps.explain.explanation import explain
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.translate.translator import Translator

SENTENCE = "The cat drank the milk."


def test_additive_attention_is_explained_as_one_head(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = Translator.load(write_recurrent_bundle(tmp_path, tokenizer, "additive"), "cpu")
    plain = explain(model, SENTENCE, "El gato").to_plain()
    assert plain["architecture"] == "recurrent"
    assert (plain["attention"]["encoder"], plain["attention"]["decoder"]) == ([], [])
    ((head,),) = plain["attention"]["cross"]
    assert len(head) == len(plain["pieces"]["target_out"]) == len(plain["log_probs"])
    assert all(len(row) == len(plain["pieces"]["source"]) for row in head)
    assert all(sum(row) == pytest.approx(1, abs=5e-3) for row in head)
    assert len(plain["by_word"]["cross"][0][0]) == len(plain["words"]["target"])
    assert plain["alignment"]


def test_a_model_without_attention_has_an_empty_explanation(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = Translator.load(write_recurrent_bundle(tmp_path, tokenizer, "none"), "cpu")
    plain = explain(model, SENTENCE, "El gato").to_plain()
    assert plain["attention"] == {"encoder": [], "decoder": [], "cross": []}
    assert plain["alignment"] == []
    assert len(plain["log_probs"]) == len(plain["pieces"]["target_out"])
