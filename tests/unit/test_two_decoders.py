"""Every search finds the same with the decoder for search as with the textbook's, token for token."""

import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.recording import record
from seq2seq import engine
from seq2seq.engine import Engine
from seq2seq.errors import UserError
from seq2seq.model.decoders import TextbookDecoder
from seq2seq.model.decoding import FlatDecoder
from seq2seq.model.ensemble import Ensemble
from seq2seq.model.graphs import GraphedDecoder
from seq2seq.model.transformer import Transformer
from seq2seq.search.hypothesis import Hypothesis
from seq2seq.search_engine import Source
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from tests.unit.searches import MODERN, NEEDS_COMPILER, SEARCHES

V = 60
GRAPHED = pytest.param("graphed", marks=pytest.mark.slow)
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


def search(name: str, model: Transformer | Ensemble, *, is_compiled: bool = False) -> dict[int, list[Hypothesis]]:
    settings = SearchConfig(max_length_ratio=1.5, max_length_offset=12, batch_tokens=400, **SEARCHES[name])
    n_best = 1 if name == "greedy" else 3
    cpu = torch.device("cpu")
    searching = Engine(model, cpu, torch.float32, is_compiled=is_compiled)
    return dict(one for batch in searching.search(sources(name), settings, n_best) for one in batch)


def graphed(model: Transformer, dtype: torch.dtype, **_: object) -> GraphedDecoder:
    return GraphedDecoder(FlatDecoder(model, dtype), lambda: record)


@pytest.mark.parametrize("kind", ["flat", pytest.param("compiled", marks=NEEDS_COMPILER), GRAPHED])
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_finds_what_it_finds_with_the_textbook(
    name: str, style: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(**STYLES[style])
    if kind == "graphed":
        monkeypatch.setattr(engine, "for_search", graphed)
    found = search(name, model, is_compiled=kind == "compiled")
    monkeypatch.setattr(engine, "for_search", lambda model, dtype, **_: TextbookDecoder(model))
    expected = search(name, model)
    assert len(found) == 6
    for index, hypotheses in expected.items():
        assert [one.ids for one in found[index]] == [one.ids for one in hypotheses]
        scores = [one.score for one in hypotheses]
        assert [one.score for one in found[index]] == pytest.approx(scores, abs=1e-4, rel=1e-5)


def test_an_ensembles_search_finds_what_it_finds_with_the_textbook(monkeypatch: pytest.MonkeyPatch) -> None:
    models = Ensemble([make(), make(**MODERN)])
    found = search("beam", models)
    monkeypatch.setattr(engine, "for_search", lambda model, dtype, **_: TextbookDecoder(model))
    expected = search("beam", models)
    assert {i: [one.ids for one in best] for i, best in found.items()} == {
        i: [one.ids for one in best] for i, best in expected.items()
    }


def test_a_search_sees_the_weights_of_its_time_unless_the_model_is_frozen() -> None:
    model, settings = make(), SearchConfig(beam=3, max_length_ratio=0.0, max_length_offset=8)
    cpu = torch.device("cpu")
    live, frozen = Engine(model, cpu, torch.float32), Engine(model, cpu, torch.float32, is_frozen=True)
    before = [list(one.search(sources("beam"), settings, 1)) for one in (live, frozen)]
    assert before[0] == before[1]
    model.embedding.weight.data = model.embedding.weight.data.roll(1, 0)
    again = list(live.search(sources("beam"), settings, 1))
    assert again != before[0]
    assert again == list(Engine(model, cpu, torch.float32).search(sources("beam"), settings, 1))


class Adapted(nn.Module):
    """A linear map with an adapter that has dropout."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear, self.in_features, self.dropout = linear, linear.in_features, nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + 0.1 * self.dropout(x)


def test_adapters_are_read_without_dropout_and_without_the_callers_precision() -> None:
    model, settings = make(), SearchConfig(beam=3, max_length_ratio=0.0, max_length_offset=8)
    for layer in model.decoder_layers:
        layer.self_attention.q_proj = Adapted(layer.self_attention.q_proj)  # type: ignore[union-attr, arg-type]
    searching = Engine(model, torch.device("cpu"), torch.float32)
    expected = list(searching.search(sources("beam"), settings, 1))
    model.train()
    with torch.autocast("cpu", torch.bfloat16):
        decoder = searching._decoder_for_search()
    assert model.training
    src = torch.tensor([[5, 6, 7]])
    with searching.inference():
        logits, _ = decoder.step(torch.tensor([8]), decoder.encode(src))
        textbook, _ = model.decode(torch.tensor([[8]]), model.encode(src))
    torch.testing.assert_close(logits, textbook[:, 0], atol=1e-4, rtol=1e-5)
    assert list(searching.search(sources("beam"), settings, 1)) == expected


def test_a_model_that_does_not_fit_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(engine, "for_search", fail)
    with pytest.raises(UserError, match="the model does not fit into the memory of cpu: use another device"):
        search("beam", make())


def test_an_engine_that_has_searched_can_be_pickled() -> None:
    model, settings = make(), SearchConfig(beam=3, max_length_ratio=0.0, max_length_offset=8)
    searching = Engine(model, torch.device("cpu"), torch.float32, is_frozen=True)
    expected = list(searching.search(sources("beam"), settings, 1))
    assert list(pickle.loads(pickle.dumps(searching)).search(sources("beam"), settings, 1)) == expected
