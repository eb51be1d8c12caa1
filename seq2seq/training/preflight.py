"""Checks of a run before PyTorch is imported: a missing package, an existing run that begins, goes on or is done."""

import importlib.util
import logging
from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.settings.config import Config, flatten, walk
from seq2seq.settings.loading import load_config
from seq2seq.settings.missing_packages import missing, resume_command
from seq2seq.settings.rules import AUTO
from seq2seq.training.run_state import COMPLETE, NOTHING, read_results, state_of, step_of

log = logging.getLogger(__name__)
# between two starts of a run; its loggers, too
_MAY_DIFFER = (
    *("analyse", "resume", "extensions", "data.root", "trainer.progress_bar", "trainer.profiler"),
    *("trainer.devices", "trainer.num_nodes", "training.accumulate"),  # updates stay the same, see `prepare_folder`
)
_UNLIMITED = {"trainer.max_time": "null", "trainer.max_epochs": "null", "training.patience": 0}


def refuse_early(config: Config) -> None:
    """Refuse a run whose logger's package is missing; later checks need PyTorch or a complete checkpoint."""
    for name in ("wandb", "mlflow"):
        if getattr(config.logger, name) and importlib.util.find_spec(name) is None:
            raise missing(name, f"logger={name}", name)


def find_existing(config: Config, runs: Path) -> bool:
    """Decide how the run of config's name starts; return whether it is complete, so that there is nothing to do.

    config.resume, which is `auto` or the run's folder, becomes the folder if the run goes on, and None if it begins.
    With `auto`, a run with other settings is refused.
    """
    assert config.name is not None
    folder, is_auto = runs / config.name, config.resume == AUTO
    if state_of(folder, None) == NOTHING:
        config.resume = None
        return False
    saved = _require_same(config, folder) if is_auto else config
    if is_done(saved, folder):
        return True
    then = flatten(saved)
    for setting in walk(config):
        if setting.value == AUTO:
            setattr(setting.section, setting.key.rpartition(".")[2], then[setting.key])
    config.resume = str(folder)
    log.info("going on with %s", folder)
    return False


def is_done(config: Config, folder: Path, checkpoint: Path | None = None) -> bool:
    """Return whether a run has nothing left to do by these settings, and log it and how to extend the run."""
    steps = config.trainer.max_steps
    if state_of(folder, config) == COMPLETE:
        updates, more = read_results(folder)["updates"], extend_command(config, folder)
        log.info("%s is complete after %d updates: kept, not run again; to extend it, `%s`", folder, updates, more)
        return True
    if checkpoint is not None and steps != AUTO and step_of(checkpoint) > steps:
        raise UserError(
            f"resume={folder}: the run has {step_of(checkpoint)} updates already, trainer.max_steps={steps} is not "
            "more: give a larger one"
        )
    return False


def extend_command(config: Config, folder: Path) -> str:
    """Return the command that trains a complete run for as many updates again."""
    limits, updates = flatten(config), read_results(folder)["updates"]
    unlimited = "".join(f" {key}={off}" for key, off in _UNLIMITED.items() if limits[key])
    return f"{resume_command(folder)} trainer.max_steps={2 * updates}{unlimited}"


def _require_same(config: Config, folder: Path) -> Config:
    """Return the settings of a run, which those of config must equal."""
    saved = load_config(str(folder), [])
    then, now = flatten(saved), flatten(config)
    for key in now:
        if key not in _MAY_DIFFER and not key.startswith("logger.") and now[key] not in (then.get(key), AUTO):
            raise UserError(
                f"{folder} is a run with {key}={then.get(key)}, not {now[key]}: choose another name=, or delete it"
            )
    return saved
