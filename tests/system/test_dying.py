"""Processes killed at bad moments, or one of several; docs/reliability.md has the table."""

import json
import signal
import time
from pathlib import Path

import pytest
import torch
from launcher import Launcher
from small_run import BASE, PAIR, VARIANTS, checkpoints, fails_in_one_line, last_weights, logged, newest_update

from seq2seq.training.run_files import read_run
from seq2seq.translate.bundle import load_bundle

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
    "before the file is on the disk": ("checkpoints.os.fsync = before(os.fsync, 2)", [f".{NEW}.seq2seq", OLD]),
    "before the old file goes": (
        "Kept = checkpoints.KeptCheckpoints\nKept.delete_others = before(Kept.delete_others, 2)",
        [OLD, NEW],
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_writing_a_checkpoint(launcher: Launcher, workdir: Path, moment: str) -> None:
    code, left = MOMENTS[moment]
    result = launcher.train(*BASE, "name=run", cwd=workdir, BEFORE=DIE_WHILE_SAVING + code)
    assert result.status == -signal.SIGKILL, result.output
    folder = workdir / "runs/run/checkpoints"
    assert sorted(path.name for path in folder.iterdir() if not path.name.startswith("best-")) == left
    launcher.complete("resume=runs/run", "trainer.max_steps=7", cwd=workdir)
    assert [path.name for path in folder.glob("*.tmp")] == []
    assert checkpoints(workdir / "runs/run") == ["step=0000007.ckpt"]


def test_killed_while_testing_leaves_a_model_and_is_gone_on_from(launcher: Launcher, trained: Path) -> None:
    """The run had been complete before, with fewer updates: its old results do not make it complete again."""
    run, more = trained / "runs/run", ("resume=runs/run", "trainer.max_steps=5")
    old = (run / "model/model.safetensors").read_bytes()
    result = launcher.train(*more, cwd=trained, until="translating test set")
    assert result.status == -signal.SIGKILL, result.output
    new = (run / "model/model.safetensors").read_bytes()
    assert new != old
    weights = last_weights(run)["state_dict"]
    model = load_bundle(run / "model").model
    assert all(torch.equal(weights[f"model.{name}"], values) for name, values in model.state_dict().items())
    assert json.loads((run / "results.json").read_text())["updates"] == 3
    launcher.complete(*more, cwd=trained)
    assert json.loads((run / "results.json").read_text())["updates"] == 5
    assert (run / "model/model.safetensors").read_bytes() == new
    assert "| test | 10 |" in (run / "model/README.md").read_text()


KILL = """
import os, signal
from seq2seq.apps import train
from seq2seq.training import finish_run, report, run, run_folder
from seq2seq.training.module import TranslationModule
def kill(*a, **k): os.kill(os.getpid(), signal.SIGKILL)
"""
KILLED_AT = {  # the function that is not called any more; then the run's state after 3 updates and no end or an end
    "reading its text": ("run.prepare_folder", "nothing saved", "stopped"),
    "the first update": ("run.fit", "nothing saved", "stopped"),
    "the first checkpoint": ("run.Checkpoints._save", "nothing saved", "stopped"),
    "writing the model": ("finish_run.save_bundle", "stopped", "stopped"),
    "the pictures": ("finish_run.draw_curves", "stopped", "stopped"),
    "the translations": ("finish_run.keep_translations", "stopped", "stopped"),
    "writing results.json": ("finish_run.write_json", "stopped", "stopped"),
    "renaming results.json": ("report.write_text", "stopped", "stopped"),
    "the analysis": ("train.analyse_tests", "complete", "complete"),
}


@pytest.mark.parametrize("moment", KILLED_AT)
def test_the_command_of_a_killed_run_begins_goes_on_or_is_done(launcher: Launcher, trained: Path, moment: str) -> None:
    """A new run, and one that was complete after 3 updates and is extended to 6."""
    function, *states = KILLED_AT[moment]
    for name, state in zip(("new", "run"), states, strict=True):
        same = (*BASE, f"name={name}", "resume=auto", "trainer.max_steps=6", "analyse=true")
        first = same if name == "new" else ("resume=runs/run", "trainer.max_steps=6", "analyse=true")
        killed = launcher.train(*first, cwd=trained, BEFORE=f"{KILL}{function} = kill")
        assert killed.status == -signal.SIGKILL, killed.output
        folder = trained / "runs" / name
        assert read_run(folder, name).state == state
        again = launcher.complete(*same, cwd=trained)
        assert ("is complete after 6 updates" in again.output) == (state == "complete")
        assert read_run(folder, name).state == "complete"
        assert [step for step, _ in logged(folder)] == list(map(str, range(1, 7)))
        assert not [path for path in folder.rglob("*") if ".tmp" in path.name or ".draft" in path.name]


ENDLESS = (*VARIANTS["subwords"], "trainer.validate_every=100000", "training.schedule=constant", "name=run")
LOST_READER = "a process died (of 1), perhaps for want of memory: resume=runs/NAME"


NOTE_CHILDREN = """
import glob, os, signal, subprocess
children, popen = [], subprocess.Popen
def note(*a, **k):
    child = popen(*a, **k); children.append(child); return child
subprocess.Popen = note
def kill_reader(parent):
    ids = ' '.join(open(path).read() for path in glob.glob(f'/proc/{parent}/task/*/children')).split()
    (reader,) = [int(child) for child in ids if 'spawn_main' in open(f'/proc/{child}/cmdline').read()]
    os.kill(reader, signal.SIGKILL)
def kill_children():
    for child in children: child.kill(); child.wait()
from seq2seq.training.module import TranslationModule as M
start = M.on_train_batch_start
def kill(self, batch, index):
    start(self, batch, index)
    if self.global_step == 4:
        DEATH
        open('time-of-death', 'w').close()
M.on_train_batch_start = kill
"""


@pytest.mark.parametrize("parent", ["os.getpid()", "children[0].pid"], ids=["first", "second"])
def test_when_one_of_two_processes_loses_its_reader_both_end_within_a_minute(launcher, workdir, parent):
    code = NOTE_CHILDREN.replace("DEATH", f"kill_reader({parent})")
    result = launcher.train(*ENDLESS, *PAIR, "trainer.max_steps=100000", cwd=workdir, BEFORE=code)
    assert time.time() - (workdir / "time-of-death").stat().st_mtime < 60  # the launcher waits for both processes
    assert result.status != 0
    assert [LOST_READER in line for line in result.errors].count(True) == 1, result.output
    assert "Traceback" not in result.output
    steps = f"trainer.max_steps={newest_update(workdir / 'runs/run') + 3}"
    launcher.complete("resume=runs/run", "trainer.devices=1", "training.accumulate=2", steps, cwd=workdir)


def test_when_one_process_dies_the_others_end_within_a_minute(launcher: Launcher, workdir: Path) -> None:
    code = NOTE_CHILDREN.replace("DEATH", "kill_children()")
    result = launcher.train(*BASE, *PAIR, "name=run", "trainer.max_steps=100000", cwd=workdir, BEFORE=code)
    assert time.time() - (workdir / "time-of-death").stat().st_mtime < 60
    if result.status == -signal.SIGKILL:  # Lightning's watch was quicker than the broken connection
        assert "terminated with code -9. Forcefully terminating all other processes" in result.output
    else:
        fails_in_one_line(result, r"another process of this run has died .*resume=runs/run")
    assert checkpoints(workdir / "runs/run") == ["step=0000003.ckpt"]
