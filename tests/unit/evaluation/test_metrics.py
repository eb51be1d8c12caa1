import json

import numpy as np
import pytest
import sacrebleu
from hypothesis import example, given
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF

from seq2seq.cli.shared import show_parts
from seq2seq.evaluation.metrics import bleu, expected_utilities, score
from seq2seq.evaluation.significance import compare
from tests.refusing import refuses

HYPOTHESES = ["La bola es azul.", "El gato negro bebió la leche.", "no sé"]
REFERENCES = ["La pelota es azul.", "El gato negro bebió la leche.", "No lo sé."]


def test_scores_are_sacrebleus_own_with_signatures_that_name_settings_and_version():
    scores = score(HYPOTHESES, REFERENCES)
    assert scores.bleu.value == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score == bleu(HYPOTHESES, REFERENCES)
    assert scores.chrf.value == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES], word_order=2).score
    assert scores.ter.value == sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score
    assert scores.num_sentences == 3
    for metric, setting in ((scores.bleu, "tok:13a"), (scores.chrf, "nw:2"), (scores.ter, "tok:tercom")):
        assert {setting, f"version:{sacrebleu.__version__}"} <= set(metric.signature.split("|"))
    ter = {"value": scores.ter.value, "signature": scores.ter.signature}
    assert json.loads(json.dumps(scores.to_dict()))["ter"] == ter


@pytest.mark.parametrize(("language", "split"), [("es", "13a"), ("", "13a"), ("zh_TW", "zh"), ("ja", "char")])
def test_bleu_splits_lines_as_their_language_needs(language: str, split: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By 13a, a Chinese line is one word, and BLEU is 0."""
    monkeypatch.setattr("seq2seq.evaluation.metrics.find_spec", lambda name: None)  # without sacreBLEU's extras
    lines, references = ["我喜欢我的猫"], ["我喜欢我的狗"]
    scores = score(lines, references, language=language)
    compared = compare([("a", lines)], [references], ["bleu"], samples=2, language=language)
    assert all(f"tok:{split}|" in text for text in (scores.bleu.signature, compared.metrics["bleu"].signature))
    assert bleu(lines, references, language) == scores.bleu.value
    assert (scores.bleu.value > 50) == (split != "13a")


def test_whole_signatures_are_lines_of_their_own_below_the_table(capsys):
    scores = score(HYPOTHESES, REFERENCES)
    show_parts(scores.report(), width=30)
    signatures = [one.signature for one in (scores.bleu, scores.chrf, scores.ter)]
    assert capsys.readouterr().out.splitlines()[-3:] == signatures


def test_unequal_numbers_of_lines_are_refused_with_both_counts():
    for call in (score, bleu, lambda lines, reference: compare([("a", lines)], [reference])):
        refuses("the reference is shorter than the translations: 1 lines against 2", call, ["a", "b"], ["a"])
    refuses("nothing to score: 0 translations and 0 reference lines", score, [], [])


def mean_chrf(candidates):
    metric = CHRF()
    scores = [[metric.sentence_score(candidate, [truth]).score for truth in candidates] for candidate in candidates]
    return list(np.mean(scores, axis=1))


@example(["La bola es azul.", "La pelota es azul.", "¿Qué?", "La bola es azul.", "", "La bola está azul. 😀"])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=15), min_size=1, max_size=4))
def test_expected_utilities_are_means_of_sacrebleus_chrf(candidates):
    assert expected_utilities(candidates) == pytest.approx(mean_chrf(candidates), abs=1e-9)
