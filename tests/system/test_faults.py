"""What can go wrong in a long run, done to real processes; docs/reliability.md has the table."""

import csv
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from launcher import Finished, Launcher

from seq2seq.bundle import load_bundle

SUBJECTS = {"The cat": "El gato", "The dog": "El perro", "The bird": "El pájaro", "The cow": "La vaca"}
VERBS = {"sees": "ve", "wants": "quiere", "eats": "come", "has": "tiene", "brings": "trae"}
THINGS = {"the milk": "la leche", "the bread": "el pan", "an apple": "una manzana", "a ball": "una bola"}
PAIRS = [(f"{s} {v} {t}.", f"{SUBJECTS[s]} {VERBS[v]} {THINGS[t]}.") for s in SUBJECTS for v in VERBS for t in THINGS]
BASE = (
    "data=files", "data.train=[train.tsv]", "data.validation=[validation.tsv]", "data.test=[validation.tsv]",
    "data.remove_overlap=false", "tokenizer.vocab_size=300", "model.d_model=16", "model.num_encoder_layers=1",
    "model.num_decoder_layers=1", "model.d_ff=32", "training.max_tokens=256", "training.bleu_sentences=2",
    "training.warmup_steps=3", "search.beam=1", "search.max_length_ratio=1", "search.max_length_offset=2",
    "trainer.max_time=null",  # the clock would decide the learning rate
    "trainer.max_steps=20", "trainer.validate_every=8", "trainer.checkpoint_every=3", "trainer.log_every=1",
)  # fmt: skip

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


