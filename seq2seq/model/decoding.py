"""The decoder for search: computes the same network as `Transformer`, one token per row and call, but faster.

The textbook code (`layers.py`, `transformer.py`) is the specification; tests check that both give equal results for
every model and every search. Only the layout of the computation differs:

- Rows are (n, d). Weights are laid out once for products of few rows, and the stretch of the queries is folded in.
- The k hypotheses of a sentence are k queries over one set of keys and values. In cross-attention, this set belongs to
  the source. In self-attention, it has a *slot* for every token of any of the hypotheses, written once. A mask selects
  the slots of each hypothesis' own past. Slots are copied only to free memory or to get more.
"""

import copy
import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.device import tensor_on
from seq2seq.errors import UserError
from seq2seq.model.attention import KeysValues
from seq2seq.model.encoding import FlatEncoder, Residuals, Rows, feed_forward_of_rows, norm_of_rows
from seq2seq.model.ensemble import Ensemble, EnsembleState, mean_log_probs
from seq2seq.model.layers import DecoderLayer
from seq2seq.model.masks import additive
from seq2seq.model.native import NativeDecoder
from seq2seq.model.places import PACK_BELOW, Places, still_searched
from seq2seq.model.positions import rotate, rotations, sinusoidal
from seq2seq.model.products import product, product_with
from seq2seq.model.state import aligning_layer
from seq2seq.model.transformer import Transformer, embedding_scale

SPARE_SLOTS = 64  # free slots at first and after every clearing; a clearing makes the host wait for a GPU


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


class FlatState:
    """The state of a `FlatDecoder` during one search; steps and `reorder` change the state in place.

    Once a sentence has had several rows, `reorder` must be called between any two steps.

    Attributes:
        memory: keys and values of the b encoded sentences, one pair per layer.
        memory_mask: additive mask of the source's padding, (b, 1, 1, s).
        slots: keys and values of the target tokens, (layers, 2, b, h, capacity, c); the first `used` are written.
        mask: additive mask by which each place attends only to its own past and its next slot, (b, 1, w, used + w);
            None: every slot belongs to the sentence's only row.
        places: the places of the rows among the sentences.
        numbers: indices in `memory` of the sentences that are still searched.
        length: target tokens so far.
        watched: the layer whose cross-attention is kept; None: no layer.
        attention: weights of each row's cross-attention to source positions in the last step, mean of the heads.
    """

    def __init__(self, memory: list[KeysValues], memory_mask: Float[Tensor, "b 1 1 s"]) -> None:
        keys = memory[0].keys
        sentences, heads, _, channels = keys.shape
        self.memory, self.memory_mask = memory, memory_mask
        # Zeros, because uninitialised memory may hold NaN, and NaN passes a mask.
        self.slots = keys.new_zeros(len(memory), 2, sentences, heads, SPARE_SLOTS, channels)
        self.mask: Float[Tensor, "b w z"] | None = None
        self.places, self.numbers = Places(sentences), list(range(sentences))
        self.length = self.used = 0
        self.watched: int | None = None
        self.attention: Float[Tensor, "n 1 s"] | None = None

    def watching(self) -> "FlatState":
        """Keep the attention of the layer that aligns best from now on; return this state."""
        self.watched = aligning_layer(len(self.memory))
        return self

    def reorder(self, rows: Int[Tensor, " n"], counts: Sequence[int]) -> "FlatState":
        """Let new row i continue old row rows[i], by the mask; keys and values move only when memory is freed.

        Args:
            rows: the old rows that the new rows continue, sentence by sentence.
            counts: new rows of each sentence that is still searched; a sentence without new rows is dropped.
        """
        own_past = self._own_past(rows, max(counts))
        numbers, counts = still_searched(self.numbers, counts)
        if len(numbers) <= PACK_BELOW * self.places.sentences:
            self._keep_sentences(tensor_on(rows.device, numbers))
            numbers = list(range(len(numbers)))
        self.numbers, self.mask = numbers, None
        self.places = Places.of(numbers, counts, len(self.memory_mask), rows.device)
        if own_past is not None:
            past = self.places.spread(own_past)  # (b, w, used)
            past = past if self._has_room() else self._clear_dead_slots(past)
            width = self.places.width
            next_slots = past.new_full((width, width), -torch.inf).fill_diagonal_(0)
            self.mask = torch.cat((past, next_slots.expand(len(past), -1, -1)), 2)[:, None]
        return self

    def make_room(self) -> None:
        """Add slots if there are too few for the next token of every place."""
        if not self._has_room():
            self.slots = F.pad(self._used_slots(), (0, 0, 0, self.used + 2 * self.places.width))

    def advance(self) -> None:
        """Count the token that a step has written for every place."""
        self.length, self.used = self.length + 1, self.used + self.places.width

    def _has_room(self) -> bool:
        return self.used + self.places.width <= self.slots.shape[4]

    def _used_slots(self) -> Float[Tensor, "l 2 b h z c"]:
        return self.slots[:, :, :, :, : self.used]

    def _own_past(self, rows: Int[Tensor, " n"], width: int) -> Float[Tensor, "n z"] | None:
        """Return an additive mask of each new row's past; None: no sentence has ever had two rows."""
        if self.mask is None:
            return None if width == 1 else self.memory_mask.new_zeros(1, 1).expand(len(rows), self.used)
        places = rows if self.places.of_row is None else self.places.of_row.index_select(0, rows)
        return self.mask.flatten(0, 2).index_select(0, places)

    def _keep_sentences(self, index: Int[Tensor, " i"]) -> None:
        self.memory = [memory.select(index) for memory in self.memory]
        self.memory_mask = self.memory_mask.index_select(0, index)
        self.slots = F.pad(self._used_slots().index_select(2, index), (0, 0, 0, SPARE_SLOTS))

    def _clear_dead_slots(self, past: Float[Tensor, "b w z"]) -> Float[Tensor, "b w y"]:
        """Remove the slots that are in no row's past; return the mask of the other slots."""
        is_alive = (past == 0).any(1)  # (b, used)
        self.used = count = int(is_alive.sum(1).max())
        index = is_alive.byte().sort(dim=1, descending=True, stable=True).indices[:, :count]  # living slots first
        layers, _, _, heads, _, channels = self.slots.shape
        living = self.slots.gather(4, index[:, None, :, None].expand(layers, 2, -1, heads, -1, channels))
        self.slots = F.pad(living, (0, 0, 0, count + SPARE_SLOTS + self.places.width))
        return past.gather(2, index[:, None].expand(-1, past.shape[1], -1))


