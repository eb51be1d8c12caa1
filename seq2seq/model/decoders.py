"""The decoders for search: which one a model or an ensemble gets, and whether other code agrees with a model."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.model import attention
from seq2seq.model.encoder_decoder import PAD, EncoderDecoder
from seq2seq.model.kernels import is_fused_kernels
from seq2seq.model.native import NativeDecoder, require_compilable
from seq2seq.settings.search import Compile

SOURCES, STEPS = (3, 40), 20  # tokens of the example's sources, and of each target
TOLERANCE = 5e-4  # of the largest value; rounding makes 1e-6, and up to 2e-4 with random weights of a large scale
log = logging.getLogger(__name__)


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


class Ensemble:
    """Models with one vocabulary, which an engine uses like one model."""

    def __init__(self, members: Sequence[EncoderDecoder]) -> None:
        self.members = members

    @property
    def can_align(self) -> bool:
        """Whether every member attends to the source."""
        return all(member.can_align for member in self.members)

    def eval(self) -> "Ensemble":
        """Switch the members' dropout off."""
        for member in self.members:
            member.eval()
        return self

    def predict(self, src: Int[Tensor, "b s"], tgt_in: Int[Tensor, "b t"]) -> Float[Tensor, "b t v"]:
        """Predict the token after each token of tgt_in: log of the mean probability (nats)."""
        return mean_log_probs([member.predict(src, tgt_in) for member in self.members])

    def predict_and_align(
        self, src: Int[Tensor, "b s"], tgt_in: Int[Tensor, "b t"]
    ) -> tuple[Float[Tensor, "b t v"], Float[Tensor, "b t s"]]:
        """Return what `predict` returns, and the mean of the members' attention to the source positions."""
        logits, weights = zip(*(member.predict_and_align(src, tgt_in) for member in self.members), strict=True)
        return mean_log_probs(logits), torch.stack(weights).mean(0)


def mean_log_probs(logits: Sequence[Float[Tensor, "*rows v"]]) -> Float[Tensor, "*rows v"]:
    """Return the log of the members' mean probability (nats)."""
    return torch.stack([member.float().log_softmax(-1) for member in logits]).logsumexp(0) - math.log(len(logits))


@runtime_checkable
class Decoder(Protocol):
    """A model as a search uses it: reads sources into a state, and continues each row by one token."""

    def encode(self, src: Int[Tensor, "b s"]) -> Any:
        """Read the source ids; return the state before the first target token, with one row per sentence."""
        ...

    def step(self, last: Int[Tensor, " n"], state: Any) -> tuple[Float[Tensor, "n v"], Any]:
        """Continue every row by its last token; return the logits of the next tokens, and the state after the step."""
        ...

    def limited_to(self, ids: Int[Tensor, " u"]) -> "Decoder":
        """Return a decoder with the same weights whose `step` reads and predicts indices into these ids.

        The probabilities of these ids alone sum to 1. `encode` still reads ids.
        """
        ...


class TextbookDecoder:
    """Searches with the model's own `encode`, `hidden_states` and `logits`.

    It has a copy of the output projection as (d, v): for a search's few rows, products with this layout are up to three
    times as fast on the CPU (docs/performance.md). Where `logits` computes something else, the copy is not used.
    """

    def __init__(self, model: EncoderDecoder, ids: Int[Tensor, " u"] | None = None) -> None:
        """Wrap a model; with ids, `step` reads and predicts indices into these ids."""
        weight, bias = model.embedding.weight.detach(), model.output_bias
        if ids is not None:
            weight, bias = weight.index_select(0, ids), None if bias is None else bias.index_select(0, ids)
        self.model, self.ids, self.bias = model, ids, 0 if bias is None else bias
        self.projection = weight.float().t().contiguous()
        with torch.no_grad():
            hidden = F.layer_norm(model.embedding.weight[-8:], weight.shape[1:])  # as large as hidden states
            self.is_projection = agrees(self._project(hidden), self._logits(hidden), tolerance=1e-3)

    def encode(self, src: Int[Tensor, "b s"]) -> Any:
        """Read the source; return the state before the first target token."""
        return self.model.encode(src)

    def step(self, last: Int[Tensor, " n"], state: Any) -> tuple[Float[Tensor, "n v"], Any]:
        """Continue every row by its last token; return the logits of the next tokens, and the state after the step."""
        last = last if self.ids is None else self.ids[last]
        hidden, state = self.model.hidden_states(last[:, None], state)
        return (self._project if self.is_projection else self._logits)(hidden[:, -1]), state

    def _project(self, hidden: Float[Tensor, "n d"]) -> Float[Tensor, "n v"]:
        with torch.autocast(hidden.device.type, enabled=False):  # as `EncoderDecoder.logits`
            return hidden.float() @ self.projection + self.bias

    def _logits(self, hidden: Float[Tensor, "n d"]) -> Float[Tensor, "n v"]:
        logits = self.model.logits(hidden)
        return logits if self.ids is None else logits.index_select(-1, self.ids)

    def limited_to(self, ids: Int[Tensor, " u"]) -> "TextbookDecoder":
        """Return a decoder whose `step` reads and predicts indices into these ids; see `Decoder`."""
        return TextbookDecoder(self.model, ids)


