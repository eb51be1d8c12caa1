"""A missing optional package is named with a command that installs it in the environment at hand."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from seq2seq.errors import UserError
from seq2seq.settings import missing_packages as extras
from seq2seq.settings.compose import parse
from seq2seq.settings.missing_packages import install_command, require_package, resume_command, train_command

REPOSITORY = Path(__file__).parents[3]
SETTINGS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site-packages folder that a wheel was installed into, with the package's metadata beside it."""
    (tmp_path / "seq2seq").mkdir()
    described = tmp_path / "seq2seq_trainer-0.1.0.dist-info" / "METADATA"
    described.parent.mkdir()
    described.write_text(
        "Metadata-Version: 2.4\nName: seq2seq-trainer\nVersion: 0.1.0\nRequires-Dist: torch<2.14,>=2.9\n"
        'Requires-Dist: fastapi>=0.115; extra == "serve"\nRequires-Dist: uvicorn; extra == "serve"\n'
        'Requires-Dist: pytest; extra == "test"\n'
    )
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "seq2seq" / "settings" / "missing_packages.py"))
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_clone_is_installed_again_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(REPOSITORY)
    assert install_command("serve") == "pip install -e '.[serve]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("serve") == f"pip install -e '{REPOSITORY}[serve]'"


@pytest.mark.parametrize("has_other_project", [False, True])
def test_beside_a_wheel_the_packages_are_installed_by_their_own_names(wheel: Path, has_other_project: bool):
    if has_other_project:
        (wheel / "pyproject.toml").write_text('name = "other"\n')
    assert install_command("serve") == "pip install 'fastapi>=0.115' uvicorn"


def test_the_command_that_trains_is_one_that_there_is(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):
    assert train_command() == "python train.py"
    request.getfixturevalue("wheel")
    assert train_command() == "seq2seq train"


def test_a_missing_package_is_one_line():
    message = r"^the page needs the package nosuch: pip install -e '.*\[serve\]'$"
    with pytest.raises(UserError, match=message), require_package("serve", "the page"):
        raise ModuleNotFoundError(name="nosuch")


def test_every_extra_that_the_code_names_exists():
    code = "".join(path.read_text(encoding="utf-8") for path in REPOSITORY.glob("seq2seq/**/*.py"))
    named = set(re.findall(r"(?:require_package|missing)\(\"(\w+)\"", code))
    assert {"serve", "ray"} <= named
    assert named <= set(SETTINGS["optional-dependencies"])


def test_the_command_that_resumes_a_run_is_read_by_the_shell_and_by_hydra() -> None:
    for folder in ("runs/latest", "runs/rate=1e-3, it's", "runs/a b"):
        word = shlex.split(resume_command(folder))[-1]
        (override,) = parse([word])
        assert (override.key_or_group, override.value()) == ("resume", folder)
    assert resume_command("runs/a").endswith(" resume=runs/a")
