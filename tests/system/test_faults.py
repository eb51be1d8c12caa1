"""What can go wrong around a run: disks, damaged files, changed text; docs/reliability.md has the table."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from launcher import Launcher
from small_run import BASE, checkpoints, fails_in_one_line, last_weights, write_corpus

pytestmark = pytest.mark.system


def test_a_truncated_checkpoint_falls_back_to_the_one_before(launcher: Launcher, place: Path) -> None:
    sets = (*BASE, "name=run", "trainer.keep_last=2", "trainer.max_steps=6")
    assert launcher.train(*sets, cwd=place).status == 0
    newest = place / "runs/run/checkpoints/step=0000006.ckpt"
    newest.write_bytes(newest.read_bytes()[:20_000])
    (place / "runs/run/results.json").unlink()
    resumed = launcher.train("resume=runs/run", cwd=place)
    assert resumed.status == 0, resumed.output
    assert "step=0000006.ckpt is damaged" in resumed.output
    assert "going on from step=0000003.ckpt, the one before" in resumed.output
    assert (place / "runs/run/checkpoints/damaged-step=0000006.ckpt").stat().st_size == 20_000


def test_a_changed_corpus_and_changed_batches_are_refused_by_name(launcher: Launcher, place: Path) -> None:
    assert launcher.train(*BASE, "name=run", "trainer.max_steps=3", cwd=place).status == 0
    settings = (place / "runs/run/config.yaml").read_bytes()
    more = "trainer.max_steps=4"
    original = (place / "train.tsv").read_text()
    (place / "train.tsv").write_text(original.replace("cat", "cow", 1))
    fails_in_one_line(
        launcher.train("resume=runs/run", more, cwd=place), r"resume=runs/run: data.train: train.tsv has changed"
    )
    (place / "train.tsv").write_text(original)
    for override, told in (("training.max_tokens=128", "training.max_tokens=128"), ("seed=2", "seed=2")):
        fails_in_one_line(
            launcher.train("resume=runs/run", more, override, cwd=place), f"{told} would make other batches"
        )
    (place / "validation.tsv").unlink()
    fails_in_one_line(launcher.train("resume=runs/run", more, cwd=place), r"validation.tsv does not exist")
    assert (place / "runs/run/config.yaml").read_bytes() == settings


def test_a_second_run_in_the_folder_is_refused_and_the_first_named(launcher: Launcher, place: Path) -> None:
    assert launcher.train(*BASE, "name=run", "trainer.max_steps=3", cwd=place).status == 0
    code = "import fcntl, os, sys; f = open('runs/run/lock', 'r+'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True)\n"
    code += "f.truncate(0); f.write(f'{os.getpid()} on ' + os.uname().nodename); f.flush(); print(flush=True)\n"
    code += "sys.stdin.read()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], cwd=place, stdin=pipe, stdout=pipe) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.stdout.readline()
        told = rf"runs/run is being trained in by process {holder.pid} on {socket.gethostname()}: wait for it"
        fails_in_one_line(launcher.train("resume=runs/run", "trainer.max_steps=4", cwd=place), told)
        holder.kill()
    assert launcher.train("resume=runs/run", "trainer.max_steps=4", cwd=place).status == 0


def test_a_running_run_holds_the_lock(launcher: Launcher, place: Path) -> None:
    result = launcher.train(*BASE, "name=run", cwd=place, until="update 4 ")
    assert result.status == -signal.SIGKILL
    holder = (place / "runs/run/lock").read_text()
    assert re.fullmatch(rf"\d+ on {re.escape(socket.gethostname())}\n", holder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own; needs the right to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount a disk here: {mounted.stderr.strip()}")
    yield folder
    for _ in range(20):
        if subprocess.run(["umount", str(folder)], capture_output=True, check=False).returncode == 0:
            break
        time.sleep(0.2)


def test_a_read_only_disk_is_named(launcher: Launcher, small_disk: Path) -> None:
    write_corpus(small_disk)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    fails_in_one_line(
        launcher.train(*BASE, "name=run", cwd=small_disk), r"cannot write runs/run: Read-only file system; choose"
    )


def test_a_disk_that_takes_no_more_keeps_the_checkpoint_before(launcher: Launcher, place: Path) -> None:
    """By a limit on the size of files, which needs no rights; test_runs.py fills a real disk."""
    code = (
        "import resource, signal\nfrom seq2seq.training import checkpoints as c\nsave = c.DurableIO.save_checkpoint\n"
        "def limited(self, *a, **k):\n"
        "    if c.list_checkpoints(c.Path('runs/run/checkpoints')):\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n"
        "    save(self, *a, **k)\n"
        "c.DurableIO.save_checkpoint = limited"
    )
    result = launcher.train(*BASE, "name=run", cwd=place, BEFORE=code)
    fails_in_one_line(
        result, r"cannot write runs/run/checkpoints/step=0000006.ckpt: File too large; the checkpoint bef"
    )
    assert os.listdir(place / "runs/run/checkpoints") == ["step=0000003.ckpt"]
    resumed = launcher.train("resume=runs/run", "trainer.max_steps=4", cwd=place)
    assert resumed.status == 0, resumed.output


def test_an_injected_nan_is_never_saved(launcher: Launcher, place: Path) -> None:
    code = (
        "from seq2seq.training.module import TranslationModule as M\nstart = M.on_train_batch_start\n"
        "def poison(self, batch, index):\n"
        "    start(self, batch, index)\n"
        "    if self.global_step == 4: self.model.embedding.weight.data[5] = float('nan')\n"
        "M.on_train_batch_start = poison"
    )
    result = launcher.train(*BASE, "name=run", cwd=place, BEFORE=code)
    fails_in_one_line(result, r"not a number at update 5: training stops, the last checkpoint is good")
    assert checkpoints(place / "runs/run") == ["step=0000003.ckpt"]
    assert all(tensor.isfinite().all() for tensor in last_weights(place / "runs/run")["state_dict"].values())
    resumed = launcher.train("resume=runs/run", "trainer.max_steps=6", cwd=place)
    assert resumed.status == 0, resumed.output


def test_a_corrupted_cache_is_noticed_and_made_again(launcher: Launcher, place: Path) -> None:
    sets = (*BASE, "trainer.max_steps=3")
    cache = place / "cache"
    assert launcher.train(*sets, "name=one", cwd=place, SEQ2SEQ_CACHE=str(cache)).status == 0
    (prepared,) = cache.glob("*/train.ids")
    prepared.write_bytes(prepared.read_bytes()[:-64] + bytes(64))
    result = launcher.train(*sets, "name=two", cwd=place, SEQ2SEQ_CACHE=str(cache))
    assert result.status == 0, result.output
    assert "is damaged: preparing it again" in result.output
    ends = [last_weights(place / "runs" / name)["state_dict"] for name in ("one", "two")]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
