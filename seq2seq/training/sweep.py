"""The end of a sweep: a table of what each run changed and scored, and the link `runs/best`.

It reads only the runs' folders, so any process or machine may have made the runs.
"""

import contextlib
import json
import math
import os
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from seq2seq.errors import UserError
from seq2seq.training.run_files import SavedRun, Validation, list_runs, point, write_text
from seq2seq.training.run_state import COMPLETE

VARIABLE = "SEQ2SEQ_SWEEP"  # environment variable of a sweep's runs: the sweep's id
FILE = "sweep.json"


@contextlib.contextmanager
def sweep_table(arguments: Sequence[str], runs: Path) -> Iterator[None]:
    """In a sweep, give its runs an id by the environment, and print their table at the end, even after an error."""
    if not {"--multirun", "-m"} & set(arguments):
        yield
        return
    os.environ[VARIABLE] = sweep = uuid.uuid4().hex
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        is_first = all(os.environ.get(variable, "0") == "0" for variable in ("RANK", "SLURM_PROCID"))
        found = finish_sweep(runs, sweep) if is_first else None
        if found is not None:
            table, best = found
            console = Console(stderr=True, width=None if sys.stderr.isatty() else 200)
            console.print(table)
            if best is not None:
                console.print(f"{runs / 'best'} → {best.name}", highlight=False)


def note_run(folder: Path, overrides: Sequence[str]) -> None:
    """In a sweep, write the sweep's id and the command line's overrides into a run's folder."""
    sweep = os.environ.get(VARIABLE)
    if sweep:
        record = {"sweep": sweep, "overrides": list(overrides)}
        write_text(folder / FILE, json.dumps(record, ensure_ascii=False) + "\n")


def finish_sweep(runs: Path, sweep: str) -> tuple[Table, SavedRun | None] | None:
    """Point `runs/best` at a sweep's best run; return the table, best run first, and the best run.

    Return None if the sweep has no runs.

    Raises:
        UserError: the link cannot be written.
    """
    all_runs = list_runs(runs)
    overrides = {run.name: record for run in all_runs if (record := _overrides_of(run.folder, sweep)) is not None}
    found = [run for run in all_runs if run.name in overrides]
    if not found:
        return None
    monitor = found[0].monitor
    ranked = sorted(found, key=lambda run: (run.state != COMPLETE, _rank(run.validation, monitor)))
    best = ranked[0] if ranked[0].state == COMPLETE and ranked[0].validation is not None else None
    if best is not None:
        try:
            point(runs / "best", best.name)
        except OSError as error:
            raise UserError(f"cannot write {runs / 'best'}: {error.strerror}") from error
    return _table(ranked, overrides), best


def _overrides_of(folder: Path, sweep: str) -> list[str] | None:
    """Return the command line's overrides of a run of this sweep; None for any other run."""
    try:
        record = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return [str(one) for one in record["overrides"]] if record["sweep"] == sweep else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _rank(validation: Validation | None, monitor: str) -> tuple[float, float]:
    """Return a key that sorts better runs first: by the monitored value, then by the loss."""
    bleu, loss = (None, None) if validation is None else (validation.bleu, validation.loss)
    loss = math.inf if loss is None else loss
    return (math.inf if bleu is None else -bleu) if monitor == "bleu" else loss, loss


def _table(ranked: Sequence[SavedRun], overrides: dict[str, list[str]]) -> Table:
    common = set.intersection(*(set(of_run) for of_run in overrides.values())) if len(ranked) > 1 else set()
    tests = list(dict.fromkeys(test for run in ranked for test in run.tests))
    table = Table("run", "changed", "BLEU ↑", "loss ↓", *(f"{test} BLEU ↑" for test in tests), title="The sweep's runs")
    table.title_justify = "left"
    for run in ranked:
        changed = [one for one in overrides[run.name] if one not in common and not one.startswith("name=")]
        best = run.validation
        values = [(best and best.bleu, 1), (best and best.loss, 3), *((run.tests.get(test), 1) for test in tests)]
        state = "" if run.state == COMPLETE else f" ({run.state})"
        cells = ("" if value is None else f"{value:.{digits}f}" for value, digits in values)
        table.add_row(run.name + state, escape(" ".join(changed)), *cells)
    return table
