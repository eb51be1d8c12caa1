"""Searches, small models with random weights and their sources, for tests of decoders."""

import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from seq2seq.model.build import build_model
from seq2seq.model.decoders import Ensemble
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.search.shortlist import Shortlist
from seq2seq.search.types import Hypothesis, Source
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import Compile, SearchConfig
from seq2seq.translate.engine import Engine

NEEDS_COMPILER = pytest.mark.skipif(shutil.which("cc") is None, reason="this machine has no C compiler")
MODERN: dict[str, Any] = {"norm": "rmsnorm", "norm_position": "pre", "activation": "swiglu", "positions": "rotary"}
SEARCHES: dict[str, dict[str, Any]] = {  # settings by name; "constrained" is for sources with phrases
    "greedy": {"beam": 1},
    "beam": {"beam": 5},
    "early stopping": {"beam": 4, "early_stopping": True},
    "least length": {"beam": 4, "min_length": 4},
    "sampling": {"sampling": True, "top_k": 20, "seed": 3},
    "rules": {"beam": 4, "no_repeat_ngram": 2, "min_length": 4},
    "constrained": {"beam": 5},
}
VOCAB_SIZE = 90


def random_model(seed: int = 0, **settings: Any) -> EncoderDecoder:
    """Return a Transformer whose predictions depend on the source; settings replace those of ModelConfig."""
    sizes = {"d_model": 32, "num_heads": 4, "d_ff": 48, "num_encoder_layers": 2, "num_decoder_layers": 2}
    if settings.get("architecture") == "recurrent":
        sizes = {"d_model": 16, "num_encoder_layers": 1, "num_decoder_layers": 1}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build_model(ModelConfig(**{**sizes, **settings}), VOCAB_SIZE)
        for parameter in model.parameters():
            parameter.data.mul_(5)
    return model.eval()


def sources(name: str) -> list[Source]:
    """Return six sources for the search of this name: with phrases, a prefix, or neither."""
    phrases = [[7, 8], [9]] if name == "constrained" else []
    prefix = [44, 12] if name == "prefix" else []
    rng, lengths = np.random.default_rng(1), (3, 9, 6, 1, 12, 9)
    texts = [rng.integers(4, VOCAB_SIZE, length).tolist() for length in lengths]
    return [Source(ids, prefix, phrases, key=key) for key, ids in enumerate(texts)]


def search(
    model: EncoderDecoder | Ensemble,
    name: str,
    compiles: Compile = "auto",
    shortlist: Shortlist | None = None,
    banned: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each source, best first: one of greedy search, else three."""
    if compiles == "on" and shutil.which("cc") is None:
        pytest.skip("this machine has no C compiler")
    settings = SearchConfig(
        max_length_ratio=1.5, max_length_offset=12, batch_tokens=400, **SEARCHES.get(name, {"beam": 4})
    )
    engine = Engine(model, "cpu", torch.float32, compiles=compiles, shortlist=shortlist)
    batches = engine.search(sources(name), settings, 1 if name == "greedy" else 3, banned)
    hypotheses = dict(result for batch in batches for result in batch)
    return [hypotheses[index] for index in range(6)]


def shortlist_of(allowed: list[int], vocab_size: int = VOCAB_SIZE, vocabulary: str = "") -> Shortlist:
    """Return a shortlist that allows every text the same ids, and nothing for the sources' own sake."""
    by_frequency = np.array([*allowed, *(token for token in range(vocab_size) if token not in allowed)], np.int32)
    offsets, none = np.zeros(vocab_size + 1, np.int64), np.empty(0, np.int32)
    return Shortlist(offsets, none, np.array(allowed, np.int32), by_frequency, vocabulary)


def assert_alike(results: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    """Hypotheses have the same tokens, and scores that differ by rounding alone."""
    for best, other in zip(results, expected, strict=True):
        assert [hypothesis.ids for hypothesis in best] == [hypothesis.ids for hypothesis in other]
        scores = [hypothesis.score for hypothesis in other]
        assert [hypothesis.score for hypothesis in best] == pytest.approx(scores, abs=1e-4, rel=1e-5)
