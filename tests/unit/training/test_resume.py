"""Every checkpoint of a run leads to the run's own end; when a run saves and validates, and which checkpoints stay."""

import csv
import multiprocessing
import os
import shutil
import signal
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import lightning as L
import pytest
import torch

from seq2seq.data.batching import Batch
from seq2seq.data.dataset import PreparedData
from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.training import ModifiersConfig
from seq2seq.training.callbacks import Patience
from seq2seq.training.checkpoints import Checkpoints, DurableIO, link
from seq2seq.training.run_files import list_checkpoints, step_of
from seq2seq.training.run_folder import read_checkpoint
from tests.thin import thin
from tests.unit.training.resuming import UPDATES, changed, end_of, is_same, losses, resume, run

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*")]


def test_the_straight_run_has_what_the_others_are_compared_with(straight: tuple[Any, ...]) -> None:
    folder, saved, events = straight
    assert read_checkpoint(saved[-1])["run"]["settings"]["training.max_tokens"] == 64, "plain values"
    assert [step for kind, step, _ in events if kind == "train"][1::2] == list(range(1, UPDATES + 1))
    assert [step for kind, step, _ in events if kind == "validation"] == [4, 8, 11]
    assert [path.stem.partition("-")[2] for path in saved] == [
        *("1", "2", "3", "4-pending", "5", "6", "7", "8-pending", "9", "10", "11-pending", "11")
    ]
    assert len(list(folder.glob("checkpoints/best-*.ckpt"))) == 2


def test_checkpoints_of_earlier_versions_have_the_states_of_these_names(straight: tuple[Any, ...]) -> None:
    """A callback that has another name finds no state, and Lightning resumes without it."""
    states = torch.load(straight[1][-1], weights_only=True)["callbacks"]
    patience = "Patience{'monitor': 'val_loss', 'mode': 'min'}"
    assert states.keys() == {"Budget", "Meter", "RunningAverage", patience, "Checkpoints"}


@pytest.mark.parametrize("number", thin(range(12), [3, 8]))  # the first is a pending validation
def test_every_checkpoint_leads_to_the_same_end(config, data, straight, number, tmp_path):
    folder, saved, events = straight
    events_then = resume(config, data, straight, saved[number], tmp_path / "run")
    step, is_pending = int(saved[number].stem.split("-")[1]), "pending" in saved[number].name
    expected = [e for e in events if e[1] > step or (is_pending and e[1] == step and e[0] == "validation")]
    assert events_then == expected
    assert is_same(end_of(tmp_path / "run"), end_of(folder))
    names = {path.name for path in (folder / "checkpoints").iterdir()}
    assert {path.name for path in (tmp_path / "run/checkpoints").iterdir()} == names
    later = {step_: loss for step_, loss in losses(folder).items() if int(step_) > step}
    assert later == (losses(tmp_path / "run") if later else {})


def test_a_run_that_fails_ends_the_process_that_reads_ahead(config: Config, data: PreparedData, tmp_path: Path) -> None:
    class Failing(L.Callback):
        def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
            raise RuntimeError

    with pytest.raises(RuntimeError) as caught:
        run(changed(config, modifiers=ModifiersConfig(share=0.8)), data, tmp_path, None, Failing())
    assert not multiprocessing.active_children(), f"although {caught} still holds the trainer"


def test_another_optimizer_is_refused(config, data, straight, tmp_path):
    with pytest.raises(UserError, match=r"written with another training.optimizer \(muon, now adamw\)"):
        run(changed(config, optimizer="adamw"), data, tmp_path / "run", straight[1][2])


def test_the_time_spent_counts_on(config, data, straight, tmp_path):
    values = torch.load(straight[1][0], weights_only=True)
    values["callbacks"]["Budget"]["time_elapsed"]["train"] = 3599.99
    torch.save(values, tmp_path / "late.ckpt")
    timed = changed(config, max_time="00:01:00:00")
    events = resume(timed, data, straight, tmp_path / "late.ckpt", tmp_path / "run")
    assert len([event for event in events if event[0] == "train"]) <= 2


def test_patience_is_remembered_and_a_run_out_of_it_does_not_train_on(config, data, tmp_path):
    config = changed(config, learning_rate=0.0, patience=2, validate_every=2)  # the first validation is the best
    _, events = run(config, data, tmp_path / "straight")
    assert events[-1][:2] == ("validation", 6)
    paths = list_checkpoints(tmp_path / "straight/checkpoints")
    for number, left in ((4, 3), (5, 0)):  # after updates 5 and 6
        trainer, events = run(config, data, tmp_path / f"again-{number}", paths[number])
        assert trainer.global_step == 6
        assert len(events) == left
    assert next(c for c in trainer.callbacks if isinstance(c, Patience)).is_out  # type: ignore[attr-defined]
    assert run(changed(config, patience=3), data, tmp_path / "more", paths[5])[0].global_step == 8


