"""The settings of train.py for commands that are no Hydra ones, and what Hydra complains of in one line."""

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from seq2seq.config import Config, from_hydra, register_schema
from seq2seq.errors import UserError


def home() -> Path:
    """The project's folder, which has conf/."""
    return Path(os.environ.get("SEQ2SEQ_HOME") or Path(__file__).resolve().parents[1])


def compose(overrides: list[str]) -> Config:
    """What train.py would make of these overrides.

    Raises:
        UserError: a key, group or value is wrong, or the project's conf/ is not there.
    """
    folder = home()
    if not (folder / "conf" / "config.yaml").is_file():
        raise UserError(f"{folder} has no conf/config.yaml: set the environment's SEQ2SEQ_HOME to the project's folder")
    os.environ["SEQ2SEQ_HOME"] = str(folder)  # conf/ refers to it
    register_schema()
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(folder.resolve() / "conf"), version_base="1.3"):
            return from_hydra(hydra.compose("config", overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(one_line(error)) from error


def expand_globs(arguments: Sequence[str]) -> list[str]:
    """Write GROUP=glob(FOLDER/PATTERN) out as the options that it means: Hydra's own glob knows no folders.

    Raises:
        UserError: it means none.
    """
    return [_expanded(argument) for argument in arguments]


def _expanded(argument: str) -> str:
    parts = re.fullmatch(r"([\w/]+)=glob\(([^()*?\[\]]+)/([^()/,]+)\)", argument)
    if parts is None:
        return argument
    group, folder, pattern = parts.groups()
    names = sorted(path.stem for path in (home() / "conf" / group / folder).glob("*.yaml"))
    found = [f"{folder}/{name}" for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise UserError(f"{argument}: no file of conf/{group}/{folder} fits; there are {', '.join(names) or 'none'}")
    return f"{group}={','.join(found)}"


def one_line(error: Exception) -> str:
    """Hydra tells errors in several lines, and the reason in their cause; this program's tell all themselves."""
    if isinstance(error, UserError):
        return " ".join(str(error).split())
    if not error.__cause__:  # such as a list of what there is to choose from, and after it where that was looked for
        return " ".join(str(error).partition("Config search path")[0].split())
    told = str(error).strip().splitlines()[0]
    return f"{told} ({str(error.__cause__).splitlines()[0]})"
