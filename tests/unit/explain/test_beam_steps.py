import pytest

from seq2seq.errors import UserError
from seq2seq.explain.steps import beam_steps
from seq2seq.settings.search import SearchConfig
from seq2seq.translator import Translator
from tests.thin import thin

TEXTS = ["The cat sees a blue ball.", "Ella ve.", "A dog has the milk!"]


@pytest.fixture(scope="module", params=["golden", "untrained"])
def translator(request) -> Translator:
    return request.getfixturevalue(request.param)


CHANGES = [{}, {"beam": 1}, {"length_penalty": 0.4, "beam": 4}, {"early_stopping": True}]


@pytest.mark.parametrize("changes", thin(CHANGES, [{}]))
def test_the_watched_search_finds_the_same_translation_at_the_same_score(translator, changes):
    for text in TEXTS:
        found = beam_steps(translator, text, translator.request(**changes).settings)
        (best,) = translator.translate_nbest([text], 1, **changes)[0]
        winner = found["result"][0]
        assert winner["text"] == best.text
        assert winner["normalised_score"] == pytest.approx(best.normalised_score, abs=1e-5)
        (last,) = (one for step in found["steps"] for one in step["candidates"] if one["id"] == winner["id"])
        assert last["score"] == pytest.approx(best.score, abs=1e-5)


def test_every_candidate_continues_a_kept_hypothesis(translator):
    found = beam_steps(translator, TEXTS[0])
    kept = {None: ("", 0.0)}
    for step in found["steps"]:
        continued = {one["parent"] for one in step["candidates"]}
        assert continued <= kept.keys()
        for one in step["candidates"]:
            before, score = kept[one["parent"]]
            assert one["score"] == pytest.approx(score + one["log_prob"], abs=1e-5)
            assert one["text"].startswith(before) or one["piece"].startswith("<0x")
        kept = {one["id"]: (one["text"], one["score"]) for one in step["candidates"] if one["fate"] == "kept"}
    assert not kept


def test_a_step_holds_twice_the_beam_best_first_and_keeps_at_most_the_beam(translator):
    found = beam_steps(translator, TEXTS[0])
    for step in found["steps"]:
        scores = [one["score"] for one in step["candidates"]]
        assert scores == sorted(scores, reverse=True)
        must_end = {one["piece"] for one in step["candidates"]} == {"</s>"}  # at the longest length allowed
        assert len(scores) == 2 * found["beam"] or must_end
        assert sum(one["fate"] == "kept" for one in step["candidates"]) <= found["beam"]
    ids = [one["id"] for step in found["steps"] for one in step["candidates"]]
    assert ids == list(range(1, len(ids) + 1))
    fates = {one["fate"] for step in found["steps"] for one in step["candidates"]}
    assert fates == {"kept", "dropped", "finished"}


def test_finished_hypotheses_end_with_eos_and_are_listed_best_first(translator):
    found = beam_steps(translator, TEXTS[0])
    finished = {one["id"]: one for step in found["steps"] for one in step["candidates"] if one["fate"] == "finished"}
    assert {one["piece"] for one in finished.values()} == {"</s>"}
    assert {one["id"] for one in found["result"]} == finished.keys()
    values = [one["normalised_score"] for one in found["result"]]
    assert values == sorted(values, reverse=True)


def test_eos_ranked_below_the_beam_finishes_no_hypothesis(golden):
    found = beam_steps(golden, TEXTS[0])
    ends = [
        (number, one["fate"])
        for step in found["steps"]
        for number, one in enumerate(step["candidates"])
        if one["piece"] == "</s>"
    ]
    assert {number < found["beam"] for number, _ in ends} == {True, False}
    assert all((fate == "finished") == (number < found["beam"]) for number, fate in ends)


def test_only_a_plain_beam_search_has_steps(golden):
    for settings in (SearchConfig(sampling=True), SearchConfig(groups=5), SearchConfig(mbr=3)):
        with pytest.raises(UserError, match="only a plain beam search has steps to show: no sampling, groups or mbr"):
            beam_steps(golden, TEXTS[0], settings)


def test_an_empty_sentence_has_no_search(golden):
    with pytest.raises(UserError, match="the sentence is empty"):
        beam_steps(golden, " ")
