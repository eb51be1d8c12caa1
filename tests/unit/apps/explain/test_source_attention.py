"""What a model attends to in given translations, by hand-written attention and by a trained model."""

import copy
import dataclasses
from types import SimpleNamespace

import pytest

from seq2seq.apps.explain import analysis
from seq2seq.apps.explain.analysis import find_focus
from seq2seq.search.types import TokenScores
from seq2seq.translate.translator import Translator
from tests.refusing import refuses


def test_ignored_tokens_and_entropy_follow_from_attention() -> None:
    end = [0.0, 0.0, 1.0]  # of the target's </s>, which does not count
    scores = TokenScores([0.0] * 3, [[0.9, 0.1, 0.0], [0.5, 0.0, 0.5], end])
    measures = analysis._measure(scores, 2)
    assert measures.ignored == 0.5  # the second of two gets 0.1 in all
    assert measures.entropy == pytest.approx((0.3251 + 0.6931) / 2, abs=1e-4)


def test_every_line_has_its_own_focus(golden: Translator) -> None:
    sources = ["The cat sees the milk.", "", "A dog.", "The ball is blue and the dog is big."]
    hypotheses = ["El gato ve la leche.", "Nada.", "Un perro.", "La bola es azul y el perro es grande."]
    together = find_focus(golden, sources, hypotheses)
    alone = [
        find_focus(golden, [source], [hypothesis])[0] for source, hypothesis in zip(sources, hypotheses, strict=True)
    ]
    assert together[1] is alone[1] is None
    for in_batch, by_itself in zip(together, alone, strict=True):
        if in_batch is None or by_itself is None:
            assert in_batch is by_itself
        else:
            assert dataclasses.astuple(in_batch) == pytest.approx(dataclasses.astuple(by_itself), abs=1e-5)


def test_a_pair_that_is_too_long_is_not_read(golden: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "MAX_TOKENS", 12)
    measures = find_focus(golden, ["A dog.", "A dog. " * 9], ["Un perro."] * 2)
    assert [pair is None for pair in measures] == [False, True]


def test_an_engine_without_attention_is_refused(golden: Translator) -> None:
    translator = copy.copy(golden)
    translator.engine = SimpleNamespace()  # pyright: ignore[reportAttributeAccessIssue]
    refuses("this model shows no attention to the source", find_focus, translator, ["a"], ["b"])
