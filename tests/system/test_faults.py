"""What can go wrong around a run: disks, damaged files, changed text; docs/reliability.md has the table."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from launcher import Launcher
from small_run import BASE, checkpoints, fails_in_one_line, last_weights

from seq2seq.training.run_files import read_run

pytestmark = pytest.mark.system

KILLED_AT_11 = """
import os
from seq2seq.training.module import TranslationModule as M
start = M.on_train_batch_start
def kill(self, batch, index):
    start(self, batch, index)
    if self.global_step == 11: os.kill(os.getpid(), 9)
M.on_train_batch_start = kill
"""


@pytest.mark.parametrize("keep_last", [1, 2])
def test_a_best_checkpoint_from_before_its_validation_is_gone_on_from(launcher, workdir, keep_last):
    """Only its best name is left, and its validation is due again."""
    often = ("trainer.checkpoint_every=2", "trainer.validate_every=4", f"trainer.keep_last={keep_last}")
    killed = launcher.train(*BASE, *often, "name=run", "trainer.max_steps=20", cwd=workdir, BEFORE=KILLED_AT_11)
    assert killed.status == -9, killed.output
    for path in (workdir / "runs/run/checkpoints").glob("step=*.ckpt"):
        os.truncate(path, 20_000) if path.stat().st_nlink == 1 else path.unlink()
    resumed = launcher.complete("resume=runs/run", "trainer.max_steps=13", cwd=workdir)
    assert "going on from best-step=00000" in resumed.output
    assert read_run(workdir / "runs/run", "run").state == "complete"
    assert len(checkpoints(workdir / "runs/run")) == keep_last


def test_a_changed_corpus_and_changed_batches_are_refused_by_name(launcher: Launcher, trained: Path) -> None:
    def refuse(message: str, *overrides: str) -> None:
        result = launcher.train("resume=runs/run", "trainer.max_steps=4", *overrides, cwd=trained)
        fails_in_one_line(result, message)

    settings = (trained / "runs/run/config.yaml").read_bytes()
    original = (trained / "train.tsv").read_text()
    (trained / "train.tsv").write_text(original.replace("cat", "cow", 1))
    refuse(r"resume=runs/run: data.train: train.tsv has changed")
    (trained / "train.tsv").write_text(original)
    refuse("training.max_tokens=128 would make other batches", "training.max_tokens=128")
    (trained / "validation.tsv").unlink()
    refuse(r"validation.tsv does not exist")
    assert (trained / "runs/run/config.yaml").read_bytes() == settings


def test_a_second_run_in_the_folder_is_refused_and_the_first_named(launcher: Launcher, trained: Path) -> None:
    code = "import fcntl, os, sys; f = open('runs/run/lock', 'r+'); fcntl.flock(f, fcntl.LOCK_EX)\n"
    code += "f.truncate(0); f.write(f'{os.getpid()} on ' + os.uname().nodename); f.flush(); print(flush=True)\n"
    code += "sys.stdin.read()"
    pipe, more = subprocess.PIPE, ("resume=runs/run", "trainer.max_steps=4")
    with subprocess.Popen([sys.executable, "-c", code], cwd=trained, stdin=pipe, stdout=pipe) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        message = rf"runs/run is being trained in by process {holder.pid} on {socket.gethostname()}: wait for it"
        fails_in_one_line(launcher.train(*more, cwd=trained), message)
        holder.kill()
    launcher.complete(*more, cwd=trained)


def test_a_place_that_cannot_be_written_is_named(launcher: Launcher, workdir: Path) -> None:
    (workdir / "runs").touch()
    fails_in_one_line(launcher.train(*BASE, "name=run", cwd=workdir), r"cannot write runs.*: Not a directory; choose")


def at_update_4(code: str) -> str:
    """Return a program that runs code in the training process as update 5 begins."""
    return (
        "from seq2seq.training.module import TranslationModule as M\nstart = M.on_train_batch_start\n"
        "def changed(self, batch, index):\n"
        "    start(self, batch, index)\n"
        f"    if self.global_step == 4: {code}\n"
        "M.on_train_batch_start = changed"
    )


FULL = """
import errno
from pathlib import Path
from seq2seq.training import trainer
def full(*a, **k): raise OSError(errno.ENOSPC, 'No space left on device')
def fill(name):
    write = Path.write_text
    Path.write_text = lambda path, *a, **k: (full if f'.{name}.' in path.parent.name else write)(path, *a, **k)
"""
FULL_DISKS = {  # the write that fails, in a line of code, and the file that the error names
    "a checkpoint": (
        "import resource\nfrom seq2seq.training import checkpoints\nsave = checkpoints.torch.save\n"
        "def limited(values, file):\n"
        "    if values['global_step'] == 3: resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n"
        "    save(values, file)\n"
        "checkpoints.torch.save = limited",
        "runs/run/checkpoints/step=0000003.ckpt",
    ),
    "metrics": ("trainer.Table.save = full", "runs/run"),
    "TensorBoard": (
        "from tensorboard.summary.writer.record_writer import RecordWriter\n"
        "write, metrics = RecordWriter.write, Path('runs/run/metrics.csv')\n"
        "RecordWriter.write = lambda *a: full() if metrics.exists() else write(*a)",
        "runs/run",
    ),
    "the model": ("import seq2seq.translate.bundle\nseq2seq.translate.bundle.save_file = full", "runs/run/model"),
    "translations": ("fill('test.txt')", "runs/run/translations/test.txt"),
    "results": ("fill('results.json')", "runs/run/results.json"),
}


@pytest.mark.parametrize("file", FULL_DISKS)
def test_a_disk_that_is_full_at_any_write_is_one_line_and_the_run_goes_on_later(launcher, workdir, file):
    code, name = FULL_DISKS[file]
    same = (*BASE, "name=run", "trainer.max_steps=3", "trainer.checkpoint_every=2")
    result = launcher.train(*same, cwd=workdir, BEFORE=FULL + code)
    reason = "(No space left on device|File too large)"
    fails_in_one_line(result, rf"{name}: {reason}.*: make room.* `python train.py resume=runs/run`$")
    launcher.complete("resume=runs/run", cwd=workdir)
    assert read_run(workdir / "runs/run", "run").state == "complete"


def test_pictures_that_cannot_be_drawn_are_only_warned_of(launcher: Launcher, workdir: Path) -> None:
    code = f"{FULL}from matplotlib.figure import Figure\nFigure.savefig = full"
    result = launcher.complete(*BASE, "name=run", "trainer.max_steps=3", cwd=workdir, BEFORE=code)
    assert "runs/run/curves.png cannot be drawn: No space left on device" in result.output


def test_an_injected_nan_is_never_saved(launcher: Launcher, workdir: Path) -> None:
    poison = at_update_4("self.model.embedding.weight.data[5] = float('nan')")
    result = launcher.train(*BASE, "name=run", "trainer.checkpoint_every=1", cwd=workdir, BEFORE=poison)
    fails_in_one_line(result, r"not a number at update 5: training stops, the last checkpoint is good")
    assert checkpoints(workdir / "runs/run") == ["step=0000004.ckpt"]
    assert all(tensor.isfinite().all() for tensor in last_weights(workdir / "runs/run")["state_dict"].values())
    launcher.complete("resume=runs/run", "trainer.max_steps=6", cwd=workdir)
