"""Store a run's test translations, and test whether they differ from another model's by more than chance."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.evaluation.analysis import Translated
from seq2seq.evaluation.significance import Comparison, compare
from seq2seq.files import read_lines
from seq2seq.settings.config import Config
from seq2seq.settings.rules import AUTO
from seq2seq.training.early_checks import TRANSLATIONS, refuse_baseline
from seq2seq.training.run_files import write_text

log = logging.getLogger(__name__)
Lines = Mapping[str, Sequence[str]]  # by test set


def is_fine_tuning(config: Config) -> bool:
    """Return whether the run is compared with the model that it began with."""
    return config.baseline == AUTO and config.init is not None


def keep_translations(folder: Path, translations: Lines, tests: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Write a run's translations of each test set, the sources and the references, as text files.

    tests are pairs of source and reference.
    """
    _write_lines(folder, "", translations)
    _write_lines(folder, ".source", {name: [src for src, _ in pairs] for name, pairs in tests.items()})
    _write_lines(folder, ".reference", {name: [tgt for _, tgt in pairs] for name, pairs in tests.items()})


def read_translations(run: Path) -> list[Translated]:
    """Read the test sets that a run translated at its end.

    Raises:
        UserError: the run has no test translations or no sources of them, or a file has lost lines.
    """
    folder, found = run / TRANSLATIONS, []
    for path in sorted(folder.glob("*.source.txt")):
        name = path.name.removesuffix(".source.txt")
        files = [path, *(folder / f"{name}{kind}.txt" for kind in ("", ".reference"))]
        texts = [list(read_lines(file)) for file in files]
        for file, lines in zip(files, texts, strict=True):
            if len(lines) != len(texts[0]):
                raise UserError(f"{file} has {len(lines):,} lines, {path.name} {len(texts[0]):,}: one is damaged")
        found.append(Translated(name, *texts))
    if not found:
        raise UserError(f"{run} keeps no test translations with sources: it is unfinished, old, or had no test set")
    return found


def keep_initial(folder: Path, translations: Lines) -> None:
    """Write the initial model's translations of each test set as text files."""
    _write_lines(folder, ".before", translations)


def _write_lines(folder: Path, kind: str, texts: Lines) -> None:
    (folder / TRANSLATIONS).mkdir(exist_ok=True)
    for name, lines in texts.items():
        write_text(folder / TRANSLATIONS / f"{name}{kind}.txt", "".join(f"{line}\n" for line in lines))


def read_baseline(run: str | None, references: Lines) -> dict[str, list[str]]:
    """Return another run's translations of the test sets that it shares with this one; none if run is None or auto.

    Raises:
        UserError: the other run has none of the test sets, has one with other references, or a file is damaged.
    """
    if run in (None, AUTO):
        return {}
    assert run is not None
    refuse_baseline(run)
    found = {}
    for name, texts in references.items():
        lines, reference = (Path(run) / TRANSLATIONS / f"{name}{kind}.txt" for kind in ("", ".reference"))
        if not (lines.is_file() and reference.is_file()):
            log.warning("baseline=%s has no translations of the test set %s: it is not compared", run, name)
            continue
        if list(read_lines(reference)) != list(texts):
            raise UserError(
                f"baseline={run} was tested on another {name}: {reference} differs from this run's references"
            )
        found[name] = list(read_lines(lines))
        if len(found[name]) != len(texts):
            raise UserError(f"{lines} has {len(found[name]):,} lines, not {len(texts):,}: it is damaged")
    theirs = {path.name.removesuffix(".reference.txt") for path in (Path(run) / TRANSLATIONS).glob("*.reference.txt")}
    for name in sorted(theirs - references.keys()):
        log.warning("baseline=%s has the test set %s, and this run does not: it is not compared", run, name)
    if not found:
        raise UserError(f"baseline={run} has translations of none of this run's test sets: {', '.join(references)}")
    return found


def compare_with(
    theirs: Lines, ours: Lines, references: Lines, systems: tuple[str, str], language: str = ""
) -> dict[str, Comparison]:
    """Compare a run's translations (ours) with the baseline's (theirs), by test set; systems are their names.

    If a test set cannot be compared, log a warning and leave it out: the run itself is complete.
    """
    found = {}
    for name, lines in theirs.items():
        try:
            found[name] = compare(
                list(zip(systems, (lines, ours[name]), strict=True)), [references[name]], language=language
            )
        except UserError as error:
            log.warning("the test set %s is not compared: %s", name, error)
    return found
