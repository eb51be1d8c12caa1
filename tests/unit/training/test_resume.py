"""Every checkpoint of a run leads to the run's own end; and each part of a checkpoint is needed for that."""

import csv
import shutil
import signal
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.model.transformer import Transformer
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.settings.trainer import TrainerConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.dataset import PreparedData
from seq2seq.text.prepare import prepare
from seq2seq.training.callbacks import Patience
from seq2seq.training.checkpoints import Checkpoints, DurableIO
from seq2seq.training.module import TranslationModule
from seq2seq.training.restore import describe_run, read_checkpoint
from seq2seq.training.run import fit
from seq2seq.training.saved import list_checkpoints, step_of
from seq2seq.training.trainer import make_trainer
from tests.thin import thin

WORDS = {"red": "rojo", "old": "viejo", "new": "nuevo", "big": "gran", "bad": "malo", "mad": "loco"}
NOUNS = {"cat": "gato", "dog": "perro", "boy": "niño", "bread": "pan", "sun": "sol", "sea": "mar"}
UPDATES, VALIDATE = 11, 4


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.filterwarnings("ignore", ".*")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("corpus")
    lines = [f"The {n} is {a}.\tEl {NOUNS[n]} es {WORDS[a]}.\n" for n in NOUNS for a in WORDS]
    (folder / "train.tsv").write_text("".join(lines[:28]), encoding="utf-8")
    (folder / "held.tsv").write_text("".join(lines[28:]), encoding="utf-8")
    return Config(
        name="x",
        data=DataConfig(
            root=str(folder), train=["train.tsv"], validation=["held.tsv"], test=["held.tsv"], remove_overlap=False
        ),
        tokenizer=TokenizerConfig(vocab_size=290),
        model=ModelConfig(d_model=8, num_heads=2, d_ff=12, num_encoder_layers=1, num_decoder_layers=1, dropout=0.2),
        training=TrainingConfig(
            max_tokens=64, learning_rate=7e-4, schedule="inverse_sqrt", warmup_steps=2, accumulate=2, ema_decay=0.9,
            final_weights="ema", bleu_sentences=2,
            monitor="loss", keep_best=2, patience=5, sample_translations=0,
        ),
        search=SearchConfig(beam=1, max_length_ratio=1.0, max_length_offset=1),
        trainer=TrainerConfig(
            accelerator="cpu", precision="32-true", max_steps=UPDATES, validate_every=VALIDATE, checkpoint_every=1,
            keep_last=99, log_every=3,
        ),
    )  # fmt: skip


@pytest.fixture(scope="module")
def data(config: Config) -> PreparedData:
    return prepare(config.data, config.tokenizer, config.seed)