def write_corpus(folder: Path) -> Path:
    for name, pairs in (("train", PAIRS[:70]), ("validation", PAIRS[70:])):
        (folder / f"{name}.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return write_corpus(tmp_path)


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


SAMPLED = ("training.subword_sampling.alpha=0.2", "training.noise.typos=0.5")
VARIANTS = {
    "fp32": ("trainer.precision=32-true",),
    "bf16": ("trainer.precision=bf16-mixed",),
    "subwords": ("trainer.precision=32-true", *SAMPLED),
    "streaming": ("trainer.precision=32-true", "data.streaming=true", "data.block=40", *SAMPLED),
    "streaming bf16": ("trainer.precision=bf16-mixed", "data.streaming=true", "data.block=40", *SAMPLED),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_twice_and_resumed_equals_straight(launcher: Launcher, place: Path, variant: str) -> None:
    """With EMA and accumulation; a further variant needs only a line in VARIANTS."""
    seed = 5
    first, second = sorted(random.Random(seed).sample(range(2, 20), 2))
    sets = (*BASE, *VARIANTS[variant], "training.accumulate=2", "training.ema_decay=0.9", "training.final_weights=ema")
    straight = launcher.train(*sets, "name=straight", cwd=place)
    assert straight.status == 0, straight.output
    killed = launcher.train(*sets, "name=killed", cwd=place, until=f"update {first} ")
    assert killed.status == -signal.SIGKILL
    killed = launcher.train("resume=runs/killed", cwd=place, until=f"update {second} ")
    assert killed.status == -signal.SIGKILL
    assert int(checkpoints(place / "runs/killed")[-1][5:12]) >= second - 3
    resumed = launcher.train("resume=runs/killed", cwd=place)
    assert resumed.status == 0, resumed.output
    ends = [last_weights(place / "runs" / name) for name in ("straight", "killed")]
    for key in ("state_dict", "current_model_state"):
        assert all(torch.equal(ends[0][key][name], ends[1][key][name]) for name in ends[0][key])
    assert logged(place / "runs/killed") == logged(place / "runs/straight")
    models = [(place / "runs" / name / "model/model.safetensors").read_bytes() for name in ("straight", "killed")]
    assert models[0] == models[1]
    again = launcher.train("resume=runs/killed", cwd=place)
    fails_in_one_line(again, r"resume=runs/killed: the run is complete after 20 updates")


def test_another_number_of_processes_goes_on_with_the_same_updates(launcher: Launcher, place: Path) -> None:
    """One process, two, and one again; an update is always made of two batches."""
    sets = (*BASE, "trainer.precision=32-true", "trainer.max_steps=11", "training.accumulate=2")
    pair = ("training.accumulate=1", "trainer.devices=2", "trainer.strategy=ddp", "trainer.accelerator=cpu")
    alone = ("training.accumulate=2", "trainer.devices=1", "trainer.strategy=auto")
    assert launcher.train(*sets, "name=straight", cwd=place).status == 0
    assert launcher.train(*sets, "name=shared", cwd=place, until="update 5 ").status == -signal.SIGKILL
    stopped = launcher.train("resume=runs/shared", *pair, cwd=place, until="update 7 ", send=signal.SIGTERM)
    fails_in_one_line(stopped, r"stopped by SIGTERM after update [78]:")
    resumed = launcher.train("resume=runs/shared", *alone, cwd=place)
    assert resumed.status == 0, resumed.output
    straight, shared = (
        {step: loss for step, loss, _ in logged(place / "runs" / name) if loss} for name in ("straight", "shared")
    )
    assert list(straight) == list(shared) == [str(step) for step in range(1, 12)]
    for step, loss in straight.items():
        assert float(shared[step]) == pytest.approx(float(loss), abs=1e-5), step


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGUSR1])
def test_a_polite_signal_saves_the_current_update_and_says_how_to_go_on(
    launcher: Launcher, place: Path, sent: signal.Signals
) -> None:
    sets = (*BASE, "name=stopped", "trainer.max_steps=100000", "trainer.checkpoint_every=100000")
    result = launcher.train(*sets, cwd=place, until="update 5 ", send=sent)
    fails_in_one_line(result, rf"stopped by {sent.name} after update \d+: .*python train.py resume=runs/stopped")
    step = int(checkpoints(place / "runs/stopped")[-1][5:12])
    assert f"after update {step}:" in result.errors[0]
    resumed = launcher.train("resume=runs/stopped", f"trainer.max_steps={step + 1}", "resume_lr=1e-5", cwd=place)
    assert resumed.status == 0, resumed.output
    assert "learning_rate: 1.0e-05" in (place / "runs/stopped/config.yaml").read_text()


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
MOMENTS = {  # each in the save of update 6, counted from when the checkpoint of update 3 is there
    "in the middle of the file": "checkpoints._WholeWrites.write = before(checkpoints._WholeWrites.write, 20)",
    "before the file is on the disk": "checkpoints.os.fsync = before(os.fsync, 2)",
    "before the old file goes": (
        "checkpoints.Checkpoints._remove_others = before(checkpoints.Checkpoints._remove_others, 2)"
    ),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_writing_a_checkpoint(launcher: Launcher, place: Path, moment: str) -> None:
    code = DIE_WHILE_SAVING + MOMENTS[moment]
    result = launcher.train(*BASE, "name=run", cwd=place, BEFORE=code)
    assert result.status == -signal.SIGKILL, result.output
    left = checkpoints(place / "runs/run")
    assert left in (["step=0000003.ckpt"], ["step=0000003.ckpt", "step=0000006.ckpt"])
    resumed = launcher.train("resume=runs/run", "trainer.max_steps=7", cwd=place)
    assert resumed.status == 0, resumed.output
    assert [path.name for path in (place / "runs/run/checkpoints").glob("*.tmp")] == []
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
    (prepared,) = cache.glob("*/train.arrow")
    prepared.write_bytes(prepared.read_bytes()[:-64] + bytes(64))
    result = launcher.train(*sets, "name=two", cwd=place, SEQ2SEQ_CACHE=str(cache))
    assert result.status == 0, result.output
    assert "is damaged: preparing it again" in result.output
    ends = [last_weights(place / "runs" / name)["state_dict"] for name in ("one", "two")]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


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
    sets = (*BASE, *VARIANTS["streaming"], "trainer.validate_every=100000", "training.schedule=constant")
    result = launcher.train(*sets, "name=run", "trainer.max_steps=100000", cwd=place, BEFORE=KILL_READER)
    fails_in_one_line(result, r"the process that reads the training text ended \(exit code -9\).* resume=runs/NAME")
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
    sets = (*BASE, *VARIANTS["streaming"], "trainer.validate_every=100000", "training.schedule=constant", "name=run")
    sets += ("trainer=ddp", "trainer.accelerator=cpu", "trainer.max_steps=100000")
    result = launcher.train(*sets, cwd=place, BEFORE=KILL_ONE_READER, WHOSE=whose)  # ends when all of them have
    assert time.time() - (place / "time-of-death").stat().st_mtime < 60
    assert result.status != 0
    told = "the process that reads the training text ended (exit code -9)"
    assert [told in line for line in result.errors].count(True) == 1, result.output
    assert "Traceback" not in result.output
    alone = ("trainer.devices=1", "trainer.strategy=auto", "training.accumulate=2")
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
    sets = (*BASE, "name=run", "trainer=ddp", "trainer.accelerator=cpu", "trainer.max_steps=100000")
    result = launcher.train(*sets, cwd=place, BEFORE=code)
    assert time.time() - (place / "time-of-death").stat().st_mtime < 60
    if result.status == -signal.SIGKILL:  # Lightning's watch was quicker than the broken connection
        assert "terminated with code -9. Forcefully terminating all other processes" in result.output
    else:
        fails_in_one_line(result, r"another process of this run has died .*resume=runs/run")
    assert checkpoints(place / "runs/run") == ["step=0000003.ckpt"]
