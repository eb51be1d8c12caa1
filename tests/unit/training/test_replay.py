"""Recorded updates are the plain ones, bit for bit, and no recording ends a run or changes its numbers.

A stand-in records on the CPU: it runs the computation again, into the same results.
"""

import logging
import re
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.ours import Updates
from seq2seq.data.batching import LADDER_TOKENS, Batch, collate
from seq2seq.model.build import build_model
from seq2seq.model.positions import rotations, sinusoidal
from seq2seq.settings.config import Config
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.training import replay as replay_file
from seq2seq.training.module import TranslationModule
from seq2seq.training.replay import Computation, CudaRecorder, Recorder, Replay, Results, recording_obstacle
from seq2seq.training.report import _device
from tests.unit.training import resuming
from tests.unit.training.resuming import changed, end_of, is_same, resume, straight_run

V = 30
pytestmark = pytest.mark.filterwarnings("ignore:.*")


def record(compute: Computation) -> Computation:
    """Return what computes again, into the results of the first time."""
    places: list[Tensor] = []

    def run() -> Results:
        results = compute()
        places.extend(one.clone() for one in results[len(places) :])
        for place, result in zip(places, results, strict=True):
            place.copy_(result)
        return tuple(places)

    return run


def batches(count: int = 8) -> list[Batch]:
    """Return batches of two shapes."""
    rng = np.random.default_rng(0)
    lengths = [((5, 6), (4, 3), (7, 2)), ((3, 2), (2, 4), (1, 1))]
    return [
        collate([(rng.integers(4, V, s), rng.integers(4, V, t)) for s, t in lengths[number % 3 % 2]])
        for number in range(count)
    ]


def make(recorder: Recorder | None, precision: str = "32-true", optimizer: str = "adamw", **training: Any) -> Updates:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"d_model": 16, "num_heads": 4, "d_ff": 24}
    sizes |= {"num_encoder_layers": 1, "num_decoder_layers": 2}
    model = build_model(ModelConfig(**sizes, dropout=0.2, norm_position="pre", positions="rotary"), V)
    config = TrainingConfig(max_tokens=64, learning_rate=1e-3, label_smoothing=0.1, optimizer=optimizer, **training)
    return Updates(TranslationModule(model, config, recorder=recorder), precision)


def train(updates: Updates, count: int = 8) -> list[Tensor]:
    """Return the losses and gradient norms of updates, and the final weights."""
    values = []
    for seed, batch in enumerate(batches(count)):
        torch.manual_seed(seed)
        values += [updates.update(batch), updates.module.grad_norm]
    return [one.detach().clone() for one in (*values, *updates.module.parameters()) if one is not None]


def replay_of(updates: Updates) -> Replay:
    assert updates.module._replay is not None
    return updates.module._replay


@pytest.mark.parametrize(
    "settings",
    [{}, {"r_drop": 5.0}, {"precision": "bf16-mixed"}, {"optimizer": "muon", "clip_norm": 0.1}],
    ids=lambda settings: ", ".join(settings) or "plain",
)
def test_replayed_updates_are_the_plain_ones(settings: dict[str, Any]) -> None:
    replayed = make(record, **settings)
    assert is_same(train(replayed), train(make(None, **settings)))
    assert len(replay_of(replayed).recordings) == 2


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"precision": "bf16-mixed", "optimizer": "adamw", "r_drop": 1.0}])
def test_a_run_by_lightning_is_the_same_and_resumes(settings, config, data, tmp_path, monkeypatch):
    """With two batches an update, a running average, and validations, for which Lightning removes the gradients."""
    config, replays = changed(config, **settings), []

    def counted(compute: Computation) -> Computation:
        run = record(compute)
        return lambda: (replays.append(1), run())[1]

    plain, _, events = straight_run(config, data, tmp_path / "plain")
    monkeypatch.setattr(resuming, "TranslationModule", partial(TranslationModule, recorder=counted))
    straight = straight_run(config, data, tmp_path / "replayed")
    assert straight[2] == events
    assert is_same(end_of(straight[0]), end_of(plain))
    assert len(replays) > 5
    assert resume(config, data, straight, straight[1][4], tmp_path / "run") == [one for one in events if one[1] > 5]
    assert is_same(end_of(tmp_path / "run"), end_of(plain))


def spoil_one_gradient(replay: Replay) -> None:
    smallest = min(replay._split(replay.gradients), key=lambda one: one.norm() if one.norm() > 1e-3 else torch.inf)
    smallest.zero_()
    replay.gradients[-1] += replay.gradients.norm()


def afterwards(change: Callable[[Replay], object]) -> Callable[[Replay, Computation], Results]:
    return lambda replay, run: (run(), change(replay))[0]


