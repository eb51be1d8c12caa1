"""Runs that are stopped, politely or not, and gone on with; docs/reliability.md has the table."""

import random
import re
import signal
from pathlib import Path

import pytest
import torch
from launcher import Launcher
from small_run import BASE, VARIANTS, checkpoints, fails_in_one_line, last_weights, logged

pytestmark = pytest.mark.system


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
    pair = ("training.accumulate=1", "trainer.devices=2", "trainer.accelerator=cpu")
    alone = ("training.accumulate=2", "trainer.devices=1")
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


def test_two_processes_exchange_twice_an_update(launcher: Launcher, place: Path) -> None:
    """The number of target tokens, and one tensor for all that ends an update or saves it; gradients are DDP's own."""
    sets = (*BASE, "trainer.devices=2", "trainer.accelerator=cpu", "training.accumulate=2")
    sets += ("trainer.checkpoint_every=1000", "trainer.log_every=1000")
    asked = ("trainer.max_time=00:01:00:00", "trainer.checkpoint_minutes=60")
    result = launcher.train(*sets, *asked, "name=run", "trainer.max_steps=7", cwd=place, BEFORE=COUNT_EXCHANGES)
    assert result.status == 0, result.output
    told = re.findall(r"before batch (\d+):(.*)", result.output)
    assert [number for number, _ in told] == list(map(str, range(14)))
    assert [calls.split() for _, calls in told[1:]] == [[], ["all_reduce", "all_reduce"]] * 6 + [[]]


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


def test_ctrl_c_while_text_is_prepared_says_that_nothing_was_saved(launcher: Launcher, place: Path) -> None:
    sets = (*BASE, "name=early", "tokenizer.vocab_size=301")  # text that no other test has prepared
    result = launcher.train(*sets, cwd=place, until="training the tokenizer", send=signal.SIGINT)
    fails_in_one_line(result, r"interrupted before the first update: nothing was saved; start again with the same")
