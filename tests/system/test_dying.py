"""Processes killed at bad moments, or one of several; docs/reliability.md has the table."""

import json
import signal
import time
from pathlib import Path

import pytest
import torch
from launcher import Launcher
from small_run import BASE, VARIANTS, checkpoints, fails_in_one_line, last_weights, logged

from seq2seq.bundle import load_bundle

pytestmark = pytest.mark.system


DIE_WHILE_SAVING = """
import os, signal, sys
from seq2seq.training import checkpoints
count = 0
def die():
    os.kill(os.getpid(), signal.SIGKILL)
def before(function, number):
    def call(*arguments, **options):
        global count
        count += os.path.exists('runs/run/checkpoints/step=0000003.ckpt')
        if count == number:
            die()
        return function(*arguments, **options)
    return call
"""
OLD, NEW = "step=0000003.ckpt", "step=0000006.ckpt"
MOMENTS = {  # each in the save of update 6, counted from when the checkpoint of update 3 is there; then what is left
    "in the middle of the file": (
        "checkpoints._RecordingFile.write = before(checkpoints._RecordingFile.write, 20)",
        ["saving.tmp", OLD],
    ),
    "before the file is on the disk": ("checkpoints.os.fsync = before(os.fsync, 2)", ["saving.tmp", OLD]),
    "before the old file goes": (
        "checkpoints.Checkpoints._remove_others = before(checkpoints.Checkpoints._remove_others, 2)",
        [OLD, NEW],
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_writing_a_checkpoint(launcher: Launcher, place: Path, moment: str) -> None:
    code, left = MOMENTS[moment]
    result = launcher.train(*BASE, "name=run", cwd=place, BEFORE=DIE_WHILE_SAVING + code)
    assert result.status == -signal.SIGKILL, result.output
    folder = place / "runs/run/checkpoints"
    assert sorted(path.name for path in folder.iterdir() if not path.name.startswith("best-")) == left
    resumed = launcher.train("resume=runs/run", "trainer.max_steps=7", cwd=place)
    assert resumed.status == 0, resumed.output
    assert [path.name for path in folder.glob("*.tmp")] == []
    assert checkpoints(place / "runs/run") == ["step=0000007.ckpt"]


def test_killed_while_testing_leaves_a_model_and_is_gone_on_from(launcher: Launcher, place: Path) -> None:
    """The run had been complete before, with fewer updates: its old results do not make it complete again."""
    assert launcher.train(*BASE, "name=run", "trainer.max_steps=3", cwd=place).status == 0
    run, more = place / "runs/run", ("resume=runs/run", "trainer.max_steps=5")
    old = (run / "model/model.safetensors").read_bytes()
    result = launcher.train(*more, cwd=place, until="translating test set")
    assert result.status == -signal.SIGKILL, result.output
    new = (run / "model/model.safetensors").read_bytes()
    assert new != old
    weights = last_weights(run)["state_dict"]
    model = load_bundle(run / "model").model
    assert all(torch.equal(weights[f"model.{name}"], values) for name, values in model.state_dict().items())
    assert json.loads((run / "results.json").read_text())["updates"] == 3
    resumed = launcher.train(*more, cwd=place)
    assert resumed.status == 0, resumed.output
    assert json.loads((run / "results.json").read_text())["updates"] == 5
    assert (run / "model/model.safetensors").read_bytes() == new
    assert "| validation | 10 |" in (run / "model/README.md").read_text()


KILL_READER = """
import multiprocessing
from seq2seq.training.module import TranslationModule as M
start = M.on_train_batch_start
def kill(self, batch, index):
    start(self, batch, index)
    if self.global_step == 4:
        for child in multiprocessing.active_children(): child.kill(); child.join()
M.on_train_batch_start = kill
"""


def test_when_the_process_that_reads_text_dies_training_says_so_and_can_go_on(launcher: Launcher, place: Path) -> None:
    sets = (*BASE, *VARIANTS["subwords"], "trainer.validate_every=100000", "training.schedule=constant")
    result = launcher.train(*sets, "name=run", "trainer.max_steps=100000", cwd=place, BEFORE=KILL_READER)
    fails_in_one_line(
        result, r"the process that reads the training text ended, perhaps for want of memory: resume=runs/NAME"
    )
    (newest,) = checkpoints(place / "runs/run")
    steps = f"trainer.max_steps={int(newest[5:12]) + 5}"
    resumed = launcher.train("resume=runs/run", steps, cwd=place)
    assert resumed.status == 0, resumed.output
    assert launcher.train(*sets, "name=straight", steps, cwd=place).status == 0
    assert logged(place / "runs/run") == logged(place / "runs/straight")


KILL_ONE_READER = """
import glob, os, signal, subprocess
children, popen = [], subprocess.Popen
def note(*a, **k):
    child = popen(*a, **k); children.append(child.pid); return child
subprocess.Popen = note
def readers(parent):
    ids = ' '.join(open(path).read() for path in glob.glob(f'/proc/{parent}/task/*/children')).split()
    return [int(one) for one in ids if 'spawn_main' in open(f'/proc/{one}/cmdline').read()]
from seq2seq.training.module import TranslationModule as M
start = M.on_train_batch_start
def kill(self, batch, index):
    start(self, batch, index)
    if self.global_step == 4:
        (reader,) = readers(children[0] if os.environ['WHOSE'] == 'second' else os.getpid())
        os.kill(reader, signal.SIGKILL)
        open('time-of-death', 'w').close()
M.on_train_batch_start = kill
"""


@pytest.mark.parametrize("whose", ["first", "second"])
def test_when_one_of_two_processes_loses_its_reader_both_end_within_a_minute(
    launcher: Launcher, place: Path, whose: str
) -> None:
    sets = (*BASE, *VARIANTS["subwords"], "trainer.validate_every=100000", "training.schedule=constant", "name=run")
    sets += ("trainer=ddp", "trainer.devices=2", "trainer.accelerator=cpu", "trainer.max_steps=100000")
    result = launcher.train(*sets, cwd=place, BEFORE=KILL_ONE_READER, WHOSE=whose)  # ends when all of them have
    assert time.time() - (place / "time-of-death").stat().st_mtime < 60
    assert result.status != 0
    told = "the process that reads the training text ended, perhaps for want of memory"
    assert [told in line for line in result.errors].count(True) == 1, result.output
    assert "Traceback" not in result.output
    alone = ("trainer.devices=1", "training.accumulate=2")
    (newest,) = checkpoints(place / "runs/run")
    resumed = launcher.train("resume=runs/run", *alone, f"trainer.max_steps={int(newest[5:12]) + 3}", cwd=place)
    assert resumed.status == 0, resumed.output


def test_when_one_process_dies_the_others_end_within_a_minute(launcher: Launcher, place: Path) -> None:
    code = (
        "import os, signal, subprocess\nchildren = []\npopen = subprocess.Popen\n"
        "def note(*a, **k):\n    child = popen(*a, **k); children.append(child); return child\n"
        "subprocess.Popen = note\n"
        "from seq2seq.training.module import TranslationModule as M\nstart = M.on_train_batch_start\n"
        "def kill(self, batch, index):\n"
        "    start(self, batch, index)\n"
        "    if self.global_step == 4:\n"
        "        for child in children: child.kill(); child.wait()\n"
        "        open('time-of-death', 'w').close()\n"
        "M.on_train_batch_start = kill"
    )
    sets = (
        *BASE,
        "name=run",
        "trainer=ddp",
        "trainer.devices=2",
        "trainer.accelerator=cpu",
        "trainer.max_steps=100000",
    )
    result = launcher.train(*sets, cwd=place, BEFORE=code)
    assert time.time() - (place / "time-of-death").stat().st_mtime < 60
    if result.status == -signal.SIGKILL:  # Lightning's watch was quicker than the broken connection
        assert "terminated with code -9. Forcefully terminating all other processes" in result.output
    else:
        fails_in_one_line(result, r"another process of this run has died .*resume=runs/run")
    assert checkpoints(place / "runs/run") == ["step=0000003.ckpt"]
