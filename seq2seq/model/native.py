"""The decoder for search in C (`decoding.c`): `FlatDecoder`'s step in one call, for the CPU in float32."""

import copy
import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn

from seq2seq.model.compiling import load_library
from seq2seq.model.encoding import FlatEncoder
from seq2seq.model.layers import DecoderLayer, FeedForward, GatedFeedForward
from seq2seq.model.positions import rotations, sinusoidal
from seq2seq.model.products import joined_weights
from seq2seq.model.state import aligning_layer
from seq2seq.model.transformer import Transformer, embedding_scale

ROWS_OF_THREAD = 16  # fewest rows of a thread: few rows cost as much as one, since every thread reads all weights
ACTIVATIONS = ("relu", "swiglu", "swish", "gelu")  # in the order of the enum in decoding.c
SPARE_STEPS = 32  # slots for this many steps are added at first and after every clearing


class _Map(ctypes.Structure):
    _fields_ = (
        ("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("inputs", ctypes.c_int64), ("outputs", ctypes.c_int64)
    )  # fmt: skip


class _Norm(ctypes.Structure):
    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("eps", ctypes.c_float))


class _Layer(ctypes.Structure):
    _fields_ = (("norms", _Norm * 3), ("maps", _Map * 6))


class _Decoder(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("layers", "heads", "width", "is_pre_norm", "activation", "watched")),
        ("scale", ctypes.c_float), ("embedding", ctypes.c_void_p), ("layer", ctypes.POINTER(_Layer)), ("norm", _Norm),
        ("output", _Map),
    )  # fmt: skip


class _Step(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "used", "capacity", "steps", "sources")),
        *((name, ctypes.c_void_p) for name in ("last", "sentence", "past", "lengths", "position", "rotation", "slots")),
        ("memory", ctypes.POINTER(ctypes.c_void_p)), ("logits", ctypes.c_void_p), ("attention", ctypes.c_void_p),
    )  # fmt: skip


