"""Assemble everything that a page, the files of `seq2seq attend` and the server show of one sentence."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from seq2seq.apps.explain.contrast import contrast
from seq2seq.apps.explain.explanation import DECIMALS, Explanation, explain, plain
from seq2seq.apps.explain.heads import PARTS
from seq2seq.apps.explain.interventions import Interventions, changed
from seq2seq.apps.explain.sentence import require_engine
from seq2seq.apps.explain.steps import beam_steps, head_steps
from seq2seq.errors import UserError
from seq2seq.model.transformer import Transformer
from seq2seq.model.variants.trace import aligning_layer
from seq2seq.settings.search import SearchConfig
from seq2seq.translate.translator import Translator


@dataclass(frozen=True)
class Assembly:
    """Everything that is shown of one sentence.

    Attributes:
        translator: the translator that is explained; with interventions, the changed one.
        explanation: its attention, as tensors.
        data: JSON values, as in a page: "explanation" (the fields of attention.json), "walks" (the steps of some heads)
            "beams" (the steps of the search; may be empty), and "contrast" if it was asked for.
    """

    translator: Translator
    explanation: Explanation
    data: dict[str, Any]


def assemble(
    translator: Translator,
    source: str,
    target: str | None = None,
    interventions: Interventions | None = None,
    settings: SearchConfig | None = None,
    *,
    head: tuple[int, int] | None = None,
    with_beams: bool = True,
    instead: tuple[int, str] | None = None,
) -> Assembly:
    """Explain a sentence, compare a changed model with the unchanged one, and show the steps of heads and of a search.

    Args:
        translator: must have one model and the PyTorch engine.
        source: one sentence.
        target: a translation; None: the best one that the model finds.
        interventions: changes to the model. If they change anything, `data["explanation"]` also has `interventions`,
            and `unchanged` with the unchanged model's `target` and the log-probability of this target (`log_prob`,
            nats).
        settings: settings of the search; None: the translator's settings.
        head: layer and head, from 0, whose steps are shown in every part of the model that has this layer; None: all
            heads of the first encoder layer, the first decoder layer and the aligning cross-attention.
        instead: a target word's index, and a word to compare it with; None: `data` has no "contrast".
        with_beams: whether the steps of the search are shown. They are empty if the settings ask for a search that has
            no steps to show.
    """
    explained = changed(translator, interventions, source) if interventions else translator
    explanation = explain(explained, source, target, settings=settings)
    shown = explanation.to_plain()
    if interventions:
        usual = explain(translator, source, target, settings=settings)
        unchanged = {"target": usual.subject.target, "log_prob": round(math.fsum(usual.log_probs), DECIMALS)}
        shown |= {"interventions": asdict(interventions), "unchanged": unchanged}
    walks = [head_steps(explained, explanation.subject, *names).to_plain() for names in _heads_to_show(explained, head)]
    beams: dict[str, Any] = {}
    if with_beams:
        with contextlib.suppress(UserError):  # sampling and mbr have no steps to show
            beams = beam_steps(explained, source, settings)
    data = {"explanation": shown, "walks": walks, "beams": beams}
    if instead is not None:
        data["contrast"] = plain(contrast(explained, explanation.subject, *instead), DECIMALS)
    return Assembly(explained, explanation, data)


def _heads_to_show(translator: Translator, head: tuple[int, int] | None) -> Iterator[tuple[str, int, int]]:
    """Yield part, layer and head of the heads whose steps are shown; only a Transformer has such heads."""
    _, model = require_engine(translator)
    if not isinstance(model, Transformer):
        return
    num_decoder = len(model.decoder_layers)
    if head is None:
        for part, layer in {"encoder": 0, "decoder": 0, "cross": aligning_layer(num_decoder)}.items():
            yield from ((part, layer, number) for number in range(model.config.num_heads))
        return
    sizes = {"encoder": len(model.encoder_layers), "decoder": num_decoder, "cross": num_decoder}
    for part in [part for part, size in sizes.items() if head[0] < size] or PARTS:
        yield part, *head
