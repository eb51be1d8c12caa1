"""Find the checkpoint that a run resumes from, and check the file and the run; no code in the file is executed."""

import contextlib
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seq2seq.data.prepare import deciding_settings
from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.storage.pickled_weights import DamagedError, read_pickled
from seq2seq.text.vocabulary import describe_tokenizers
from seq2seq.training.checkpoints import RECORD
from seq2seq.training.run_state import list_resumable, step_of

log = logging.getLogger(__name__)


def newest_checkpoint(folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return the newest whole checkpoint of a run's folder, last or best, and its values (tensors on the meta device).

    Newer ones that cannot be used, damaged, forged or of another program, are skipped with a warning and renamed.
    """
    paths = list_resumable(folder / "checkpoints", also_damaged=True)
    if not paths:
        raise UserError(
            f"resume={folder}: no checkpoint in {folder / 'checkpoints'}, so there is nothing to go on from: "
            "begin another run by name="
        )
    unusable: list[tuple[Path, str]] = []
    for path in paths:
        try:
            values = read_checkpoint(path)
        except (DamagedError, UserError) as error:
            unusable.append((path, str(error) if isinstance(error, UserError) else f"{path} is damaged ({error})"))
            continue
        for broken, reason in unusable:
            again = f"{path.name}, the one before, and training {step_of(broken) - step_of(path)} updates again"
            log.warning("%s: going on from %s", reason, again)
            set_aside(broken)
        return path, values
    raise UserError(f"{unusable[0][1]}; there is no other: restore it from a copy, or start a new run")


def set_aside(path: Path) -> None:
    """Rename an unusable checkpoint, so that nobody resumes from it or deletes it; an earlier one of its name stays."""
    names = (path.with_name(f"damaged-{number}{path.name}") for number in ("", *(f"{n}-" for n in range(2, 10**4))))
    with contextlib.suppress(FileNotFoundError):  # another process of the run did it
        path.rename(next(name for name in names if not os.path.lexists(name)))


def read_checkpoint(path: Path, device: str = "meta") -> dict[str, Any]:
    """Return a checkpoint's values after checking its bytes; on the meta device, tensors stay on the disk."""
    values = read_pickled(path, device)
    record = values.get(RECORD) if isinstance(values, dict) else None
    if not isinstance(record, dict) or not all(isinstance(record.get(key), dict) for key in ("corpora", "settings")):
        raise UserError(f"{path} is no checkpoint of this program")
    return values


def describe_run(config: Config, corpora: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings and texts that determine a run's batches, as plain values for its checkpoints.

    corpora are the texts' digests.
    """
    return {
        "corpora": dict(corpora),
        "settings": {
            "seed": config.seed,
            "training.max_tokens": config.training.max_tokens,
            "trainer.overfit_batches": config.trainer.overfit_batches or None,  # a setting that older checkpoints lack
            "training.subword_sampling": asdict(config.training.subword_sampling) | {"nbest": -1},  # a former setting
            "training.modifiers": asdict(config.training.modifiers),
            **{f"data.{key}": value for key, value in deciding_settings(config.data).items()},
            **{f"tokenizer.{key}": value for key, value in describe_tokenizers(config.tokenizer).items()},
        },
    }


def require_same_run(folder: Path, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to resume with other texts or with settings that would make other batches."""
    for name in sorted(then["corpora"].keys() | now["corpora"].keys()):
        old, new = then["corpora"].get(name), now["corpora"].get(name)
        if old != new:
            change = "is new" if old is None else "is not there any more" if new is None else "has changed"
            raise UserError(
                f"resume={folder}: {name} {change} since this run read it: "
                "put the text of that time back, or start a new run"
            )
    if list(then["corpora"]) != list(now["corpora"]):
        first = next(name for name, other in zip(then["corpora"], now["corpora"], strict=True) if name != other)
        raise UserError(
            f"resume={folder}: {first} does not come where it came when the run began: "
            "put the texts of data.* in the order of that time, or start a new run"
        )
    for key in then["settings"].keys() | now["settings"].keys():
        old, new = (record["settings"].get(key) for record in (then, now))
        if key == "training.modifiers":  # another version may lack a weight that is 0
            old, new = ({name: value for name, value in each.items() if value} for each in (old or {}, new or {}))
        if old != new:
            raise UserError(
                f"resume={folder}: {key}={new} would make other batches than {key}={old}, with which the run began: "
                "leave it out, or start a new run"
            )
