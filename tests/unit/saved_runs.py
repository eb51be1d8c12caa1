"""Run folders as training leaves them, without training."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from seq2seq.settings.config import Config, to_plain
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig

METRICS = "step,loss,seconds,val_loss,val_bleu\n2,5.0,30.0,,\n4,,,3.5,20.25\n6,4.0,90.0,3.0,18.5\n"


def settings(d_model: int = 64, monitor: str = "bleu") -> Config:
    return Config(model=ModelConfig(d_model=d_model, num_heads=4), training=TrainingConfig(monitor=monitor))


def make_run(
    folder: Path, config: Config | None = None, *, updates: Sequence[int] = (6,), results: int | None = None
) -> Path:
    """updates are those of the checkpoints; results are those of results.json."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(to_plain(replace(config or settings(), name=folder.name))))
    if updates:
        (folder / "metrics.csv").write_text(METRICS)
    for step in updates:
        (folder / "checkpoints" / f"step={step:07d}.ckpt").write_bytes(b"x" * 1000)
    if results is not None:
        scores = {"everyday": {"bleu": {"value": 31.25}}}
        facts = {"updates": results, "training_seconds": 3725.2, "parameters": 1_600_000, "scores": scores}
        (folder / "results.json").write_text(json.dumps(facts))
    return folder
