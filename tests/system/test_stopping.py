"""Runs that are stopped, politely or not, and resumed; docs/reliability.md has the table."""

import random
import re
import signal
import socket
from pathlib import Path

import pytest
import torch
from launcher import Launcher
from small_run import BASE, PAIR, VARIANTS, fails_in_one_line, last_weights, logged, newest_update, validated

from seq2seq.translate.translator import Translator
from tests.toy import PAIRS

pytestmark = pytest.mark.system


@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_twice_and_resumed_equals_straight(launcher: Launcher, workdir: Path, variant: str) -> None:
    """With EMA and accumulation; a further variant needs only a line in VARIANTS."""
    first, second = sorted(random.Random(5).sample(range(2, 20), 2))
    sets = (*VARIANTS[variant], "training.accumulate=2", "training.ema_decay=0.9", "training.final_weights=ema")
    straight, killed = workdir / "runs/straight", workdir / "runs/killed"
    result = launcher.complete(*sets, "name=straight", cwd=workdir)
    result = launcher.train(*sets, "name=killed", cwd=workdir, until=f"update {first} ")
    assert result.status == -signal.SIGKILL
    assert re.fullmatch(rf"\d+ on {re.escape(socket.gethostname())}\n", (killed / "lock").read_text())
    result = launcher.train("resume=runs/killed", cwd=workdir, until=f"update {second} ")
    assert result.status == -signal.SIGKILL
    assert newest_update(killed) >= second - 3
    assert not (killed / "results.json").exists()
    launcher.complete("resume=runs/killed", cwd=workdir)
    ends = [last_weights(run) for run in (straight, killed)]
    for key in ("state_dict", "current_model_state"):
        assert all(torch.equal(ends[0][key][name], ends[1][key][name]) for name in ends[0][key])
    assert (logged(killed), validated(killed)) == (logged(straight), validated(straight))
    models = [(run / "model/model.safetensors").read_bytes() for run in (straight, killed)]
    assert models[0] == models[1]
    again = launcher.complete("resume=runs/killed", cwd=workdir)
    assert "runs/killed is complete after 20 updates: kept, not run again; to extend it, `" in again.output


def test_another_number_of_processes_goes_on_with_the_same_updates(launcher: Launcher, workdir: Path) -> None:
    """One process, two, and one again; an update is always made of two batches."""
    sets = (*BASE, "trainer.precision=32-true", "trainer.max_steps=11", "training.accumulate=2")
    pair = ("trainer.devices=2", "trainer.accelerator=cpu")
    launcher.complete(*sets, "name=straight", cwd=workdir)
    assert launcher.train(*sets, "name=shared", cwd=workdir, until="update 5 ").status == -signal.SIGKILL
    stopped = launcher.train("resume=runs/shared", *pair, cwd=workdir, until="update 7 ", send=signal.SIGTERM)
    fails_in_one_line(stopped, r"stopped by SIGTERM after update [78]:")
    assert "training.accumulate=1: every update has 2 batches, as with 1 processes" in stopped.output
    refused = launcher.train("resume=runs/shared", "trainer.devices=1", "training.accumulate=1", cwd=workdir)
    fails_in_one_line(refused, r"made of 2 batches .*: set training.accumulate=2")
    launcher.complete("resume=runs/shared", "trainer.devices=1", cwd=workdir)
    straight, shared = (
        {step: float(loss) for step, loss in logged(workdir / "runs" / name)} for name in ("straight", "shared")
    )
    assert list(straight) == list(shared) == [str(step) for step in range(1, 12)]
    assert shared == pytest.approx(straight, abs=1e-5)


COUNT_EXCHANGES = """
import torch.distributed as d, torch.distributed.distributed_c10d as c
calls = []
def counted(name, function):
    def call(*a, **k):
        calls.append(name)
        return function(*a, **k)
    return call
for name in ('all_reduce', 'broadcast', 'broadcast_object_list', 'all_gather', 'all_gather_object', 'barrier'):
    function = counted(name, getattr(c, name))
    setattr(c, name, function)
    setattr(d, name, function)
from seq2seq.training.module import TranslationModule as M
start = M.on_train_batch_start
def tell(self, batch, index):
    print(f'before batch {index}:', *calls, flush=True)
    calls.clear()
    start(self, batch, index)
M.on_train_batch_start = tell
"""


def test_two_processes_exchange_twice_an_update(launcher: Launcher, workdir: Path) -> None:
    """The number of target tokens, and one tensor for all that ends an update or saves it; gradients are DDP's own."""
    sets = (*BASE, *PAIR, "training.accumulate=2", "trainer.checkpoint_every=1000", "trainer.log_every=1000")
    clocks = ("trainer.max_time=00:01:00:00", "trainer.checkpoint_minutes=60")
    result = launcher.complete(*sets, *clocks, "name=run", "trainer.max_steps=7", cwd=workdir, BEFORE=COUNT_EXCHANGES)
    lines = re.findall(r"before batch (\d+):(.*)", result.output)
    assert [number for number, _ in lines] == list(map(str, range(14)))
    assert [calls.split() for _, calls in lines[1:]] == [[], ["all_reduce", "all_reduce"]] * 6 + [[]]
    assert [path.name for path in (workdir / "runs").iterdir() if not path.is_symlink()] == ["run"]


def test_a_polite_signal_saves_the_current_update_and_says_how_to_go_on(launcher: Launcher, workdir: Path) -> None:
    run, update = workdir / "runs/stopped", 0
    overrides = (*BASE, "name=stopped", "trainer.max_steps=100000", "trainer.checkpoint_every=100000")
    for sent in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        result = launcher.train(*overrides, cwd=workdir, until=f"update {update + 4} ", send=sent)
        update = newest_update(run)
        message = rf"stopped by {sent.name} after update {update}: .*python train.py resume=runs/stopped"
        fails_in_one_line(result, message)
        overrides = ("resume=runs/stopped",)
    assert len(Translator.load(run, "cpu").translate([PAIRS[0][0]])) == 1
    launcher.complete(*overrides, f"trainer.max_steps={update + 1}", "resume_lr=1e-5", cwd=workdir)
    assert newest_update(run) == update + 1
    assert "learning_rate: 1.0e-05" in (run / "config.yaml").read_text()
