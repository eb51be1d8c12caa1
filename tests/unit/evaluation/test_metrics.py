import io
import json

import pytest
import sacrebleu
from rich.console import Console

from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import bleu, score

HYPOTHESES = ["La bola es azul.", "El gato negro bebió la leche.", "no sé"]
REFERENCES = ["La pelota es azul.", "El gato negro bebió la leche.", "No lo sé."]


def test_scores_are_sacrebleus_own():
    scores = score(HYPOTHESES, REFERENCES)
    assert scores.bleu.value == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores.chrf.value == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES], word_order=2).score
    assert scores.ter.value == sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score
    assert scores.num_sentences == 3
    assert bleu(HYPOTHESES, REFERENCES) == scores.bleu.value


def test_signatures_name_the_metric_settings_and_the_version():
    scores = score(HYPOTHESES, REFERENCES)
    for one, setting in ((scores.bleu, "tok:13a"), (scores.chrf, "nw:2"), (scores.ter, "tok:tercom")):
        assert setting in one.signature
        assert f"version:{sacrebleu.__version__}" in one.signature


def test_a_perfect_translation_scores_a_hundred_and_needs_no_edit():
    scores = score(REFERENCES, REFERENCES)
    assert (scores.bleu.value, scores.chrf.value, scores.ter.value) == (pytest.approx(100), pytest.approx(100), 0)


def test_scores_become_plain_values():
    scores = score(HYPOTHESES, REFERENCES)
    assert json.loads(json.dumps(scores.to_dict()))["ter"] == {
        "value": scores.ter.value,
        "signature": scores.ter.signature,
    }


def test_the_table_shows_whole_signatures_on_a_narrow_terminal():
    console = Console(width=60, file=io.StringIO())
    scores = score(HYPOTHESES, REFERENCES)
    with console.capture() as capture:
        console.print(scores.table())
    shown = "".join(line.split("│")[-2].strip() for line in capture.get().splitlines() if line.startswith("│"))
    assert shown == scores.bleu.signature + scores.chrf.signature + scores.ter.signature


@pytest.mark.parametrize(
    ("references", "message"),
    [
        (["a"], "the reference is shorter than the translations: 1 lines against 2"),
        (["a", "b", "c"], "the reference is longer than the translations: 3 lines against 2"),
    ],
)
def test_unequal_numbers_of_lines_are_refused_with_both_counts(references, message):
    for function in (score, bleu):
        with pytest.raises(UserError, match=message):
            function(["a", "b"], references)


def test_nothing_cannot_be_scored():
    with pytest.raises(UserError, match="nothing to score: 0 translations and 0 reference lines"):
        score([], [])
