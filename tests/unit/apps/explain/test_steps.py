import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from seq2seq.apps.explain.explanation import PARTS, explain, make_subject
from seq2seq.apps.explain.steps import beam_steps, head_steps
from seq2seq.settings.search import SearchConfig
from seq2seq.translate.translator import Translator
from tests.refusing import refuses
from tests.thin import thin

TEXT, TARGET = "The cat sees a blue ball.", "El gato ve una bola."


def plain_steps(translator: Translator, **head: Any) -> dict[str, Any]:
    """Return the JSON values of one head's steps."""
    return head_steps(translator, make_subject(translator, TEXT, TARGET), **head).to_plain()


def table(numbers) -> Tensor:
    return torch.tensor([[-math.inf if number is None else number for number in row] for row in numbers])


@pytest.mark.parametrize("part", PARTS)
def test_each_plain_number_follows_from_the_ones_before(translator, part):
    plain = json.loads(json.dumps(plain_steps(translator, part=part, layer=0, head=1)))
    queries, keys, values = (table(plain[name]) for name in ("queries", "keys", "values"))
    scores = queries @ keys.T
    scaled = (scores / math.sqrt(plain["channels"])).masked_fill(~torch.tensor(plain["mask"]), -math.inf)
    weights = scaled.softmax(-1)
    for name, expected in (("scores", scores), ("scaled", scaled), ("weights", weights), ("mixture", weights @ values)):
        assert_close(table(plain[name]), expected, atol=1e-5, rtol=1e-5)
    assert len(plain["rows"]) == len(plain["mask"]) == queries.shape[0]
    assert len(plain["columns"]) == len(plain["mask"][0]) == keys.shape[0]


@pytest.mark.parametrize("part", PARTS)
def test_joined_and_projected_heads_are_the_attentions_output(translator, part):
    subject = make_subject(translator, TEXT, TARGET)
    model = translator.engine.model
    heads = [head_steps(translator, subject, part, 0, head) for head in range(model.config.num_heads)]
    layer = (model.encoder_layers if part == "encoder" else model.decoder_layers)[0]
    attention = layer.cross_attention if part == "cross" else layer.self_attention
    joined = torch.cat([head.weights @ head.values for head in heads], 1)
    assert_close(heads[0].joined, joined, atol=1e-5, rtol=1e-5)
    assert_close(heads[0].output, attention.out_proj(joined), atol=1e-5, rtol=1e-5)
    assert_close(heads[0].weights, explain(translator, TEXT, TARGET).attention[part][0][0], atol=1e-6, rtol=1e-5)
    assert not torch.allclose(heads[0].queries, heads[1].queries)


def test_positions_are_added_to_embeddings_or_rotate_the_queries(untrained, golden):
    steps = head_steps(untrained, make_subject(untrained, TEXT, TARGET), "encoder", 0, 0)
    assert steps.position is not None
    assert_close(steps.input, steps.embedding + steps.position)
    steps = head_steps(golden, make_subject(golden, TEXT, TARGET), "encoder", 0, 0)
    assert (steps.position, steps.to_plain()["position"]) == (None, None)
    unturned = golden.engine.model.encoder_layers[0].self_attention.queries(steps.input[None])[0, 0]
    assert_close(steps.queries[0], unturned[0])
    assert not torch.allclose(steps.queries[3], unturned[3])


def test_masked_scores_of_the_decoder_are_null(translator):
    plain = plain_steps(translator, part="decoder", layer=0, head=0)
    for i, (allowed, scaled, weights) in enumerate(zip(plain["mask"], plain["scaled"], plain["weights"], strict=True)):
        assert allowed == [j <= i for j in range(len(allowed))]
        assert [score is None for score in scaled] == [not may_attend for may_attend in allowed]
        assert all(weight == 0 for weight in weights[i + 1 :])
    assert plain["rows"] == plain["columns"] == explain(translator, TEXT, TARGET).to_plain()["pieces"]["target_in"]


def test_wide_tables_show_eight_channels_and_name_their_width(translator):
    plain = plain_steps(translator, part="encoder", layer=0, head=0)
    assert plain["d_model"] == 24
    for name in ("embedding", "input", "joined", "output"):
        assert {len(row) for row in plain[name]} == {8}
    assert {len(row) for row in plain["queries"]} == {plain["channels"]}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"part": "encodr"}, "part='encodr' is not known: choose from encoder, decoder, cross"),
        ({"layer": 1}, "cross, layer=1, head=0: this model has layers 0 to 0 there"),
        ({"head": -1}, "cross, layer=0, head=-1: this model has heads 0 to 3"),
    ],
)
def test_an_unknown_part_layer_or_head_is_refused(golden, wrong, message):
    refuses(message, plain_steps, golden, **{"part": "cross", "layer": 0, "head": 0, **wrong})


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
    finished = [candidate for candidate in candidates if candidate["fate"] == "finished"]
    assert {candidate["piece"] for candidate in finished} == {"</s>"}
    assert {result["id"] for result in beams["result"]} == {candidate["id"] for candidate in finished}
    values = [result["normalised_score"] for result in beams["result"]]
    assert values == sorted(values, reverse=True)


def test_eos_ranked_below_the_beam_finishes_no_hypothesis(golden):
    beams = beam_steps(golden, TEXTS[0])
    ranked = [pair for step in beams["steps"] for pair in enumerate(step["candidates"])]
    ends = [(rank < beams["beam"], one["fate"] == "finished") for rank, one in ranked if one["piece"] == "</s>"]
    assert set(ends) == {(True, True), (False, False)}


def test_only_a_plain_beam_search_of_a_sentence_has_steps(golden):
    for settings in (SearchConfig(sampling=True), SearchConfig(mbr=3)):
        message = "only a plain beam search has steps to show: no sampling or mbr"
        refuses(message, beam_steps, golden, TEXTS[0], settings)
    refuses("the sentence is empty", beam_steps, golden, " ")
