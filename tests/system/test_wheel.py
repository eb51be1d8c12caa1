"""The wheel, built from the sdist and installed away from the clone, trains, translates and resumes in any folder."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

import seq2seq
from tests.toy import TINY

pytestmark = pytest.mark.system

REPOSITORY = Path(__file__).parents[2]
BUILD = "import sys, setuptools.build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
SMALL = (
    *TINY[1:], "training.max_tokens=512", "training.bleu_sentences=2", "search.beam=1",
    "search.max_length_ratio=1", "search.max_length_offset=2", "data.validation=[everyday.test.tsv]", "data.test=[]",
    "trainer.max_time=null", "trainer.validate_every=2", "trainer.checkpoint_every=2", "trainer.log_every=1",
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
    for name in ("seq2seq", "conf", "data"):
        shutil.copytree(REPOSITORY / name, folder / "clone" / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, folder / "clone" / name)
    shutil.unpack_archive(build("build_sdist", folder / "clone", folder), folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    return build("build_wheel", source, folder)


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

    def run(self, program: str, *arguments: str) -> tuple[int, str, str]:
        """Run a program of the environment: its status, its output and its errors."""
        command: list[Any] = [self.programs / program, *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=600
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(wheel, tmp_path_factory.mktemp("installed"))


def test_the_wheel_holds_the_settings_and_the_corpus_and_nothing_beside_the_package(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0] for name in names} == {"seq2seq", f"seq2seq_trainer-{seq2seq.__version__}.dist-info"}
    for path in [*REPOSITORY.glob("conf/**/*.yaml"), *REPOSITORY.glob("data/bundled/*.tsv")]:
        assert f"seq2seq/shipped/{path.relative_to(REPOSITORY)}" in names


def test_the_clone_cannot_be_imported(installed: Installed):
    code = "import seq2seq, seq2seq.settings.compose\n"
    code += "from seq2seq.settings.missing_packages import install_command as install\n"
    code += "print(seq2seq.__file__, install('serve'))"
    status, out, err = installed.run("python", "-c", code)
    assert status == 0, err
    file, _, command = out.strip().partition(" ")
    assert Path(file).is_relative_to(installed.programs.parent)
    assert command.startswith("pip install 'fastapi")
    assert "seq2seq" not in command


def test_it_trains_translates_and_resumes(installed: Installed):
    train = ("seq2seq", "train", *SMALL)
    for command in (
        (*train, "name=run", "trainer.max_steps=2"),
        ("seq2seq", "translate", "The ball is blue."),
        ("seq2seq", "train", "resume=runs/run", "trainer.max_steps=4"),
    ):
        status, out, err = installed.run(*command)
        assert status == 0, out + err
        assert out.count("\n") == (command[1] == "translate"), out
    results = (installed.folder / "runs/run/results.json").read_text()
    assert '"updates": 4' in results
