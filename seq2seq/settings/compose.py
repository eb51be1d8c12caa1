"""Composes one run's settings from the overrides of a command line, and shortens Hydra's errors to one line."""

import os
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException

from seq2seq.errors import UserError, in_short
from seq2seq.settings.choices import Origins, let_choices_win, with_preset
from seq2seq.settings.config import Config
from seq2seq.settings.loading import explain, from_hydra, register_schema, setting_keys

_MAX_DIGITS = 1000  # of a number; Python reads up to 4,300


def home() -> Path:
    """Return the folder that has conf/ and data/bundled/: SEQ2SEQ_HOME, a folder of the wheel, or the clone."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "shipped"
    return Path(os.environ.get("SEQ2SEQ_HOME") or (shipped if shipped.is_dir() else package.parent)).resolve()


def compose(overrides: Sequence[str]) -> Config:
    """Return the settings that train.py would run these overrides with.

    Raises:
        UserError: a key, group or value is wrong, or there is no conf/.
    """
    return compose_with_origins(overrides)[0]


def compose_with_origins(overrides: Sequence[str]) -> tuple[Config, Origins]:
    """Return the settings as `compose` does, and who chose each value."""
    folder = home()
    if not (folder / "conf" / "config.yaml").is_file():
        raise UserError(f"{folder} has no conf/config.yaml: set the environment's SEQ2SEQ_HOME to the project's folder")
    os.environ["SEQ2SEQ_HOME"] = str(folder)  # conf/ refers to it
    register_schema()
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(folder / "conf"), version_base="1.3"):
            arguments = with_preset(expand_globs(overrides))
            try:
                cfg = hydra.compose("config", arguments, return_hydra_config=True)
            except Exception as error:  # Hydra reads overrides and files only: one of them is wrong
                raise UserError(one_line(error)) from error
            options = cfg.hydra.runtime.choices
            with open_dict(cfg):
                del cfg["hydra"]
            return settle(cfg, arguments, options)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(one_line(error)) from error


def general_defaults() -> Config:
    """Return the settings of a run on the user's own text without further choices."""
    return compose(["experiment=none", "data=files"])


def settle(cfg: DictConfig, overrides: Sequence[str], options: Mapping[str, Any]) -> tuple[Config, Origins]:
    """Return checked settings from Hydra's composed configuration, and who chose each value; choices win.

    options are the option of every group (`hydra.runtime.choices`).

    Raises:
        UserError: a value is missing or out of its range.
    """
    cfg, origins = let_choices_win(cfg, overrides, options)
    return from_hydra(cfg), origins


def expand_globs(arguments: Sequence[str]) -> list[str]:
    """Rewrite overrides that Hydra would misread or refuse.

    GROUP=glob(FOLDER/PATTERN) becomes a list of options: Hydra's own glob does not search folders. logger=A,B becomes
    logger=[A,B], one run with both: Hydra would start a sweep. A folder given to resume=, init= or baseline= is quoted:
    names of runs contain = and commas. Options are searched in conf/ and in the folder of --config-dir.

    Raises:
        UserError: a glob matches no file, a group gets no option, or there is no such logger.
    """
    folders = [home() / "conf", *map(Path, _config_dirs(arguments))]
    return [_expanded(argument, folders) for argument in arguments]


def _config_dirs(arguments: Sequence[str]) -> list[str]:
    words = "".join(f"{argument}\0" for argument in arguments)
    return re.findall(r"(?<![^\0])(?:--config-dir|-cd)[=\0]([^\0]+)", words)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # the name is too long for any file
        return False


def _expanded(argument: str, folders: Sequence[Path]) -> str:
    if re.search(rf"\d{{{_MAX_DIGITS}}}", argument):
        raise UserError(f"{in_short(argument[:80])}…: no setting is a number of more than {_MAX_DIGITS} digits")
    if argument.startswith("logger="):
        return _loggers(argument, folders)
    key, equals, value = argument.partition("=")
    if equals and value in ("null", "") and key not in ("", "experiment") and _is_folder(home() / "conf" / key):
        names = sorted(path.stem for conf in folders for path in (conf / key).glob("*.yaml"))
        raise UserError(f"{argument}: {key} needs one of its options: {', '.join(names)}")
    if key in ("resume", "init", "baseline") and _is_folder(Path(value)):
        escaped = value.replace("\\", r"\\").replace("'", r"\'")
        return f"{key}='{escaped}'"
    parts = re.fullmatch(r"([\w/]+)=glob\(([^()*?\[\]]+)/([^()/,]+)\)", argument)
    if parts is None:
        return argument
    group, folder, pattern = parts.groups()
    names = sorted(path.stem for conf in folders for path in (conf / group / folder).glob("*.yaml"))
    found = [f"{folder}/{name}" for name in names if fnmatchcase(name, pattern)]
    if not found:
        raise UserError(f"{argument}: no file of conf/{group}/{folder} fits; there are {', '.join(names) or 'none'}")
    return f"{group}={','.join(found)}"


def _loggers(argument: str, folders: Sequence[Path]) -> str:
    """Write logger=A,B as a list, and refuse unknown names; Hydra's error would not list the known ones."""
    names = re.findall(r"[^][,=\s]+", argument)[1:]
    known = sorted(path.stem for conf in folders for path in (conf / "logger").glob("*.yaml"))
    for name in names:
        if name not in known:
            raise UserError(f"{argument}: there is no logger {name}: choose from {', '.join(known)}")
    return f"logger=[{','.join(names)}]"


def one_line(error: Exception) -> str:
    """Return an error in one line; Hydra's errors have several lines, and a cause with the reason."""
    if isinstance(error, UserError):
        return " ".join(str(error).split())
    if (message := explain(error, known_settings())) is not None:
        return message
    if not error.__cause__:  # such as a list of options, followed by the places where Hydra searched
        return " ".join(str(error).partition("Config search path")[0].split())
    message = str(error).strip().splitlines()[0]
    return f"{message} ({str(error.__cause__).splitlines()[0]})"


def known_settings() -> list[str]:
    """Return all keys and groups that a command line can set."""
    conf = home() / "conf"
    groups = {path.parent.relative_to(conf).as_posix() for path in conf.rglob("*.yaml")}
    return [*setting_keys(Config), *sorted(group for group in groups if not group.startswith((".", "hydra")))]
