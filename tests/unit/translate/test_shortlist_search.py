"""Searches with a shortlist: with the whole vocabulary they find the same, with a part of it what is possible in it."""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor

from seq2seq.model.decoders import Ensemble, TextbookDecoder
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.search import shortlist as module
from seq2seq.search.shortlist import Shortlist
from seq2seq.settings.search import Compile, SearchConfig
from seq2seq.translate import engine
from seq2seq.translate.engine import Engine
from tests.refusing import refuses
from tests.thin import thin
from tests.unit.searches import (
    MODERN,
    NEEDS_COMPILER,
    SEARCHES,
    VOCAB_SIZE,
    assert_alike,
    random_model,
    search,
    shortlist_of,
    sources,
)

NAMES = [*SEARCHES, "banned", "prefix"]
BANNED = {"banned": [[17], [33, 50]]}
RECURRENT: dict[str, Any] = {"architecture": "recurrent"}
MODELS: dict[str, Callable[[], EncoderDecoder | Ensemble]] = {
    "vaswani": random_model,
    "modern": lambda: random_model(bias=False, **MODERN),
    "lstm": lambda: random_model(**RECURRENT),
    "ensemble": lambda: Ensemble([random_model(), random_model(1, **MODERN)]),
    "mixed ensemble": lambda: Ensemble([random_model(), random_model(**RECURRENT)]),
}
TEXTBOOK = [(model, "off") for model in MODELS]
COMPILED = [("vaswani", "on"), ("modern", "on"), ("ensemble", "on")]
SHORT = SearchConfig(beam=3, max_length_ratio=0.0, max_length_offset=8, batch_tokens=30)


@pytest.mark.slow
@pytest.mark.parametrize("name", thin(NAMES, ["beam", "rules", "prefix"]))
@pytest.mark.parametrize(("model", "compiles"), thin([*TEXTBOOK, *COMPILED], [TEXTBOOK[0], TEXTBOOK[4], COMPILED[1]]))
def test_a_shortlist_of_the_whole_vocabulary_changes_no_token_and_no_score(model, compiles, name):
    made, banned = MODELS[model](), BANNED.get(name, ())
    expected = search(made, name, compiles, banned=banned)
    assert search(made, name, compiles, shortlist_of(list(range(VOCAB_SIZE))), banned) == expected


class Forbidding(TextbookDecoder):
    """The slow reference: the whole vocabulary, with -inf for what is not allowed."""

    def __init__(self, model: Any, allowed: Tensor) -> None:
        super().__init__(model)
        self.allowed = allowed

    def step(self, last: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits, state = super().step(last, state)
        return torch.full_like(logits, -torch.inf).index_copy(1, self.allowed, logits[:, self.allowed]), state


ALLOWED = [0, 1, 2, 3, 5, 7, 8, 9, 12, 17, 20, 21, 33, 40, 41, 44, 50, 60, 61, 62, 70, 71, 80, 88]


@pytest.mark.slow
@pytest.mark.parametrize("name", thin(NAMES, ["beam", "banned"]))
@pytest.mark.parametrize(("model", "compiles"), thin([*TEXTBOOK[:3], *COMPILED[:2]], [TEXTBOOK[2], COMPILED[0]]))
def test_a_small_shortlist_finds_what_the_model_finds_whose_other_logits_are_minus_infinity(
    model: str, compiles: Compile, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MULTIPLE", 1)
    monkeypatch.setattr(Shortlist, "union", lambda *_: np.array(ALLOWED))  # without the sources' own ids
    made, banned = MODELS[model](), BANNED.get(name, ())
    results = search(made, name, compiles, shortlist_of(ALLOWED), banned)
    assert {token for best in results for hypothesis in best for token in hypothesis.ids} <= set(ALLOWED)
    monkeypatch.setattr(engine, "decoder_for_search", lambda model, *_: Forbidding(model, torch.tensor(ALLOWED)))
    assert_alike(results, search(made, name, "off", banned=banned))


@pytest.mark.slow
def test_prefixes_and_phrases_are_allowed_whatever_the_shortlist_says() -> None:
    source = replace(sources("beam")[0], prefix=[44, 12], phrases=[[80, 81]])
    settings = SearchConfig(beam=5, max_length_ratio=0.0, max_length_offset=6)
    searching = Engine(random_model(), "cpu", torch.float32, shortlist=shortlist_of([0, 1, 2, 3]))
    (((_, (best,)),),) = searching.search([source], settings, 1, banned=[[66]])
    assert best.ids[:2] == [44, 12]
    assert [80, 81] in [best.ids[i : i + 2] for i in range(len(best.ids))]
    assert 66 not in best.ids


@pytest.mark.slow
@pytest.mark.parametrize("model", thin(["vaswani", "modern", "ensemble"], ["modern"]))
@pytest.mark.parametrize("name", SEARCHES)
def test_compiled_and_textbook_searches_give_equal_translations_and_scores(name: str, model: str) -> None:
    made = MODELS[model]()
    assert_alike(search(made, name, "on"), search(made, name, "off"))


def test_a_model_that_cannot_be_compiled_is_refused_only_if_compilation_is_requested() -> None:
    assert list(Engine(random_model(), "cpu", torch.bfloat16).search(sources("beam"), SHORT, 1))
    refuses("--compile on is for", Engine, random_model(), "cpu", torch.bfloat16, compiles="on")


@pytest.mark.slow
@NEEDS_COMPILER
def test_threads_may_share_an_engine_with_a_shortlist() -> None:
    searching = Engine(random_model(), "cpu", torch.float32, compiles="on", shortlist=shortlist_of(list(range(40))))
    expected = list(searching.search(sources("beam"), SHORT, 1))
    with ThreadPoolExecutor(3) as threads:
        results = threads.map(lambda _: list(searching.search(sources("beam"), SHORT, 1)), range(9))
        assert list(results) == [expected] * 9
    assert list(pickle.loads(pickle.dumps(searching)).search(sources("beam"), SHORT, 1)) == expected


def test_a_model_that_does_not_fit_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "decoder_for_search", Mock(side_effect=torch.OutOfMemoryError("out of memory")))
    refuses("the model does not fit into the memory of cpu: use another device", search, random_model(), "beam")
