import json
import random
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from seq2seq.cli.shared import show_parts
from seq2seq.evaluation import significance
from seq2seq.evaluation.significance import Comparison, compare
from tests.refusing import refuses

WORDS = ("el", "gato", "negro", "bebe", "la", "leche", "fría", "de", "una", "bola", "azul", "y", "mira", "al", "perro")
draw = random.Random(1)
REFERENCE = [" ".join(draw.choices(WORDS, k=draw.randint(4, 12))) + "." for _ in range(60)]


def worsened(lines: list[str], share: float, seed: int) -> list[str]:
    """Replace a share of the words by others."""
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) if draw.random() < share else word for word in line.split()) for line in lines]


SYSTEMS = [("a", worsened(REFERENCE, 0.4, 2)), ("b", worsened(REFERENCE, 0.36, 3)), ("c", worsened(REFERENCE, 0.1, 4))]
EQUALS = [("x", worsened(REFERENCE, 0.3, 5)), ("y", worsened(REFERENCE, 0.3, 6))]


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(SYSTEMS, [REFERENCE], samples=100, trials=200)


def sacrebleus(references: list[list[str]], test: str, number: int) -> dict[str, list[Any]]:
    """Return what sacreBLEU's own paired test says of SYSTEMS, by our names of the metrics."""
    metrics = {"bleu": BLEU(), "chrf": CHRF(word_order=2), "ter": TER()}
    signatures, results = PairedTest([*SYSTEMS], metrics, references, test, number)()
    return dict(zip(metrics, (results[name] for name in signatures), strict=True))


def test_the_numbers_are_those_of_sacrebleu(comparison: Comparison) -> None:
    bootstrap, randomisation = sacrebleus([REFERENCE], "bs", 100), sacrebleus([REFERENCE], "ar", 200)
    for name, scores in comparison.metrics.items():
        for system, by_bootstrap, by_trials in zip(scores.systems, bootstrap[name], randomisation[name], strict=True):
            expected = (by_bootstrap.score, by_bootstrap.mean, by_bootstrap.ci, by_bootstrap.p_value)
            assert (system.value, system.mean, system.interval, system.bootstrap_p) == expected
            if name == "ter":  # edits are whole numbers: sacreBLEU does not count swaps that give the same difference
                assert (system.randomisation_p or 1) >= (by_trials.p_value or 1)
            else:
                assert system.randomisation_p == by_trials.p_value
        assert {"bs:100", "ar:200", "seed:12345", "nrefs:1"} <= set(scores.signature.split("|"))


def test_a_clearly_better_system_has_small_p_values_and_an_equal_one_has_1() -> None:
    comparison = compare([SYSTEMS[0], SYSTEMS[2], SYSTEMS[0]], [REFERENCE], samples=100, trials=100)
    for scores in comparison.metrics.values():
        baseline, better, same = scores.systems
        assert (baseline.bootstrap_p, baseline.randomisation_p) == (None, None)
        assert (better.bootstrap_p, better.randomisation_p) == (pytest.approx(1 / 101), pytest.approx(1 / 101))
        assert (same.bootstrap_p, same.randomisation_p) == (1.0, 1.0)
        assert (same.value, same.interval) == (baseline.value, baseline.interval)


@pytest.mark.parametrize(("differing", "exact"), [(1, 1.0), (2, 0.5), (5, 1 / 16)])
def test_swaps_that_give_the_same_difference_count(differing: int, exact: float) -> None:
    """With d lines that are all better, only the swaps of all or none of them differ as much: p is 2 / 2^d."""
    better = [*REFERENCE[:differing], *SYSTEMS[0][1][differing:]]
    comparison = compare([SYSTEMS[0], ("better", better)], [REFERENCE], ["chrf"], samples=5, trials=1000)
    assert comparison.metrics["chrf"].systems[1].randomisation_p == pytest.approx(exact, abs=0.03)


def test_systems_of_the_same_quality_do_not_differ_however_the_trials_are_divided(monkeypatch):
    comparison = compare(EQUALS, [REFERENCE], ["bleu"], 200, 500)
    other = comparison.metrics["bleu"].systems[1]
    assert 0.05 < (other.bootstrap_p or 0) < 1
    assert 0.05 < (other.randomisation_p or 0) < 1
    monkeypatch.setattr(significance, "TRIALS_AT_ONCE", 32)
    assert compare(EQUALS, [REFERENCE], ["bleu"], 200, 500) == comparison


def test_chosen_metrics_alone_are_computed_and_become_plain_values(comparison: Comparison) -> None:
    chosen = compare(SYSTEMS, [REFERENCE], ["ter"], samples=100, trials=200)
    assert chosen.metrics == {"ter": comparison.metrics["ter"]}
    plain = json.loads(json.dumps(chosen.to_dict()))
    assert (plain["baseline"], plain["systems"], plain["num_sentences"]) == ("a", ["a", "b", "c"], 60)
    assert plain["metrics"]["ter"]["systems"][0]["bootstrap_p"] is None


def test_the_table_names_the_baseline_and_marks_small_p_values(
    comparison: Comparison, capsys: pytest.CaptureFixture[str]
) -> None:
    show_parts(comparison.report(), width=80)
    table = capsys.readouterr().out
    assert "60 sentences; baseline: a" in table
    best = next(line for line in table.splitlines() if line.startswith("│") and " c " in line and "+" in line)
    assert best.count("*") == 2
    assert all(scores.signature in table for scores in comparison.metrics.values())
    show_parts(compare(SYSTEMS[:1], [REFERENCE], ["bleu"], samples=50).report())
    alone = capsys.readouterr().out
    assert "baseline" not in alone
    assert "95 % interval" in alone


@pytest.mark.parametrize("seed", ["abc", "0", "1.5", ""])
def test_a_seed_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    message = f"variable SACREBLEU_SEED is '{seed}', which is no seed: set it to a whole num"
    refuses(message, compare, SYSTEMS, [REFERENCE], ["bleu"], 5, 5)


@pytest.mark.parametrize("seed", ["7", "None"])
def test_the_seed_can_be_set_or_left_to_chance(monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    assert f"seed:{seed.lower()}" in compare(SYSTEMS, [REFERENCE], ["bleu"], 5, 5).metrics["bleu"].signature


@pytest.mark.parametrize("samples", [10**15, 10**30])
def test_more_samples_than_memory_holds_are_refused(samples: int) -> None:
    message = f"{samples:,} samples of 60 lines do not fit into memory: give `seq2seq evaluate` fewer"
    refuses(message, compare, SYSTEMS, [REFERENCE], ["bleu"], samples, 5)
