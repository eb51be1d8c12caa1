import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF

from seq2seq.evaluation.mbr import minimum_bayes_risk

SAMPLES = [
    "La bola es azul.",
    "La pelota es azul.",
    "La bola azul",
    "¿Qué?",
    "La bola es azul.",
    "",
    "La bola está azul. 😀",
]
WEIGHTS = [0.3, 0.25, 2.0, 0.0, 0.01, 0.1, 0.5]


def obvious_utilities(candidates, weights):
    metric, utilities = CHRF(), []
    for candidate in candidates:
        utility = 0.0
        for truth, weight in zip(candidates, weights, strict=True):
            utility += weight * metric.sentence_score(candidate, [truth]).score
        utilities.append(utility / sum(weights))
    return utilities


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_expected_utilities_are_weighted_means_of_sacrebleus_chrf(weights):
    index, utilities = minimum_bayes_risk(SAMPLES, weights)
    assert utilities == pytest.approx(obvious_utilities(SAMPLES, weights or [1.0] * len(SAMPLES)), abs=1e-9)
    assert utilities[index] == max(utilities)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), min_size=1, max_size=5))
def test_any_text_has_sacrebleus_chrf(candidates):
    assert minimum_bayes_risk(candidates)[1] == pytest.approx(
        obvious_utilities(candidates, [1.0] * len(candidates)), abs=1e-9
    )


def test_what_most_candidates_resemble_wins_over_an_outlier():
    index, utilities = minimum_bayes_risk(["Buenas noches", "Buenos días", "Buenos días, señor"])
    assert index == 2  # chrF counts recall twice, so the longer of two likely ones
    assert min(utilities) == utilities[0]


def test_weights_decide_which_candidates_count():
    candidates = ["Buenas noches", "Buenos días", "Buenos días, señor"]
    assert minimum_bayes_risk(candidates)[0] == 2
    assert minimum_bayes_risk(candidates, [0.98, 0.01, 0.01])[0] == 0
    assert minimum_bayes_risk(candidates, [98.0, 1.0, 1.0])[1] == pytest.approx(
        minimum_bayes_risk(candidates, [0.98, 0.01, 0.01])[1]
    )


def test_the_first_of_equally_good_candidates_is_chosen():
    assert minimum_bayes_risk(["no", "sí", "sí", "no"])[0] == 0


def test_a_lone_candidate_is_chosen():
    assert minimum_bayes_risk(["no sé"]) == (0, [100.0])


@pytest.mark.parametrize(
    ("candidates", "weights"),
    [
        ([], None),
        (["a"], [0.5, 0.5]),
        (["a", "b"], [1.0, -0.5]),
        (["a", "b"], [0.0, 0.0]),
        (["a", "b"], [1.0, float("nan")]),
    ],
)
def test_candidates_without_sensible_weights_are_refused(candidates, weights):
    with pytest.raises(ValueError, match=f"{len(candidates)} candidates with weights .*: needs one each"):
        minimum_bayes_risk(candidates, weights)
