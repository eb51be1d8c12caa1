"""Folders of runs like those of train.py, made without training."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from seq2seq.settings.config import Config
from seq2seq.settings.model import ModelConfig

UPDATES = 300


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a run's folder, with losses at updates 100, 200 and 300."""

    def make(
        experiment: str,
        seed: int,
        bleu: float,
        losses: Sequence[float] = (3.0, 2.0, 1.5),
        *,
        complete: bool = True,
        updates: int = UPDATES,
        **model: Any,
    ) -> Path:
        folder = tmp_path / "runs" / "lab" / f"{experiment}-{seed}"
        (folder / "checkpoints").mkdir(parents=True)
        config = Config(name=folder.name, experiment_name=experiment, seed=seed, model=ModelConfig(d_model=64, **model))
        config.trainer.max_steps = UPDATES
        (folder / "config.yaml").write_text(yaml.safe_dump(asdict(config)))
        rows = [f"{100 * (i + 1)},{loss + 0.25},,\n{100 * (i + 1)},,{loss},{bleu}\n" for i, loss in enumerate(losses)]
        (folder / "metrics.csv").write_text("step,loss,val_loss,val_bleu\n" + "".join(rows))
        facts = {
            "updates": updates, "parameters": 1000, "training_seconds": 60.0, "hardware": "2 CPU cores",
            "data": {"sizes": {"train": 25000}},
            "scores": {"grammar.test": {"bleu": {"value": bleu, "signature": "s"}}},
        }  # fmt: skip
        if complete:
            (folder / "results.json").write_text(json.dumps(facts))
        return folder

    return make
