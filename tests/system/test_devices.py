"""Several processes train as one does: however they are started, and however the weights are spread over them."""

import contextlib
import csv
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from safetensors.torch import load_file
from torch.testing import assert_close

from seq2seq.settings.compose import from_hydra, register_schema
from seq2seq.training.run import train
from seq2seq.training.run_folder import prepare_folder
from tests.toy import write_corpus

REPOSITORY = Path(__file__).parents[2]
SETTINGS = (
    "training.ema_decay=0",
    "training.final_weights=last",
    "data=files",
    "data.train=[train.tsv]",
    "data.validation=[validation.tsv]",
    "data.test=[test.tsv]",
    "data.remove_overlap=false",
    "training=short",
    "model=tiny",
    "tokenizer.vocab_size=300",
    "model.d_model=16",
    "model.num_encoder_layers=2",
    "model.num_decoder_layers=2",
    "model.d_ff=32",
    "model.dropout=0.1",  # masks follow from a batch's place among those of all ranks
    "training.max_tokens=256",
    "training.bleu_sentences=4",
    "training.schedule=constant",
    "training.warmup_steps=4",
    "training.keep_best=0",
    "training.clip_norm=0.5",
    "trainer.accelerator=cpu",
    "trainer.precision=32-true",
    "trainer.max_steps=6",
    "trainer.max_time=null",
    "trainer.validate_every=3",
    "trainer.log_every=1",
)
TWO = ("trainer.devices=2",)

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a small corpus."""
    return write_corpus(tmp_path_factory.mktemp("work"))


def one_process(place: Path, name: str, *overrides: str) -> Path:
    """Train here, in this very process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("SEQ2SEQ_HOME", str(REPOSITORY))
        register_schema()
        with initialize_config_dir(str(REPOSITORY / "conf"), version_base="1.3"):
            config = from_hydra(compose("config", overrides=[*SETTINGS, f"name={name}", *overrides]))
        train(*prepare_folder(config, Path("runs")))
    return place / "runs" / name


def start(command: list[str], place: Path, **environment: str) -> "subprocess.Popen[str]":
    known = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **environment}
    return subprocess.Popen(command, cwd=place, env=known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(*processes: "subprocess.Popen[str]", status: int = 0) -> str:
    try:
        told = [process.communicate(timeout=600)[0] for process in processes]
    except subprocess.TimeoutExpired:
        for process in processes:
            process.kill()
        told = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [status] * len(processes), "\n".join(told)
    return "\n".join(told)


def program(*overrides: str) -> list[str]:
    options = [override for override in overrides if override.startswith("--")]  # which have to come first
    return [str(REPOSITORY / "train.py"), *options, *SETTINGS, *overrides[len(options) :]]


def torchrun(*overrides: str) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", f"--master-port={free_port()}"]
    resumes = any(override.startswith("resume=") for override in overrides)
    return [*launcher, *([str(REPOSITORY / "train.py"), *overrides] if resumes else program(*overrides))]


def free_port() -> int:
    """Find a port that no other program is given by chance before the tasks, seconds later, open it."""
    for port in random.SystemRandom().sample(range(20_000, 30_000), 100):  # below those that systems give by themselves
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def losses(run: Path) -> list[list[float]]:
    """Training loss of every update, and loss and BLEU of the validations after updates 3 and 6.

    A run that ended after update 4, to be given more, was validated there too.
    """
    with (run / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row.get("loss") or int(row["step"]) % 3 == 0]
    return [[float(row[key]) for row in rows if row.get(key)] for key in ("loss", "grad_norm", "val_loss", "val_bleu")]


def require_equal(run: Path, other: Path) -> None:
    """Same losses all along, and the same model at the end."""
    assert len(losses(run)[0]) == 6
    assert_close(losses(run), losses(other), atol=1e-5, rtol=0)
    weights, others = (load_file(folder / "model" / "model.safetensors") for folder in (run, other))
    assert_close(weights, others, atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def one(place: Path) -> Path:
    return one_process(place, "one", "training.accumulate=2")


def test_two_processes_judge_several_validation_sets_as_one_does(place: Path) -> None:
    sets = "data.validation=[validation.tsv,test.tsv]"
    alone = one_process(place, "one_of_sets", "training.accumulate=2", sets)
    finish(start(torchrun(*TWO, "name=two_of_sets", sets), place))
    require_equal(alone, place / "runs" / "two_of_sets")
    columns = [f"val_{measure}/{name}" for measure in ("loss", "bleu") for name in ("validation", "test")]
    found = []
    for name in ("one_of_sets", "two_of_sets"):
        with (place / "runs" / name / "metrics.csv").open() as file:
            found.append([float(row[key]) for row in csv.DictReader(file) for key in columns if row[key]])
    assert len(found[0]) == 2 * len(columns)
    assert_close(*found, atol=1e-5, rtol=0)


def test_two_processes_of_torchrun_train_like_one_and_agree_on_a_name(place: Path, one: Path) -> None:
    before = set((place / "runs").iterdir())
    finish(start(torchrun(*TWO), place))
    made = [path for path in set((place / "runs").iterdir()) - before if path.name != "latest"]
    assert len(made) == 1
    require_equal(one, made[0])


def test_two_tasks_of_slurm_that_accumulate_train_like_one_that_accumulates_more(place: Path) -> None:
    single = one_process(place, "single", "training.accumulate=4")
    common = {
        "SLURM_JOB_ID": "41",
        "SLURM_JOB_NAME": "train",
        "SLURM_NTASKS": "2",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    command = [sys.executable, *program("name=slurm", "training.accumulate=2", *TWO)]
    tasks = [start(command, place, **common, SLURM_PROCID=rank, SLURM_LOCALID=rank) for rank in "01"]
    finish(*tasks)
    require_equal(single, place / "runs" / "slurm")


@pytest.mark.parametrize(
    ("setting", "reason"),
    [("name=one", "runs/one is a run already"), ("resume=runs/one", "runs/one is being trained in by process")],
)
def test_what_hinders_the_first_process_ends_all_of_them(place: Path, one: Path, setting: str, reason: str) -> None:
    told = finish(start(torchrun(*TWO, setting, "trainer.max_steps=9"), place), status=1)
    assert reason in told
    assert "the first process could not begin; its own error says why" in told
    assert 'train.py", line' not in told


def test_a_search_runs_its_trials_as_jobs_and_names_the_best(place: Path, one: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="the extra `slurm` is not installed")
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="the extra `sweep` is not installed")
    search = ("hydra/launcher=submitit_local", "hydra/sweeper=optuna_search", "hydra.sweeper.n_trials=2")
    both = ("hydra.sweeper.n_jobs=2", "hydra.sweeper.direction=minimize", "name=trial-${hydra:job.num}")
    short = ("training.monitor=loss", "training.bleu_sentences=0", "trainer.max_steps=3")
    finish(start([sys.executable, *program("--multirun", *search, *both, *short)], place))
    found = yaml.safe_load((place / "runs" / "optimization_results.yaml").read_text())
    validated = [losses(place / "runs" / f"trial-{number}")[2][-1] for number in range(2)]
    assert found["best_value"] == pytest.approx(min(validated), abs=1e-6)
    assert 3e-4 <= found["best_params"]["training.learning_rate"] <= 3e-3


def test_a_sweep_of_several_devices_is_refused_before_it_begins(place: Path, one: Path) -> None:
    told = finish(start([sys.executable, *program("--multirun", "name=many", *TWO)], place), status=1)
    assert "error: a sweep cannot start 2 processes for each of its runs" in told
    assert not (place / "runs" / "many").exists()