class Diary(L.Callback):
    """What happened: (update, loss) and (update, validation loss)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, float]] = []

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *args: Any, **kwargs: Any) -> None:
        update = trainer.fit_loop.total_batch_idx // trainer.accumulate_grad_batches + 1
        self.events.append(("train", update, float(pl_module.last_nll)))

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.events.append(("validation", trainer.global_step, float(trainer.callback_metrics["val_loss"])))


def run(
    config: Config, data: PreparedData, folder: Path, checkpoint: Path | None = None, *more: L.Callback
) -> tuple[L.Trainer, list[tuple[str, int, float]]]:
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    L.seed_everything(config.seed if checkpoint is None else 77, verbose=False)
    module = TranslationModule(Transformer(config.model, data.tokenizer.vocab_size), config.training, seed=config.seed)
    trainer = make_trainer(config, folder, data, describe_run(config, {}))
    diary = Diary()
    trainer.callbacks += [diary, *more]  # type: ignore[attr-defined]
    fit(trainer, module, config, data, checkpoint)
    return trainer, diary.events


@pytest.fixture(scope="module")
def straight(config: Config, data: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """A run without interruption: its folder with a copy of every file it ever saved, and its events."""
    folder = tmp_path_factory.mktemp("straight")
    saved: list[Path] = []
    save = Checkpoints._save

    def keep(self: Checkpoints, trainer: L.Trainer) -> None:
        save(self, trainer)
        copy = folder / f"{len(saved):02d}-{trainer.global_step}{'-pending' * self._pending}.ckpt"
        saved.append(Path(shutil.copy(list_checkpoints(self.folder)[-1], copy)))

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(Checkpoints, "_save", keep)
        _, events = run(config, data, folder / "run")
    return folder / "run", saved, events


def resume(
    config: Config, data: PreparedData, straight: tuple[Any, ...], checkpoint: Path, folder: Path
) -> list[tuple[str, int, float]]:
    """Go on from a checkpoint in a folder as it was then."""
    (folder / "checkpoints").mkdir(parents=True)
    for path in (straight[0] / "checkpoints").iterdir():
        shutil.copy(path, folder / "checkpoints")
    return run(config, data, folder, checkpoint)[1]


def end_of(folder: Path) -> dict[str, Any]:
    """The last checkpoint, without clocks, and without counters that say how often it was resumed."""
    values = torch.load(list_checkpoints(folder / "checkpoints")[-1], weights_only=True)
    del values["loops"]
    del values["callbacks"]["Budget"]
    return values


def is_same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(is_same, a, b))
    return a == b


def losses(folder: Path) -> dict[str, str]:
    with (folder / "metrics.csv").open() as file:
        return {row["step"]: row["loss"] for row in csv.DictReader(file) if row["loss"]}


def test_the_straight_run_has_what_the_others_are_held_against(straight: tuple[Any, ...]) -> None:
    folder, saved, events = straight
    assert [step for kind, step, _ in events if kind == "train"][1::2] == list(range(1, UPDATES + 1))
    assert [step for kind, step, _ in events if kind == "validation"] == [4, 8, 11]
    assert [path.stem.partition("-")[2] for path in saved] == [
        *("1", "2", "3", "4-pending", "5", "6", "7", "8-pending", "9", "10", "11-pending", "11")
    ]
    assert len(list(folder.glob("checkpoints/best-*.ckpt"))) == 3  # two at a time


@pytest.mark.parametrize("number", thin(range(12), [3, 8, 10]))  # two are pending validations
def test_every_checkpoint_leads_to_the_same_end(
    config: Config, data: PreparedData, straight: tuple[Any, ...], number: int, tmp_path: Path
) -> None:
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


def change(*keys: str, to: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    def apply(values: dict[str, Any]) -> None:
        for key in keys[:-1]:
            values = values[key]
        values[keys[-1]] = to(values[keys[-1]])

    return apply


def drop_average(values: dict[str, Any]) -> None:
    values["state_dict"] = values["current_model_state"]


def drop_current(values: dict[str, Any]) -> None:
    values["current_model_state"] = values["state_dict"]


def zero_moments(values: dict[str, Any]) -> None:
    for moments in values["optimizer_states"][0]["state"].values():
        moments["exp_avg_sq"].zero_()


def loader_of(values: dict[str, Any]) -> dict[str, Any]:
    return values["loops"]["fit_loop"]["state_dict"]["combined_loader"][0]


VALIDATION = {"validation losses", "Checkpoints", "Patience"}
TRAINING = VALIDATION | {"losses", "current_model_state", "optimizer_states", "state_dict"}
LEFT_OUT: dict[str, tuple[Callable[[dict[str, Any]], None], set[str]]] = {  # and what then differs
    "averaged weights": (drop_average, VALIDATION | {"state_dict"}),
    "current weights": (drop_current, TRAINING),
    "count of averaged updates": (
        change("averaging_state", "n_averaged", to=torch.zeros_like),
        VALIDATION | {"averaging_state", "state_dict"},
    ),
    "moments of the optimizer": (zero_moments, TRAINING),
    "place in the epoch": (lambda values: loader_of(values).update(batches=0), TRAINING),
    "epoch": (lambda values: loader_of(values).update(place={}), TRAINING),
    "best checkpoints": (change("callbacks", "Checkpoints", "scores", to=lambda scores: {}), {"Checkpoints"}),
    "last checkpoints": (change("callbacks", "Checkpoints", "named", to=lambda named: {}), {"Checkpoints"}),
    "pending validation": (
        change("run", "validation_pending", to=lambda pending: False),
        {"validations", "Checkpoints"},
    ),
}


def differences(one: list[tuple[str, int, float]], other: list[tuple[str, int, float]]) -> set[str]:
    """Which differ: the updates or else their losses, the validations or else their losses."""
    found = set()
    for kind, steps, numbers in (("train", "updates", "losses"), ("validation", "validations", "validation losses")):
        ours, theirs = ([event for event in events if event[0] == kind] for events in (one, other))
        if [step for _, step, _ in ours] != [step for _, step, _ in theirs]:
            found.add(steps)
        elif ours != theirs:
            found.add(numbers)
    return found


def parts_of(end: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint's parts, those of the callbacks by the callbacks' names."""
    callbacks = {name.partition("{")[0]: state for name, state in end["callbacks"].items()}
    return {key: value for key, value in end.items() if key != "callbacks"} | callbacks


