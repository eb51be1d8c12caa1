"""The state of a run, from the files in its folder alone: what it has saved, and whether something is left to do."""

import contextlib
import json
import re
import stat
from pathlib import Path
from typing import Any

from seq2seq.settings.config import Config
from seq2seq.settings.rules import AUTO

_CHECKPOINT = re.compile(r"step=\d+\.ckpt|best-step=\d+-")
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
