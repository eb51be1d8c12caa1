"""Searches with a shortlist: with the whole vocabulary they find the same, with a part of it what is possible in it."""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seq2seq import engine
from seq2seq.engine import Engine
from seq2seq.interface import Candidate, Compile, Hypothesis, Source
from seq2seq.model.build import build_model
from seq2seq.model.decoders import TextbookDecoder
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.ensemble import Ensemble
from seq2seq.model.native import NativeDecoder
from seq2seq.model.transformer import Transformer
from seq2seq.search import shortlist as module
from seq2seq.search.shortlist import Shortlist
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from tests.unit import searches
from tests.unit.searches import MODERN, NEEDS_COMPILER

V = 90
SEARCHES = {**searches.SEARCHES, "banned": {"beam": 4}, "prefix": {"beam": 3}}
BANNED = {"banned": [[17], [33, 50]]}


def transformer(seed: int = 0, **style: Any) -> EncoderDecoder:
    sizes: dict[str, Any] = {
        "d_model": 32,
        "num_heads": 4,
        "d_ff": 48,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
    }
    return drawn(ModelConfig(**sizes, **style), seed)


def drawn(config: ModelConfig, seed: int = 0) -> EncoderDecoder:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build_model(config, V)
        for parameter in model.parameters():
            parameter.data.mul_(5)  # so that sources matter
    return model.eval()


def lstm() -> EncoderDecoder:
    return drawn(ModelConfig(architecture="recurrent", d_model=16, num_encoder_layers=1, num_decoder_layers=1))


MODELS: dict[str, Callable[[], EncoderDecoder | Ensemble]] = {
    "vaswani": transformer,
    "modern": lambda: transformer(bias=False, **MODERN),
    "lstm": lstm,
    "ensemble": lambda: Ensemble([transformer(), transformer(1, **MODERN)]),
    "mixed ensemble": lambda: Ensemble([transformer(), lstm()]),
}
COMPILED = ("vaswani", "modern", "ensemble")
WAYS = [
    *(pytest.param(name, "off", id=name) for name in MODELS),
    *(pytest.param(name, "on", id=f"{name} compiled", marks=NEEDS_COMPILER) for name in COMPILED),
]


def sources(name: str) -> list[Source]:
    phrases = [[7, 8], [9]] if name == "constrained" else []
    prefix = [44, 12] if name == "prefix" else []
    rng, lengths = np.random.default_rng(1), (3, 9, 6, 1, 12, 9)
    return [Source(rng.integers(4, V, length).tolist(), prefix, phrases, key=key) for key, length in enumerate(lengths)]


def limited(allowed: list[int]) -> Shortlist:
    """A shortlist that allows every text the same ids, and nothing for the sources' own sake."""
    by_frequency = np.array([*allowed, *(one for one in range(V) if one not in allowed)], np.int32)
    offsets, none = np.zeros(V + 1, np.int64), np.empty(0, np.int32)
    return Shortlist(offsets, none, np.array(allowed, np.int32), by_frequency, "")


def search(
    model: EncoderDecoder | Ensemble, name: str, shortlist: Shortlist | None, compiles: Compile
) -> list[list[Hypothesis]]:
    settings = SearchConfig(max_length_ratio=1.5, max_length_offset=12, batch_tokens=400, **SEARCHES[name])
    searching = Engine(model, "cpu", torch.float32, compiles=compiles, shortlist=shortlist)
    n_best = 1 if name == "greedy" else 3
    found = dict(
        one for batch in searching.search(sources(name), settings, n_best, BANNED.get(name, ())) for one in batch
    )
    return [found[index] for index in range(len(found))]


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize(("model", "compiles"), WAYS)
def test_a_shortlist_of_the_whole_vocabulary_changes_no_token_and_no_score(
    model: str, compiles: Compile, name: str
) -> None:
    made = MODELS[model]()
    expected = search(made, name, None, compiles)
    assert len(expected) == 6
    assert search(made, name, limited(list(range(V))), compiles) == expected


