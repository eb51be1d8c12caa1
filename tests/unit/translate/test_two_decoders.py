"""The compiled step computes what the textbook computes: the same translations and scores, in every search."""

from typing import Any
from unittest.mock import Mock

import pytest
import torch

from seq2seq.model.decoders import Ensemble
from seq2seq.settings.search import SearchConfig
from seq2seq.translate import engine
from seq2seq.translate.engine import Engine
from tests.refusing import refuses
from tests.thin import thin
from tests.unit.searches import MODERN, SEARCHES, assert_alike, random_model, search, sources

STYLES: dict[str, dict[str, Any]] = {"vaswani": {}, "modern": {**MODERN, "bias": False}}
SHORT = SearchConfig(beam=3, max_length_ratio=0.0, max_length_offset=8)


@pytest.mark.slow
@pytest.mark.parametrize("style", thin(STYLES, ["modern"]))
@pytest.mark.parametrize("name", SEARCHES)
def test_compiled_and_textbook_searches_give_equal_translations_and_scores(name: str, style: str) -> None:
    model = random_model(**STYLES[style])
    assert_alike(search(model, name, "on"), search(model, name, "off"))


@pytest.mark.slow
def test_an_ensemble_of_compiled_members_translates_like_one_of_textbooks() -> None:
    models = Ensemble([random_model(), random_model(**MODERN)])
    assert_alike(search(models, "beam", "on"), search(models, "beam", "off"))


def test_a_model_that_cannot_be_compiled_is_refused_only_if_compilation_is_requested() -> None:
    assert list(Engine(random_model(), "cpu", torch.bfloat16).search(sources("beam"), SHORT, 1))
    refuses("--compile on is for", Engine, random_model(), "cpu", torch.bfloat16, compiles="on")


def test_a_model_that_does_not_fit_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "decoder_for_search", Mock(side_effect=torch.OutOfMemoryError("out of memory")))
    refuses("the model does not fit into the memory of cpu: use another device", search, random_model(), "beam")
