"""Text prepared ahead by the command, killed on the way, and found by train.py."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SETTINGS = ("data=files", "data.train=[train*.tsv]", "data.validation=[held.tsv]", "data.test=[held.tsv]")
TRAINING = ("model.d_model=16", "model.num_heads=2", "model.num_encoder_layers=1", "model.num_decoder_layers=1")
CLEANED = ".*.building/work/cleaned/*/manifest.json"

pytestmark = pytest.mark.system


def start(*command: str, cwd: Path) -> subprocess.Popen[str]:
    cache = {"SEQ2SEQ_CACHE": str(cwd / "cache"), "PYTHONPATH": str(REPOSITORY)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, *command], cwd=cwd, env=os.environ | cache, stdout=pipe, stderr=pipe, text=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out, err


def test_a_preparation_killed_and_begun_anew_is_found_by_training(tmp_path: Path):
    for number in range(6):
        lines = (f"Sentence {i} of {number}.\tFrase {i} de {number}.\n" for i in range(3000))
        (tmp_path / f"train{number}.tsv").write_text("".join(lines))
    (tmp_path / "held.tsv").write_text("A sentence.\tUna frase.\nA word.\tUna palabra.\n")
    cache, program = tmp_path / "cache", "from seq2seq.cli import main; main()"
    prepare = ("-c", program, "prepare", *SETTINGS, "tokenizer.vocab_size=300", "data.num_proc=2")

    killed = start(*prepare, cwd=tmp_path)
    while not list(cache.glob(CLEANED)) and killed.poll() is None:
        time.sleep(0.002)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()  # ends when its processes, which hold the other ends of its pipes, have ended
    assert killed.returncode == -signal.SIGKILL
    assert list(cache.glob(CLEANED))

    folder = Path(finish(start(*prepare, cwd=tmp_path))[0].splitlines()[-1].removeprefix("folder: "))
    assert [path for path in cache.iterdir() if path.is_dir()] == [folder]

    given = (*SETTINGS, "tokenizer.vocab_size=300", *TRAINING, "trainer.max_steps=1")
    _, err = finish(start(str(REPOSITORY / "train.py"), *given, cwd=tmp_path))
    assert f"prepared text: {folder}" in err
    assert "training the tokenizer" not in err
