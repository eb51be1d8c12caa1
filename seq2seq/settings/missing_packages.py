"""Commands that work in this installation: which one trains, and which one installs an extra's packages."""

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

from seq2seq.errors import UserError

DISTRIBUTION = "seq2seq-trainer"


@contextmanager
def require_package(extra: str, what: str = "this") -> Iterator[None]:
    """Raise an error that says how to install an extra if its package is missing; `what` is the message's subject."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing(extra, what, error.name or extra) from error


def missing(extra: str, what: str, package: str) -> UserError:
    """Return the error for a package that is not installed."""
    return UserError(f"{what} needs the package {package}: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return the command that installs an extra's packages in this environment.

    The command never looks for the distribution itself in an index: for a clone, it installs the clone again with the
    extra; for a wheel, it installs the extra's packages by their own names.
    """
    if (root := clone()) is not None:
        folder = "." if Path.cwd() == root else str(root)
        return f"pip install -e {shlex.quote(f'{folder}[{extra}]')}"
    requirements = [requirement.partition(";") for requirement in metadata.requires(DISTRIBUTION) or []]
    names = [name.strip() for name, _, marker in requirements if f'extra == "{extra}"' in marker]
    return shlex.join(["pip", "install", *names])


def train_command() -> str:
    """Return the command that trains: only a clone has train.py."""
    return "seq2seq train" if clone() is None else "python train.py"


def translate_command() -> str:
    """Return the command that translates: only a clone has translate.py."""
    return "seq2seq translate" if clone() is None else "python translate.py"


def resume_command(folder: Path | str) -> str:
    """Return the command that resumes the run in a folder, quoted for the shell and for Hydra (= and commas)."""
    path = str(folder)
    if not re.fullmatch(r"[\w./@+-]+", path):
        escaped = path.replace("\\", "\\\\").replace('"', '\\"')
        path = f'"{escaped}"'
    return f"{train_command()} {shlex.quote(f'resume={path}')}"


def clone() -> Path | None:
    """Return the clone that this package is imported from, or None if it is an installed wheel."""
    folder = Path(__file__).resolve().parents[2]
    settings = folder / "pyproject.toml"
    is_clone = settings.is_file() and f'name = "{DISTRIBUTION}"' in settings.read_text(encoding="utf-8")
    return folder if is_clone else None
