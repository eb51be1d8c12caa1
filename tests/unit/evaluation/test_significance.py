import io
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from seq2seq.errors import UserError
from seq2seq.evaluation import significance
from seq2seq.evaluation.significance import Comparison, compare

WORDS = ("el", "gato", "negro", "bebe", "la", "leche", "fría", "de", "una", "bola", "azul", "y", "mira", "al", "perro")
COMMAND = (  # sacreBLEU 2.6 cannot write the float32 of its intervals as JSON
    "import functools, json; json.dumps = functools.partial(json.dumps, default=float); "
    "from sacrebleu.sacrebleu import main; main()"
)
NAMES = {"bleu": "BLEU", "chrf": "chrF2++", "ter": "TER"}  # sacreBLEU's in its JSON


def texts(seed: int, number: int = 60) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(4, 12))) + "." for _ in range(number)]


def worsened(lines: list[str], share: float, seed: int) -> list[str]:
    """Replace a share of the words by others."""
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) if draw.random() < share else word for word in line.split()) for line in lines]


REFERENCE = texts(1)
SYSTEMS = [("a", worsened(REFERENCE, 0.4, 2)), ("b", worsened(REFERENCE, 0.36, 3)), ("c", worsened(REFERENCE, 0.1, 4))]


def commands_scores(folder: Path, references: list[list[str]], *options: str) -> list[dict[str, Any]]:
    """What sacreBLEU's own command prints of SYSTEMS, by system."""
    for name, lines in (*SYSTEMS, *((f"ref{number}", lines) for number, lines in enumerate(references))):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = [str(folder / f"ref{number}") for number in range(len(references))]
    files += ["-i", *(str(folder / name) for name, _ in SYSTEMS)]
    metrics = ("--metrics", "bleu", "chrf", "ter", "--chrf-word-order", "2", "--format", "json")
    return json.loads(subprocess.check_output([sys.executable, "-c", COMMAND, *files, *metrics, *options]))


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(SYSTEMS, [REFERENCE], samples=100, trials=200)


def test_the_numbers_are_those_of_sacrebleus_command(comparison: Comparison, tmp_path: Path) -> None:
    bootstrap = commands_scores(tmp_path, [REFERENCE], "--paired-bs", "--paired-bs-n", "100")
    randomisation = commands_scores(tmp_path, [REFERENCE], "--paired-ar", "--paired-ar-n", "200")
    for metric, scores in comparison.metrics.items():
        for number, one in enumerate(scores.systems):
            by_bootstrap, by_randomisation = (of[number][NAMES[metric]] for of in (bootstrap, randomisation))
            assert (one.value, one.mean, one.interval) == tuple(by_bootstrap[key] for key in ("score", "mean", "ci"))
            assert one.bootstrap_p == by_bootstrap["p_value"]
            if metric == "ter":  # a whole number of edits, so some swaps give the same difference, and count here alone
                assert (one.randomisation_p or 1) >= (by_randomisation["p_value"] or 1)
            else:
                assert one.randomisation_p == by_randomisation["p_value"]


def test_several_references_score_as_by_sacrebleus_command(tmp_path: Path) -> None:
    references = [REFERENCE, worsened(REFERENCE, 0.3, 9)]
    found = compare(SYSTEMS, references, samples=10, trials=10)
    told = commands_scores(tmp_path, references, "--paired-bs", "--paired-bs-n", "10")
    for metric, scores in found.metrics.items():
        assert scores.signature.startswith("nrefs:2|")
        assert [one.value for one in scores.systems] == [of[NAMES[metric]]["score"] for of in told]
    assert found.num_references == 2


def test_a_clearly_better_system_has_small_p_values_and_an_equal_one_has_1() -> None:
    found = compare([SYSTEMS[0], SYSTEMS[2], SYSTEMS[0]], [REFERENCE], samples=300, trials=300)
    for scores in found.metrics.values():
        baseline, better, same = scores.systems
        assert (baseline.bootstrap_p, baseline.randomisation_p) == (None, None)
        assert (better.bootstrap_p, better.randomisation_p) == (pytest.approx(1 / 301), pytest.approx(1 / 301))
        assert (same.bootstrap_p, same.randomisation_p) == (1.0, 1.0)
        assert (same.value, same.interval) == (baseline.value, baseline.interval)


