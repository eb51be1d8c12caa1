import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF

from seq2seq.evaluation.metrics import expected_utilities

SAMPLES = ["La bola es azul.", "La pelota es azul.", "¿Qué?", "La bola es azul.", "", "La bola está azul. 😀"]


def mean_chrf(candidates):
    metric = CHRF()
    scores = [[metric.sentence_score(candidate, [truth]).score for truth in candidates] for candidate in candidates]
    return list(np.mean(scores, axis=1))


def test_expected_utilities_are_means_of_sacrebleus_chrf():
    assert expected_utilities(SAMPLES) == pytest.approx(mean_chrf(SAMPLES), abs=1e-9)
    assert expected_utilities(["no sé"]) == [100.0]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=15), min_size=1, max_size=4))
def test_any_text_has_sacrebleus_chrf(candidates):
    assert expected_utilities(candidates) == pytest.approx(mean_chrf(candidates), abs=1e-9)
