"""When a run saves, validates and logs; which checkpoints stay; and no validation is lost by a kill."""

import csv
import errno
import os
import shutil
import signal
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import lightning as L
import pytest
import torch

from seq2seq.data.batching import Batch
from seq2seq.data.dataset import PreparedData
from seq2seq.settings.config import Config
from seq2seq.training.callbacks import Budget
from seq2seq.training.checkpoints import Checkpoints
from seq2seq.training.kept_checkpoints import DurableIO, link
from seq2seq.training.run_files import list_checkpoints, step_of
from tests.unit.training.resuming import UPDATES, changed, losses, resume, run

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*")]


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
    assert [name.partition("-val_loss=")[0] for name in names[:-2]] == ["best-step=0000008", "best-step=0000011"]


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
    assert len(best) == 3  # two at a time
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


def test_a_run_that_ended_by_its_time_and_was_killed_in_its_last_validation_makes_the_validation_on_resume(
    config: Config, data: PreparedData, tmp_path: Path
) -> None:
    class HourPasses(L.Callback):
        def on_train_batch_start(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
            if trainer.global_step == 2:
                budget = next(c for c in trainer.callbacks if isinstance(c, Budget))  # type: ignore[attr-defined]
                budget.load_state_dict({"time_elapsed": {"train": 3600.0}})

        def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
            raise RuntimeError("killed")

    config = changed(config, max_time="00:01:00:00")
    with pytest.raises(RuntimeError, match="killed"):
        run(config, data, tmp_path, None, HourPasses())
    newest = list_checkpoints(tmp_path / "checkpoints")[-1]
    trainer, events = run(config, data, tmp_path, newest)
    assert [event[:2] for event in events] == [("validation", 3)]
    assert trainer.global_step == 3
    assert not torch.load(newest, weights_only=True)["run"]["validation_pending"]


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power failure could leave an empty file under the name of a checkpoint."""
    events: list[object] = []
    replace = Path.replace
    monkeypatch.setattr(os, "fsync", lambda handle: events.append(os.fstat(handle).st_ino))
    monkeypatch.setattr(Path, "replace", lambda self, to: (events.append(to), replace(self, to))[1])
    path = tmp_path / "step=1.ckpt"
    DurableIO().save_checkpoint({"x": 1}, path)
    assert events == [path.stat().st_ino, path, tmp_path.stat().st_ino]


def test_a_second_name_leaves_no_draft_also_without_hard_links_or_on_a_full_disk(tmp_path, monkeypatch):
    saved, best = tmp_path / "step=0000008.ckpt", tmp_path / "best-step=0000008.ckpt"
    saved.write_bytes(b"weights")

    def names() -> list[str]:
        return sorted(path.name for path in tmp_path.iterdir())

    for _ in range(2):  # a validation that is made again after a kill names its checkpoint again
        link(saved, best)
        assert names() == [best.name, saved.name]
        assert best.samefile(saved)
    best.unlink()

    def fill(source: Path, target: Path, **_: Any) -> None:
        Path(target).write_bytes(b"wei")
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.EPERM, "no links here")))
    link(saved, best)
    assert not best.samefile(saved)
    monkeypatch.setattr("shutil.copyfile", fill)
    with pytest.raises(OSError, match="full"):
        link(saved, best)
    assert names() == [best.name, saved.name]
    assert best.read_bytes() == b"weights"