class FlatLayer:
    """A `DecoderLayer` with its weights laid out for single positions."""

    def __init__(self, layer: DecoderLayer, dtype: torch.dtype) -> None:
        own, cross = layer.self_attention, layer.cross_attention
        self.heads = own.num_heads
        self.residuals = Residuals([layer.self_residual, layer.cross_residual, layer.feed_forward_residual])
        self.queries_keys_values = product([own.q_proj, own.k_proj, own.v_proj], dtype, [own.stretch, 1.0, 1.0])
        self.own_out = product([own.out_proj], dtype)
        self.cross_queries = product([cross.q_proj], dtype, [cross.stretch])
        self.cross_out = product([cross.out_proj], dtype)
        self.feed_forward = feed_forward_of_rows(layer.feed_forward, dtype)

    def advance(self, x: Rows, state: FlatState, index: int, rotation: Float[Tensor, "2 1 1 c"] | None) -> Rows:
        """Advance every row by one position through this layer, which is number `index` of the decoder."""
        enter, leave = self.residuals.enter, self.residuals.leave
        x = leave(0, x, self.own_out(self._attend_to_target(enter(0, x), state, index, rotation)))
        x = leave(1, x, self.cross_out(self._attend_to_source(enter(1, x), state, index)))
        return leave(2, x, self.feed_forward(enter(2, x)))

    def _attend_to_target(
        self, y: Rows, state: FlatState, index: int, rotation: Float[Tensor, "2 1 1 c"] | None
    ) -> Rows:
        """Write every row's key and value after the used slots; return each row's attention over its own past."""
        heads, places, used = self.heads, state.places, state.used
        end = used + places.width
        rows = self.queries_keys_values(y)
        if rotation is not None:
            by_head = rows.unflatten(1, (1, 3 * heads, -1))
            rows = torch.cat((rotate(by_head[:, :, : 2 * heads], rotation), by_head[:, :, 2 * heads :]), 2).flatten(1)
        in_places = places.spread(rows)
        in_places = in_places.view(*in_places.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)  # (3, b, h, w, c)
        state.slots[index, :, :, :, used:end] = in_places[1:]
        keys, values = state.slots[index, :, :, :, :end].unbind(0)
        context = F.scaled_dot_product_attention(in_places[0], keys, values, state.mask)
        return places.collect(context.transpose(1, 2)).flatten(1)

    def _attend_to_source(self, y: Rows, state: FlatState, index: int) -> Rows:
        places, memory = state.places, state.memory[index]
        queries = places.spread(self.cross_queries(y))
        queries = queries.view(*queries.shape[:2], self.heads, -1).transpose(1, 2)  # (b, h, w, c)
        if state.watched == index:
            relevance = (queries / math.sqrt(queries.shape[-1])) @ memory.keys.transpose(-2, -1)
            weights = (relevance.float() + state.memory_mask).softmax(-1).nan_to_num(0.0)  # NaN: nothing to attend to
            state.attention = places.collect(weights.mean(1))[:, None]
        context = F.scaled_dot_product_attention(queries, *memory, state.memory_mask)
        return places.collect(context.transpose(1, 2)).flatten(1)


