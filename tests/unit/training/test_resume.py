"""Every checkpoint of a run leads to the run's own end."""

import multiprocessing
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from seq2seq.data.dataset import PreparedData
from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.training import ModifiersConfig
from seq2seq.training.callbacks import Patience
from seq2seq.training.run_files import list_checkpoints
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
    assert len(list(folder.glob("checkpoints/best-*.ckpt"))) == 3  # two at a time


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


def test_another_product_of_ranks_and_accumulation_is_refused(config, data, straight, tmp_path):
    message = r"2 batches \(1 processes × training.accumulate=2\).*set training.accumulate=2"
    with pytest.raises(UserError, match=message):
        resume(changed(config, accumulate=1), data, straight, straight[1][2], tmp_path / "run")


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
