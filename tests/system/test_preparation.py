"""Text prepared ahead by the command, killed on the way, and found by train.py."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from launcher import Launcher

from tests.toy import TINY

REPOSITORY = Path(__file__).parents[2]
SETTINGS = (
    "data=files", "data.train=[train*.tsv]", "data.validation=[held.tsv]", "data.test=[held.tsv]",
    "tokenizer.split_digits=false",  # or so few different words do not fill a vocabulary
)  # fmt: skip
CLEANED = ".*/new/*/text.arrow"

pytestmark = pytest.mark.system


def test_a_preparation_killed_and_begun_anew_is_found_by_training(tmp_path: Path, launcher: Launcher):
    for number in range(6):
        lines = (f"Sentence {i} of {number}.\tFrase {i} de {number}.\n" for i in range(1000))
        (tmp_path / f"train{number}.tsv").write_text("".join(lines))
    (tmp_path / "held.tsv").write_text("A sentence.\tUna frase.\nA word.\tUna palabra.\n")
    cache, pipe = tmp_path / "cache", subprocess.PIPE
    environment = os.environ | {"SEQ2SEQ_CACHE": str(cache), "PYTHONPATH": str(REPOSITORY)}

    def prepare() -> subprocess.Popen[str]:
        program = "from seq2seq.cli import main; main()"
        command = [sys.executable, "-c", program, "prepare", *SETTINGS, "tokenizer.vocab_size=300", "data.num_proc=2"]
        return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True)

    killed = prepare()
    while not list(cache.glob(CLEANED)) and killed.poll() is None:
        time.sleep(0.002)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()  # ends when its processes, which hold the other ends of its pipes, have ended
    assert killed.returncode == -signal.SIGKILL
    assert list(cache.glob(CLEANED))

    again = prepare()
    out, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    folder = Path(out.splitlines()[-1].removeprefix("folder: "))
    assert [path for path in cache.iterdir() if path.is_dir()] == [folder]

    sets = (*TINY, *SETTINGS, "model=tiny", "training=short", "trainer.max_steps=1")
    trained = launcher.complete(*sets, cwd=tmp_path, SEQ2SEQ_CACHE=str(cache))
    assert f"prepared text: {folder}" in trained.output
    assert "training the tokenizer" not in trained.output
