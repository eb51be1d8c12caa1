"""A recurrent model is searched, scored, saved and refused by the same code as a Transformer."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.search.types import Hypothesis, Source
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.bundle import Bundle, BundleConfig, load_bundle, save_bundle
from seq2seq.translate.engine import Engine
from seq2seq.translate.translator import Translator
from tests.refusing import refuses

V = 7  # of which 3 can be produced: not PAD, UNK, BOS and EOS
SOURCES = [[4, 5, 6, 5], [6], [5, 4], [4, 4, 6, 6, 5, 4], []]
LIMIT = {"max_length_ratio": 0.0, "max_length_offset": 3}


def drawn(attention: str = "additive", vocab_size: int = V) -> EncoderDecoder:
    config = ModelConfig(
        architecture="recurrent", attention=attention, d_model=14, num_encoder_layers=1, num_decoder_layers=2
    )
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = build_model(config, vocab_size)
        model.embedding.weight.data.mul_(40)  # so that predictions differ
    return model.eval()


@pytest.fixture(params=["additive", "none"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return Engine(drawn(request.param), "cpu", torch.float32)


def search(engine: Engine, sources: list[Source], n_best: int = 1, **settings: Any) -> list[list[Hypothesis]]:
    config = SearchConfig(**{"batch_tokens": 100, **LIMIT, **settings})
    results = {index: best for batch in engine.search(sources, config, n_best) for index, best in batch}
    return [results[index] for index in range(len(sources))]


def score(engine: Engine, source: list[int], target: list[int]) -> float:
    ((_, scores),) = next(engine.score([source], [target], 100))
    return sum(scores.log_probs)


@pytest.mark.parametrize("settings", [{"beam": 3}, {"beam": 1}], ids=str)
def test_a_batch_gives_what_sentences_give_alone(engine: Engine, settings: dict[str, Any]) -> None:
    sources = [Source(ids, key=number) for number, ids in enumerate(SOURCES)]
    together = search(engine, sources, **settings)
    alone = [search(engine, [source], **settings)[0] for source in sources]
    assert [best[0].ids for best in together] == [best[0].ids for best in alone]
    for ids, (best,) in zip(SOURCES, together, strict=True):
        assert best.score == pytest.approx(score(engine, ids, best.ids), abs=1e-4)


@pytest.fixture
def recurrent_bundle(tokenizer: Tokenizer, tmp_path: Path) -> Bundle:
    """Write the bundle of a recurrent model to tmp_path/model."""
    model = drawn(vocab_size=tokenizer.vocab_size)
    bundle = Bundle(model, Tokenizers.joint(tokenizer), BundleConfig(model.config, SearchConfig(beam=2)))
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
