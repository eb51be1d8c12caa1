"""Whole programs, as a user starts them: train.py, translate.py, Ctrl-C, resume, sweeps, bad input."""

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.toy import write_corpus

REPOSITORY = Path(__file__).parents[2]
SMALL = (
    "training=short",
    "model=tiny",
    "tokenizer.vocab_size=300",
    "model.d_model=16",
    "model.num_encoder_layers=1",
    "model.num_decoder_layers=1",
    "model.d_ff=32",
    "training.max_tokens=256",
    "training.bleu_sentences=4",
    "trainer.max_steps=12",
    "trainer.validate_every=6",
    "trainer.checkpoint_every=5",
    "trainer.log_every=1",
)

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a small corpus."""
    return write_corpus(tmp_path_factory.mktemp("work"))


def start(program: str, *arguments: str, cwd: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, str(REPOSITORY / program), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=cwd, env=environment, stdout=pipe, stderr=pipe, stdin=pipe, text=True)


def run(program: str, *arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    process = start(program, *arguments, cwd=cwd)
    out, err = process.communicate(stdin, timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def train(*overrides: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    sets = ("data=files", "data.train=[train.tsv]", "data.validation=[validation.tsv]", "data.test=[test.tsv]")
    return run("train.py", *sets, "data.remove_overlap=false", *SMALL, *overrides, cwd=cwd)


@pytest.fixture(scope="module")
def finished(place: Path) -> Path:
    result = train("name=finished", "analyse=true", cwd=place)
    assert result.returncode == 0, result.stderr
    assert "what is wrong with the test translations: runs/finished/analysis/analysis.html" in result.stderr
    return place / "runs" / "finished"


def test_a_run_leaves_everything_in_one_folder(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert {"config.yaml", "checkpoints", "metrics.csv", "curves.png", "results.json", "model", "analysis"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    assert {path.name for path in (finished / "model").iterdir()} == {
        "model.safetensors",
        "config.json",
        "tokenizer.model",
        "README.md",
    }
    results = json.loads((finished / "results.json").read_text())
    assert results["updates"] == 12
    assert results["scores"]["test"]["bleu"]["signature"].startswith("nrefs:1|case:mixed")
    assert (finished.parent / "latest").resolve() == finished
    card = (finished / "model" / "README.md").read_text()
    assert card.startswith("---\nlanguage: [en, es]\n")
    assert "| test | 10 |" in card


def test_the_analysis_is_of_the_test_translations(finished: Path) -> None:
    found = json.loads((finished / "analysis/analysis.json").read_text(encoding="utf-8"))
    results = json.loads((finished / "results.json").read_text(encoding="utf-8"))
    assert found["bleu"] == pytest.approx(results["scores"]["test"]["bleu"]["value"], abs=0.01)
    assert {"length", "rarity"} <= set(found["groups"])
    assert "inattention" in [one["name"] for one in found["faults"]]


def test_attention_is_shown_over_the_checkpoints_that_a_run_keeps(place: Path, finished: Path) -> None:
    assert train("name=kept", "trainer.keep_last=9", "trainer.checkpoint_every=3", cwd=place).returncode == 0
    program = "import sys; from seq2seq.cli import main; sys.argv[0] = 'seq2seq'; main()"

    def attend(run: str, *more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, "attend", "The cat sees the milk.", "--target", "El gato ve."]
        command += ["--over", run, "--output", "over"]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        return subprocess.run(
            [*command, *more], cwd=place, env=environment, capture_output=True, text=True, timeout=300
        )

    result = attend("runs/kept")
    assert result.returncode == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines() if " nats  " in line] == ["3", "6", "9", "12"]
    assert {path.name for path in (place / "over").iterdir()} == {"over.html", "over.gif"}
    shutil.copytree(finished, few := place / "runs/few")
    for path in sorted((few / "checkpoints").iterdir())[:-1]:
        path.unlink()
    refused = attend("runs/few")
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: --over runs/few: the run has kept 1 checkpoint, and at least 2 are ")
    assert attend("runs/none").stderr == "error: --over runs/none is no folder: give runs/NAME or runs/NAME/model\n"
    both = attend("runs/kept", "--without", "cross")
    assert both.stderr.startswith("error: --over shows a run's checkpoints as they are: leave out --model and what ")


def test_metrics_tell_loss_speed_and_validation(finished: Path) -> None:
    with (finished / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    losses = [float(row["loss"]) for row in rows if row["loss"]]
    assert len(losses) == 12
    validated = {row["step"]: float(row["val_loss"]) for row in rows if row["val_bleu"]}
    assert list(validated) == ["6", "12"]
    assert validated["12"] < validated["6"]
    assert all(float(row["tokens_per_second"]) > 0 for row in rows if row["loss"])


def test_translate_takes_the_newest_model_and_gives_line_for_line(finished: Path) -> None:
    result = run("translate.py", cwd=finished.parents[1], stdin="The cat sees the milk.\n\nA ball\n")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") == 3
    assert result.stdout.split("\n")[1] == ""
    one = run("translate.py", "The cat sees the milk.", cwd=finished.parents[1])
    assert one.stdout.split("\n")[0] == result.stdout.split("\n")[0]


def test_checkpoints_hold_plain_values_only(finished: Path) -> None:
    checkpoints = sorted(path.name for path in (finished / "checkpoints").iterdir())
    assert checkpoints[-1] == "step=0000012.ckpt"
    assert len([name for name in checkpoints if name.startswith("step")]) == 1
    for name in checkpoints:
        torch.load(finished / "checkpoints" / name, weights_only=True)


def test_a_killed_run_goes_on_to_the_very_same_weights(finished: Path, place: Path) -> None:
    process = start("train.py", *train_arguments("killed", "trainer.max_steps=12"), cwd=place)
    assert process.stderr is not None
    for line in process.stderr:
        if "update 7 " in line:
            process.kill()
            break
    process.communicate(timeout=60)
    assert not (place / "runs/killed/results.json").exists()
    assert [path.name for path in (place / "runs/killed/checkpoints").glob("step*")] == ["step=0000006.ckpt"]
    resumed = run("train.py", "resume=runs/killed", cwd=place)
    assert resumed.returncode == 0, resumed.stderr
    straight, again = (
        torch.load(place / f"runs/{name}/checkpoints/step=0000012.ckpt", weights_only=True)["state_dict"]
        for name in ("finished", "killed")
    )
    assert all(torch.equal(straight[name], again[name]) for name in straight)
    with (place / "runs/killed/metrics.csv").open() as file:
        assert [row["step"] for row in csv.DictReader(file) if row["loss"]][-1] == "12"


def train_arguments(name: str, *more: str) -> tuple[str, ...]:
    sets = ("data=files", "data.train=[train.tsv]", "data.validation=[validation.tsv]", "data.test=[test.tsv]")
    return (*sets, "data.remove_overlap=false", *SMALL, f"name={name}", *more)


def test_ctrl_c_leaves_a_usable_model_and_says_how_to_go_on(place: Path) -> None:
    process = start("train.py", *train_arguments("stopped", "trainer.max_steps=100000"), cwd=place)
    assert process.stderr is not None
    told = []
    for line in process.stderr:
        told.append(line)
        if "update 8 " in line:
            process.send_signal(signal.SIGINT)
            break
    rest = process.communicate(timeout=120)[1]
    assert process.returncode == 1
    last = rest.strip().splitlines()[-1]
    assert "stopped by SIGINT after update" in last
    assert "python train.py resume=runs/stopped" in last
    assert run("translate.py", "--model", "runs/stopped", "The dog", cwd=place).returncode == 0
    checkpoint = next((place / "runs/stopped/checkpoints").glob("step=*.ckpt"))
    updates = int(checkpoint.stem.removeprefix("step="))
    resumed = run("train.py", "resume=runs/stopped", f"trainer.max_steps={updates + 2}", cwd=place)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((place / "runs/stopped/results.json").read_text())["updates"] == updates + 2


def test_a_sweep_makes_one_run_each(place: Path) -> None:
    result = run(
        "train.py", "--multirun", *train_arguments("sweep-${seed}", "seed=1,2", "trainer.max_steps=2"), cwd=place
    )
    assert result.returncode == 0, result.stderr
    assert (place / "runs/sweep-1/results.json").exists()
    assert (place / "runs/sweep-2/results.json").exists()


def test_two_processes_train_like_one(place: Path) -> None:
    common = ("model.dropout=0", "training.keep_best=0", "trainer.max_steps=4", "trainer.precision=32-true")
    common += ("training.warmup_steps=1",)  # so that the first updates move the weights
    one = run("train.py", *train_arguments("one", *common, "training.accumulate=2"), cwd=place)
    two = run(
        "train.py",
        *train_arguments("two", *common, "trainer=ddp", "trainer.devices=2", "trainer.accelerator=cpu"),
        cwd=place,
    )
    assert one.returncode == 0, one.stderr
    assert two.returncode == 0, two.stderr
    measured = []
    for name in ("one", "two"):
        with (place / f"runs/{name}/metrics.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["loss"]]
        measured.append([[float(row["loss"]), float(row["grad_norm"])] for row in rows])
    assert len(measured[0]) == 4
    torch.testing.assert_close(measured[1], measured[0], atol=1e-5, rtol=0)
    assert len([path for path in (place / "runs").iterdir() if path.name.startswith("two")]) == 1


def test_a_bad_setting_is_one_line_of_the_program(place: Path) -> None:
    """tests/unit/test_bad_settings.py has the others, without starting a program for each."""
    result = train("model.d_modell=3", cwd=place)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert "d_modell" in line


def test_a_loss_that_is_no_number_stops_and_keeps_the_last_checkpoint(place: Path) -> None:
    arguments = train_arguments("nan", "training.learning_rate=1e30", "training.clip_norm=0", "training.warmup_steps=9")
    result = run("train.py", *arguments, "trainer.checkpoint_every=1", "trainer.max_steps=500", cwd=place)
    assert result.returncode == 1
    assert "is not a number at update" in result.stderr.splitlines()[-1]
    checkpoints = list((place / "runs/nan/checkpoints").glob("step=*.ckpt"))
    assert len(checkpoints) == 1
    state = torch.load(checkpoints[0], weights_only=True)["state_dict"]
    assert all(weights.isfinite().all() for weights in state.values())


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def test_a_full_disk_while_saving_leaves_the_previous_checkpoint(place: Path, tmp_path: Path) -> None:
    small_disk = tmp_path / "disk"
    small_disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(small_disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk here: {mounted.stderr.decode().strip()}")
    try:
        sets = [f"data.{split}=[{place}/{split}.tsv]" for split in ("train", "validation", "test")]
        base = ["data=files", *sets, "data.remove_overlap=false", *SMALL, "name=full", "training.keep_best=0"]
        process = start("train.py", *base, "trainer.max_steps=400", "trainer.checkpoint_every=40", cwd=small_disk)
        assert process.stderr is not None
        for line in process.stderr:
            if "update 60 " in line:  # one checkpoint is there; now the disk fills up
                fill(small_disk / "filler")
                break
        rest = process.communicate(timeout=120)[1]
        assert process.returncode == 1
        assert "No space left" in rest.strip().splitlines()[-1]
        checkpoints = list((small_disk / "runs/full/checkpoints").glob("step=*.ckpt"))
        assert len(checkpoints) == 1
        torch.load(checkpoints[0], weights_only=True)
    finally:
        time.sleep(0.2)
        subprocess.run(["umount", str(small_disk)], check=False)
