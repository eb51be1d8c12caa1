"""The lab's report: tables for people, values for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from seq2seq.errors import UserError
from seq2seq.explain.lab.claims import BASELINE, CLAIMS
from seq2seq.explain.lab.curves import draw_curves
from seq2seq.explain.lab.runs import Lab, Run, read_lab
from seq2seq.explain.lab.verdicts import RULE, Measured, Verdict, judge

TITLE = "The ablation lab"
PAGE, CURVES, VALUES = "lab.md", "curves.png", "lab.json"
MEASURES = {"bleu": "BLEU", "validation_loss": "validation loss"}
LYING = "no_causal_mask"  # whose loss is better than its translations


def write_report(runs: Path, output: Path) -> Lab:
    """Write output/lab.md's part about these runs, and their picture and values in output/NAME OF runs/.

    Raises:
        UserError: there is no run, or something cannot be written.
    """
    names = [BASELINE, *dict.fromkeys(claim.experiment for claim in CLAIMS)]
    lab = read_lab(runs, names)
    verdicts = [verdict for claim in CLAIMS if (verdict := judge(claim, lab)) is not None]
    key = runs.resolve().name
    try:
        (output / key).mkdir(parents=True, exist_ok=True)
        draw_curves(lab, output / key / CURVES)
        text = json.dumps(to_plain(lab, verdicts), ensure_ascii=False)
        (output / key / VALUES).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to --output {output}: {error.strerror or error}") from error
    fill(output / PAGE, key, to_markdown(lab, verdicts, key))
    return lab


def fill(page: Path, key: str, text: str) -> None:
    """Put text between the page's `<!-- begin KEY -->` and `<!-- end KEY -->`, in place of what was there.

    Both are appended to a page without them; a missing page is begun with TITLE.

    Raises:
        UserError: the page has only one of the two, or the page cannot be written.
    """
    begin, end = f"<!-- begin {key} -->", f"<!-- end {key} -->"
    try:
        before = page.read_text(encoding="utf-8") if page.exists() else f"# {TITLE}\n"
        if begin not in before and end not in before:
            before = f"{before.rstrip()}\n\n{begin}\n{end}\n"
        head, found_begin, rest = before.partition(begin)
        _, found_end, tail = rest.partition(end)
        if not found_begin or not found_end:
            raise UserError(f"{page} has only one of {begin} and {end}: put the other one back")
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(f"{head}{begin}\n{text.strip()}\n{end}{tail}", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {page}: {error.strerror or error}") from error


def to_plain(lab: Lab, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Verdicts, problems, settings and runs as plain values."""
    return {
        "rule": RULE,
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "problems": lab.problems,
        "differences": {
            name: lab.differences(name, BASELINE) for name in dict.fromkeys(run.experiment for run in lab.runs)
        },
        "runs": [{key: value for key, value in asdict(run).items() if key != "settings"} for run in lab.runs],
    }


def to_markdown(lab: Lab, verdicts: Sequence[Verdict], key: str) -> str:
    """The page's part in Markdown: rule, claims, losses, the picture, missing runs."""
    parts = [_summary(lab), f"**The rule**, stated before the runs: {RULE}", _claims(lab, verdicts)]
    if lab.of(BASELINE) and lab.of(LYING):
        parts += [
            "**A loss that lies.** Means over seeds; losses are nats a target token, teacher-forced:",
            _losses(lab),
        ]
    parts.append(f"![Validation loss of every experiment beside the whole model's]({key}/{CURVES})")
    if lab.problems:
        parts.append("**Missing or not comparable:**\n\n" + "\n".join(f"- {problem}" for problem in lab.problems))
    return "\n\n".join(parts)


def _summary(lab: Lab) -> str:
    """What was run, in a paragraph."""
    first, seeds = lab.runs[0], sorted({run.seed for run in lab.runs})
    minutes, hardware = median(run.seconds for run in lab.runs) / 60, sorted({run.hardware for run in lab.runs})
    return (
        f"{len(lab.runs)} runs of {len({run.experiment for run in lab.runs})} experiments, "
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}: {first.updates:,} updates on "
        f"{first.pairs:,} sentence pairs each, {minutes:.1f} minutes of training (median) on {' and '.join(hardware)}. "
        f"BLEU is that of {first.test_set}; ± is the standard deviation over seeds. Below each name is all that its "
        "runs' own settings have other than the baseline's."
    )


def _claims(lab: Lab, verdicts: Sequence[Verdict]) -> str:
    rows = ["| experiment | claim | weights | n | BLEU | difference (95 % interval) | validation loss | verdict |"]
    rows.append("|---|---|---|---|---|---|---|---|")
    if whole := lab.of(BASELINE):
        cells = [f"**{BASELINE}**", "the whole model", *_counts(whole), _bleu(whole), "", _loss(whole), ""]
        rows.append(f"| {' | '.join(cells)} |")
    for verdict in verdicts:
        claim, runs = verdict.claim, lab.of(verdict.claim.experiment)
        is_one_of_two = sum(one.experiment == claim.experiment for one in CLAIMS) > 1
        what = f"{claim.text} *(its {MEASURES[claim.measure]})*" if is_one_of_two else claim.text
        beside = "" if claim.against == BASELINE else f" *(beside {claim.against})*"
        cells = [
            _named(lab, claim.experiment),
            what + beside,
            *_counts(runs),
            _bleu(runs),
            _difference(verdict),
            _loss(runs),
        ]
        rows.append(f"| {' | '.join(cells)} | {_emphasised(verdict.word)} |")
    return "\n".join(rows)


def _named(lab: Lab, experiment: str) -> str:
    settings = lab.differences(experiment, BASELINE)
    return "<br>".join([experiment, *(f"`{key}={value}`" for key, value in settings.items())])


def _losses(lab: Lab) -> str:
    rows = ["| experiment | training loss | validation loss | BLEU |", "|---|---|---|---|"]
    for name in (BASELINE, LYING):
        runs = lab.of(name)
        training = _show(Measured.of([run.training_loss for run in runs]), 2)
        rows.append(f"| {name} | {training} | {_loss(runs)} | {_bleu(runs)} |")
    return "\n".join(rows)


def _counts(runs: Sequence[Run]) -> tuple[str, str]:
    return f"{runs[0].parameters / 1000:,.0f} k", str(len(runs))


def _bleu(runs: Sequence[Run]) -> str:
    return _show(Measured.of([run.bleu for run in runs]), 1)


def _loss(runs: Sequence[Run]) -> str:
    return _show(Measured.of([run.validation_loss for run in runs]), 2)


def _show(measured: Measured, digits: int) -> str:
    spread = "" if measured.deviation is None else f" ± {measured.deviation:.{digits}f}"
    return f"{measured.mean:.{digits}f}{spread}"


def _difference(verdict: Verdict) -> str:
    """The difference in the claim's own measure: BLEU to a tenth, nats to a hundredth."""
    digits = 1 if verdict.claim.measure == "bleu" else 2
    value = verdict.ours.mean - verdict.theirs.mean
    if (interval := verdict.difference) is None:
        return f"{value:+.{digits}f}"
    return f"{value:+.{digits}f} ({interval.low:+.{digits}f} to {interval.high:+.{digits}f})"


def _emphasised(word: str) -> str:
    return f"**{word}**" if word in ("borne out", "contradicted") else word
