"""What makes a run impossible, found before PyTorch is imported and before any text is read."""

import ctypes
import importlib.util
import json
from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.extras import missing
from seq2seq.settings.config import Config
from seq2seq.settings.rules import AUTO
from seq2seq.training.saved import list_checkpoints, step_of

NO_GPU = "trainer.accelerator=gpu but there is no CUDA device: use trainer=cpu or a CUDA PyTorch"


def refuse_early(config: Config) -> None:
    """Refuse a run that cannot begin or has nothing left to do.

    What only PyTorch or a whole checkpoint can tell is checked later.

    Raises:
        UserError: a package or a GPU is missing, or the run to resume has spent its budget.
    """
    if config.training.lora_rank and importlib.util.find_spec("peft") is None:
        raise missing("peft", "training.lora_rank", "peft")
    for name in ("wandb", "mlflow"):
        if getattr(config.logger, name) and importlib.util.find_spec(name) is None:
            raise missing(name, f"logger={name}", name)
    if config.trainer.accelerator == "gpu" and not has_gpu_driver():
        raise UserError(NO_GPU)
    if config.resume is not None and (paths := list_checkpoints(Path(config.resume) / "checkpoints")):
        refuse_spent(config, Path(config.resume), step_of(paths[-1]))


def has_gpu_driver() -> bool:
    """Whether this machine has a driver that PyTorch could use a GPU by; without one there is no CUDA device."""
    if Path("/dev/kfd").exists():  # AMD's, for PyTorch's ROCm builds
        return True
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def refuse_spent(config: Config, folder: Path, step: int) -> None:
    """Refuse to resume a run after whose newest checkpoint nothing is left to do.

    A run that was stopped or killed after its last update and before its test scores may be resumed for them.

    Raises:
        UserError: the run is complete, or has had more updates than it may have now.
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
    """Whether the budget leaves nothing to be done: the results are of this very update, and no more are wanted."""
    duration, patience = config.trainer.duration(), config.training.patience
    try:
        facts = json.loads(results.read_text(encoding="utf-8"))
        seconds, was_patient = float(facts["training_seconds"]), int(facts["training"]["patience"])
        if int(facts["updates"]) != step:  # it was given more, and killed before the new results
            return False
        out_of_patience = bool(facts["out_of_patience"]) and 0 < patience <= was_patient
    except (OSError, ValueError, KeyError, TypeError):
        return False  # damaged: it is made again
    is_over = duration is not None and seconds >= duration.total_seconds()
    is_last = config.trainer.max_steps != AUTO and step >= config.trainer.max_steps
    return is_last or is_over or out_of_patience
