"""A training run of seconds that is done to and looked into; for tests of whole processes."""

import csv
import re
from pathlib import Path
from typing import Any

import torch
from launcher import Finished

from tests.toy import PAIRS, write_pairs

BASE = (
    "training=short", "model=tiny",
    "data=files", "data.train=[train.tsv]", "data.validation=[validation.tsv]", "data.test=[validation.tsv]",
    "data.remove_overlap=false", "tokenizer.vocab_size=300", "model.d_model=16", "model.num_encoder_layers=1",
    "model.num_decoder_layers=1", "model.d_ff=32", "training.max_tokens=256", "training.bleu_sentences=2",
    "training.warmup_steps=3", "search.beam=1", "search.max_length_ratio=1", "search.max_length_offset=2",
    "trainer.max_time=null",  # the clock would decide the learning rate
    "trainer.max_steps=20", "trainer.validate_every=8", "trainer.checkpoint_every=3", "trainer.log_every=1",
)  # fmt: skip
SAMPLED = ("training.subword_sampling.alpha=0.2", "training.noise.typos=0.5")
VARIANTS = {
    "fp32": ("trainer.precision=32-true",),
    "bf16": ("trainer.precision=bf16-mixed",),
    "subwords": ("trainer.precision=32-true", "data.block=40", *SAMPLED),
}


def write_corpus(folder: Path) -> Path:
    for name, pairs in (("train", PAIRS[:70]), ("validation", PAIRS[70:])):
        write_pairs(folder / f"{name}.tsv", pairs)
    return folder


def checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").glob("step=*"))


def last_weights(run: Path) -> dict[str, Any]:
    return torch.load(run / "checkpoints" / checkpoints(run)[-1], weights_only=True)


def logged(run: Path) -> list[tuple[str, str, str]]:
    """Update, loss and validation loss of each row of metrics.csv."""
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [(row["step"], row["loss"], row.get("val_loss", "")) for row in rows]


def fails_in_one_line(result: Finished, pattern: str) -> None:
    assert result.status == 1, result.output
    assert len(result.errors) == 1, result.output
    assert re.search(pattern, result.errors[0]), result.errors[0]
    assert "Traceback" not in result.output
