"""Names that are runs already: a sweep started again keeps what is complete and goes on with what was broken off."""

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2seq.errors import UserError
from seq2seq.settings.choices import flatten
from seq2seq.settings.config import Config, to_plain
from seq2seq.settings.loading import load_config
from seq2seq.settings.rules import AUTO
from seq2seq.training.metrics_file import read_metrics
from seq2seq.training.saved import best_validation, list_checkpoints

log = logging.getLogger(__name__)
_MAY_DIFFER = {
    "existing",
    "resume",
    "data.root",
    "trainer.progress_bar",
    "logger.tensorboard",
    "logger.wandb",
    "logger.mlflow",
    "logger.project",
}  # and the run is still the same


@dataclass(frozen=True)
class Complete:
    """A run that needs nothing more; best is what a sweep compares runs by, of its validations."""

    best: float | None


def take_up(config: Config, runs: Path) -> Complete | None:
    """The run of config's name, if it is complete; if it was broken off, make config resume it.

    Raises:
        UserError: it is a run with other settings, or one that left nothing to go on from.
    """
    assert config.name is not None
    folder = runs / config.name
    is_complete = (folder / "results.json").is_file()
    if not is_complete and not list_checkpoints(folder / "checkpoints"):
        if (folder / "metrics.csv").exists():
            raise UserError(f"{folder} ended before its first checkpoint: delete it, or choose another name=")
        return None
    _require_same(config, folder)
    if is_complete:
        log.info("%s is complete: kept, not run again", folder)
        return Complete(_best(folder, config.training.monitor))
    _take_numbers(config, to_plain(load_config(str(folder), [])))
    config.resume = str(folder)
    log.info("%s was interrupted: resuming it", folder)
    return None


def _require_same(config: Config, folder: Path) -> None:
    then, now = flatten(to_plain(load_config(str(folder), []))), flatten(to_plain(config))
    for key in now:
        if key not in _MAY_DIFFER and now[key] not in (then.get(key), AUTO):
            raise UserError(
                f"{folder} is a run with {key}={then.get(key)}, not {now[key]}: choose another name=, or delete it"
            )


def _take_numbers(settings: Any, saved: dict[str, Any]) -> None:
    """Replace every `auto` by what the run has in its place."""
    for name, value in vars(settings).items():
        if dataclasses.is_dataclass(value):
            _take_numbers(value, saved[name])
        elif value == AUTO:
            setattr(settings, name, saved[name])


def _best(folder: Path, monitor: str) -> float | None:
    best = best_validation(read_metrics(folder), monitor)
    return None if best is None else best.bleu if monitor == "bleu" else best.loss