@pytest.mark.parametrize("part", LEFT_OUT)
def test_a_checkpoint_without_one_of_its_parts_leads_elsewhere(
    config: Config, data: PreparedData, straight: tuple[Any, ...], part: str, tmp_path: Path
) -> None:
    folder, saved, events = straight
    values = torch.load(saved[7], weights_only=True)  # of update 8, its validation pending, in the second epoch
    leave_out, expected = LEFT_OUT[part]
    leave_out(values)
    torch.save(values, tmp_path / "less.ckpt")
    events_then = resume(config, data, straight, tmp_path / "less.ckpt", tmp_path / "run")
    found = differences(events_then, [e for e in events if e[1] > 8 or e[:2] == ("validation", 8)])
    end, straight_end = parts_of(end_of(tmp_path / "run")), parts_of(end_of(folder))
    assert end.keys() == straight_end.keys()
    assert found | {key for key in end if not is_same(end[key], straight_end[key])} == expected


def test_dropout_alone_is_drawn_at_random_and_needs_no_state_but_its_place(
    config: Config, data: PreparedData, straight: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing sets the generator, every loss is another one; without dropout, none is."""
    monkeypatch.setattr(torch, "manual_seed", lambda seed: None)
    events = resume(config, data, straight, straight[1][4], tmp_path / "run")
    expected = [event for event in straight[2] if event[1] > 5]
    assert differences(events, expected) == {"losses", "validation losses"}
    assert all(one != other for one, other in zip(events, expected, strict=True))
    plain = replace(config, model=replace(config.model, dropout=0.0))
    _, expected = run(plain, data, tmp_path / "plain")
    events = run(plain, data, tmp_path / "again", list_checkpoints(tmp_path / "plain/checkpoints")[4])[1]
    assert events == [event for event in expected if event[1] > 5] != []


def test_the_time_spent_counts_on(
    config: Config, data: PreparedData, straight: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = torch.load(straight[1][0], weights_only=True)
    values["callbacks"]["Budget"]["time_elapsed"]["train"] = 3599.99
    torch.save(values, tmp_path / "late.ckpt")
    monkeypatch.setattr(config.trainer, "max_time", "00:01:00:00")
    events = resume(config, data, straight, tmp_path / "late.ckpt", tmp_path / "run")
    assert len([event for event in events if event[0] == "train"]) <= 2


def test_patience_is_remembered_and_a_run_out_of_it_does_not_train_on(
    config: Config, data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for group, key, value in (
        ("training", "learning_rate", 0.0),  # no validation is better than the first
        ("training", "patience", 2),
        ("trainer", "validate_every", 2),
    ):
        monkeypatch.setattr(getattr(config, group), key, value)
    _, events = run(config, data, tmp_path / "straight")
    assert events[-1][:2] == ("validation", 6)
    paths = list_checkpoints(tmp_path / "straight/checkpoints")
    for number, stops in ((4, 6), (5, 6)):  # after updates 5 and 6
        trainer, events = run(config, data, tmp_path / f"again-{number}", paths[number])
        assert trainer.global_step == stops
        assert len(events) == (3 if number == 4 else 0)
    assert next(c for c in trainer.callbacks if isinstance(c, Patience)).is_out  # type: ignore[attr-defined]
    monkeypatch.setattr(config.training, "patience", 3)
    assert run(config, data, tmp_path / "more", paths[5])[0].global_step == 8


def test_a_run_shorter_than_every_interval_logs_and_validates_at_its_end(
    config: Config, data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in (("max_steps", 3), ("log_every", 50), ("validate_every", 1000), ("checkpoint_every", 1000)):
        monkeypatch.setattr(config.trainer, key, value)
    _, events = run(config, data, tmp_path)
    assert [event[:2] for event in events if event[0] == "validation"] == [("validation", 3)]
    assert list(losses(tmp_path)) == ["3"]
    with (tmp_path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows if row["val_loss"]] == ["3"]
    assert float(rows[0]["seconds"]) > 0


def test_losses_between_the_last_log_entry_and_a_validation_are_logged_before_it(
    config: Config, data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config.trainer, "log_every", 6)
    run(config, data, tmp_path)
    assert list(losses(tmp_path)) == ["4", "6", "8", "11"]


def test_a_run_that_a_signal_stops_is_saved_and_not_validated(
    config: Config, data: PreparedData, tmp_path: Path
) -> None:
    class Interrupt(L.Callback):
        def on_train_batch_start(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
            if trainer.fit_loop.total_batch_idx == 1:
                signal.raise_signal(signal.SIGINT)

    trainer, events = run(config, data, tmp_path, None, Interrupt())
    assert trainer.global_step == step_of(list_checkpoints(tmp_path / "checkpoints")[-1]) == 1
    assert {kind for kind, _, _ in events} == {"train"}
    newest = list_checkpoints(tmp_path / "checkpoints")[-1]
    assert not torch.load(newest, weights_only=True)["run"]["validation_pending"]


def test_a_run_killed_in_its_last_validation_can_be_given_more_updates(
    config: Config, data: PreparedData, straight: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config.trainer, "max_steps", UPDATES + 2)
    events = resume(config, data, straight, straight[1][10], tmp_path / "run")
    assert [event[:2] for event in events if event[0] == "validation"] == [("validation", 12), ("validation", 13)]
    assert [step for kind, step, _ in events if kind == "train"][::2] == [12, 13]


def test_only_the_last_k_and_the_best_are_kept(
    config: Config, data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config.trainer, "keep_last", 2)
    monkeypatch.setattr(config.trainer, "checkpoint_every", 5)
    monkeypatch.setattr(config.training, "keep_best", 1)
    run(config, data, tmp_path)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names[-2:] == ["step=0000010.ckpt", "step=0000011.ckpt"]
    assert [name.partition("-val_loss=")[0] for name in names[:-2]] == ["best-step=0000008", "best-step=0000011"]


def test_checkpoints_by_the_clock(
    config: Config, data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config.trainer, "checkpoint_every", 1000)
    monkeypatch.setattr(config.trainer, "validate_every", 1000)
    run(config, data, tmp_path / "never")
    assert [path.name for path in list_checkpoints(tmp_path / "never/checkpoints")] == ["step=0000011.ckpt"]
    monkeypatch.setattr(config.trainer, "checkpoint_minutes", 1e-9)
    run(config, data, tmp_path / "always")
    assert len(list_checkpoints(tmp_path / "always/checkpoints")) == UPDATES


def test_without_its_running_average_a_run_goes_on_as_if_it_had_never_had_one(
    config: Config, data: PreparedData, straight: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The average decides nothing of what is trained, so every later loss is the straight run's."""
    monkeypatch.setattr(config.training, "ema_decay", 0.0)
    monkeypatch.setattr(config.training, "final_weights", "last")
    events = resume(config, data, straight, straight[1][4], tmp_path / "run")
    losses_then = [event for event in events if event[0] == "train"]
    assert losses_then == [event for event in straight[2] if event[0] == "train" and event[1] > 5]
    end, expected = end_of(tmp_path / "run"), end_of(straight[0])
    assert "averaging_state" not in end
    assert is_same(end["state_dict"], expected["current_model_state"])
    assert is_same(end["optimizer_states"], expected["optimizer_states"])


def test_the_optimizer_follows_settings_that_were_changed_on_purpose(
    config: Config, data: PreparedData, straight: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in (("weight_decay", 0.25), ("betas", [0.8, 0.9]), ("eps", 1e-7)):
        monkeypatch.setattr(config.training, key, value)
    resume(config, data, straight, straight[1][4], tmp_path / "run")
    decayed, others = end_of(tmp_path / "run")["optimizer_states"][0]["param_groups"]
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.25, 0.0)
    assert all((tuple(group["betas"]), group["eps"]) == ((0.8, 0.9), 1e-7) for group in (decayed, others))


def test_fewer_best_checkpoints_or_those_by_another_measure_can_be_asked_for(
    config: Config, data: PreparedData, straight: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses and BLEU cannot be told apart by their numbers."""
    newest = straight[1][8]  # of update 9; two are the best
    monkeypatch.setattr(config.trainer, "keep_last", 1)
    monkeypatch.setattr(config.trainer, "validate_every", 10)
    monkeypatch.setattr(config.training, "keep_best", 1)
    resume(config, data, straight, newest, tmp_path / "fewer")
    assert len(list((tmp_path / "fewer/checkpoints").glob("best-*"))) == 1
    monkeypatch.setattr(config.training, "keep_best", 2)
    monkeypatch.setattr(config.training, "monitor", "bleu")
    resume(config, data, straight, newest, tmp_path / "other")
    best = sorted(path.name for path in (tmp_path / "other/checkpoints").glob("best-*"))
    assert [name.partition("=0")[0] for name in best] == ["best-step", "best-step"]
    assert all("-val_bleu=" in name for name in best)


def test_a_half_finished_set_of_names_is_made_whole(
    config: Config, data: PreparedData, straight: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the last checkpoint was written and before it got its second name as one of the best."""
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    newest = Path(shutil.copy(straight[1][11], tmp_path / "run/checkpoints/step=0000011.ckpt"))
    monkeypatch.setattr(config.trainer, "max_steps", UPDATES + 1)
    trainer, _ = run(config, data, tmp_path / "run", newest)
    best = next(c for c in trainer.callbacks if isinstance(c, Checkpoints)).best()  # type: ignore[attr-defined]
    assert [path.exists() for path in best if "step=0000011" in path.name] == [True]


def test_a_validation_writes_one_file_and_gives_it_a_second_name(
    config: Config, data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the last validation is followed by a second write, of what it decided."""
    written: list[str] = []
    write = DurableIO.save_checkpoint

    def note(self: DurableIO, checkpoint: dict[str, Any], path: Path, storage_options: Any = None) -> None:
        written.append(Path(path).name)
        write(self, checkpoint, path, storage_options)

    monkeypatch.setattr(DurableIO, "save_checkpoint", note)
    monkeypatch.setattr(config.trainer, "checkpoint_every", 1000)
    run(config, data, tmp_path)
    assert written == [f"step={step:07d}.ckpt" for step in (4, 8, 11, 11)]
    best = list((tmp_path / "checkpoints").glob("best-*"))
    assert len(best) == 3  # two at a time
    assert all(path.samefile(tmp_path / "checkpoints" / f"{path.name[5:17]}.ckpt") for path in best)


def test_what_a_validation_decided_is_decided_again_after_a_kill_before_the_next_save(
    config: Config, data: PreparedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config.trainer, "checkpoint_every", 1000)
    monkeypatch.setattr(config.trainer, "keep_last", 1)

    class Kill(L.Callback):
        def on_train_batch_start(self, trainer: L.Trainer, *args: Any, **kwargs: Any) -> None:
            if trainer.global_step == 9:
                raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        run(config, data, tmp_path / "run", None, Kill())
    folder = tmp_path / "run/checkpoints"
    names = sorted(path.name for path in folder.iterdir())
    assert [name[:17] for name in names] == ["best-step=0000004", "best-step=0000008", "step=0000008.ckpt"]
    run(config, data, tmp_path / "run", folder / "step=0000008.ckpt")
    run(config, data, tmp_path / "straight")
    assert is_same(end_of(tmp_path / "run"), end_of(tmp_path / "straight"))
    assert {path.name for path in folder.iterdir()} == {
        path.name for path in (tmp_path / "straight/checkpoints").iterdir()
    }


def test_another_product_of_ranks_and_accumulation_is_refused(
    config: Config, data: PreparedData, straight: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config.training, "accumulate", 1)
    with pytest.raises(
        UserError, match=r"2 batches \(1 processes × training.accumulate=2\).*set training.accumulate=2"
    ):
        resume(config, data, straight, straight[1][2], tmp_path / "run")


def test_a_checkpoint_is_plain_values(straight: tuple[Any, ...]) -> None:
    values = read_checkpoint(straight[1][-1])
    assert values["run"]["settings"]["training.max_tokens"] == 64
