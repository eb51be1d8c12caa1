"""Batches, memory and precision of the engine, as a translator uses them."""

from typing import Any

import pytest
import torch
from echo import TEXTS, EchoModel

from seq2seq.bundle import load_bundle
from seq2seq.engine import Engine, _Request
from seq2seq.errors import UserError, is_out_of_memory
from seq2seq.interface import Source, Text, length_limits
from seq2seq.model.decoders import TextbookDecoder
from seq2seq.model.ensemble import Ensemble
from seq2seq.model.transformer import Transformer
from seq2seq.search.driver import SearchTask
from seq2seq.search.next_tokens import best_next
from seq2seq.search.rules import BannedPhrases, ForcedPrefix
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import BOS, EOS
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translator import Translator
from tests.unit.searches import NEEDS_COMPILER


@pytest.fixture
def echo(tokenizer):
    model = EchoModel(tokenizer.vocab_size)
    return Translator(model, Tokenizers.joint(tokenizer), search=SearchConfig(beam=3, batch_tokens=300))


def test_a_search_inside_another_needs_only_the_memory_that_the_other_leaves(echo: Translator):
    model: Any = echo.engine.model  # type: ignore[union-attr]
    found: list[list[str]] = []

    def search_inside(count: int) -> None:
        if not found and model.shapes:  # between two steps
            model.room = 20  # what the outer search leaves
            found.append(echo.translate(TEXTS[4:] * 3))
            model.room = 10
            with pytest.raises(UserError, match="does not fit into the memory of cpu: try again when the other search"):
                echo.translate(TEXTS)

    echo.translate_nbest(["la leche"], 1, on_progress=search_inside)
    assert found == [TEXTS[4:] * 3]


def test_a_batch_holds_at_most_batch_tokens_with_padding_times_beam(echo):
    echo.translate(TEXTS * 5, batch_tokens=120, beam=4)
    shapes = echo.engine.model.shapes
    assert all(rows * length * 4 <= 120 or rows == 1 for rows, length in shapes)
    assert sum(rows for rows, _ in shapes) == len(TEXTS) * 5


@pytest.mark.parametrize(("device", "most"), [("cpu", 4096), ("cuda", 32_768)])
def test_an_automatic_batch_is_larger_on_a_gpu(tokenizer, device: str, most: int) -> None:
    translator = Translator(EchoModel(tokenizer.vocab_size), Tokenizers.joint(tokenizer))
    engine: Any = translator.engine
    engine.device = torch.device(device)
    batches = list(engine._batches("search", [8] * 20_000, translator.search.batch_tokens, lambda batch: batch, rows=5))
    assert len(batches[0]) == most // (5 * 8)


def test_running_out_of_memory_halves_the_batch_and_changes_no_translation(tokenizer, caplog):
    model = EchoModel(tokenizer.vocab_size, room=60)
    translator = Translator(model, Tokenizers.joint(tokenizer), search=SearchConfig(beam=2, batch_tokens=1000))
    assert translator.translate(TEXTS * 6) == TEXTS * 6
    assert caplog.messages
    assert all(message.startswith("out of memory: going on with batches of ") for message in caplog.messages)
    sizes = [rows for rows, length in model.shapes]
    assert sizes[1] == sizes[0] // 2
    first_that_fits = next(i for i, (rows, length) in enumerate(model.shapes) if rows * length <= 60)
    assert all(rows * length <= 60 for rows, length in model.shapes[first_that_fits:])  # it grows too little to fail


def test_a_shortage_of_memory_makes_later_batches_smaller_but_not_for_good(tokenizer, caplog):
    model = EchoModel(tokenizer.vocab_size, room=60)
    translator = Translator(model, Tokenizers.joint(tokenizer), search=SearchConfig(beam=1, batch_tokens=240))
    texts = ["la leche"] * 100
    translator.translate(texts)
    before, warnings = len(model.shapes), len(caplog.messages)
    assert translator.translate(texts[:40], beam=2) == texts[:40]
    assert all(rows * length <= 60 for rows, length in model.shapes[before:])
    assert len(caplog.messages) == warnings
    model.room = 10**9
    for _ in range(100):
        translator.translate(texts[:1])
    model.shapes.clear()
    translator.translate(texts)
    assert max(rows * length for rows, length in model.shapes) > 100
    assert len(caplog.messages) == warnings


def test_a_single_text_that_does_not_fit_is_the_users_to_solve(tokenizer):
    translator = Translator(
        EchoModel(tokenizer.vocab_size, room=5), Tokenizers.joint(tokenizer), search=SearchConfig(beam=2)
    )
    with pytest.raises(UserError, match=r"a text of \d+ tokens does not fit into the memory of cpu: use"):
        translator.translate(TEXTS)