class FlatDecoder:
    """A Transformer's decoder for search, with the model's present weights; see `for_search`."""

    def __init__(self, model: Transformer, dtype: torch.dtype) -> None:
        """Lay out the weights for products in dtype."""
        config = model.config
        self.dtype, self.positions, self.encoder = dtype, config.positions, FlatEncoder(model, dtype)
        self.scale, self.channels = embedding_scale(config), config.d_model // config.num_heads
        self.embedding, self.bias = model.embedding.weight.detach().float(), model.output_bias
        self.layers = [FlatLayer(layer, dtype) for layer in model.decoder_layers if isinstance(layer, DecoderLayer)]
        self.norm, self.output = norm_of_rows(model.decoder_norm), product_with(self.embedding, self.bias, dtype)

    def encode(self, src: Int[Tensor, "b s"]) -> FlatState:
        """Read the source; return the state before the first target token."""
        memory, mask = self.encoder(src)
        by_head = memory.unflatten(3, (-1, self.channels)).permute(2, 0, 3, 1, 4).contiguous()  # (m, b, h, s, c)
        return FlatState([KeysValues(*layer) for layer in by_head.unflatten(0, (-1, 2))], additive(mask, self.dtype))

    def step(self, last: Int[Tensor, " n"], state: FlatState) -> tuple[Float[Tensor, "n v"], FlatState]:
        """Continue every row by its last token; return the logits of the next tokens, and the same state."""
        with torch.autocast(last.device.type, enabled=False):
            x, rotation = self.embedding.index_select(0, last), None
            if self.positions == "sinusoidal":
                x = torch.add(sinusoidal(state.length, 1, x.shape[1], x.device), x, alpha=self.scale)
            else:
                x = x * self.scale
            if self.positions == "rotary":
                rotation = rotations(state.length, 1, self.channels, x.device)
            state.make_room()
            for index, layer in enumerate(self.layers):
                x = layer.advance(x, state, index, rotation)
            state.advance()
            return self.output(self.norm(x)), state

    def limited_to(self, ids: Int[Tensor, " u"]) -> "FlatDecoder":
        """Return a decoder whose `step` reads and predicts indices into these ids; see `Decoder`."""
        limited = copy.copy(self)
        limited.embedding = self.embedding.index_select(0, ids)
        bias = None if self.bias is None else self.bias.index_select(0, ids)
        limited.output = product_with(limited.embedding, bias, self.dtype)
        return limited


class TextbookDecoder:
    """The decoder for search of a model without a faster decoder, such as the LSTM: calls the model's own `decode`."""

    def __init__(self, model: Any, ids: Int[Tensor, " u"] | None = None) -> None:
        """Wrap a model; with ids, `step` reads and predicts indices into these ids."""
        self.model, self.ids = model, ids

    def encode(self, src: Int[Tensor, "b s"]) -> Any:
        """Read the source; return the state before the first target token."""
        return self.model.encode(src)

    def step(self, last: Int[Tensor, " n"], state: Any) -> tuple[Float[Tensor, "n v"], Any]:
        """Continue every row by its last token; return the logits of the next tokens, and the state after the step."""
        last = last if self.ids is None else self.ids[last]
        logits, state = self.model.decode(last[:, None], state)
        logits = logits[:, -1]
        return logits if self.ids is None else logits.index_select(1, self.ids), state

    def limited_to(self, ids: Int[Tensor, " u"]) -> "TextbookDecoder":
        """Return a decoder whose `step` reads and predicts indices into these ids; see `Decoder`."""
        return TextbookDecoder(self.model, ids)


class EnsembleDecoder:
    """The decoders of several models; their prediction is the mean of the models' probabilities."""

    def __init__(self, members: Sequence[Decoder]) -> None:
        self.members = members

    def encode(self, src: Int[Tensor, "b s"]) -> EnsembleState:
        """Read the source with every member; return the members' states."""
        return EnsembleState(tuple(member.encode(src) for member in self.members))

    def step(self, last: Int[Tensor, " n"], state: EnsembleState) -> tuple[Float[Tensor, "n v"], EnsembleState]:
        """Continue every row in every member; return the logs of the mean probabilities (nats), and the new state."""
        steps = [member.step(last, own) for member, own in zip(self.members, state.states, strict=True)]
        return mean_log_probs([logits for logits, _ in steps]), EnsembleState(tuple(own for _, own in steps))

    def limited_to(self, ids: Int[Tensor, " u"]) -> "EnsembleDecoder":
        """Return the decoder of every member limited to these ids; see `Decoder`."""
        return EnsembleDecoder([member.limited_to(ids) for member in self.members])


def for_search(model: Any, dtype: torch.dtype, *, is_compiled: bool = False) -> Decoder:
    """Return a model's decoder for search, with products in dtype; is_compiled asks for the compiled decoder.

    A Transformer's decoder has a copy of all weights except the embedding: weights must not change while a search runs.
    Hooks on the model's modules are not called. Other models, including subclasses of Transformer, are searched by
    their own `decode`.

    Raises:
        UserError: the search cannot be compiled.
    """
    if isinstance(model, Ensemble):
        return EnsembleDecoder([for_search(member, dtype, is_compiled=is_compiled) for member in model.members])
    is_transformer = type(model) is Transformer  # and not a subclass
    if is_compiled:
        if not is_transformer or dtype != torch.float32 or model.embedding.weight.device.type != "cpu":
            raise UserError("--compile is for Transformers on the CPU in float32: leave it out")
        return NativeDecoder(model)
    if not is_transformer:
        return TextbookDecoder(model)
    return FlatDecoder(model, dtype)
