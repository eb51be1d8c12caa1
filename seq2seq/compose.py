"""The settings of train.py for commands that are no Hydra ones, and what Hydra complains of in one line."""

import os
from pathlib import Path

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from seq2seq.config import Config, from_hydra, register_schema
from seq2seq.errors import UserError


def compose(overrides: list[str]) -> Config:
    """What train.py would make of these overrides.

    Raises:
        UserError: a key, group or value is wrong, or the project's conf/ is not there.
    """
    home = Path(os.environ.get("SEQ2SEQ_HOME") or Path(__file__).resolve().parents[1])
    if not (home / "conf" / "config.yaml").is_file():
        raise UserError(f"{home} has no conf/config.yaml: set the environment's SEQ2SEQ_HOME to the project's folder")
    os.environ["SEQ2SEQ_HOME"] = str(home)  # conf/ refers to it
    register_schema()
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(home.resolve() / "conf"), version_base="1.3"):
            return from_hydra(hydra.compose("config", overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(one_line(error)) from error


def one_line(error: Exception) -> str:
    """Hydra tells errors in several lines, and the reason in their cause."""
    lines = str(error).strip().splitlines()
    told = " ".join(lines[:1] if error.__cause__ else [line.strip() for line in lines if "search path" not in line][:3])
    return f"{told} ({str(error.__cause__).splitlines()[0]})" if error.__cause__ else told
