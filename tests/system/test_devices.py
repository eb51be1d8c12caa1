"""Several processes train as one does: however they are started, and however the weights are spread over them."""

import contextlib
import csv
import os
import random
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from launcher import Launcher
from safetensors.torch import load_file
from small_run import fails_in_one_line, newest_update, validated
from torch.testing import assert_close

from tests.toy import FILES, TINY, write_corpus

REPOSITORY = Path(__file__).parents[2]
TWO = ("trainer.devices=2",)
SETS = ("validation", "test")
SETTINGS = (
    "training=short", "model=tiny", *FILES, *TINY, "data.validation=[validation.tsv,test.tsv]",
    "model.num_encoder_layers=2", "model.num_decoder_layers=2",
    "model.dropout=0.1",  # masks follow from a batch's position among those of all ranks
    "training.max_tokens=256", "training.bleu_sentences=4", "training.schedule=constant", "training.warmup_steps=4",
    "training.keep_best=0", "training.clip_norm=0.5", "training.ema_decay=0", "training.final_weights=last",
    "trainer.accelerator=cpu", "trainer.precision=32-true", "trainer.max_steps=6", "trainer.max_time=null",
    "trainer.validate_every=3", "trainer.log_every=1",
)  # fmt: skip

REPLAYING = f"""
# train.py with a stand-in for the recorder of CUDA graphs: it computes again
import runpy
from seq2seq.training import replay
replay.recording_obstacle = lambda config: None
replay.CudaRecorder = lambda: lambda compute: lambda: (print("replayed"), compute())[1]
runpy.run_path({str(REPOSITORY / "train.py")!r}, run_name="__main__")
"""
KILLED = f"""
# train.py, whose second process is killed in each try, and whose processes share the plans of epochs
import os, runpy, signal
from seq2seq.data import batching, loading
from seq2seq.training.module import TranslationModule as Module
attempt, plan, begin = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), batching.plan_block, Module.on_train_batch_start
def plan_block(block, max_tokens):
    print(f"attempt {{attempt}} plans epoch {{block.id.epoch}}", flush=True)
    return plan(block, max_tokens)
def begin_or_die(self, batch, index):
    if os.environ["RANK"] == "1" and self.global_step == 2 + 2 * attempt:
        os.kill(os.getpid(), signal.SIGKILL)
    begin(self, batch, index)
loading.SHARED_PAIRS, batching.plan_block, Module.on_train_batch_start = 1, plan_block, begin_or_die
runpy.run_path({str(REPOSITORY / "train.py")!r}, run_name="__main__")
"""

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a small corpus."""
    return write_corpus(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def single(workdir: Path, launcher: Launcher) -> Path:
    """A run of one process, which makes an update of four batches."""
    launcher.complete(*SETTINGS, "name=single", "training.accumulate=4", cwd=workdir)
    return workdir / "runs" / "single"


def start(command: list[str], workdir: Path, **environment: str) -> "subprocess.Popen[str]":
    known = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **environment}
    return subprocess.Popen(
        command, cwd=workdir, env=known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(*processes: "subprocess.Popen[str]", status: int = 0) -> str:
    try:
        outputs = [process.communicate(timeout=600)[0] for process in processes]
    except subprocess.TimeoutExpired:
        for process in processes:
            process.kill()
        outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [status] * len(processes), "\n".join(outputs)
    return "\n".join(outputs)


def program(*overrides: str) -> list[str]:
    options = [override for override in overrides if override.startswith("--")]  # which have to come first
    return [str(REPOSITORY / "train.py"), *options, *SETTINGS, *overrides[len(options) :]]


def torchrun(*overrides: str, processes: int = 2, options: Sequence[str] = (), code: str | None = None) -> list[str]:
    """Return a command that runs train.py, or the code of a test, in several processes."""
    command = program(f"trainer.devices={processes}", *overrides)
    if code is not None:
        command = ["--no-python", sys.executable, "-c", code, *command[1:]]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return [*launcher, *options, *command]


def free_port() -> int:
    """Find a port that no other program is given by chance before the tasks, seconds later, open it."""
    for port in random.SystemRandom().sample(range(20_000, 30_000), 100):  # below those that systems give by themselves
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def measures(run: Path) -> list[list[float]]:
    """Return the losses and gradient norms of all updates, then the measures of both validation sets."""
    columns = ["loss", "grad_norm", *(f"val_{measure}/{name}" for measure in ("loss", "bleu") for name in SETS)]
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [[float(row[column]) for row in rows if row[column]] for column in columns]


def require_equal(run: Path, other: Path) -> None:
    """Same measures all along, and the same model at the end."""
    assert [len(values) for values in measures(run)] == [6, 6, 2, 2, 2, 2]
    assert_close(measures(run), measures(other), atol=1e-5, rtol=0)
    weights, others = (load_file(folder / "model" / "model.safetensors") for folder in (run, other))
    assert_close(weights, others, atol=1e-5, rtol=0)


def test_two_nodes_of_slurm_that_accumulate_agree_on_a_name_and_train_like_one(workdir: Path, single: Path) -> None:
    before = set((workdir / "runs").iterdir())
    common = {
        "SLURM_JOB_ID": "41", "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_NNODES": "2", "SLURM_LOCALID": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
    }  # fmt: skip
    command = [sys.executable, *program("training.accumulate=2")]  # trainer.num_nodes is SLURM's
    finish(*(start(command, workdir, **common, SLURM_PROCID=rank, SLURM_NODEID=rank) for rank in "01"))
    (run,) = (path for path in set((workdir / "runs").iterdir()) - before if path.name != "latest")
    require_equal(single, run)


def test_two_processes_that_replay_updates_train_like_one_that_sends_every_operation(workdir, single):
    output = finish(start(torchrun("training.accumulate=2", "name=replayed", code=REPLAYING), workdir))
    require_equal(single, workdir / "runs" / "replayed")
    assert "replayed" in output


def test_torchrun_restarts_a_killed_run_and_fewer_processes_go_on_with_the_same_updates(workdir, single):
    """Two processes plan each epoch once for both."""
    run = workdir / "runs/elastic"
    same = ("name=elastic", "resume=auto", "training.accumulate=2", "trainer.checkpoint_every=1")
    command = torchrun(*same, options=("--max-restarts=1",), code=KILLED)
    output = finish(start(command, workdir, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"), status=1)
    plans = re.findall(r"attempt (\d) plans epoch (\d+)", output)
    assert {attempt for attempt, _ in plans} == {"0", "1"}, output
    assert len(plans) == len(set(plans))
    assert newest_update(run) == 4
    output = finish(start(torchrun(*same, processes=1), workdir))
    assert "training.accumulate=4: every update has 4 batches, as with 2 processes × training.accumulate=2" in output
    assert not list(run.glob("plans-*"))
    require_equal(single, run)


def test_what_hinders_the_first_process_ends_all_of_them(workdir: Path, single: Path) -> None:
    output = finish(start(torchrun("name=single"), workdir), status=1)
    assert "runs/single is a run already" in output
    assert "the first process could not begin; its own error says why" in output
    assert 'train.py", line' not in output


def test_a_search_runs_its_trials_as_jobs_and_names_the_best(workdir: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="the extra `slurm` is not installed")
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="the extra `sweep` is not installed")
    search = ("hydra/launcher=submitit_local", "hydra/sweeper=optuna_search", "hydra.sweeper.n_trials=2")
    both = ("hydra.sweeper.n_jobs=2", "hydra.sweeper.direction=minimize", "name=trial-${hydra:job.num}")
    short = ("training.monitor=loss", "training.bleu_sentences=0", "trainer.max_steps=3")
    one_set = "data.validation=[validation.tsv]"
    finish(start([sys.executable, *program("--multirun", *search, *both, *short, one_set)], workdir))
    results = yaml.safe_load((workdir / "runs" / "optimization_results.yaml").read_text())
    losses = [float(validated(workdir / "runs" / f"trial-{number}")["3"]) for number in range(2)]
    assert results["best_value"] == pytest.approx(min(losses), abs=1e-6)
    assert 3e-4 <= results["best_params"]["training.learning_rate"] <= 3e-3


def test_a_sweep_of_several_devices_is_refused_before_it_begins(workdir: Path, launcher: Launcher) -> None:
    result = launcher.train("--multirun", *SETTINGS, "name=many", *TWO, cwd=workdir)
    fails_in_one_line(result, "error: a sweep cannot start 2 processes for each of its runs")
    assert not (workdir / "runs" / "many").exists()