class NativeState:
    """The state of a `NativeDecoder` during one search; steps and `reorder` change the state in place.

    Attributes:
        memory: each layer's keys and values of the encoded sentences, (b, s, d) each.
        lengths: number of tokens of each source.
        slots: keys and values of the target tokens, (layers, 2, capacity, d); the first `used` are written.
        past: the slots of each row's target tokens.
        sentence: each row's sentence, by its index in `memory`.
        watches: whether the aligning layer's cross-attention is kept.
        attention: weights of each row's cross-attention to source positions in the last step, mean of the heads.
    """

    def __init__(self, memory: list[Float[Tensor, "b s d"]], lengths: Int64[np.ndarray, " b"]) -> None:
        self.memory, self.lengths = memory, lengths
        self.pointers = (ctypes.c_void_p * len(memory))(*(one.data_ptr() for one in memory))
        self.slots = memory[0].new_empty(len(memory) // 2, 2, 0, memory[0].shape[2])
        self.sentence = np.arange(len(lengths))
        self.past = np.empty((len(lengths), 0), np.int64)
        self.used, self.watches = 0, False
        self.attention: Float[Tensor, "n 1 s"] | None = None

    def watching(self) -> "NativeState":
        """Keep the attention of the layer that aligns best from now on; return this state."""
        self.watches = True
        return self

    def reorder(self, rows: Int[Tensor, " n"], counts: Sequence[int]) -> "NativeState":
        """Let new row i continue old row rows[i]; keys and values stay in their slots."""
        index = rows.numpy()
        self.past, self.sentence = self.past[index], self.sentence[index]
        return self

    def add_slots(self) -> None:
        """Give every row a slot for its next token; if too few are left, first remove slots in no row's past."""
        rows = len(self.past)
        if self.used + rows > self.slots.shape[2]:
            living, past = np.unique(self.past, return_inverse=True)
            self.past, self.used = past.reshape(self.past.shape), len(living)
            kept, (layers, _, _, width) = torch.from_numpy(living), self.slots.shape
            slots = self.slots.new_empty(layers, 2, 2 * self.used + SPARE_STEPS * rows, width)
            torch.index_select(self.slots, 2, kept, out=slots[:, :, : self.used])
            self.slots = slots
        new = np.arange(self.used, self.used + rows)
        self.past = np.concatenate((self.past, new[:, None]), 1)
        self.used += rows


class NativeDecoder:
    """A Transformer's decoder for search, compiled; a `Decoder` (see `decoders.py`).

    The decoder has a copy of all weights except the embedding.
    """

    def __init__(self, model: Transformer) -> None:
        """Lay out the present weights.

        Raises:
            UserError: there is no C compiler, or it fails.
        """
        config = model.config
        self.library, self.positions = load_library(), config.positions
        self.encoder = FlatEncoder(model, torch.float32)
        self.channels, self.vocab_size = config.d_model // config.num_heads, len(model.embedding.weight)
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1)
        self._kept: list[Tensor] = []  # the tensors that the C structures point to
        self._embedding, self._bias = model.embedding.weight.detach().float().contiguous(), model.output_bias
        layers = [self._layer(layer) for layer in model.decoder_layers if isinstance(layer, DecoderLayer)]
        self._layers = (_Layer * len(layers))(*layers)
        self._decoder = _Decoder(
            len(layers), config.num_heads, config.d_model, config.norm_position == "pre",
            ACTIVATIONS.index(config.activation), aligning_layer(len(layers)), embedding_scale(config),
            self._embedding.data_ptr(), self._layers, self._norm(model.decoder_norm),
            self._map(self._embedding, self._bias),
        )  # fmt: skip

    def encode(self, src: Int[Tensor, "b s"]) -> NativeState:
        """Read the source; return the state before the first target token."""
        memory, mask = self.encoder(src)
        return NativeState([*memory.permute(2, 0, 1, 3).contiguous()], mask.sum((1, 2, 3)).numpy())

    def step(self, last: Int[Tensor, " n"], state: NativeState) -> tuple[Float[Tensor, "n v"], NativeState]:
        """Continue every row by its last token; return the logits of the next tokens, and the same state."""
        rows, length, sources = len(last), state.past.shape[1], state.memory[0].shape[1]
        if rows != len(state.past):
            raise ValueError(f"{rows} tokens for a state of {len(state.past)} rows")
        last, logits = last.long().contiguous(), torch.empty(rows, self.vocab_size)
        position = rotation = None
        if self.positions == "sinusoidal":
            position = sinusoidal(length, 1, self._decoder.width, last.device)
        elif self.positions == "rotary":
            rotation = rotations(length, 1, self.channels, last.device)
        state.attention = torch.zeros(rows, 1, sources) if state.watches else None
        state.add_slots()
        self._decoder.embedding = self._embedding.data_ptr()  # sharing the model with another process moves it

        def advance(first: int, end: int) -> None:
            attention = None if state.attention is None else state.attention[first:end].data_ptr()
            step = _Step(
                end - first, state.used - rows + first, state.slots.shape[2], length + 1, sources,
                last[first:end].data_ptr(), state.sentence[first:end].ctypes.data, state.past[first:end].ctypes.data,
                state.lengths.ctypes.data, _address(position), _address(rotation), state.slots.data_ptr(),
                state.pointers, logits[first:end].data_ptr(), attention,
            )  # fmt: skip
            if self.library.step(ctypes.byref(self._decoder), ctypes.byref(step)):
                raise MemoryError("no memory for a step of the search")

        self._share(advance, rows)
        return logits, state

    def limited_to(self, ids: Int[Tensor, " u"]) -> "NativeDecoder":
        """Return a decoder whose `step` reads and predicts indices into these ids; see `Decoder`."""
        limited = copy.copy(self)
        limited._kept = [*self._kept]
        limited._embedding, limited.vocab_size = self._embedding.index_select(0, ids), len(ids)
        limited._decoder = _Decoder.from_buffer_copy(self._decoder)
        bias = None if self._bias is None else self._bias.index_select(0, ids)
        limited._decoder.output = limited._map(limited._embedding, bias)
        return limited

    def best_next(
        self, logits: Float[Tensor, "n v"], banned: Int[Tensor, " u"], count: int
    ) -> tuple[Float[Tensor, "n c"], Int[Tensor, "n c"]]:
        """Return each row's best tokens, best first, without the banned ones: log-probabilities (nats) and ids."""
        logits, banned = logits.float().contiguous(), banned.long().contiguous()
        rows, size = logits.shape
        count = min(count, size)
        values, tokens = torch.empty(rows, count), torch.empty(rows, count, dtype=torch.long)

        def find(first: int, end: int) -> None:
            logits_at, values_at, tokens_at = (one[first:end].data_ptr() for one in (logits, values, tokens))
            bans = banned.data_ptr(), len(banned)
            self.library.best_next(logits_at, end - first, size, *bans, count, values_at, tokens_at)

        self._share(find, rows)
        return values, tokens

    def _share(self, work: Callable[[int, int], object], rows: int) -> None:
        """Divide the rows among as many threads as PyTorch has; ctypes releases Python's GIL while C computes."""
        parts = max(1, min(torch.get_num_threads(), rows // ROWS_OF_THREAD))
        bounds = [rows * part // parts for part in range(parts + 1)]
        others = [self._threads.submit(work, *bound) for bound in pairwise(bounds[1:])]
        work(0, bounds[1])
        for other in others:
            other.result()

    def _layer(self, layer: DecoderLayer) -> _Layer:
        own, cross, network = layer.self_attention, layer.cross_attention, layer.feed_forward
        assert isinstance(network, FeedForward | GatedFeedForward)
        up = [network.gate, network.up] if isinstance(network, GatedFeedForward) else [network.up]
        norms = (residual.norm for residual in (layer.self_residual, layer.cross_residual, layer.feed_forward_residual))
        maps = (
            ([own.q_proj, own.k_proj, own.v_proj], [own.stretch, 1.0, 1.0]), ([own.out_proj], [1.0]),
            ([cross.q_proj], [cross.stretch]), ([cross.out_proj], [1.0]),
            (up, [1.0] * len(up)), ([network.down], [1.0]),
        )  # fmt: skip
        laid_out = (self._map(*joined_weights(*one)) for one in maps)
        return _Layer((_Norm * 3)(*map(self._norm, norms)), (_Map * 6)(*laid_out))

    def _map(self, weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"] | None) -> _Map:
        """Return x Wᵀ + b in the layout of the C code: blocks of outputs, each (in, block)."""
        outputs, inputs = weight.shape
        missing = -outputs % self.library.block_size()
        blocks = F.pad(weight.float(), (0, 0, 0, missing)).unflatten(0, (-1, self.library.block_size())).transpose(1, 2)
        biases = F.pad(weight.new_zeros(outputs) if bias is None else bias.float(), (0, missing))
        return _Map(self._keep(blocks), self._keep(biases), inputs, outputs)

    def _norm(self, module: nn.Module) -> _Norm:
        if isinstance(module, nn.LayerNorm):
            return _Norm(self._keep(module.weight), self._keep(module.bias), module.eps)
        if isinstance(module, nn.RMSNorm):
            return _Norm(self._keep(module.weight), None, module.eps)
        return _Norm(None, None, 0.0)

    def _keep(self, values: Tensor) -> int:
        """Copy values in float32, keep the copy, and return the copy's address."""
        self._kept.append(values.detach().float().clone(memory_format=torch.contiguous_format))
        return self._kept[-1].data_ptr()


def _address(values: Tensor | None) -> int | None:
    return None if values is None else values.data_ptr()
