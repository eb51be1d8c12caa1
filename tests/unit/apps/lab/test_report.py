import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import pytest

from seq2seq.apps.lab.report import fill, write_report
from seq2seq.apps.lab.runs import BASELINE, RULE, Claim, judge, read_claims, read_lab
from seq2seq.cli import app
from tests.refusing import refuses

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[4]
EXPERIMENTS = REPOSITORY / "conf" / "experiment" / "lab"
Make = Callable[..., Path]


@pytest.fixture
def runs(make_run: Make) -> Path:
    """Three seeds of: a harmful ablation, a harmless one, one with a misleading loss, and one that helps."""
    for seed, noise in ((1, 0.0), (2, 1.0), (3, -1.0)):
        make_run("baseline", seed, 80 + noise)
        make_run("no_positions", seed, 40 + 2 * noise, (3.5, 3.0, 2.5))
        make_run("heads_8", seed, 80.2 + noise)
        make_run("no_causal_mask", seed, 1.5 + noise, (2.0, 0.5, 0.1 + noise / 100))
        folder = make_run("no_dropout", seed, 90 + noise, (2.5, 1.5, 1.0))
    return folder.parent


def test_every_experiment_has_a_claim_whose_text_stands_in_its_config() -> None:
    names = {path.stem for path in EXPERIMENTS.glob("*.yaml")}
    claims = read_claims()
    assert {claim.experiment for claim in claims} == names - {BASELINE}
    assert claims[0].text == "Attention knows no order, so positions have to be told: without them BLEU falls."
    assert {claim.against for claim in claims} <= names


def test_each_claim_gets_the_verdict_that_the_rule_gives(runs: Path) -> None:
    lab = read_lab(runs, [])
    words = {}
    for claim in read_claims():
        if (verdict := judge(claim, lab)) is not None:
            words[claim.experiment, claim.measure] = verdict.word
    assert words == {
        ("no_positions", "bleu"): "borne out",
        ("heads_8", "bleu"): "open",
        ("no_causal_mask", "validation_loss"): "borne out",
        ("no_causal_mask", "bleu"): "borne out",
        ("no_dropout", "bleu"): "contradicted",
    }
    nothing_claimed = judge(Claim("no_dropout", "which is better is not claimed", "either"), lab)
    assert nothing_claimed is not None
    assert nothing_claimed.word == "higher"
    single = judge(read_claims()[0], replace(lab, runs=[run for run in lab.runs if run.seed == 1]))
    assert single is not None
    assert (single.word, single.difference) == ("no verdict", None)


def test_the_report_has_all_tables_values_and_the_picture(runs: Path, tmp_path: Path) -> None:
    lab = write_report(runs, tmp_path / "docs")
    page = (tmp_path / "docs" / "lab.md").read_text(encoding="utf-8")
    assert page.startswith("# The ablation lab\n\n<!-- begin lab -->\n15 runs of 5 experiments, seeds 1, 2, 3: 300 ")
    assert ", 1.0 minutes of training (median) on 2 CPU cores. " in page
    assert RULE in page
    assert "| **baseline** | the whole model | 1 k | 3 | 80.0 ± 1.0 |  | 1.50 ± 0.00 |  |" in page
    (row,) = [line for line in page.splitlines() if line.startswith("| no_positions")]
    assert "| 1 k | 3 | 40.0 ± 2.0 | -40.0 (-44.2 to -35.8) | 2.50 ± 0.00 | **borne out** |" in row
    assert "| no_causal_mask | 0.35 ± 0.01 | 0.10 ± 0.01 | 1.5 ± 1.0 |" in page
    (absent,) = [problem for problem in lab.problems if problem.startswith("not run: ")]
    assert f"- {absent}\n" in page
    assert "heads_1, heads_2" in absent
    values = json.loads((tmp_path / "docs" / "lab" / "lab.json").read_text())
    assert (len(values["runs"]), values["problems"]) == (15, lab.problems)
    assert "](lab/curves.png)" in page
    height, width, _ = matplotlib.image.imread(tmp_path / "docs" / "lab" / "curves.png").shape
    assert width > height > 300


