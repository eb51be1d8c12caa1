"""Why this word and not another one: log-probabilities in place, the effect of hidden words, and what is refused."""

import math

import pytest

from seq2seq.apps.explain.explanation import make_subject
from seq2seq.apps.explain.interventions import Interventions, changed, contrast
from seq2seq.translate.translator import Translator
from tests.refusing import refuses

SOURCE, TARGET = "The cat sees the milk.", "El gato ve la leche."


def log_prob(translator: Translator, text: str, words: int, before: int) -> float:
    """Return the log-probability of a text's words after those before them."""
    (scored,) = translator.score([SOURCE], [text])
    starts = [i for i, token in enumerate(scored.tokens) if token.startswith("▁")]
    starts.append(len(scored.tokens) - 1)
    return math.fsum(scored.log_probs[starts[before] : starts[before + words]])


def test_both_words_have_their_log_probability_after_the_words_before(golden: Translator) -> None:
    found = contrast(golden, make_subject(golden, SOURCE, TARGET), 2, "come")
    assert (found.word, found.texts) == (2, ("ve", "come"))
    expected = [log_prob(golden, f"El gato {word} la", 1, 2) for word in ("ve", "come")]
    assert found.log_probs == pytest.approx(expected, abs=1e-4)


def test_evidence_is_what_a_hidden_word_takes_away(golden: Translator) -> None:
    subject = make_subject(golden, SOURCE, TARGET)
    found = contrast(golden, subject, 1, "perro")
    assert len(found.evidence) == len(SOURCE.split())
    cat = found.evidence[1]
    hidden = changed(golden, Interventions(["source.2"]), SOURCE)
    without = [log_prob(hidden, f"El {word} ve", 1, 1) for word in ("gato", "perro")]
    assert cat.drops == pytest.approx([a - b for a, b in zip(found.log_probs, without, strict=True)], abs=1e-4)
    for rank in range(2):
        assert 0.5 < sum(one.looks[rank] for one in found.evidence) < 1  # the rest is the end mark's


def test_what_is_no_word_is_refused(golden: Translator) -> None:
    subject = make_subject(golden, SOURCE, TARGET)
    refuses("word=5: the translation has words 0 to 4", contrast, golden, subject, 5, "come")
    refuses("'un gato' is not one word: give a single one", contrast, golden, subject, 1, "un gato")
    refuses("the other word is empty: give one with words", contrast, golden, subject, 1, " ")