def test_other_errors_of_the_model_are_not_taken_for_memory(tokenizer):
    translator = Translator(
        EchoModel(tokenizer.vocab_size, room=5, error="shapes do not match"), Tokenizers.joint(tokenizer)
    )
    with pytest.raises(RuntimeError, match="shapes do not match"):
        translator.translate(TEXTS)


def test_an_engine_puts_its_model_into_evaluation_mode(tokenizer):
    model = EchoModel(tokenizer.vocab_size).train()
    members = [EchoModel(tokenizer.vocab_size).train() for _ in range(2)]
    Engine(model, "cpu")
    Engine(Ensemble(members), "cpu")
    assert not any(one.training for one in (model, *members))


@pytest.mark.parametrize("compiles", ["off", pytest.param("on", marks=NEEDS_COMPILER)])
@pytest.mark.parametrize(
    "changes",
    [
        {"beam": 1},
        {},
        {"sampling": True},
        {"groups": 3},
        {"no_repeat_ngram": 2},
        {"repetition_penalty": 1.5},
        {"min_length": 3},
        {"banned": ["la leche"]},
        {"banned": ["e"]},
        {"prefix": "El gato"},
        {"phrases": ["bola"]},
    ],
    ids=str,
)
def test_damaged_weights_are_reported_as_such_whatever_rules_there_are(bundle_folder, changes, compiles):
    bundle = load_bundle(bundle_folder)
    bundle.model.embedding.weight.data[100:] = torch.nan
    translator = Translator(bundle.model, bundle.tokenizer, search=bundle.config.search, compiles=compiles)
    text = Text("The cat.", changes.get("prefix", ""), changes.get("phrases", ()))
    options = {name: value for name, value in changes.items() if name not in ("prefix", "phrases")}
    with pytest.raises(UserError, match=r"not numbers \(NaN\): its weights are damaged"):
        translator.translate([text], max_length=8, **options)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_matrix_products_have_the_precision_asked_for_and_logits_are_float32(bundle_folder, dtype, monkeypatch):
    translator = Translator.load(bundle_folder, "cpu", dtype=dtype, compiles="off")
    found = set()
    step = TextbookDecoder.step

    def observed(decoder, last, state):
        logits, state = step(decoder, last, state)
        found.add((logits.dtype, state.inner.past[0].keys.dtype, state.inner.memory[0].keys.dtype))
        return logits, state

    monkeypatch.setattr(TextbookDecoder, "step", observed)
    translator.translate(TEXTS)
    assert found == {(torch.float32, dtype, dtype)}


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_model_can_be_trained_after_it_has_translated(tokenizer, positions):
    config = ModelConfig(
        d_model=24, num_heads=3, d_ff=40, num_encoder_layers=1, num_decoder_layers=1, positions=positions
    )
    model = Transformer(config, tokenizer.vocab_size)
    Translator(model, Tokenizers.joint(tokenizer), compiles="off").translate(TEXTS, max_length=5)
    ids = torch.tensor([[BOS]])
    model.decode(ids, model.encode(torch.tensor([[5, 6, 7, EOS]])))[0].sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_limits_by_a_ratio_are_those_of_its_decimals() -> None:
    settings = SearchConfig(max_length_ratio=0.29, max_length_offset=1, min_length_ratio=0.57, min_length=2)
    sources = [Source([5] * 100), Source([5] * 100, prefix=[6] * 40), Source([])]
    assert 100 * 0.29 < 29
    assert length_limits(sources, settings) == [(30, 30), (40, 40), (1, 1)]
    assert length_limits(sources[:1], SearchConfig(min_length_ratio=0.57)) == [(57, 220)]


def task(engine: Engine, banned: list[list[int]], *, prefix: tuple[int, ...] = (), **settings: Any) -> SearchTask:
    return engine._task([Source([5, 6, 7], prefix)], _Request(SearchConfig(**settings), 1, banned), (0, 1), best_next)


def test_bans_of_single_tokens_and_a_least_length_are_no_rules_which_would_slow_every_step() -> None:
    engine = Engine(EchoModel(20), "cpu")
    quick = task(engine, [[5], [9]], min_length=2)
    assert (list(quick.rules), sorted(quick.banned), list(quick.min_lengths)) == ([], [0, 1, 5, 9], [2])
    longer = task(engine, [[5], [6, 7]])
    assert [type(rule) for rule in longer.rules] == [BannedPhrases]
    assert 5 in longer.banned
    prefixed = task(engine, [[5]], prefix=(5,))  # a prefix may contain banned tokens
    assert [type(rule) for rule in prefixed.rules] == [ForcedPrefix]
    assert 5 not in prefixed.banned


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"), False),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"), False),
        (ValueError("shapes do not match"), False),
    ],
    ids=str,
)
def test_errors_of_all_libraries_are_known_that_mean_a_lack_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