@pytest.mark.parametrize(("differing", "exact"), [(1, 1.0), (2, 0.5), (5, 1 / 16)])
def test_swaps_that_give_the_same_difference_count(differing: int, exact: float) -> None:
    """With d lines that are all better, only the swaps of all or none of them differ as much: p is 2 / 2^d."""
    better = [*REFERENCE[:differing], *SYSTEMS[0][1][differing:]]
    found = compare([SYSTEMS[0], ("better", better)], [REFERENCE], ["chrf"], samples=5, trials=2000)
    assert found.metrics["chrf"].systems[1].randomisation_p == pytest.approx(exact, abs=0.03)


def test_trials_are_drawn_as_if_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    systems = [("x", worsened(REFERENCE, 0.3, 5)), ("y", worsened(REFERENCE, 0.3, 6))]
    found = compare(systems, [REFERENCE], ["bleu"], 5, 500)
    monkeypatch.setattr(significance, "TRIALS_AT_ONCE", 32)
    assert compare(systems, [REFERENCE], ["bleu"], 5, 500) == found


def test_two_systems_of_the_same_quality_do_not_differ() -> None:
    found = compare([("x", worsened(REFERENCE, 0.3, 5)), ("y", worsened(REFERENCE, 0.3, 6))], [REFERENCE], ["bleu"])
    other = found.metrics["bleu"].systems[1]
    assert 0.05 < (other.bootstrap_p or 0) < 1
    assert 0.05 < (other.randomisation_p or 0) < 1


def test_signatures_name_seed_samples_and_trials(comparison: Comparison) -> None:
    for scores in comparison.metrics.values():
        assert {"bs:100", "ar:200", "seed:12345", "nrefs:1"} <= set(scores.signature.split("|"))


def test_chosen_metrics_alone_are_computed_and_keep_their_numbers(comparison: Comparison) -> None:
    found = compare(SYSTEMS, [REFERENCE], ["ter"], samples=100, trials=200)
    assert found.metrics == {"ter": comparison.metrics["ter"]}


def test_the_comparison_becomes_plain_values(comparison: Comparison) -> None:
    plain = json.loads(json.dumps(comparison.to_dict()))
    assert (plain["baseline"], plain["systems"], plain["num_sentences"]) == ("a", ["a", "b", "c"], 60)
    assert plain["metrics"]["bleu"]["systems"][0]["bootstrap_p"] is None


def shown(comparison: Comparison) -> str:
    console = Console(width=120, file=io.StringIO())
    with console.capture() as capture:
        console.print(comparison.table("everyday"))
    return capture.get()


def test_the_table_names_the_baseline_and_marks_small_p_values(comparison: Comparison) -> None:
    table = shown(comparison)
    assert "everyday: 60 sentences; baseline: a" in table
    (best,) = [line for line in table.splitlines() if line.startswith("│") and " c " in line and "+" in line][:1]
    assert best.count("*") == 2
    assert all(scores.signature in table for scores in comparison.metrics.values())


def test_one_system_alone_has_an_interval_and_no_p_values() -> None:
    found = compare(SYSTEMS[:1], [REFERENCE], ["bleu"], samples=50)
    assert "baseline" not in shown(found)
    assert "95 % interval" in shown(found)


def test_unequal_numbers_of_lines_are_refused() -> None:
    with pytest.raises(UserError, match="the reference is longer than the translations: 60 lines against 59"):
        compare([SYSTEMS[0], ("b", SYSTEMS[1][1][:-1])], [REFERENCE])


@pytest.mark.parametrize("seed", ["abc", "-1", "0", "1.5", ""])
def test_a_seed_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    with pytest.raises(
        UserError, match=f"variable SACREBLEU_SEED is '{seed}', which is no seed: set it to a whole num"
    ):
        compare(SYSTEMS, [REFERENCE], ["bleu"], 5, 5)


def test_the_seed_can_be_set_or_left_to_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in ("7", "None"):
        monkeypatch.setenv("SACREBLEU_SEED", seed)
        assert f"seed:{seed.lower()}" in compare(SYSTEMS, [REFERENCE], ["bleu"], 5, 5).metrics["bleu"].signature


@pytest.mark.parametrize("samples", [10**15, 10**30])
def test_more_samples_than_memory_holds_are_refused(samples: int) -> None:
    message = f"{samples:,} samples of 60 lines do not fit into memory: give `seq2seq evaluate` fewer"
    with pytest.raises(UserError, match=message):
        compare(SYSTEMS, [REFERENCE], ["bleu"], samples, 5)
