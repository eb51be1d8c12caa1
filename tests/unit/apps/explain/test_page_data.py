"""One function gathers all that a page, a file or the server shows of a sentence."""

import pytest

from seq2seq.apps.explain.explanation import explain
from seq2seq.apps.explain.interventions import Interventions
from seq2seq.apps.explain.page import assemble
from seq2seq.apps.explain.steps import beam_steps
from seq2seq.settings.search import SearchConfig
from seq2seq.translate.translator import Translator
from tests.refusing import refuses

pytestmark = pytest.mark.slow

SENTENCE, TARGET = "The black cat drank the milk.", "El gato negro bebió la leche."


def heads_of(data: dict) -> list[tuple[str, int, int]]:
    return [(walk["part"], walk["layer"], walk["head"]) for walk in data["walks"]]


def test_data_has_the_explanation_the_first_heads_and_the_search(untrained: Translator) -> None:
    assembly = assemble(untrained, SENTENCE)
    assert assembly.translator is untrained
    assert list(assembly.data) == ["explanation", "walks", "beams"]
    assert assembly.data["explanation"] == explain(untrained, SENTENCE).to_plain() == assembly.explanation.to_plain()
    parts = ("encoder", "decoder", "cross")  # the first of two decoder layers aligns
    assert heads_of(assembly.data) == [(part, 0, head) for part in parts for head in range(3)]
    assert assembly.data["beams"] == beam_steps(untrained, SENTENCE)


def test_one_head_is_shown_in_every_part_that_has_its_layer(untrained: Translator) -> None:
    data = assemble(untrained, SENTENCE, TARGET, head=(1, 2), with_beams=False).data
    assert heads_of(data) == [("decoder", 1, 2), ("cross", 1, 2)]
    assert data["beams"] == {}
    refuses(r"layer=2", assemble, untrained, SENTENCE, TARGET, head=(2, 0))


def test_a_search_without_steps_leaves_the_beams_empty(golden: Translator) -> None:
    data = assemble(golden, SENTENCE, settings=SearchConfig(mbr=3)).data
    assert data["beams"] == {}
    assert data["explanation"]["translated"]


def test_without_the_mask_maps_and_scores_change_and_the_translation_does_not(golden: Translator) -> None:
    assembly = assemble(golden, SENTENCE, None, Interventions(without=["mask"]))
    plain = assembly.data["explanation"]
    assert plain["interventions"] == {"without": ["mask"], "average": (), "temperature": 1.0}
    assert plain["target"] == plain["unchanged"]["target"]
    assert sum(assembly.explanation.log_probs) != pytest.approx(plain["unchanged"]["log_prob"], abs=0.1)
    assert assembly.explanation.attention["decoder"][0].triu(1).sum() > 0
    assert assembly.translator is not golden
