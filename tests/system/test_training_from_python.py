"""`seq2seq.train` in a program: the run of train.py, and nothing else of the process changes."""

from pathlib import Path

import pytest
from launcher import Launcher
from small_run import BASE, program

pytestmark = pytest.mark.system

PROGRAM = f"""
import fcntl, logging, signal, sys, threading
from lightning import Callback
from seq2seq import UserError, train

def state():
    return list(sys.argv), logging.getLogger().handlers, logging.getLogger().level, signal.getsignal(signal.SIGINT)

class Updates(Callback):
    count = 0

    def on_train_batch_end(self, trainer, *_):
        self.count = trainer.global_step

before, updates = state(), Updates()
run = train(*{BASE}, "name=python", "trainer.max_steps=9", callbacks=[updates])
assert updates.count == 9, updates.count
assert run.scores["test"]["bleu"]["signature"].startswith("nrefs:1"), run.scores
assert [row["step"] for row in run.metrics if "loss" in row] == list(range(1, 10)), run.metrics
assert run.best == max(row["val_bleu"] for row in run.metrics if "val_bleu" in row)
assert len(run.translator("cpu").translate(["The cat sees the milk."])) == 1
again = train("resume=runs/python", "trainer.max_steps=12")
assert again.folder == run.folder and len([row for row in again.metrics if "loss" in row]) == 12
for wrong in ("training.lr=1", "data.train=[none.tsv]", "model=huge", "trainer.devices=2"):
    try:
        train(*{BASE}, wrong)
    except UserError as error:
        print(error)
assert state() == before
with open("runs/python/lock") as file:  # a refused resume holds no lock
    try:
        train("resume=runs/python", "training.max_tokens=999", "trainer.max_steps=20")
    except UserError:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_UN)
thread = threading.Thread(target=train, args=("resume=runs/python", "trainer.max_steps=14"))
thread.start()
thread.join()
assert len([row for row in again.metrics if "loss" in row]) == 14
"""


def test_a_program_trains_as_train_py_does(launcher: Launcher, workdir: Path) -> None:
    done = program(PROGRAM, cwd=workdir)
    assert done.returncode == 0, done.stderr
    for name, line in zip(
        ("training.lr", "none.tsv", "huge", "trainer.devices"), done.stdout.splitlines(), strict=True
    ):
        assert name in line
    steps = ("trainer.max_steps=12", "trainer.max_steps=14")
    for arguments in (
        (*BASE, "name=program", "trainer.max_steps=9"),
        *(("resume=runs/program", more) for more in steps),
    ):
        launcher.complete(*arguments, cwd=workdir)
    weights = [workdir / "runs" / name / "model/model.safetensors" for name in ("python", "program")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