def test_without_its_running_average_a_run_goes_on_as_if_it_had_never_had_one(config, data, straight, tmp_path):
    """The average decides nothing of what is trained, so every later loss is the straight run's."""
    plain = changed(config, ema_decay=0.0, final_weights="last")
    events = resume(plain, data, straight, straight[1][4], tmp_path / "run")
    losses_then = [event for event in events if event[0] == "train"]
    assert losses_then == [event for event in straight[2] if event[0] == "train" and event[1] > 5]
    end, expected = end_of(tmp_path / "run"), end_of(straight[0])
    assert "averaging_state" not in end
    assert is_same(end["state_dict"], expected["current_model_state"])
    assert is_same(end["optimizer_states"], expected["optimizer_states"])


def test_the_optimizer_follows_settings_that_were_changed_on_purpose(config, data, straight, tmp_path):
    config = changed(config, weight_decay=0.25, betas=[0.8, 0.9], eps=1e-7)
    resume(config, data, straight, straight[1][4], tmp_path / "run")
    decayed, others = end_of(tmp_path / "run")["optimizer_states"][0]["param_groups"]
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.25, 0.0)
    assert all((tuple(group["betas"]), group["eps"]) == ((0.8, 0.9), 1e-7) for group in (decayed, others))


def test_speed_and_time_left_after_a_resume_are_of_this_process_not_of_the_time_before(
    config: Config, data: PreparedData, straight: tuple[Any, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = torch.load(straight[1][6], weights_only=True)  # after update 6: that of 5 and 6 is not logged yet
    values["callbacks"]["Budget"]["time_elapsed"]["train"] += 360_000.0  # a hundred hours on a busy machine
    values["callbacks"]["Meter"]["tokens"] += 1e9
    torch.save(values, tmp_path / "slow.ckpt")
    with caplog.at_level("INFO", logger="seq2seq"):
        resume(changed(config, log_every=4), data, straight, tmp_path / "slow.ckpt", tmp_path / "run")
    logged = [record.getMessage() for record in caplog.records if "ETA" in record.getMessage()]
    assert logged[0].startswith("update 8 ")
    assert all("ETA 0:00:0" in line for line in logged)
    assert float(logged[0].split(" tokens/s")[0].split()[-1].replace(",", "")) < 1e7


def test_a_run_logs_and_validates_at_its_end_and_logs_before_each_validation(config, data, tmp_path):
    config = changed(config, max_steps=5, log_every=4, validate_every=3, checkpoint_every=1000)
    _, events = run(config, data, tmp_path)
    assert [event[:2] for event in events if event[0] == "validation"] == [("validation", 3), ("validation", 5)]
    assert list(losses(tmp_path)) == ["3", "4", "5"]
    with (tmp_path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows if row["val_loss"]] == ["3", "5"]
    assert float(rows[0]["seconds"]) > 0


def test_a_run_that_a_signal_stops_is_saved_and_not_validated(config, data, tmp_path):
    class Interrupt(L.Callback):
        def on_train_batch_start(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
            if trainer.fit_loop.total_batch_idx == 1:
                signal.raise_signal(signal.SIGINT)

    trainer, events = run(config, data, tmp_path, None, Interrupt())
    assert trainer.global_step == step_of(list_checkpoints(tmp_path / "checkpoints")[-1]) == 1
    assert {kind for kind, _, _ in events} == {"train"}
    newest = list_checkpoints(tmp_path / "checkpoints")[-1]
    assert not torch.load(newest, weights_only=True)["run"]["validation_pending"]


def test_only_the_last_k_and_the_best_are_kept(config: Config, data: PreparedData, tmp_path: Path) -> None:
    run(changed(config, keep_last=2, checkpoint_every=5, keep_best=1), data, tmp_path)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names[-2:] == ["step=0000010.ckpt", "step=0000011.ckpt"]
    assert [name.partition("-val_loss=")[0] for name in names[:-2]] == ["best-step=0000011"]


def test_minutes_are_counted_from_the_last_save(config: Config, tmp_path: Path) -> None:
    config = changed(config, checkpoint_every=1000, validate_every=1000, checkpoint_minutes=1.0)
    now, saved = 0, list[int]()
    checkpoints = Checkpoints(tmp_path, config, {}, lambda: float(now))
    trainer = MagicMock(spec=L.Trainer, accumulate_grad_batches=1, should_stop=False, is_global_zero=False)
    trainer.save_checkpoint.side_effect = lambda *_, **__: saved.append(now)
    module, batch = MagicMock(spec=L.LightningModule), Batch(*torch.zeros(3, 1, 1, dtype=torch.long))
    for update in range(1, 8):
        now, trainer.global_step = 25 * update, update  # an update takes 25 seconds
        checkpoints.on_train_batch_end(trainer, module, None, batch, update - 1)
    assert saved == [75, 150]


def test_fewer_best_checkpoints_or_those_by_another_measure_can_be_asked_for(config, data, straight, tmp_path):
    """Losses and BLEU cannot be told apart by their numbers."""
    newest = straight[1][8]  # of update 9; two are the best
    fewer = changed(config, keep_last=1, validate_every=10, keep_best=1)
    resume(fewer, data, straight, newest, tmp_path / "fewer")
    assert len(list((tmp_path / "fewer/checkpoints").glob("best-*"))) == 1
    resume(changed(fewer, keep_best=2, monitor="bleu"), data, straight, newest, tmp_path / "other")
    best = sorted(path.name for path in (tmp_path / "other/checkpoints").glob("best-*"))
    assert [name.partition("=0")[0] for name in best] == ["best-step", "best-step"]
    assert all("-val_bleu=" in name for name in best)


def test_a_missing_second_name_is_given_on_resume(config, data, straight, tmp_path):
    """Killed after the last checkpoint was written and before it got its second name as one of the best."""
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    newest = Path(shutil.copy(straight[1][11], tmp_path / "run/checkpoints/step=0000011.ckpt"))
    trainer, _ = run(changed(config, max_steps=UPDATES + 1), data, tmp_path / "run", newest)
    best = next(c for c in trainer.callbacks if isinstance(c, Checkpoints)).kept.best()  # type: ignore[attr-defined]
    assert [path.exists() for path in best if "step=0000011" in path.name] == [True]


def test_a_validation_writes_one_file_and_gives_it_a_second_name(config, data, tmp_path, monkeypatch):
    """Only the last validation is followed by a second write, of what it decided."""
    written: list[str] = []
    write = DurableIO.save_checkpoint

    def note(self: DurableIO, checkpoint: dict[str, Any], path: Path, storage_options: Any = None) -> None:
        written.append(Path(path).name)
        write(self, checkpoint, path, storage_options)

    monkeypatch.setattr(DurableIO, "save_checkpoint", note)
    run(changed(config, checkpoint_every=1000), data, tmp_path)
    assert written == [f"step={step:07d}.ckpt" for step in (4, 8, 11, 11)]
    best = list((tmp_path / "checkpoints").glob("best-*"))
    assert len(best) == 2
    assert all(path.samefile(tmp_path / "checkpoints" / f"{path.name[5:17]}.ckpt") for path in best)


def test_a_run_killed_in_its_last_validation_can_be_given_more_updates(config, data, straight, tmp_path):
    events = resume(changed(config, max_steps=UPDATES + 2), data, straight, straight[1][10], tmp_path / "run")
    assert [step for kind, step, _ in events if kind == "validation"] == [11, 12, 13]
    assert [step for kind, step, _ in events if kind == "train"][::2] == [12, 13]


def test_a_due_validation_is_made_although_validate_every_was_changed(config, data, straight, tmp_path):
    """Killed after the checkpoint that precedes a validation, or after the validation: its result is not lost."""
    newest = straight[1][7]  # after update 8, validation pending
    events = resume(changed(config, validate_every=5), data, straight, newest, tmp_path / "run")
    assert events[0] == next(event for event in straight[2] if event[:2] == ("validation", 8))
    assert [step for kind, step, _ in events if kind == "validation"] == [8, 10, 11]


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power failure could leave an empty file under the name of a checkpoint."""
    events: list[object] = []
    replace = Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: events.append(os.fstat(handle).st_ino))
    monkeypatch.setattr(Path, "replace", lambda self, to: (events.append(to), replace(self, to))[1])
    path = tmp_path / "step=1.ckpt"
    DurableIO().save_checkpoint({"x": 1}, path)
    assert events == [path.stat().st_ino, path, tmp_path.stat().st_ino]


def test_a_second_name_may_be_there_already_as_after_a_kill(tmp_path: Path) -> None:
    saved, best = tmp_path / "step=0000008.ckpt", tmp_path / "best-step=0000008.ckpt"
    saved.write_bytes(b"weights")
    for before in (None, "the same", "another"):
        if before == "another":
            best.unlink()
            best.write_bytes(b"wei")
        link(saved, best)
        assert sorted(tmp_path.iterdir()) == [best, saved]
        assert best.samefile(saved)
