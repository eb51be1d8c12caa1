"""Batches, memory and precision of the engine, as a translator uses them."""

from typing import Any

import pytest
import torch
from echo import TEXTS, echo_translator

from seq2seq.errors import UserError, is_out_of_memory
from seq2seq.search.types import Source, length_limits
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import BOS, EOS
from seq2seq.translate.bundle import load_bundle
from seq2seq.translate.engine import Engine
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import Text
from tests.refusing import refuses
from tests.thin import thin
from tests.unit.searches import NEEDS_COMPILER, random_model

CHANGES: list[dict[str, Any]] = [{}, {"beam": 1}, {"phrases": ["bola"]}, {"sampling": True}]
CHANGES += [{"no_repeat_ngram": 2}, {"banned": ["la leche"]}, {"prefix": "El gato"}]


def test_a_search_inside_another_needs_only_the_memory_that_the_other_leaves(echo: Translator):
    model: Any = echo.engine.model  # type: ignore[union-attr]
    translations: list[list[str]] = []

    def search_inside(count: int) -> None:
        if not translations and model.shapes:  # between two steps
            model.room = 20  # what the outer search leaves
            translations.append(echo.translate(TEXTS[4:] * 3))
            model.room = 10
            refuses("does not fit into the memory of cpu: try again when the other search", echo.translate, TEXTS)

    echo.translate_nbest(["la leche"], 1, on_progress=search_inside)
    assert translations == [TEXTS[4:] * 3]


def test_a_batch_holds_at_most_batch_tokens_with_padding_times_beam(echo):
    echo.translate(TEXTS * 5, batch_tokens=120, beam=4)
    shapes = echo.engine.model.shapes
    assert all(rows * length * 4 <= 120 or rows == 1 for rows, length in shapes)
    assert sum(rows for rows, _ in shapes) == len(TEXTS) * 5


def test_running_out_of_memory_halves_the_batch_and_changes_no_translation(tokenizer, caplog):
    translator = echo_translator(tokenizer, room=60, beam=2, batch_tokens=1000)
    model: Any = translator.engine.model  # type: ignore[union-attr]
    assert translator.translate(TEXTS * 6) == TEXTS * 6
    assert caplog.messages
    assert all(message.startswith("out of memory: going on with batches of ") for message in caplog.messages)
    assert model.shapes[1][0] == model.shapes[0][0] // 2
    fits = [rows * length <= 60 for rows, length in model.shapes]
    assert all(fits[fits.index(True) :])  # batches grow too little to fail again


@pytest.mark.slow
def test_a_shortage_of_memory_makes_later_batches_smaller_but_not_for_good(tokenizer, caplog):
    translator = echo_translator(tokenizer, room=60, beam=1, batch_tokens=240)
    model: Any = translator.engine.model  # type: ignore[union-attr]
    texts = ["la leche"] * 100
    translator.translate(texts)
    warnings = len(caplog.messages)
    assert translator.translate(texts[:40], beam=2) == texts[:40]
    assert len(caplog.messages) == warnings
    model.room = 10**9
    for _ in range(100):
        translator.translate(texts[:1])
    model.shapes.clear()
    translator.translate(texts)
    assert max(rows * length for rows, length in model.shapes) > 100


def test_a_single_text_that_does_not_fit_is_the_users_to_solve(tokenizer):
    with pytest.raises(UserError, match=r"a text of \d+ tokens does not fit into the memory of cpu: use"):
        echo_translator(tokenizer, room=5, beam=2).translate(TEXTS)
    with pytest.raises(RuntimeError, match="shapes do not match"):  # another error of the model
        echo_translator(tokenizer, room=5, error="shapes do not match").translate(TEXTS)


@pytest.mark.parametrize("compiles", ["off", pytest.param("on", marks=NEEDS_COMPILER)])
@pytest.mark.parametrize("changes", thin(CHANGES, CHANGES[:3]), ids=str)
def test_damaged_weights_are_reported_as_such_whatever_rules_there_are(bundle_folder, changes, compiles):
    bundle = load_bundle(bundle_folder)
    bundle.model.embedding.weight.data[100:] = torch.nan
    translator = Translator(bundle.model, bundle.tokenizer, search=bundle.config.search, compiles=compiles)
    text = Text("The cat.", changes.get("prefix", ""), changes.get("phrases", ()))
    options = {name: value for name, value in changes.items() if name not in ("prefix", "phrases")}
    refuses(r"not numbers \(NaN\): its weights are damaged", translator.translate, [text], max_length=8, **options)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_model_can_be_trained_after_it_has_translated(positions):
    model = random_model(positions=positions)
    assert list(
        Engine(model, "cpu", compiles="off").search(
            [Source([5, 6])], SearchConfig(max_length_ratio=0.0, max_length_offset=5), 1
        )
    )
    model.decode(torch.tensor([[BOS]]), model.encode(torch.tensor([[5, 6, 7, EOS]])))[0].sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_limits_by_a_ratio_are_those_of_its_decimals() -> None:
    settings = SearchConfig(max_length_ratio=0.29, max_length_offset=1, min_length_ratio=0.57, min_length=2)
    sources = [Source([5] * 100), Source([5] * 100, prefix=[6] * 40), Source([])]
    assert 100 * 0.29 < 29
    assert length_limits(sources, settings) == [(30, 30), (40, 40), (1, 1)]
    assert length_limits(sources[:1], SearchConfig(min_length_ratio=0.57)) == [(57, 220)]


ERRORS = [
    (MemoryError(), True),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
    (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
    (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"), False),
]


@pytest.mark.parametrize(("error", "expected"), ERRORS, ids=str)
def test_errors_of_all_libraries_are_known_that_mean_a_lack_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
