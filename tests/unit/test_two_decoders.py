"""The compiled step computes what the textbook computes: the same translations and scores, in every search."""

import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seq2seq import engine
from seq2seq.engine import Engine
from seq2seq.errors import UserError
from seq2seq.interface import Compile, Hypothesis, Source
from seq2seq.model.decoders import TextbookDecoder
from seq2seq.model.ensemble import Ensemble
from seq2seq.model.native import NativeDecoder
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from tests.unit.searches import MODERN, NEEDS_COMPILER, SEARCHES

V = 60
STYLES: dict[str, dict[str, Any]] = {"vaswani": {}, "modern": {**MODERN, "bias": False}}


def make(**style: Any) -> Transformer:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"d_model": 32, "num_heads": 4, "d_ff": 48}
    model = Transformer(ModelConfig(**sizes, num_encoder_layers=2, num_decoder_layers=2, **style), V)
    for parameter in model.parameters():
        parameter.data.mul_(5)  # so that sources matter
    return model


def sources(name: str) -> list[Source]:
    torch.manual_seed(1)
    phrases = [[7, 8], [9]] if name == "constrained" else []
    lengths = (3, 9, 6, 1, 12, 9)
    return [
        Source(torch.randint(4, V, (length,)).tolist(), phrases=phrases, key=key) for key, length in enumerate(lengths)
    ]


def search(name: str, model: Transformer | Ensemble, compiles: Compile) -> dict[int, list[Hypothesis]]:
    settings = SearchConfig(max_length_ratio=1.5, max_length_offset=12, batch_tokens=400, **SEARCHES[name])
    searching = Engine(model, "cpu", torch.float32, compiles=compiles)
    n_best = 1 if name == "greedy" else 3
    return dict(one for batch in searching.search(sources(name), settings, n_best) for one in batch)


def assert_alike(found: dict[int, list[Hypothesis]], expected: dict[int, list[Hypothesis]]) -> None:
    assert found.keys() == expected.keys() == set(range(6))
    for index, hypotheses in expected.items():
        assert [one.ids for one in found[index]] == [one.ids for one in hypotheses]
        scores = [one.score for one in hypotheses]
        assert [one.score for one in found[index]] == pytest.approx(scores, rel=1e-5)


@NEEDS_COMPILER
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", SEARCHES)
def test_compiled_and_textbook_searches_give_equal_translations_and_scores(name: str, style: str) -> None:
    model = make(**STYLES[style])
    assert_alike(search(name, model, "on"), search(name, model, "off"))


@NEEDS_COMPILER
def test_an_ensemble_of_compiled_members_translates_like_one_of_textbooks() -> None:
    models = Ensemble([make(), make(**MODERN)])
    assert_alike(search("beam", models, "on"), search("beam", models, "off"))


@NEEDS_COMPILER
def test_a_search_is_compiled_wherever_that_is_possible() -> None:
    for model, dtype, expected in (
        (make(), torch.float32, NativeDecoder),
        (make(), torch.bfloat16, TextbookDecoder),
        (adapted(), torch.float32, TextbookDecoder),
    ):
        assert type(Engine(model, "cpu", dtype)._decoder_for_search()) is expected
        if expected is TextbookDecoder:
            with pytest.raises(UserError, match="--compile on is for"):
                Engine(model, "cpu", dtype, compiles="on")


class Adapted(nn.Module):
    """A linear map with an adapter that has dropout."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear, self.in_features, self.dropout = linear, linear.in_features, nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + 0.1 * self.dropout(x)


def adapted() -> Transformer:
    model = make()
    for layer in model.decoder_layers:
        layer.self_attention.q_proj = Adapted(layer.self_attention.q_proj)  # type: ignore[union-attr, arg-type]
    return model.train()


def test_a_search_computes_adapters_without_dropout() -> None:
    model, settings = adapted(), SearchConfig(beam=3, max_length_ratio=0.0, max_length_offset=8)
    searching = Engine(model, "cpu", torch.float32)
    (batch,) = searching.search(sources("beam"), settings, 1)
    pairs = [(sources("beam")[index].ids, best[0]) for index, best in batch]
    (scored,) = searching.score([ids for ids, _ in pairs], [one.ids for _, one in pairs], 1000)
    for index, scores in scored:
        assert sum(scores.log_probs) == pytest.approx(pairs[index][1].score, rel=1e-4)
    assert list(searching.search(sources("beam"), settings, 1)) == [batch]


def test_a_model_that_does_not_fit_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(engine, "decoder_for_search", fail)
    with pytest.raises(UserError, match="the model does not fit into the memory of cpu: use another device"):
        search("beam", make(), "auto")


@pytest.mark.parametrize("compiles", ["off", pytest.param("on", marks=NEEDS_COMPILER)])
def test_an_engine_that_has_searched_can_be_pickled(compiles: Compile) -> None:
    settings = SearchConfig(beam=3, max_length_ratio=0.0, max_length_offset=8)
    searching = Engine(make(), "cpu", torch.float32, compiles=compiles)
    expected = list(searching.search(sources("beam"), settings, 1))
    assert list(pickle.loads(pickle.dumps(searching)).search(sources("beam"), settings, 1)) == expected


@NEEDS_COMPILER
def test_other_processes_share_the_weights_of_the_compiled_decoder() -> None:
    engine = Engine(make(), "cpu", torch.float32)
    engines = [engine, *(pickle.loads(ForkingPickler.dumps(engine)) for _ in range(2))]  # as for --workers
    weights: list[list[Tensor]] = []
    for one in engines:
        decoder = one._decoder  # made before the engine was sent
        assert isinstance(decoder, NativeDecoder)
        weights.append([decoder.embedding, decoder.output.weight, decoder.layers[1][1][0].weight])
    for own, *others in zip(*weights, strict=True):
        own.data[:] = 7
        assert all((tensor == 7).all() for tensor in others)