class Forbidding(TextbookDecoder):
    """The slow reference: the whole vocabulary, with -inf for what is not allowed."""

    def __init__(self, model: Any, allowed: Tensor) -> None:
        super().__init__(model)
        self.allowed = allowed

    def step(self, last: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits, state = super().step(last, state)
        return torch.full_like(logits, -torch.inf).index_copy(1, self.allowed, logits[:, self.allowed]), state


ALLOWED = [0, 1, 2, 3, 5, 7, 8, 9, 12, 17, 20, 21, 33, 40, 41, 44, 50, 60, 61, 62, 70, 71, 80, 88]


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize(("model", "compiles"), [*WAYS[:3], *WAYS[5:7]])
def test_a_small_shortlist_finds_what_the_model_finds_whose_other_logits_are_minus_infinity(
    model: str, compiles: Compile, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MULTIPLE", 1)
    made = MODELS[model]()
    monkeypatch.setattr(Shortlist, "union", lambda *_: np.array(ALLOWED))  # without the sources' own ids
    found = search(made, name, limited(ALLOWED), compiles)
    monkeypatch.setattr(engine, "decoder_for_search", lambda model, *_: Forbidding(model, torch.tensor(ALLOWED)))
    expected = search(made, name, None, "off")
    assert {token for best in found for one in best for token in one.ids} <= set(ALLOWED)
    for ours, theirs in zip(found, expected, strict=True):
        assert [one.ids for one in ours] == [one.ids for one in theirs]
        scores = [one.score for one in theirs]
        assert [one.score for one in ours] == pytest.approx(scores, abs=1e-4, rel=1e-5)


def test_what_is_asked_for_is_allowed_whatever_the_shortlist_says() -> None:
    wanted = replace(sources("beam")[0], prefix=[44, 12], phrases=[[80, 81]])
    settings = SearchConfig(beam=5, max_length_ratio=0.0, max_length_offset=6)
    searching = Engine(transformer(), "cpu", torch.float32, shortlist=limited([0, 1, 2, 3]))
    (((_, (best,)),),) = searching.search([wanted], settings, 1, banned=[[66]])
    assert best.ids[:2] == [44, 12]
    assert [80, 81] in [best.ids[i : i + 2] for i in range(len(best.ids))]
    assert 66 not in best.ids


def test_the_candidates_of_a_step_are_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MULTIPLE", 1)
    source, settings = sources("beam")[1], SearchConfig(beam=3, max_length_ratio=0.0, max_length_offset=6)
    engine = Engine(transformer(), "cpu", torch.float32, shortlist=limited(ALLOWED))
    steps: list[list[Candidate]] = []
    (best,) = engine.search_steps(source, settings, steps.append)
    assert best.ids[0] in [one.token for one in steps[0]]
    assert {one.token for step in steps for one in step} <= {*ALLOWED, *source.ids}


def test_an_engine_with_a_shortlist_can_be_pickled() -> None:
    settings = SearchConfig(beam=3, max_length_ratio=0.0, max_length_offset=8)
    shortlist = limited(list(range(40)))
    searching = Engine(transformer(), "cpu", torch.float32, shortlist=shortlist)
    expected = list(searching.search(sources("beam"), settings, 1))
    assert list(pickle.loads(pickle.dumps(searching)).search(sources("beam"), settings, 1)) == expected


@NEEDS_COMPILER
def test_a_limited_compiled_decoder_leaves_the_whole_one_as_it_was() -> None:
    model = transformer()
    assert isinstance(model, Transformer)
    decoder, ids, src = NativeDecoder(model), torch.tensor([0, 1, 2, 3, 30, 40, 50]), torch.tensor([[5, 6, 3]])
    with torch.no_grad():
        before, _ = decoder.step(torch.tensor([40]), decoder.encode(src))
        limited_one = decoder.limited_to(ids)
        some, _ = limited_one.step(torch.tensor([5]), limited_one.encode(src))
        after, _ = decoder.step(torch.tensor([40]), decoder.encode(src))
    assert torch.equal(before, after)
    assert torch.equal(some, before[:, ids])
    assert not decoder.output.weight.is_shared()  # only other processes need shared memory


def test_products_in_bf16_are_limited_too() -> None:
    ids, src = torch.tensor([0, 1, 2, 3, 30, 40, 50]), torch.tensor([[5, 6, 3]])
    decoder = TextbookDecoder(transformer())
    limited_one = decoder.limited_to(ids)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        whole, _ = decoder.step(torch.tensor([40]), decoder.encode(src))
        some, _ = limited_one.step(torch.tensor([5]), limited_one.encode(src))
    torch.testing.assert_close(some, whole[:, ids])


@NEEDS_COMPILER
def test_threads_and_nested_searches_may_share_an_engine_with_a_shortlist() -> None:
    settings = SearchConfig(beam=3, max_length_ratio=0.0, max_length_offset=8, batch_tokens=30)
    searching = Engine(transformer(), "cpu", torch.float32, compiles="on", shortlist=limited(list(range(40))))
    expected = list(searching.search(sources("beam"), settings, 1))
    nested = []

    def search_inside() -> None:
        if len(nested) < 3:
            nested.append(None)
            nested[-1] = list(searching.search(sources("beam"), settings, 1))

    assert list(searching.search(sources("beam"), settings, 1, on_step=search_inside)) == expected
    assert nested == [expected] * 3
    with ThreadPoolExecutor(3) as threads:
        found = threads.map(lambda _: list(searching.search(sources("beam"), settings, 1)), range(9))
        assert list(found) == [expected] * 9