def test_only_the_reports_section_of_the_page_is_replaced(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "docs" / "lab.md"
    page.parent.mkdir()
    page.write_text("# Mine\n\nBefore.\n\n<!-- begin lab -->\nwhat was there\n<!-- end lab -->\n\nAfter.\n")
    write_report(runs, page.parent)
    text = page.read_text()
    assert text.startswith("# Mine\n\nBefore.\n\n<!-- begin lab -->\n15 runs")
    assert text.endswith("<!-- end lab -->\n\nAfter.\n")
    assert "what was there" not in text
    fill(page, "cost", "Dear.")
    assert page.read_text() == text.rstrip() + "\n\n<!-- begin cost -->\nDear.\n<!-- end cost -->\n"
    page.write_bytes(b"ni\xf1o\n")
    refuses(r"lab.md is not UTF-8: convert it first", fill, page, "lab", "")
    page.write_text("<!-- begin lab -->\n")
    refuses(r"has only one of <!-- begin lab --> and <!-- end lab -->: put the other one", fill, page, "lab", "")


def test_partial_and_absent_runs_are_named(make_run: Make) -> None:
    make_run("baseline", 1, 80.0)
    make_run("baseline", 2, 80.0)
    make_run("heads_1", 1, 80.0)
    make_run("heads_1", 2, 0.0, (3.0, 2.5), complete=False)
    damaged = make_run("heads_2", 1, 80.0)
    (damaged / "results.json").write_text('{"scores": {}}')
    short = make_run("heads_8", 1, 80.0, updates=150)
    (short.parent / "latest").symlink_to(short)
    shutil.copytree(short, short.with_name("heads_8-1-copy"))
    lab = read_lab(short.parent, ["heads_1", "heads_4"])
    assert [(run.experiment, run.seed) for run in lab.runs] == [
        ("baseline", 1), ("baseline", 2), ("heads_1", 1), ("heads_8", 1)
    ]  # fmt: skip
    assert lab.problems == [
        "heads_1-2: broken off or still going on, 200 updates of 300",
        "heads_2-1: results.json or metrics.csv is damaged (StopIteration())",
        "heads_8: two runs with seed 1: the second, by folder name, is left out",
        "not run: heads_4",
        "heads_1: no complete run with seed 2",
        "unequal updates (300 elsewhere): heads_8-1: 150",
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("results.json", b"[" * 100_000, "is damaged"),
        ("metrics.csv", b'step,loss\n1,"' + b"9" * 200_000 + b'"\n', "is damaged"),
        ("metrics.csv", b"step,loss,val_loss\n300,1.0,nan\n", "its loss or BLEU is not a finite number: the training"),
    ],
)
def test_a_damaged_run_is_named_and_left_out(make_run: Make, name: str, content: bytes, message: str) -> None:
    folder = make_run("baseline", 1, 80.0)
    damaged = make_run("baseline", 2, 80.0)
    (damaged / name).write_bytes(content)
    lab = read_lab(folder.parent, [])
    assert [run.seed for run in lab.runs] == [1]
    (problem,) = lab.problems
    assert re.match(f"baseline-2.*({message})", problem)


def test_the_report_names_the_settings_in_which_runs_differ(make_run: Make, tmp_path: Path) -> None:
    """The settings come from the runs, not from the experiments' files."""
    make_run("baseline", 1, 80.0)
    make_run("no_positions", 1, 40.0, positions="none", dropout=0.3)
    make_run("no_positions", 2, 40.0, positions="none")
    lstm = {"architecture": "recurrent", "attention": "none"}
    folder = make_run("lstm_no_attention", 1, 30.0, **lstm)
    lab = write_report(folder.parent, tmp_path / "docs")
    page = (tmp_path / "docs" / "lab.md").read_text(encoding="utf-8")
    assert "| no_positions<br>`model.dropout=0.3`<br>`model.positions=none` | Attention knows" in page
    assert "no_positions-2: model.dropout=0.1, unlike seed 1" in lab.problems
    values = json.loads((tmp_path / "docs" / "lab" / "lab.json").read_text())
    assert values["differences"]["lstm_no_attention"] == {f"model.{key}": value for key, value in lstm.items()}
    assert values["differences"]["baseline"] == {}


def test_a_folder_without_runs_is_an_error_of_one_line(tmp_path: Path, make_run: Make) -> None:
    refuses(r"--runs .*nowhere is no folder: make the runs first", read_lab, tmp_path / "nowhere", [])
    folder = make_run("baseline", 1, 80.0, complete=False)
    refuses(r"has no complete run \(baseline-1: broken off .*\): make the runs first", read_lab, folder.parent, [])


def test_the_command_reports_and_warns(run, runs: Path, tmp_path: Path) -> None:
    arguments = ("--runs", runs, "--output", tmp_path / "docs")
    status, out, err = run("report", *arguments, command=("lab",), application=app)
    assert (status, out) == (0, "")
    assert "warning: not run: shared_query_key, no_queries, unscaled, heads_1, " in err
    assert err.endswith(f"{tmp_path}/docs/lab.md: 15 runs\n")
    status, _, err = run("report", "--runs", tmp_path / "x", command=("lab",), application=app)
    assert status == 1
    assert err.count("\n") == 1


def test_a_home_without_the_labs_experiments_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQ2SEQ_HOME", str(tmp_path))
    refuses(r"there is no .*lab: set the environment's SEQ2SEQ_HOME", read_claims)
