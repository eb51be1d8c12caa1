"""The state of a run, by the files in its folder, before PyTorch is imported: whether it begins, goes on or is done."""

import contextlib
import importlib.util
import json
import logging
import re
import stat
from pathlib import Path
from typing import Any

from seq2seq.errors import UserError
from seq2seq.settings.config import Config, flatten, walk
from seq2seq.settings.loading import load_config
from seq2seq.settings.missing_packages import missing, resume_command
from seq2seq.settings.rules import AUTO

log = logging.getLogger(__name__)
_CHECKPOINT = re.compile(r"step=\d+\.ckpt|best-step=\d+-")
# between two starts of a run; its loggers, too
_MAY_DIFFER = (
    *("analyse", "resume", "extensions", "data.root", "trainer.progress_bar", "trainer.profiler"),
    *("trainer.devices", "trainer.num_nodes", "training.accumulate"),  # updates stay the same, see `prepare_folder`
)
_UNLIMITED = {"trainer.max_time": "null", "trainer.max_epochs": "null", "training.patience": 0}

COMPLETE, STOPPED, RUNNING, NOTHING = "complete", "stopped", "running", "nothing saved"


def state_of(folder: Path, config: Config | None, holder: str | None = None) -> str:
    """Return the state of the run in a folder.

    | state | when | what resuming does |
    |---|---|---|
    | running | a process holds the folder's lock | is refused |
    | complete | results.json is whole and of the newest checkpoint, and config asks for no more | nothing |
    | stopped | any other run with a checkpoint, a model or results | goes on from the newest whole checkpoint |
    | nothing saved | there is no checkpoint, no model and no results.json, or no folder | begins |

    So an extended run is stopped from the moment in which its config.yaml asks for more until its new results. If
    config is None (a damaged config.yaml), the results alone count. holder is another process that holds the lock.
    """
    if holder is not None:
        return RUNNING
    results, last = read_results(folder), list_checkpoints(folder / "checkpoints")[-1:]
    if results and all(step_of(path) == results["updates"] for path in last) and _is_spent(config, results):
        return COMPLETE
    saved = [*(folder / "checkpoints").glob("*.ckpt"), folder / "results.json", folder / "model"]
    return STOPPED if any(path.exists() for path in saved) else NOTHING


def _is_spent(config: Config | None, results: dict[str, Any]) -> bool:
    """Return whether the settings leave nothing to do for a run with these results."""
    if config is None:
        return True
    steps, duration, patience = config.trainer.max_steps, config.trainer.duration(), config.training.patience
    is_over = duration is not None and results["training_seconds"] >= duration.total_seconds()
    is_last = steps != AUTO and results["updates"] >= steps
    return is_last or is_over or (results["out_of_patience"] and 0 < patience <= results["patience"])


def read_results(folder: Path) -> dict[str, Any]:
    """Return the values of results.json that say what a run did; none if the file is absent or damaged."""
    try:
        path = folder / "results.json"
        facts = json.loads(path.read_text(encoding="utf-8") if path.is_file() else "")  # a pipe would wait
        return {
            "updates": int(facts["updates"]),
            "training_seconds": float(facts["training_seconds"]),
            "parameters": int(facts["parameters"]),
            "tests": {name: float(scores["bleu"]["value"]) for name, scores in facts["scores"].items()},
            "out_of_patience": bool(facts.get("out_of_patience")),
            "patience": int(facts.get("training", {}).get("patience", 0)),
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}


def checkpoint_name(step: int) -> str:
    """Return the name of the checkpoint after `step` updates; names sort like numbers."""
    return f"step={step:07d}.ckpt"


def list_checkpoints(folder: Path) -> list[Path]:
    """Return the last checkpoints of a run, the oldest first."""
    return [path for path in reversed(list_resumable(folder)) if path.name.startswith("step=")]


def list_resumable(folder: Path, *, also_damaged: bool = False) -> list[Path]:
    """Return the last and the best checkpoints, the one with the most updates first, and of equal ones the last.

    What is no file or is empty is left out unless also_damaged.
    """
    paths = (path for path in folder.glob("*.ckpt") if also_damaged or _has_bytes(path))
    return sorted(
        [path for path in paths if _CHECKPOINT.match(path.name)],
        key=lambda path: (step_of(path), path.name),
        reverse=True,
    )


def _has_bytes(path: Path) -> bool:
    with contextlib.suppress(OSError):  # a link to nothing or to itself, or just removed
        status = path.stat()
        return stat.S_ISREG(status.st_mode) and status.st_size > 0
    return False


def step_of(path: Path) -> int:
    """Return the number of updates in a checkpoint's name."""
    return int(re.split(r"[=-]", path.stem.removeprefix("best-"))[1])


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
