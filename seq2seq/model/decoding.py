"""The decoder for search: computes the same network as `Transformer`, one token per row and call, but faster.

The textbook code (`layers.py`, `transformer.py`) is the specification; tests check that both give equal results for
every model and every search. Only the layout of the computation differs:

- Rows are (n, d). Weights are laid out once for products of few rows, and the stretch of the queries is folded in.
- The k hypotheses of a sentence are k queries over one set of keys and values (`flat_state.py`).
"""

import copy
import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from seq2seq.model.attention import KeysValues
from seq2seq.model.encoding import FlatEncoder, Residuals, Rows, feed_forward_of_rows, norm_of_rows
from seq2seq.model.flat_state import FlatState
from seq2seq.model.layers import DecoderLayer
from seq2seq.model.masks import additive
from seq2seq.model.positions import rotate, rotations, sinusoidal
from seq2seq.model.products import product, product_with
from seq2seq.model.transformer import Transformer, embedding_scale


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
        heads, places = self.heads, state.places
        rows = self.queries_keys_values(y)
        if rotation is not None:
            by_head = rows.unflatten(1, (1, 3 * heads, -1))
            rows = torch.cat((rotate(by_head[:, :, : 2 * heads], rotation), by_head[:, :, 2 * heads :]), 2).flatten(1)
        in_places = places.spread(rows)
        in_places = in_places.view(*in_places.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)  # (3, b, h, w, c)
        keys, values = state.write(index, in_places[1:])
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
    """A Transformer's decoder for search, with the model's present weights; see `decoders.for_search`."""

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
        return FlatState(*self.memory(src))

    def memory(self, src: Int[Tensor, "b s"]) -> tuple[list[KeysValues], Float[Tensor, "b 1 1 s"]]:
        """Read the source; return keys and values for each layer, and the additive mask of the source's padding."""
        memory, mask = self.encoder(src)
        by_head = memory.unflatten(3, (-1, self.channels)).permute(2, 0, 3, 1, 4).contiguous()  # (m, b, h, s, c)
        return [KeysValues(*layer) for layer in by_head.unflatten(0, (-1, 2))], additive(mask, self.dtype)

    def step(self, last: Int[Tensor, " n"], state: FlatState) -> tuple[Float[Tensor, "n v"], FlatState]:
        """Continue every row by its last token; return the logits of the next tokens, and the same state."""
        state.make_room()
        added, rotation = self.position(state.length, last.device)
        logits = self.logits(last, state, added, rotation)
        state.advance()
        return logits, state

    def position(
        self, length: int, device: torch.device
    ) -> tuple[Float[Tensor, "1 d"] | None, Float[Tensor, "2 1 1 c"] | None]:
        """Return what tells the position after `length` tokens: a vector to add, or a rotation of queries and keys."""
        width = self.embedding.shape[1]
        added = sinusoidal(length, 1, width, device) if self.positions == "sinusoidal" else None
        return added, rotations(length, 1, self.channels, device) if self.positions == "rotary" else None

    def logits(
        self,
        last: Int[Tensor, " n"],
        state: FlatState,
        added: Float[Tensor, "1 d"] | None,
        rotation: Float[Tensor, "2 1 1 c"] | None,
    ) -> Float[Tensor, "n v"]:
        """Return the logits of the tokens that follow `last`, and write the keys and values of `last` into the state.

        Reads and writes tensors only, so that a GPU can repeat it without Python (`graphs.py`).
        """
        with torch.autocast(last.device.type, enabled=False):
            x = self.embedding.index_select(0, last)
            x = x * self.scale if added is None else torch.add(added, x, alpha=self.scale)
            for index, layer in enumerate(self.layers):
                x = layer.advance(x, state, index, rotation)
            return self.output(self.norm(x))

    def limited_to(self, ids: Int[Tensor, " u"]) -> "FlatDecoder":
        """Return a decoder whose `step` reads and predicts indices into these ids; see `decoders.Decoder`."""
        limited = copy.copy(self)
        limited.embedding = self.embedding.index_select(0, ids)
        bias = None if self.bias is None else self.bias.index_select(0, ids)
        limited.output = product_with(limited.embedding, bias, self.dtype)
        return limited
