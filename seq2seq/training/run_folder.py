"""Make a run's folder, once for all its processes, and reopen it on resume, at its newest whole checkpoint.

The checkpoint and the run are checked; no code in the file is executed.
"""

import contextlib
import itertools
import json
import logging
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from seq2seq.data.prepare import corpus_digests, deciding_settings
from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.storage.atomic import WORK, is_abandoned, is_held, lock, unlock
from seq2seq.storage.pickled_weights import DamagedError, read_pickled
from seq2seq.text.vocabulary import describe_tokenizers
from seq2seq.training.checkpoints import RECORD, link
from seq2seq.training.processes import broadcast_decision
from seq2seq.training.run_files import LOCK, forget_after, is_untouched, write_text
from seq2seq.training.run_state import NOTHING, checkpoint_name, is_done, list_resumable, state_of, step_of

log = logging.getLogger(__name__)
_PLACES = ("", "checkpoints/", "translations/**/", "analysis/**/")  # not model/, which may hold large exports
PLANS = "plans-"  # and a machine's name: the folder of the plans that its processes share
_DRAFTS = (f"{PLANS}*", "checkpoints/*.tmp", *(folder + name for folder in _PLACES for name in (WORK, f".*{WORK}")))
_LOGS = ("metrics.csv", "loggers.json", "events.out.tfevents.*")  # of a run that was killed before it saved anything


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
        except UserError as error:
            unusable.append((path, str(error)))
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
    try:
        values = read_pickled(path, device)
    except DamagedError as error:
        raise UserError(f"{path} is damaged ({error})") from error
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


def prepare_folder(
    config: Config, runs: Path, stem: str = "run", *, adapts: bool = True
) -> tuple[Config, Path, Path | None]:
    """Make or reopen a run's folder and write config.yaml; return config, the folder and, on resume, the checkpoint.

    A run without a name gets stem and the time as its name. With adapts, training.accumulate follows the processes.
    """
    checkpoint = None
    try:
        if config.resume is not None:
            folder = Path(config.resume)
            decision = broadcast_decision("checkpoint", lambda: json.dumps(_reopen(config, folder, adapts)))
            name, config.training.accumulate = json.loads(decision)
            checkpoint = Path(name)
        else:
            folder = Path(broadcast_decision("run", lambda: _begin(config, runs, stem)))
    except OSError as error:
        advice = "choose a folder that you may write to and that has room"
        raise UserError(f"cannot write {error.filename or 'the run'}: {error.strerror}; {advice}") from error
    config.name = folder.name
    return config, folder, checkpoint


def _reopen(config: Config, folder: Path, adapts: bool) -> tuple[str, int]:
    """Reopen a run's folder at its newest checkpoint; return it, and the batches that each process accumulates."""
    with _taken(folder):
        checkpoint, values = newest_checkpoint(folder)
        is_done(config, folder, checkpoint)  # refused before anything is written
        record = values[RECORD]
        require_same_run(folder, record, describe_run(config, corpus_digests(config.data)))
        _keep_updates(config, record, adapts)
        config.name = folder.name
        link(checkpoint, checkpoint.with_name(checkpoint_name(step_of(checkpoint))))  # a best one may have lost it
        forget_after(folder / "metrics.csv", step_of(checkpoint), validated=not record["validation_pending"])
        write_config(config, folder)
        return str(checkpoint), config.training.accumulate


def _keep_updates(config: Config, record: Mapping[str, Any], adapts: bool) -> None:
    """Check that updates have as many batches as in the record; with adapts, by another training.accumulate."""
    ranks, accumulate = record.get("ranks", 0), record.get("accumulate", 0)
    if not all(type(number) is int and number > 0 for number in (ranks, accumulate)):
        raise UserError("the checkpoint does not say how many batches an update has: it is damaged or forged")
    processes, training = config.trainer.devices * config.trainer.num_nodes, config.training
    batches = ranks * accumulate
    if adapts and batches % processes == 0 and batches != processes * training.accumulate:
        training.accumulate = batches // processes
        message = "training.accumulate=%d: every update has %d batches, as with %d processes × training.accumulate=%d"
        log.info(message, training.accumulate, batches, ranks, accumulate)
    if batches != processes * training.accumulate:
        raise UserError(
            f"every update of this run is made of {batches} batches ({ranks} processes × "
            f"training.accumulate={accumulate}), now of {processes} × {training.accumulate}: "
            + (
                f"use a divisor of {batches}"
                if batches % processes
                else f"set training.accumulate={batches // processes}"
            )
        )


def _begin(config: Config, runs: Path, stem: str) -> str:
    """Make the folder of a new run; return its path."""
    folder = _unused_folder(runs, stem) if config.name is None else runs / config.name
    _require_nothing_saved(folder)
    with _taken(folder):
        _require_nothing_saved(folder)  # another process may have begun a run in between
        _remove(folder, _LOGS)
        config.name = folder.name
        write_config(config, folder)
        return str(folder)


def _require_nothing_saved(folder: Path) -> None:
    is_run = (folder / "config.yaml").exists()  # other folders may hold anything, such as the runs of a series
    if folder.exists() and not (is_untouched(folder) or (is_run and state_of(folder, None) == NOTHING)):
        raise UserError(f"{folder} is a run already: choose another name=, or go on with resume={folder}")


def _unused_folder(runs: Path, stem: str) -> Path:
    """Make a folder named after stem and the time, which no other process makes; return it."""
    name = stem + time.strftime("-%Y%m%d-%H%M%S")
    for suffix in itertools.count(1):
        folder = runs / (f"{name}-{suffix}" if suffix > 1 else name)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError


@contextlib.contextmanager
def _taken(folder: Path) -> Iterator[None]:
    """Make the folder, lock it, and remove drafts of killed processes; refuse one in which another process trains.

    If the block fails, the lock is released: the process may live on, and the user try again.
    """
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    if not is_held(folder / LOCK):
        lock(folder / LOCK, f"{folder} is being trained in", "wait for it, stop it, or choose another name=")
    try:
        _remove(folder, _DRAFTS)
        yield
    except BaseException:
        unlock(folder / LOCK)
        raise


def _remove(folder: Path, patterns: Iterable[str]) -> None:
    for path in [path for pattern in patterns for path in folder.glob(pattern)]:
        if not path.is_dir() or path.is_symlink():
            path.unlink(missing_ok=True)
        elif is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)  # a killed process's others may remove or map plans still


def write_config(config: Config, folder: Path) -> None:
    """Write all settings to config.yaml."""
    write_text(folder / "config.yaml", yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=True))


def point_latest(folder: Path) -> None:
    """Point runs/latest at a run that is about to train."""
    draft = folder / "checkpoints" / "latest.tmp"
    draft.unlink(missing_ok=True)  # of a killed process
    draft.symlink_to(folder.name)
    draft.replace(folder.parent / "latest")
