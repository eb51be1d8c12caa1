"""Models of every style, their bundles, and the scores that they give to translations."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest
import torch

from seq2seq.model.transformer import Transformer
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import BOS, EOS, Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.bundle import Bundle, BundleConfig, save_bundle
from tests.unit.model.models import make_transformer


@pytest.fixture(params=["ctranslate2", "huggingface"])
def exporter(request: pytest.FixtureRequest) -> Callable[[Path, Path], None]:
    """The export to each program."""
    package = "transformers" if request.param == "huggingface" else request.param
    pytest.importorskip(package, reason=f"the extra `{request.param}` is not installed")
    return getattr(import_module(f"seq2seq.apps.exchange.{request.param}"), f"export_{request.param}")


@pytest.fixture
def random_model() -> Callable[..., Transformer]:
    """A function that makes a model of a style, whose every weight matters."""
    return partial(make_transformer, noise=0.3, d_model=24, d_ff=40, num_encoder_layers=1)


@pytest.fixture
def token_scores() -> Callable[..., list[float]]:
    """A function that gives the log-probability of each token of a translation and of EOS."""

    @torch.no_grad()
    def score(model: Transformer, source: list[int], target: list[int]) -> list[float]:
        logits, _ = model.decode(torch.tensor([[BOS, *target]]), model.encode(torch.tensor([[*source, EOS]])))
        return logits[0].log_softmax(-1).gather(1, torch.tensor([*target, EOS])[:, None])[:, 0].tolist()

    return score


@pytest.fixture
def save_model(tokenizer: Tokenizer, tmp_path: Path) -> Callable[[Transformer], Path]:
    """A function that writes a model's bundle."""

    def save(model: Transformer) -> Path:
        search = SearchConfig(beam=3, max_length_ratio=1.0, max_length_offset=6, batch_tokens=300)
        save_bundle(
            tmp_path / "model",
            Bundle(model, Tokenizers.joint(tokenizer), BundleConfig(model.config, search)),
            "A card.\n",
        )
        return tmp_path / "model"

    return save
