from typing import Any

import pytest

from seq2seq.apps.explain.steps import beam_steps
from seq2seq.errors import UserError
from seq2seq.settings.search import SearchConfig
from tests.thin import thin

TEXTS = ["The cat sees a blue ball.", "Ella ve.", "A dog has the milk!"]


CHANGES = [{}, {"beam": 1}, {"length_penalty": 0.4, "beam": 4}, {"early_stopping": True}]


def candidates_of(beams: dict[str, Any]) -> list[dict[str, Any]]:
    return [candidate for step in beams["steps"] for candidate in step["candidates"]]


@pytest.mark.slow
@pytest.mark.parametrize("changes", thin(CHANGES, [{}]))
def test_the_recorded_search_finds_the_same_translation_at_the_same_score(translator, changes):
    for text in TEXTS:
        beams = beam_steps(translator, text, translator.request(**changes).settings)
        (best,) = translator.translate_nbest([text], 1, **changes)[0]
        winner = beams["result"][0]
        assert winner["text"] == best.text
        assert winner["normalised_score"] == pytest.approx(best.normalised_score, abs=1e-5)
        (last,) = (candidate for candidate in candidates_of(beams) if candidate["id"] == winner["id"])
        assert last["score"] == pytest.approx(best.score, abs=1e-5)


def test_every_candidate_continues_a_kept_hypothesis(translator):
    kept = {None: ("", 0.0)}
    for step in beam_steps(translator, TEXTS[0])["steps"]:
        continued, kept_before, kept = step["candidates"], kept, {}
        for candidate in continued:
            before, score = kept_before[candidate["parent"]]
            assert candidate["score"] == pytest.approx(score + candidate["log_prob"], abs=1e-5)
            assert candidate["text"].startswith(before) or candidate["piece"].startswith("<0x")
            if candidate["fate"] == "kept":
                kept[candidate["id"]] = candidate["text"], candidate["score"]
    assert not kept


def test_a_step_holds_twice_the_beam_best_first_and_keeps_at_most_the_beam(translator):
    beams = beam_steps(translator, TEXTS[0])
    for step in beams["steps"]:
        scores = [candidate["score"] for candidate in step["candidates"]]
        assert scores == sorted(scores, reverse=True)
        must_end = {candidate["piece"] for candidate in step["candidates"]} == {"</s>"}  # at the longest length allowed
        assert len(scores) == 2 * beams["beam"] or must_end
        assert sum(candidate["fate"] == "kept" for candidate in step["candidates"]) <= beams["beam"]
    candidates = candidates_of(beams)
    assert [candidate["id"] for candidate in candidates] == list(range(1, len(candidates) + 1))
    assert {candidate["fate"] for candidate in candidates} == {"kept", "dropped", "finished"}


def test_finished_hypotheses_end_with_eos_and_are_listed_best_first(translator):
    beams = beam_steps(translator, TEXTS[0])
    finished = [candidate for candidate in candidates_of(beams) if candidate["fate"] == "finished"]
    assert {candidate["piece"] for candidate in finished} == {"</s>"}
    assert {result["id"] for result in beams["result"]} == {candidate["id"] for candidate in finished}
    values = [result["normalised_score"] for result in beams["result"]]
    assert values == sorted(values, reverse=True)


def test_eos_ranked_below_the_beam_finishes_no_hypothesis(golden):
    beams = beam_steps(golden, TEXTS[0])
    ranked = [pair for step in beams["steps"] for pair in enumerate(step["candidates"])]
    ends = [(rank < beams["beam"], one["fate"] == "finished") for rank, one in ranked if one["piece"] == "</s>"]
    assert set(ends) == {(True, True), (False, False)}


def test_only_a_plain_beam_search_has_steps(golden):
    for settings in (SearchConfig(sampling=True), SearchConfig(mbr=3)):
        with pytest.raises(UserError, match="only a plain beam search has steps to show: no sampling or mbr"):
            beam_steps(golden, TEXTS[0], settings)


def test_an_empty_sentence_has_no_search(golden):
    with pytest.raises(UserError, match="the sentence is empty"):
        beam_steps(golden, " ")
