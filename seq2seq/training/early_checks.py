"""Checks of a run before PyTorch is imported: a missing package, a spent budget, an existing name."""

import ctypes
import importlib.util
import json
import logging
from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.extras import missing
from seq2seq.settings.config import Config, flatten, walk
from seq2seq.settings.loading import load_config
from seq2seq.settings.rules import AUTO
from seq2seq.training.run_files import list_checkpoints, step_of

NO_GPU = "trainer.accelerator=gpu but there is no CUDA device: use trainer=cpu or a CUDA PyTorch"

log = logging.getLogger(__name__)
TRANSLATIONS = "translations"  # a run's folder with its translations of the test sets
_MAY_DIFFER = {
    "analyse",
    "baseline",
    "resume",
    "data.root",
    "trainer.progress_bar",
    "logger.tensorboard",
    "logger.wandb",
    "logger.mlflow",
    "logger.project",
}  # settings that may differ between two starts of the same run


def refuse_early(config: Config) -> None:
    """Refuse a run that cannot begin or has nothing left to do.

    Later checks need PyTorch or a complete checkpoint.

    Raises:
        UserError: a package, a GPU or the baseline's translations are missing, or the run to resume is complete.
    """
    if config.training.lora_rank and importlib.util.find_spec("peft") is None:
        raise missing("peft", "training.lora_rank", "peft")
    for name in ("wandb", "mlflow"):
        if getattr(config.logger, name) and importlib.util.find_spec(name) is None:
            raise missing(name, f"logger={name}", name)
    if config.trainer.accelerator == "gpu" and not has_gpu_driver():
        raise UserError(NO_GPU)
    if config.baseline not in (None, AUTO):
        refuse_baseline(config.baseline)
    if config.resume not in (None, AUTO) and (paths := list_checkpoints(Path(config.resume) / "checkpoints")):
        refuse_spent(config, Path(config.resume), step_of(paths[-1]))


def refuse_baseline(run: str) -> None:
    """Refuse a baseline that has no test translations to compare with.

    Raises:
        UserError: the folder does not exist, or it has no translations.
    """
    folder = Path(run) / TRANSLATIONS
    if not any(folder.glob("*.txt")):
        lack = f"has no test translations (no {folder}/*.txt)" if Path(run).is_dir() else "is no folder"
        raise UserError(f"baseline={run} {lack}: give a complete run's folder, or baseline=null")


def has_gpu_driver() -> bool:
    """Return whether this machine has a driver for a GPU that PyTorch could use."""
    if Path("/dev/kfd").exists():  # AMD's, for PyTorch's ROCm builds
        return True
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def refuse_spent(config: Config, folder: Path, step: int) -> None:
    """Refuse to resume a run that has nothing left to do after its newest checkpoint, which has `step` updates.

    A run that was stopped or killed between its last update and its test scores may be resumed to compute the scores.

    Raises:
        UserError: the run is complete, or has more updates than trainer.max_steps.
    """
    results = folder / "results.json"
    if results.exists() and _is_spent(config, results, step):
        raise UserError(
            f"resume={folder}: the run is complete after {step} updates; to extend it, set "
            f"trainer.max_steps={2 * step}"
            + (" trainer.max_time=null" if config.trainer.max_time else "")
            + (" trainer.max_epochs=null" if config.trainer.max_epochs else "")
            + (" training.patience=0" if config.training.patience else "")
        )
    if config.trainer.max_steps != AUTO and step > config.trainer.max_steps:
        raise UserError(
            f"resume={folder}: the run has {step} updates already, trainer.max_steps={config.trainer.max_steps} is not "
            "more: give a larger one"
        )


def _is_spent(config: Config, results: Path, step: int) -> bool:
    """Return whether the results belong to this update, and the budget leaves nothing to do."""
    duration, patience = config.trainer.duration(), config.training.patience
    try:
        facts = json.loads(results.read_text(encoding="utf-8"))
        seconds, was_patient = float(facts["training_seconds"]), int(facts["training"]["patience"])
        if int(facts["updates"]) != step:  # the run was extended, and killed before it wrote new results
            return False
        out_of_patience = bool(facts["out_of_patience"]) and 0 < patience <= was_patient
    except (OSError, ValueError, KeyError, TypeError):
        return False  # damaged: the resumed run writes the results again
    is_over = duration is not None and seconds >= duration.total_seconds()
    is_last = config.trainer.max_steps != AUTO and step >= config.trainer.max_steps
    return is_last or is_over or out_of_patience


def find_existing(config: Config, runs: Path) -> bool:
    """Return whether the run of config's name is complete; else replace config.resume=auto by what there is to resume.

    A sweep that is started again thus keeps its complete runs.

    Raises:
        UserError: the run has other settings, or ended before its first checkpoint.
    """
    assert config.name is not None
    folder = runs / config.name
    is_complete = (folder / "results.json").is_file()
    if not is_complete and not list_checkpoints(folder / "checkpoints"):
        if (folder / "metrics.csv").exists():
            raise UserError(f"{folder} ended before its first checkpoint: delete it, or choose another name=")
        config.resume = None
        return False
    _require_same(config, folder)
    if is_complete:
        log.info("%s is complete: kept, not run again", folder)
        return True
    saved = flatten(load_config(str(folder), []))
    for setting in walk(config):
        if setting.value == AUTO:
            setattr(setting.section, setting.key.rpartition(".")[2], saved[setting.key])
    config.resume = str(folder)
    log.info("%s was interrupted: resuming it", folder)
    return False


def _require_same(config: Config, folder: Path) -> None:
    then, now = flatten(load_config(str(folder), [])), flatten(config)
    for key in now:
        if key not in _MAY_DIFFER and now[key] not in (then.get(key), AUTO):
            raise UserError(
                f"{folder} is a run with {key}={then.get(key)}, not {now[key]}: choose another name=, or delete it"
            )
