"""Batches, memory and precision of the engine, as a translator uses them."""

from typing import Any

import pytest
import torch
from echo import TEXTS, EchoModel

from seq2seq.errors import UserError
from seq2seq.model.decoding import FlatDecoder
from seq2seq.model.transformer import Transformer
from seq2seq.search_engine import Source, length_limits
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import BOS, EOS
from seq2seq.translator import Translator


@pytest.fixture
def echo(tokenizer):
    model = EchoModel(tokenizer.vocab_size)
    return Translator(model, tokenizer, search=SearchConfig(beam=3, batch_tokens=300))


def test_memory_that_runs_out_beside_another_search_is_there_again_after_it(echo: Translator):
    model: Any = echo.engine.model  # type: ignore[union-attr]
    texts = ["la leche"] * 6
    found: list[list[str]] = []

    def search_inside(count: int) -> None:
        if not found and model.shapes:  # between two steps
            model.room = 20  # what the outer search leaves
            found.append(echo.translate(texts))
            model.room = 10**9

    echo.translate_nbest(["la leche"], 1, on_progress=search_inside)
    assert found == [texts]
    before = len(model.shapes)
    echo.translate(texts)
    assert len(model.shapes) == before + 1  # one batch again


def test_a_batch_holds_at_most_batch_tokens_with_padding_times_beam(echo):
    echo.translate(TEXTS * 5, batch_tokens=120, beam=4)
    shapes = echo.engine.model.shapes
    assert all(rows * length * 4 <= 120 or rows == 1 for rows, length in shapes)
    assert sum(rows for rows, _ in shapes) == len(TEXTS) * 5


def test_running_out_of_memory_halves_the_batch_and_changes_no_translation(tokenizer, caplog):
    model = EchoModel(tokenizer.vocab_size, room=60)
    translator = Translator(model, tokenizer, search=SearchConfig(beam=2, batch_tokens=1000))
    assert translator.translate(TEXTS * 6) == TEXTS * 6
    assert caplog.messages
    assert all(message.startswith("out of memory: going on with batches of ") for message in caplog.messages)
    sizes = [rows for rows, length in model.shapes]
    assert sizes[1] == sizes[0] // 2
    first_that_fits = next(i for i, (rows, length) in enumerate(model.shapes) if rows * length <= 60)
    assert all(rows * length <= 60 for rows, length in model.shapes[first_that_fits:])  # it does not grow again


def test_memory_runs_out_in_the_first_lines_of_a_long_file_only(tokenizer, caplog):
    model = EchoModel(tokenizer.vocab_size, room=60)
    translator = Translator(model, tokenizer, search=SearchConfig(beam=2, batch_tokens=1000))
    found = translator.stream(TEXTS * 30, translator.request(), chunk=len(TEXTS) * 6)
    assert next(found)[0].text == TEXTS[0]
    warnings, shapes = len(caplog.messages), len(model.shapes)
    assert warnings > 0
    assert [best[0].text for best in found] == (TEXTS * 30)[1:]
    assert translator.translate(TEXTS * 6, beam=3) == TEXTS * 6
    assert len(caplog.messages) == warnings
    assert len(model.shapes) > shapes
    assert all(rows * length <= 60 for rows, length in model.shapes[shapes:])


def test_a_single_text_that_does_not_fit_is_the_users_to_solve(tokenizer):
    translator = Translator(EchoModel(tokenizer.vocab_size, room=5), tokenizer, search=SearchConfig(beam=2))
    with pytest.raises(UserError, match=r"a text of \d+ tokens does not fit into the memory of cpu: use"):
        translator.translate(TEXTS)


def test_other_errors_of_the_model_are_not_taken_for_memory(tokenizer):
    translator = Translator(EchoModel(tokenizer.vocab_size, room=5, error="shapes do not match"), tokenizer)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        translator.translate(TEXTS)


@pytest.mark.parametrize("was_training", [True, False])
def test_dropout_is_off_while_translating_and_as_before_afterwards(tokenizer, was_training):
    model = EchoModel(tokenizer.vocab_size).train(was_training)
    Translator(model, tokenizer).translate(TEXTS)
    assert set(model.modes) == {False}
    assert model.training is was_training


def test_a_model_that_computes_nan_is_reported(tokenizer):
    model = EchoModel(tokenizer.vocab_size)
    model.decode = lambda tgt_in, state: (torch.full((len(tgt_in), 1, tokenizer.vocab_size), torch.nan), state)
    for beam in (1, 3):
        with pytest.raises(UserError, match=r"not numbers \(NaN\): its weights are damaged"):
            Translator(model, tokenizer).translate(TEXTS, beam=beam, max_length=4)


def test_coverage_of_a_source_that_is_not_attended_to_is_refused(tokenizer):
    config = ModelConfig(
        d_model=24, num_heads=3, d_ff=40, num_encoder_layers=1, num_decoder_layers=1, cross_attention="none"
    )
    translator = Translator(Transformer(config, tokenizer.vocab_size), tokenizer)
    assert len(translator.translate(TEXTS, max_length=4)) == len(TEXTS)
    with pytest.raises(UserError, match="coverage_penalty is for models that attend to the source, and this one does"):
        translator.translate(TEXTS, coverage_penalty=0.2, max_length=4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_matrix_products_have_the_precision_asked_for(bundle_folder, dtype, monkeypatch):
    translator = Translator.load(bundle_folder, "cpu", dtype=dtype)
    found = set()
    step = FlatDecoder.step

    def watched(decoder, last, state):
        logits, state = step(decoder, last, state)
        found.update((logits.dtype, state.slots.dtype, state.memory[0].keys.dtype))
        return logits, state

    monkeypatch.setattr(FlatDecoder, "step", watched)
    translator.translate(TEXTS)
    assert found == {dtype}


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_model_can_be_trained_after_it_has_translated(tokenizer, positions):
    config = ModelConfig(
        d_model=24, num_heads=3, d_ff=40, num_encoder_layers=1, num_decoder_layers=1, positions=positions
    )
    model = Transformer(config, tokenizer.vocab_size)
    Translator(model, tokenizer).translate(TEXTS, max_length=5)
    ids = torch.tensor([[BOS]])
    model.decode(ids, model.encode(torch.tensor([[5, 6, 7, EOS]])))[0].sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_limits_by_a_ratio_are_those_of_its_decimals() -> None:
    settings = SearchConfig(max_length_ratio=0.29, max_length_offset=1, min_length_ratio=0.57, min_length=2)
    sources = [Source([5] * 100), Source([5] * 100, prefix=[6] * 40), Source([])]
    assert 100 * 0.29 < 29
    assert length_limits(sources, settings) == [(30, 30), (40, 40), (1, 1)]
    assert length_limits(sources[:1], SearchConfig(min_length_ratio=0.57)) == [(57, 220)]
