"""The lab's experiments share weights and schedule as docs/lab.md says."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import matplotlib.image
import pytest
import torch
from sacrebleu.metrics.bleu import BLEU
from torch import Tensor

from seq2seq.apps.lab.report import FEWEST, bleu_by_length, fill, make_buckets, table, to_markdown, write_report
from seq2seq.apps.lab.runs import BASELINE, RULE, Claim, Difference, Lab, LabRun, compare, judge, read_claims, read_lab
from seq2seq.cli import app
from seq2seq.model.build import build_model
from seq2seq.settings.compose import compose
from seq2seq.settings.config import Config
from tests.refusing import refuses

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


@pytest.mark.slow
def test_every_experiment_has_a_claim_whose_text_stands_in_its_config() -> None:
    names = {path.stem for path in EXPERIMENTS.glob("*.yaml")}
    claims = read_claims()
    assert {claim.experiment for claim in claims} == names - {BASELINE}
    assert claims[0].text == "Attention knows no order, so positions have to be told: without them BLEU falls."
    assert {claim.against for claim in claims} <= names


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_report_has_all_tables_values_and_the_picture(run, runs: Path, tmp_path: Path) -> None:
    arguments = ("--runs", runs, "--output", tmp_path / "docs")
    status, out, err = run("report", *arguments, command=("lab",), application=app)
    assert (status, out) == (0, "")
    assert err.endswith(f"{tmp_path}/docs/lab.md: 15 runs\n")
    page = (tmp_path / "docs" / "lab.md").read_text(encoding="utf-8")
    assert page.startswith("# The ablation lab\n\n<!-- begin lab -->\n15 runs of 5 experiments, seeds 1, 2, 3: 300 ")
    assert ", 1.0 minutes of training (median) on 2 CPU cores. " in page
    assert RULE in page
    assert "| **baseline** | the whole model | 1 k | 3 | 80.0 ± 1.0 |  | 1.50 ± 0.00 |  |" in page
    (row,) = [line for line in page.splitlines() if line.startswith("| no_positions")]
    assert "| 1 k | 3 | 40.0 ± 2.0 | -40.0 (-44.2 to -35.8) | 2.50 ± 0.00 | **borne out** |" in row
    assert "| no_causal_mask | 0.35 ± 0.01 | 0.10 ± 0.01 | 1.5 ± 1.0 |" in page
    (absent,) = [line.removeprefix("- ") for line in page.splitlines() if line.startswith("- not run: ")]
    assert f"warning: {absent}\n" in err
    assert "heads_1, heads_2" in absent
    values = json.loads((tmp_path / "docs" / "lab" / "lab.json").read_text())
    assert (len(values["runs"]), values["problems"]) == (15, [absent])
    assert "](lab/curves.png)" in page
    height, width, _ = matplotlib.image.imread(tmp_path / "docs" / "lab" / "curves.png").shape
    assert width > height > 300


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_folder_without_runs_is_an_error_of_one_line(tmp_path: Path, make_run: Make) -> None:
    refuses(r"--runs .*nowhere is no folder: make the runs first", read_lab, tmp_path / "nowhere", [])
    folder = make_run("baseline", 1, 80.0, complete=False)
    refuses(r"has no complete run \(baseline-1: broken off .*\): make the runs first", read_lab, folder.parent, [])


@pytest.mark.slow
def test_a_home_without_the_labs_experiments_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQ2SEQ_HOME", str(tmp_path))
    refuses(r"there is no .*lab: set the environment's SEQ2SEQ_HOME", read_claims)


DOCS = Path(__file__).parents[4] / "docs"


def test_the_interval_is_welchs() -> None:
    """By hand: standard error 1.4300, 4.9989 degrees of freedom, t 2.5708."""
    difference = compare([71.2, 69.8, 72.9], [75.1, 78.3, 80.4, 77.0])
    assert difference is not None
    assert (difference.value, difference.low, difference.high) == pytest.approx((-6.4, -10.0763, -2.7237), abs=1e-4)
    assert difference.direction() == "lower"


def test_few_or_equal_values() -> None:
    assert compare([1.0], [2.0, 3.0]) is None
    assert compare([0.0, 0.0], [2.0, 2.0]) == Difference(-2.0, -2.0, -2.0)
    same = compare([2.0, 2.0], [2.0, 2.0])
    assert same is not None
    assert same.direction() == "open"


@pytest.mark.parametrize("series", ["lab", "lab_tatoeba"])
def test_the_documented_tables_follow_from_the_documented_runs(series: str) -> None:
    """Every printed digit is equal; lab.json has no settings, so the test leaves them out."""
    plain = json.loads((DOCS / series / "lab.json").read_text(encoding="utf-8"))
    lab = Lab([LabRun(**{**run, "losses": [], "validation_losses": []}) for run in plain["runs"]], [])
    verdicts = [verdict for claim in read_claims() if (verdict := judge(claim, lab)) is not None]
    page = re.sub(r"(<br>`[^`]*`)+", "", (DOCS / "lab.md").read_text(encoding="utf-8"))
    rows = [line for line in to_markdown(lab, verdicts, series).splitlines() if line.startswith("| ")]
    assert len(rows) > 5
    assert [row for row in rows if row not in page] == []


SHORT, LONG = [f"A cat sees dog {i}." for i in range(30)], [f"{'the old cat ' * 4}sees {i}." for i in range(25)]


def test_sources_are_grouped_by_their_words() -> None:
    buckets = make_buckets([*SHORT, *LONG, "one two three four five six"])
    assert buckets == {"1–5": list(range(30)), "11–15": list(range(30, 55))}
    assert [*make_buckets(["word " * 50] * FEWEST)] == ["41+"]
    refuses("19 sentences are too few: no group of like length has 20", make_buckets, ["one two"] * 19)


def test_every_group_is_scored_by_itself() -> None:
    sources = [*SHORT, *LONG]
    buckets = make_buckets(sources)
    forgetful = [*SHORT, *(text.replace("sees", "forgets") for text in LONG)]
    short, long = bleu_by_length(buckets, forgetful, sources)
    assert short == pytest.approx((100, 0))
    assert long[0] == pytest.approx(BLEU().corpus_score(forgetful[30:], [LONG]).score)
    assert bleu_by_length(buckets, forgetful, sources)[1] == long
    assert table(buckets, {"a": [short, long]}).splitlines()[1] == "1–5\t30\t100.0 ± 0.0"


@pytest.mark.slow
def test_the_command_draws_and_prints(run, bundle_folder: Path, tmp_path: Path) -> None:
    for side in ("en", "es"):
        (tmp_path / f"test.{side}").write_text("\n".join(SHORT) + "\n")
    arguments = ("lab", "lengths", "--model", bundle_folder, "--model", bundle_folder.parent)
    files = ("--input", tmp_path / "test.en", "--reference", tmp_path / "test.es", "--output", tmp_path / "x.png")
    status, out, _ = run(*arguments, *files, "--device", "cpu", "--beam", "1", command=(), application=app)
    assert status == 0
    assert out.splitlines()[0].startswith("words\tsentences\t")
    assert (tmp_path / "x.png").stat().st_size > 5000


NAMES = sorted(path.stem for path in (REPOSITORY / "conf" / "experiment" / "lab").glob("*.yaml"))
OTHER_WEIGHTS = ("shared_query_key", "swiglu", "no_biases", "modern", "lstm_attention", "lstm_no_attention")


@cache
def configured(name: str) -> Config:
    return compose([f"experiment=lab/{name}", "seed=1"])


def drawn(config: Config) -> dict[str, Tensor]:
    torch.manual_seed(config.seed)
    return dict(build_model(config.model, 300).state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_experiments_with_the_baselines_parameters_start_from_its_weights(name: str) -> None:
    weights, expected = drawn(configured(name)), drawn(configured("baseline"))
    is_same = all(name in weights and torch.equal(weights[name], weight) for name, weight in expected.items())
    assert is_same == (name not in OTHER_WEIGHTS)
