import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF

from seq2seq.evaluation.mbr import minimum_bayes_risk

SAMPLES = ["La bola es azul.", "La pelota es azul.", "¿Qué?", "La bola es azul.", "", "La bola está azul. 😀"]
WEIGHTS = [0.3, 0.25, 2.0, 0.0, 0.01, 0.1]


def expected_utilities(candidates, weights=None):
    metric, weights = CHRF(), np.array(weights or [1.0] * len(candidates))
    scores = [[metric.sentence_score(candidate, [truth]).score for truth in candidates] for candidate in candidates]
    return list(scores @ weights / weights.sum())


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_expected_utilities_are_weighted_means_of_sacrebleus_chrf(weights):
    index, utilities = minimum_bayes_risk(SAMPLES, weights)
    assert utilities == pytest.approx(expected_utilities(SAMPLES, weights), abs=1e-9)
    assert utilities[index] == max(utilities)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=15), min_size=1, max_size=4))
def test_any_text_has_sacrebleus_chrf(candidates):
    assert minimum_bayes_risk(candidates)[1] == pytest.approx(expected_utilities(candidates), abs=1e-9)


def test_the_first_of_equally_good_candidates_is_chosen():
    assert minimum_bayes_risk(["no", "sí", "sí", "no"])[0] == 0
    assert minimum_bayes_risk(["no sé"]) == (0, [100.0])


BAD_WEIGHTS = [([], None), ("a", [0.5, 0.5]), ("ab", [1.0, -0.5]), ("ab", [0.0, 0.0]), ("ab", [1.0, float("inf")])]


@pytest.mark.parametrize(("candidates", "weights"), BAD_WEIGHTS)
def test_candidates_without_sensible_weights_are_refused(candidates, weights):
    with pytest.raises(ValueError, match=f"{len(candidates)} candidates with weights .*: needs one each"):
        minimum_bayes_risk(list(candidates), weights)
