"""Run folders and bundles as training leaves them, without training."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import yaml

from seq2seq.model.build import build_model
from seq2seq.settings.config import Config
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.settings.training import TrainerConfig, TrainingConfig
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.bundle import Bundle, BundleConfig, save_bundle

METRICS = "step,loss,seconds,val_loss,val_bleu\n2,5.0,30.0,,\n4,,,3.5,20.25\n6,4.0,90.0,3.0,18.5\n"


def settings(d_model: int = 64, monitor: str = "bleu") -> Config:
    """Return the settings of a run of six updates."""
    return Config(
        model=ModelConfig(d_model=d_model, num_heads=4),
        training=TrainingConfig(monitor=monitor),
        trainer=TrainerConfig(max_steps=6),
    )


def make_run(
    folder: Path, config: Config | None = None, *, updates: Sequence[int] = (6,), results: int | None = None
) -> Path:
    """updates are those of the checkpoints; results are those of results.json."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(asdict(replace(config or settings(), name=folder.name))))
    if updates:
        (folder / "metrics.csv").write_text(METRICS)
    for step in updates:
        (folder / "checkpoints" / f"step={step:07d}.ckpt").write_bytes(b"x" * 1000)
    if results is not None:
        scores = {"everyday": {"bleu": {"value": 31.25}}}
        facts = {"updates": results, "training_seconds": 3725.2, "parameters": 1_600_000, "scores": scores}
        (folder / "results.json").write_text(json.dumps(facts))
    return folder


def write_recurrent_bundle(folder: Path, tokenizer: Tokenizer, attention: str) -> Path:
    """Write the bundle of an untrained recurrent model."""
    config = ModelConfig(
        architecture="recurrent", attention=attention, d_model=16, num_encoder_layers=1, num_decoder_layers=1
    )
    model = build_model(config, tokenizer.vocab_size)
    save_bundle(folder, Bundle(model, Tokenizers.joint(tokenizer), BundleConfig(config, SearchConfig(beam=2))), "card")
    return folder
