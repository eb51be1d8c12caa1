"""A small run for the tests of resuming: trained, interrupted, continued from any checkpoint, and compared."""

import csv
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from seq2seq.data.dataset import PreparedData
from seq2seq.model.build import build_model
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.settings.training import TrainerConfig, TrainingConfig
from seq2seq.training.callbacks import make_callbacks
from seq2seq.training.checkpoints import Checkpoints
from seq2seq.training.module import TranslationModule
from seq2seq.training.run import fit
from seq2seq.training.run_files import list_checkpoints, step_of
from seq2seq.training.run_folder import describe_run
from seq2seq.training.trainer import make_trainer

WORDS = {"red": "rojo", "old": "viejo", "new": "nuevo", "big": "gran", "bad": "malo", "mad": "loco"}
NOUNS = {"cat": "gato", "dog": "perro", "boy": "niño", "bread": "pan", "sun": "sol", "sea": "mar"}
UPDATES, VALIDATE = 11, 4


def small_config(folder: Path) -> Config:
    """The settings of a run that takes a second; its corpus is written to folder."""
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
            final_weights="ema", bleu_sentences=2, probes=0,
            optimizer="muon", monitor="loss", keep_best=2, patience=5, sample_translations=0,
        ),
        search=SearchConfig(beam=1, max_length_ratio=1.0, max_length_offset=1),
        trainer=TrainerConfig(
            accelerator="cpu", precision="32-true", max_steps=UPDATES, validate_every=VALIDATE, checkpoint_every=1,
            keep_last=99, log_every=3,
        ),
    )  # fmt: skip


def changed(config: Config, **values: Any) -> Config:
    """The settings with other values of `trainer` or `training`."""
    trainer = {key: value for key, value in values.items() if hasattr(config.trainer, key)}
    training = {key: value for key, value in values.items() if key not in trainer}
    return replace(config, trainer=replace(config.trainer, **trainer), training=replace(config.training, **training))


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
    module = TranslationModule(
        build_model(config.model, data.tokenizer.target.vocab_size), config.training, seed=config.seed
    )
    trainer = make_trainer(config, folder, make_callbacks(config, folder, data, describe_run(config, {})))
    diary = Diary()
    trainer.callbacks += [diary, *more]  # type: ignore[attr-defined]
    fit(trainer, module, config, data, checkpoint)
    return trainer, diary.events


def straight_run(config: Config, data: PreparedData, folder: Path) -> tuple[Any, ...]:
    """Train without interruption; return the run's folder, a copy of every file it ever saved, and its events."""
    saved: list[Path] = []
    save = Checkpoints._save

    def keep(self: Checkpoints, trainer: L.Trainer) -> None:
        save(self, trainer)
        copy = folder / f"{len(saved):02d}-{trainer.global_step}{'-pending' * self._pending}.ckpt"
        saved.append(Path(shutil.copy(list_checkpoints(self.kept.folder)[-1], copy)))

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
    update = torch.load(checkpoint, weights_only=True)["global_step"]
    for path in (straight[0] / "checkpoints").iterdir():
        if step_of(path) <= update:
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
