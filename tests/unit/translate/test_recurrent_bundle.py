"""A recurrent model is saved, loaded and refused by the same code as a Transformer."""

import importlib
from pathlib import Path

import pytest
import torch

from seq2seq.model.build import build_model
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.bundle import Bundle, BundleConfig, load_bundle, save_bundle
from seq2seq.translate.translator import Translator
from tests.refusing import refuses


@pytest.fixture
def recurrent_bundle(tokenizer: Tokenizer, tmp_path: Path) -> Bundle:
    """Write the bundle of a recurrent model to tmp_path/model."""
    config = ModelConfig(architecture="recurrent", d_model=14, num_encoder_layers=1, num_decoder_layers=2)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = build_model(config, tokenizer.vocab_size).eval()
    model.embedding.weight.data.mul_(40)  # so that predictions differ
    bundle = Bundle(model, Tokenizers.joint(tokenizer), BundleConfig(config, SearchConfig(beam=2)))
    save_bundle(tmp_path / "model", bundle, "card")
    return bundle


def test_a_bundle_comes_back_and_translates_alike(recurrent_bundle: Bundle, tmp_path: Path) -> None:
    assert load_bundle(tmp_path / "model").config == recurrent_bundle.config
    config = (tmp_path / "model/config.json").read_text()
    assert '"architecture": "seq2seq-recurrent"' in config
    assert "num_heads" not in config
    texts = ["The cat drank the milk.", "", "¿Quién?"]
    translator = Translator(recurrent_bundle.model, recurrent_bundle.tokenizer, search=recurrent_bundle.config.search)
    before = translator.translate(texts, max_length=9)
    assert Translator.load(tmp_path / "model", "cpu").translate(texts, max_length=9) == before
    assert before[0]


@pytest.mark.usefixtures("recurrent_bundle")
@pytest.mark.parametrize(("package", "name"), [("ctranslate2", "ctranslate2"), ("transformers", "huggingface")])
def test_other_programs_refuse_it_in_one_line(tmp_path: Path, package: str, name: str) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")
    export = getattr(importlib.import_module(f"seq2seq.apps.exchange.{name}"), f"export_{name}")
    message = "^[^\n]*architecture=recurrent: CTranslate2 and Hugging Face have no such[^\n]*$"
    refuses(message, export, tmp_path / "model", tmp_path / "export")
    assert not (tmp_path / "export").exists()
