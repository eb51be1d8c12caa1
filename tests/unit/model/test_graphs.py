"""Recorded steps of the decoder for search: what is recorded, how often, and that searches do not share memory.

`test_flat_decoder.py` and `test_two_decoders.py` hold what they compute.
"""

import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from benchmarks.recording import record
from seq2seq import engine
from seq2seq.model import decoders, graphs
from seq2seq.model.decoders import EnsembleDecoder, for_search, release
from seq2seq.model.decoding import FlatDecoder
from seq2seq.model.graphs import GraphedDecoder, GraphedState, RecordedStep, Size, rounded
from seq2seq.model.transformer import Transformer
from seq2seq.search_engine import Source
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig

V = 40


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(0)
    return Transformer(ModelConfig(d_model=16, num_heads=2, d_ff=32, num_encoder_layers=1, num_decoder_layers=2), V)


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def graphed(model: Transformer) -> GraphedDecoder:
    return GraphedDecoder(FlatDecoder(model, torch.float32), lambda: record)


class Recorder:
    """Records, and counts how often it was asked to."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, compute: Callable[[], None]) -> Callable[[], None]:
        self.count += 1
        return record(compute)


def beam(decoder: GraphedDecoder, sentences: int, steps: int, width: int = 3) -> tuple[GraphedState, Tensor]:
    """Search sentences of five tokens with several rows each; return the last state and logits."""
    state = decoder.encode(torch.arange(sentences * 5).view(sentences, 5) % (V - 4) + 4)
    logits, state = decoder.step(torch.full((sentences,), 5), state)
    rows = torch.arange(sentences).repeat_interleave(width)
    for step in range(steps - 1):
        state.reorder(rows, [width] * sentences)
        logits, state = decoder.step(torch.arange(len(rows)) % 30 + 4 + step % 3, state)
        rows = torch.arange(len(rows))
    return state, logits


def test_numbers_are_rounded_up_to_powers_of_two() -> None:
    assert [rounded(one) for one in (1, 2, 3, 4, 5, 64, 65)] == [1, 2, 4, 4, 8, 64, 128]


def test_a_size_is_recorded_once_however_many_steps_and_searches_have_it(model: Transformer) -> None:
    recorder = Recorder()
    decoder = GraphedDecoder(FlatDecoder(model, torch.float32), lambda: recorder)
    beam(decoder, sentences=3, steps=20)
    assert recorder.count == 2  # one row a sentence, then three; 64 slots hold 20 steps
    beam(decoder, sentences=4, steps=15)  # three sentences were rounded up to four
    assert recorder.count == 2
    beam(decoder, sentences=4, steps=30)  # more slots
    assert recorder.count == 3
    beam(decoder, sentences=5, steps=2)
    assert recorder.count == 5
    assert all(one.is_free for one in decoder.steps)


def test_searches_of_one_size_have_memory_of_their_own(model: Transformer) -> None:
    recorder = Recorder()
    flat = FlatDecoder(model, torch.float32)
    decoder = GraphedDecoder(flat, lambda: recorder)
    first, second = torch.tensor([[5, 6, 7]]), torch.tensor([[9, 8, 11]])
    states = [decoder.encode(first), decoder.encode(second)]
    expected = [flat.encode(first), flat.encode(second)]
    for last in ([5], [6], [7]):  # in turns
        for number, reference in enumerate(expected):
            logits, _ = decoder.step(torch.tensor(last), states[number])
            assert_close(logits, flat.step(torch.tensor(last), reference)[0], atol=1e-5, rtol=1e-5)
    assert recorder.count == 2
    states.clear()
    beam(decoder, sentences=1, steps=1)
    assert recorder.count == 2  # a finished search's memory serves the next one


def test_no_more_steps_are_kept_than_allowed(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST_STEPS", 3)
    decoder = graphed(model)
    for sentences in (1, 2, 4, 8, 16):
        beam(decoder, sentences, steps=1)
    assert [one.size.sentences for one in decoder.steps] == [8, 16]  # the first three went together


def test_memory_kept_for_later_is_freed_before_a_batch_is_too_large(
    model: Transformer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    living: weakref.WeakSet[RecordedStep] = weakref.WeakSet()
    allot = RecordedStep.__init__

    def scarce(self: RecordedStep, size: Size, state: GraphedState, decoder: FlatDecoder) -> None:
        if len(living) == 2:
            raise torch.OutOfMemoryError("out of memory")
        living.add(self)
        allot(self, size, state, decoder)

    monkeypatch.setattr(RecordedStep, "__init__", scarce)
    monkeypatch.setattr(engine, "for_search", lambda model, dtype, **_: graphed(model))
    searching = engine.Engine(model, torch.device("cpu"), torch.float32, is_frozen=True)
    for sentences in (1, 2, 4):
        list(searching.search([Source([5, 6, 7])] * sentences, SearchConfig(beam=1), 1))
    assert not caplog.messages  # no batch was made smaller
    list(searching.search([Source([5, 6, 7])] * 4, SearchConfig(beam=3, batch_tokens=1000), 1))
    assert not caplog.messages


def test_a_released_decoder_searches_on(model: Transformer) -> None:
    recorders: list[Recorder] = []

    def make_recorder() -> Recorder:
        recorders.append(Recorder())
        return recorders[-1]

    decoder = GraphedDecoder(FlatDecoder(model, torch.float32), make_recorder)
    assert not decoder.release()
    state, _ = beam(decoder, sentences=2, steps=3)
    assert release(EnsembleDecoder([decoder, FlatDecoder(model, torch.float32)]))
    assert [one.is_free for one in decoder.steps] == [False]  # the search goes on
    recorders.clear()
    del state
    assert decoder.release()
    assert not decoder.steps
    _, logits = beam(decoder, sentences=2, steps=3)
    assert [one.count for one in recorders] == [2]  # by a new recorder, with memory of its own
    assert_close(logits, beam(graphed(model), sentences=2, steps=3)[1])


def test_what_no_graph_can_hold_is_refused_and_pythons_numbers_are_recorded() -> None:
    x, number = torch.zeros(3), [1.0]
    with pytest.raises(RuntimeError, match="cannot be recorded"):
        record(lambda: x.add_(float(x.sum())))  # type: ignore[arg-type, return-value]
    with pytest.raises(RuntimeError, match="cannot be recorded"):
        record(lambda: x.add_(torch.tensor([1.0, 2.0, 3.0])))  # type: ignore[arg-type, return-value]
    for refused in (lambda: x.copy_(x[x > 0]), lambda: x.equal(x), lambda: x.unique()):
        with pytest.raises(RuntimeError, match="cannot be recorded"):
            record(refused)  # type: ignore[arg-type]
    repeat = record(lambda: x.copy_((x * 2).view(3) + number[0]))  # type: ignore[arg-type, return-value]
    number[0] = 100.0
    x.fill_(3)
    repeat()
    assert x.tolist() == [7, 7, 7]
    between: list[Tensor] = []
    record(lambda: between.append(x * 2))()
    assert between[0].isnan().all()  # nothing may be read after a graph but what it copied


def test_off_the_cpu_a_compiled_search_is_recorded(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "CudaGraphs", lambda _: record)
    assert type(for_search(model.to("meta"), torch.bfloat16, is_compiled=True)) is GraphedDecoder
    assert type(for_search(model, torch.bfloat16)) is FlatDecoder


def test_a_limited_decoder_is_not_recorded(model: Transformer) -> None:
    flat = FlatDecoder(model, torch.float32)
    limited, ids = graphed(model).limited_to(torch.tensor([2, 5, 9])), torch.tensor([2, 5, 9])
    src = torch.tensor([[5, 6]])
    logits, _ = limited.step(torch.tensor([1]), limited.encode(src))
    assert_close(logits, flat.step(torch.tensor([5]), flat.encode(src))[0][:, ids])
