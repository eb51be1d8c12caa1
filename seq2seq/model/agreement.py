"""A fixed example with a model's own logits, which every other implementation of the model must give.

The compiled decoder, exports and pages have code of their own, so an edit of this folder does not reach them. Each is
compared with the textbook (`transformer.py`, `layers.py`, `attention.py`) before it is used.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.model.encoder_decoder import PAD, EncoderDecoder

SOURCES, STEPS = (3, 40), 20  # tokens of the example's sources, and of each target
TOLERANCE = 5e-4  # of the largest value; rounding makes 1e-6, and up to 2e-4 with random weights of a large scale


class Example(NamedTuple):
    """Two sources, each with a target, and what the textbook makes of them."""

    src: Int[Tensor, "2 s"]  # each row ends with the end mark, then padding
    tgt_in: Int[Tensor, "2 t"]
    tgt_out: Int[Tensor, "2 t"]
    state: Any  # after the sources
    logits: Float[Tensor, "2 t v"]
    scores: Float[Tensor, "2 t"]  # log-probabilities of tgt_out (nats)

    @property
    def sources(self) -> list[list[int]]:
        """Return the ids of each source, without the end mark."""
        return [[int(token) for token in self.src[row, :count]] for row, count in enumerate(SOURCES)]


@torch.no_grad()
def make_example(model: EncoderDecoder, start: int, end: int) -> Example:
    """Return the example of a model in evaluation mode, with its present weights and code, in float32.

    All positions of a target are computed at once, as in training; without a causal mask, one by one, as in a search.
    """
    device, (short, long) = model.embedding.weight.device, SOURCES
    with torch.inference_mode(False), torch.autocast(device.type, enabled=False):
        ids = [*_ids(short + long, model.source_vocab_size or model.vocab_size), end]
        src = torch.tensor([[*ids[:short], end, *[PAD] * (long - short)], ids[short:]], device=device)
        ids = torch.tensor(_ids(2 * STEPS, model.vocab_size), device=device).view(2, STEPS)
        tgt_in, tgt_out = F.pad(ids, (1, 0), value=start), F.pad(ids, (0, 1), value=end)
        state = encoded = model.encode(src)
        logits: list[Tensor] = []
        for part in torch.split(tgt_in, 1 if model.config.decoder_mask == "none" else STEPS + 1, dim=1):
            of_part, state = model.decode(part, state)
            logits.append(of_part)
        joined = torch.cat(logits, 1)
        scores = joined.log_softmax(-1).gather(-1, tgt_out[:, :, None])[:, :, 0]
        return Example(src, tgt_in, tgt_out, encoded, joined, scores)


def agrees(values: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Return whether values differ from the textbook's by at most a share `tolerance` of the largest one.

    Infinite values, of tokens that a model forbids, must be infinite in both. Nothing is compared with a diverged
    model, whose values are no numbers.
    """
    if expected.isnan().any():
        return True
    finite = expected.isfinite()
    differences, largest = (values - expected)[finite].abs(), expected[finite].abs().max()
    return bool(values[~finite].equal(expected[~finite]) and (differences <= tolerance * largest).all())


def _ids(count: int, vocab_size: int) -> list[int]:
    """Return ids of ordinary tokens, from all parts of the vocabulary; the first four ids are marks."""
    return [4 + 7919 * number % (vocab_size - 4) for number in range(1, count + 1)]
