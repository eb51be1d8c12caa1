"""The wheel, built from the sdist and installed away from the clone, trains, translates and resumes in any folder."""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.system

REPOSITORY = Path(__file__).parents[2]
BUILD = "import sys, setuptools.build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
SMALL = (
    "model.d_model=16", "model.num_heads=2", "model.d_ff=32", "model.num_encoder_layers=1",
    "model.num_decoder_layers=1", "training.max_tokens=512", "training.bleu_sentences=2", "search.beam=1",
    "search.max_length_ratio=1", "search.max_length_offset=2", "data.validation=[everyday.test.tsv]", "data.test=[]",
    "trainer.max_time=null", "trainer.validate_every=20", "trainer.checkpoint_every=10", "trainer.log_every=10",
)  # fmt: skip


def build(kind: str, source: Path, target: Path) -> Path:
    """Build an sdist or a wheel as pip would, without a network."""
    built = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD, kind, str(target)], cwd=source, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return target / built.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that comes out of the sdist of a copy of the clone."""
    folder = tmp_path_factory.mktemp("built")
    names = ["pyproject.toml", "README.md", "LICENSE", "seq2seq", "conf", "data"]
    for name in names:
        copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy
        copy(REPOSITORY / name, folder / "clone" / name if copy is shutil.copytree else _made(folder / "clone") / name)
    shutil.unpack_archive(build("build_sdist", folder / "clone", folder), folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    return build("build_wheel", source, folder)


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


class Installed:
    """An environment with the wheel, and with the packages of this one, but not with the clone."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        self.programs, self.folder = folder / "venv" / "bin", folder / "empty"
        self.folder.mkdir()
        (packages,) = (folder / "venv").glob("lib/python*/site-packages")
        (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")  # .pth files there are not read
        pip = [sys.executable, "-m", "pip", "--python", self.programs / "python", "install", "-q"]
        subprocess.run([*pip, "--no-deps", "--no-index", "--force-reinstall", wheel], check=True)
        hidden = ("PYTHONPATH", "SEQ2SEQ_HOME")
        self.environment = {name: value for name, value in os.environ.items() if name not in hidden}
        self.environment |= {"OMP_NUM_THREADS": "1", "SEQ2SEQ_CACHE": str(folder / "cache")}

    def start(self, program: str, *arguments: str) -> "subprocess.Popen[str]":
        pipe: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([self.programs / program, *arguments], cwd=self.folder, env=self.environment, **pipe)

    def run(self, program: str, *arguments: str) -> tuple[int, str, str]:
        process = self.start(program, *arguments)
        out, err = process.communicate(timeout=600)
        return process.returncode, out, err


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(wheel, tmp_path_factory.mktemp("installed"))


def test_the_wheel_holds_the_settings_and_the_corpus_and_nothing_beside_the_package(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0] for name in names} == {"seq2seq", "seq2seq_trainer-0.1.0.dist-info"}
    for path in [*REPOSITORY.glob("conf/**/*.yaml"), *REPOSITORY.glob("data/bundled/*.tsv")]:
        assert f"seq2seq/shipped/{path.relative_to(REPOSITORY)}" in names


def test_the_clone_cannot_be_imported(installed: Installed):
    told = "import seq2seq, seq2seq.settings.compose; from seq2seq.extras import install_command as install; "
    told += "print(seq2seq.__file__, install('serve'))"
    status, out, err = installed.run("python", "-c", told)
    assert status == 0, err
    file, _, command = out.strip().partition(" ")
    assert Path(file).is_relative_to(installed.programs.parent)
    assert command.startswith("pip install 'fastapi")
    assert "seq2seq" not in command


def test_it_trains_translates_and_goes_on_after_a_kill(installed: Installed):
    run = installed.folder / "runs" / "run"
    status, out, err = installed.run("seq2seq", "train", *SMALL, "name=run", "trainer.max_steps=20")
    assert status == 0, out + err
    assert (run / "metrics.csv").is_file()
    status, out, err = installed.run("seq2seq", "translate", "The ball is blue.")
    assert (status, out.count("\n")) == (0, 1), err
    process = installed.start("seq2seq", "train", "resume=runs/run", "trainer.max_steps=100000")
    while not any(path.name > "step=0000020.ckpt" for path in (run / "checkpoints").glob("step=*.ckpt")):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    reached = max(int(path.stem.removeprefix("step=")) for path in (run / "checkpoints").glob("step=*.ckpt"))
    more = f"trainer.max_steps={reached + 10}"
    status, out, err = installed.run("seq2seq", "train", "resume=runs/run", more)
    assert status == 0, out + err
    assert f'"updates": {reached + 10}' in (run / "results.json").read_text()


def test_settings_of_a_folder_of_ones_own_are_added(installed: Installed):
    own = installed.folder / "mine" / "experiment"
    own.mkdir(parents=True)
    (own / "own.yaml").write_text("# @package _global_\nexperiment_name: own\ntrainer:\n  max_steps: 7\n")
    given = ("--config-dir", "mine", "experiment=own", "--cfg", "job")
    status, out, err = installed.run("seq2seq", "train", *given)
    assert status == 0, err
    assert "experiment_name: own" in out
    assert "max_steps: 7" in out