LIES: dict[str, Callable[[Replay, Computation], Any]] = {
    "scaled gradients": afterwards(lambda replay: replay.gradients.mul_(1.1)),
    "one gradient": afterwards(spoil_one_gradient),
    "no number": afterwards(lambda replay: replay.gradients.fill_(torch.nan)),
    "other random numbers": lambda replay, run: (torch.manual_seed(123), run())[1],
    "another loss": lambda replay, run: tuple(one * 1.1 if number == 0 else one for number, one in enumerate(run())),
    "an error": Mock(side_effect=RuntimeError("CUDA error: operation not permitted when\nstream is capturing")),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_recording_that_differs_or_fails_is_noticed_and_training_goes_on_plainly(lie, caplog):
    updates = make(lambda compute: lambda: LIES[lie](replay_of(updates), compute))
    with caplog.at_level(logging.WARNING):
        assert is_same(train(updates), train(make(None)))
    (warning,) = caplog.messages
    reason = "operation not permitted when stream" if lie == "an error" else "a replayed update differs from the plain"
    assert re.fullmatch(f"updates are not recorded, which is slower.*{reason}.*", warning)
    assert not replay_of(updates).recordings


@pytest.mark.parametrize("number", [1, 2])
def test_a_recorder_that_raises_ends_no_run(number: int, caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def raising(compute: Computation) -> Computation:
        calls.append(1)
        if len(calls) == number:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return record(compute)

    updates = make(raising)
    assert is_same(train(updates), train(make(None)))
    assert [message for message in caplog.messages if "CUDA out of memory" in message] == caplog.messages
    assert len(caplog.messages) == 1
    assert len(calls) == number


def test_recordings_are_freed_for_a_batch_that_needs_their_memory(caplog: pytest.LogCaptureFixture) -> None:
    """While a new shape is computed plainly, the recordings keep the memory of a batch."""
    updates = make(record)
    replay, losses = replay_of(updates), updates.module._losses

    def full(batch: Batch) -> Results:
        results = losses(batch)
        if len(replay.recordings) == 1 and not torch.equal(batch.src, next(iter(replay.recordings.values()))[0].src):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return results

    replay.losses = full
    assert is_same(train(updates), train(make(None)))
    assert caplog.messages == ["updates are not recorded, which is slower (CUDA out of memory)"]
    assert not replay.recordings


def test_an_error_of_the_computation_itself_is_raised() -> None:
    updates = make(record)
    with pytest.raises(IndexError):
        updates.update(Batch(*(side + V for side in batches(1)[0])))


def test_a_shape_is_computed_plainly_before_it_is_recorded() -> None:
    """Else tables and libraries would be set up in a recording, which computes nothing."""
    computed, updates = list[tuple[int, ...]](), make(None)
    losses = updates.module._losses

    def counted(batch: Batch) -> Results:
        computed.append(tuple(batch.src.shape))
        return losses(batch)

    def checked(compute: Computation) -> Computation:
        assert computed[-1] not in computed[:-1]
        return record(compute)

    replay = Replay(counted, list(updates.module.parameters()), checked)
    for batch in batches(4):
        replay(batch)
    assert len(replay.recordings) == 2


def test_gradients_keep_their_place_although_lightning_removes_them() -> None:
    updates = make(record)
    replay, parameters = replay_of(updates), list(updates.module.parameters())
    updates.update(batches()[0])
    places = [one.grad.data_ptr() for one in parameters if one.grad is not None]
    updates.module.zero_grad(set_to_none=True)
    replay.clear()
    assert [one.grad.data_ptr() for one in parameters if one.grad is not None] == places
    assert not any(one.grad.any() for one in parameters if one.grad is not None)


def test_results_are_not_those_of_the_next_replay_and_a_batch_may_change_afterwards() -> None:
    replay, (first, second) = replay_of(make(record)), (Batch(*(side.clone() for side in batches()[0])), batches()[2])
    replay(first)
    earlier = replay(first)
    before = [one.clone() for one in earlier]
    first.src.fill_(5)
    replay(second)
    assert is_same(list(earlier), before)


def test_a_replay_reads_the_present_weights_although_autocast_keeps_casts() -> None:
    updates, batch = make(record, "bf16-mixed"), batches()[0]
    replay, module = replay_of(updates), updates.module
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            torch.manual_seed(3)
            replay(batch)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(1.5)
        torch.manual_seed(3)
        loss = replay(batch)[0]
    torch.manual_seed(3)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(loss, module._losses(batch)[0])


def test_recordings_of_weights_that_moved_are_dropped() -> None:
    """An own optimizer or callback may put another tensor in a parameter's place: a recording reads the old one."""
    updates = make(record)
    train(updates, 4)
    replay = replay_of(updates)
    replay.clear()
    assert len(replay.recordings) == 2
    parameter = next(updates.module.parameters())
    parameter.data = parameter.data.clone()
    replay.clear()
    assert not replay.recordings


def test_no_recording_begins_for_which_memory_may_not_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch keeps the memory of a failed recording, so the next plain batch would lack it."""
    for name, value in {"mem_get_info": (9, 99), "max_memory_allocated": 20, "memory_allocated": 10}.items():
        monkeypatch.setattr(torch.cuda, name, Mock(return_value=value))
    with pytest.raises(MemoryError, match="too little free memory"):
        CudaRecorder()(lambda: ())


@pytest.mark.parametrize("table", [sinusoidal, rotations])
def test_tables_of_positions_are_never_dropped(table: Callable[..., Tensor]) -> None:
    device = torch.device("cpu")
    place = table(0, 9, 4, device).data_ptr()
    for start in range(300):  # the steps of a search
        assert table(start, 1, 4, device).shape == table(0, 1, 4, device).shape
    assert table(0, 9, 4, device).data_ptr() == place


def test_no_more_shapes_are_recorded_than_memory_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_file, "MOST_SHAPES", 1)
    updates = make(record)
    assert is_same(train(updates), train(make(None)))
    assert len(replay_of(updates).recordings) == 1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "updates recorded"),
        ({"max_tokens": LADDER_TOKENS - 1}, "updates not recorded (training.max_tokens=16383)"),
        ({"max_tokens": LADDER_TOKENS - 1, "replay": True}, "updates recorded"),
        ({"replay": False}, "updates not recorded (trainer.replay=false)"),
        ({"accelerator": "cpu"}, ""),
        ({"activation_checkpointing": True}, "updates not recorded (training.activation_checkpointing=true)"),
        ({"devices": 2}, "updates recorded, 2 processes"),
    ],
)
def test_what_is_recorded_by_itself(settings: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    config = changed(Config(training=TrainingConfig(max_tokens=LADDER_TOKENS)), **settings)
    assert _device(config, "H200") == ", ".join(filter(None, ("H200", "auto", expected)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert recording_obstacle(config) == "no GPU"