@dataclass(frozen=True)
class EnsembleState:
    """The states of an ensemble's members."""

    states: tuple[Any, ...]

    def reorder(self, rows: Int[Tensor, "b w"]) -> "EnsembleState":
        """Return the state of the given rows, for every member."""
        return EnsembleState(tuple(state.reorder(rows) for state in self.states))


class EnsembleDecoder:
    """The decoders of several models; their prediction is the mean of the models' probabilities."""

    def __init__(self, members: Sequence[Decoder]) -> None:
        self.members = members

    def encode(self, src: Int[Tensor, "b s"]) -> EnsembleState:
        """Read the source with every member; return the members' states."""
        return EnsembleState(tuple(member.encode(src) for member in self.members))

    def step(self, last: Int[Tensor, " n"], state: EnsembleState) -> tuple[Float[Tensor, "n v"], EnsembleState]:
        """Continue every row in every member; return the logs of the mean probabilities (nats), and the new state."""
        steps = [member.step(last, inner) for member, inner in zip(self.members, state.states, strict=True)]
        return mean_log_probs([logits for logits, _ in steps]), EnsembleState(tuple(inner for _, inner in steps))

    def limited_to(self, ids: Int[Tensor, " u"]) -> "EnsembleDecoder":
        """Return the decoder of every member limited to these ids; see `Decoder`."""
        return EnsembleDecoder([member.limited_to(ids) for member in self.members])


def decoder_for_search(model: EncoderDecoder | Ensemble, dtype: torch.dtype, compiles: Compile) -> Decoder:
    """Return a model's decoder for search.

    It is the compiled step (`native.py`), which has a copy of the decoder's weights, if it gives the logits of the
    model's present code and weights; or else the model itself. With compiles="on", it is the compiled step or an error.
    """
    if isinstance(model, Ensemble):
        return EnsembleDecoder([decoder_for_search(member, dtype, compiles) for member in model.members])
    if compiles == "off":
        return TextbookDecoder(model)
    try:
        decoder = NativeDecoder(require_compilable(model, dtype))
    except UserError:
        if compiles == "on":
            raise
        return TextbookDecoder(model)
    if is_fused_kernels(attention.attention_weights) and computes_textbook(decoder):
        return decoder
    changed = "decoding.c computes something else than the model's Python code, which was changed"
    if compiles == "on":
        raise UserError(f"{changed}: leave out --compile on")
    warn_once(f"{changed}: searching with the Python code, which takes longer")
    return TextbookDecoder(model)


@torch.no_grad()
def computes_textbook(decoder: NativeDecoder) -> bool:
    """Return whether a decoder gives its model's logits, in a search of two hypotheses for each source."""
    example = make_example(decoder.model, start=1, end=1)
    state, rows = decoder.begin(example.state), torch.tensor([0, 0, 1, 1])
    logits, before = list[Tensor](), rows
    for last in example.tgt_in[rows].unbind(1):
        of_step, state = decoder.step(last, state.reorder(before.view(2, 2)))
        logits.append(of_step)
        before = torch.tensor([1, 1, 2, 2])  # one hypothesis of each source is continued twice, the other one dropped
    return agrees(torch.stack(logits, 1), example.logits[rows])


@cache
def warn_once(message: str) -> None:
    """Log a warning, once in a process."""
    log.warning(message)
