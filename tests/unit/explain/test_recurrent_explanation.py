"""The same code explains a recurrent model: one head of cross-attention, or none."""

from pathlib import Path

import pytest
import torch

from seq2seq.bundle import Bundle, BundleConfig, save_bundle
from seq2seq.explain.explanation import explain
from seq2seq.model.build import build_model
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translator import Translator


def translator(attention: str, tokenizer: Tokenizer, folder: Path) -> Translator:
    config = ModelConfig(
        architecture="recurrent", attention=attention, d_model=14, num_encoder_layers=1, num_decoder_layers=1
    )
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = build_model(config, tokenizer.vocab_size).eval()
    save_bundle(
        folder / "model",
        Bundle(model, Tokenizers.joint(tokenizer), BundleConfig(config, SearchConfig(beam=2))),
        "untrained",
    )
    return Translator.load(folder / "model", "cpu")


def test_additive_attention_is_explained_as_one_head(tokenizer: Tokenizer, tmp_path: Path) -> None:
    plain = explain(translator("additive", tokenizer, tmp_path), "The cat drank the milk.", "El gato").to_plain()
    assert plain["architecture"] == "recurrent"
    assert (plain["attention"]["encoder"], plain["attention"]["decoder"]) == ([], [])
    ((head,),) = plain["attention"]["cross"]
    assert len(head) == len(plain["pieces"]["target_out"]) == len(plain["log_probs"])
    assert all(len(row) == len(plain["pieces"]["source"]) for row in head)
    assert all(sum(row) == pytest.approx(1, abs=5e-3) for row in head)
    assert len(plain["by_word"]["cross"][0][0]) == len(plain["words"]["target"])
    assert plain["alignment"]


def test_a_model_without_attention_has_an_empty_explanation(tokenizer: Tokenizer, tmp_path: Path) -> None:
    plain = explain(translator("none", tokenizer, tmp_path), "The cat drank the milk.", "El gato").to_plain()
    assert plain["attention"] == {"encoder": [], "decoder": [], "cross": []}
    assert plain["alignment"] == []
    assert len(plain["log_probs"]) == len(plain["pieces"]["target_out"])
