"""Settings of a training run of seconds, and what its folder holds; for tests of whole processes."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from launcher import REPOSITORY, Finished

from tests.toy import FILES, TINY

RUN = (
    "training=short", *FILES, "training.max_tokens=256", "training.bleu_sentences=2", "training.warmup_steps=3",
    "search.beam=1", "search.max_length_ratio=1", "search.max_length_offset=2",
    "trainer.max_time=null",  # the clock would decide the learning rate
    "trainer.max_steps=20", "trainer.validate_every=8", "trainer.checkpoint_every=3", "trainer.log_every=1",
)  # fmt: skip
BASE = (*RUN, "model=tiny", *TINY)
SAMPLED = ("training.subword_sampling.alpha=0.2", "training.modifiers.share=0.5")
VARIANTS = {
    "subwords": (*BASE, "trainer.precision=32-true", "data.block=40", *SAMPLED),
    "recurrent": (*RUN, "trainer.precision=bf16-mixed", "model=lstm", "model.d_model=16", "tokenizer.vocab_size=300"),
}
PAIR = ("trainer=ddp", "trainer.devices=2", "trainer.accelerator=cpu")


def program(code: str, *arguments: str, cwd: Path, texts: str = "") -> "subprocess.CompletedProcess[str]":
    """Run code with arguments in a new interpreter."""
    command, environment = [sys.executable, "-c", code, *arguments], {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, cwd=cwd, env=environment, input=texts, capture_output=True, text=True, check=False)


def checkpoints(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").glob("step=*"))


def newest_update(run: Path) -> int:
    return int(checkpoints(run)[-1][5:12])


def last_weights(run: Path) -> dict[str, Any]:
    return torch.load(run / "checkpoints" / checkpoints(run)[-1], weights_only=True)


def logged(run: Path, *keys: str) -> list[tuple[str, ...]]:
    """Return the update, the loss and the values of the keys in each row of metrics.csv that has a loss."""
    with (run / "metrics.csv").open() as file:
        return [tuple(row[key] for key in ("step", "loss", *keys)) for row in csv.DictReader(file) if row["loss"]]


def validated(run: Path) -> dict[str, str]:
    """Return the validation loss after each update that was followed by a validation."""
    with (run / "metrics.csv").open() as file:
        return {row["step"]: row["val_loss"] for row in csv.DictReader(file) if row.get("val_loss")}


def fails_in_one_line(result: Finished, pattern: str) -> None:
    assert result.status == 1, result.output
    assert len(result.errors) == 1, result.output
    assert re.search(pattern, result.errors[0]), result.errors[0]
    assert "Traceback" not in result.output
