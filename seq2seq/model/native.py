"""The compiled decoder for search (`decoding.c`): the Transformer's step in one call, for the CPU in float32.

The textbook (`layers.py`, `transformer.py`) is the specification: tests check that both give equal results for every
model and every search.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.compiling import load_library
from seq2seq.model.encoder_decoder import DecoderState, EncoderDecoder
from seq2seq.model.layers import DecoderLayer, Dropout, FeedForward, GatedFeedForward, Residual
from seq2seq.model.positions import rotations, sinusoidal
from seq2seq.model.transformer import Transformer, embedding_scale

ROWS_OF_THREAD = 16  # fewest rows of a thread: few rows cost as much as one, since every thread reads all weights
ACTIVATIONS = ("relu", "swiglu", "swish", "gelu")  # in the order of the enum in decoding.c
KNOWN = (  # modules of a decoder that decoding.c computes
    DecoderLayer, Residual, MultiHeadAttention, FeedForward, GatedFeedForward, Dropout, nn.Linear, nn.LayerNorm,
    nn.RMSNorm, nn.Identity,
)  # fmt: skip
MOST_COMPILED = 64  # best tokens of a row that decoding.c finds faster than PyTorch
SPARE_STEPS = 32  # slots for this many steps are added at first and after every clearing


def require_compilable(model: EncoderDecoder, dtype: torch.dtype) -> Transformer:
    """Return the model, unless the compiled step does not compute it."""
    if type(model) is not Transformer:
        raise UserError("--compile on is for Transformers, and this model is none: leave it out")
    weights = {(weight.device.type, weight.dtype) for weight in model.parameters()}
    if dtype != torch.float32 or weights != {("cpu", torch.float32)}:
        raise UserError("--compile on is for the CPU in float32: leave it out")
    modules = chain(*(layer.modules() for layer in model.decoder_layers), [model.decoder_norm])
    if not all(type(module) in KNOWN for module in modules):
        raise UserError("--compile on is for unchanged layers, and this model has others: leave it out")
    return model


@dataclass(frozen=True)
class Map:
    """x Wᵀ + b in the layout of the C code: blocks of outputs, (blocks, in, block); both padded with zeros."""

    weight: Float[Tensor, "blocks i block"]
    bias: Float[Tensor, " padded"]
    outputs: int


@dataclass(frozen=True)
class Norm:
    """A normalisation: LayerNorm, RMSNorm (no bias), or none (no weight)."""

    weight: Tensor | None
    bias: Tensor | None
    eps: float


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
        *((name, ctypes.c_int64) for name in ("layers", "heads", "width", "is_pre_norm", "activation")),
        ("scale", ctypes.c_float), ("embedding", ctypes.c_void_p), ("layer", ctypes.POINTER(_Layer)), ("norm", _Norm),
        ("output", _Map),
    )  # fmt: skip


class _Step(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "used", "capacity", "steps", "sources")),
        *((name, ctypes.c_void_p) for name in ("last", "sentence", "past", "lengths", "position", "rotation", "slots")),
        ("memory", ctypes.POINTER(ctypes.c_void_p)), ("logits", ctypes.c_void_p),
    )  # fmt: skip


class NativeState:
    """The state of a `NativeDecoder` during one search; steps and `reorder` change the state in place.

    Attributes:
        memory: each layer's keys and values of the encoded sentences, (b, s, d) each.
        lengths: number of tokens of each source.
        slots: keys and values of the target tokens, (layers, 2, capacity, d); the first `used` are written.
        past: the slots of each row's target tokens.
        sentence: each row's sentence, by its index in `memory`.
    """

    def __init__(self, memory: list[Float[Tensor, "b s d"]], lengths: Int64[np.ndarray, " b"]) -> None:
        self.memory, self.lengths = memory, lengths
        self.pointers = (ctypes.c_void_p * len(memory))(*(tensor.data_ptr() for tensor in memory))
        self.slots = memory[0].new_empty(len(memory) // 2, 2, 0, memory[0].shape[2])
        self.sentence = np.arange(len(lengths))
        self.past = np.empty((len(lengths), 0), np.int64)
        self.used = 0

    def reorder(self, rows: Int[Tensor, "b w"]) -> "NativeState":
        """Let the new rows continue the given old rows; keys and values stay in their slots."""
        index = rows.flatten().numpy()
        self.past, self.sentence = self.past[index], self.sentence[index]
        return self

    def add_slots(self) -> None:
        """Give every row a slot for its next token; if too few are left, first remove slots in no row's past."""
        rows = len(self.past)
        if self.used + rows > self.slots.shape[2]:
            living, past = np.unique(self.past, return_inverse=True)
            self.past, self.used = past.reshape(self.past.shape), len(living)
            kept, (layers, _, _, width) = torch.as_tensor(living), self.slots.shape
            slots = self.slots.new_empty(layers, 2, 2 * self.used + SPARE_STEPS * rows, width)
            torch.index_select(self.slots, 2, kept, out=slots[:, :, : self.used])
            self.slots = slots
        new = np.arange(self.used, self.used + rows)
        self.past = np.concatenate((self.past, new[:, None]), 1)
        self.used += rows


class NativeDecoder:
    """A Transformer's decoder for search, compiled; a `Decoder` (see `decoders.py`).

    The decoder has a copy of all weights except the embedding. Other processes to which it is sent share this copy.
    """

    def __init__(self, model: Transformer) -> None:
        """Lay out the present weights of a model that `require_compilable` accepts."""
        self.block, self.model = load_library().block_size(), model
        self.embedding, self.vocab_size = model.embedding.weight.detach().float().contiguous(), model.vocab_size
        self.layers = [self._lay_out(layer) for layer in model.decoder_layers]
        self.norm = lay_out_norm(model.decoder_norm)
        self.output = lay_out_map(self.embedding, model.output_bias, self.block)
        self._start()

    def _start(self) -> None:
        """Load the library, start the threads, and point the C structures to the tensors."""
        config = self.model.config
        self._library, self._threads = load_library(), ThreadPoolExecutor(os.cpu_count() or 1)
        layers = [_Layer((_Norm * 3)(*map(_norm, norms)), (_Map * 6)(*map(_map, maps))) for norms, maps in self.layers]
        self._layers = (_Layer * len(layers))(*layers)
        self._decoder = _Decoder(
            len(layers), config.num_heads, config.d_model, config.norm_position == "pre",
            ACTIVATIONS.index(config.activation), embedding_scale(config), self.embedding.data_ptr(), self._layers,
            _norm(self.norm), _map(self.output),
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        """Move the weights to shared memory, so that the process that gets this decoder shares them."""
        parts = (part for norms, maps in self.layers for part in (*norms, *maps))
        tensors = (tensor for part in (*parts, self.norm, self.output) for tensor in (part.weight, part.bias))
        for tensor in (self.embedding, *filter(torch.is_tensor, tensors)):
            tensor.share_memory_()
        self._start()
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    def encode(self, src: Int[Tensor, "b s"]) -> NativeState:
        """Read the source; return the state before the first target token."""
        return self.begin(self.model.encode(src))

    def begin(self, state: DecoderState) -> NativeState:
        """Return the state before the first target token, made from the textbook's; padding ends every source."""
        memory = [tensor.transpose(1, 2).flatten(2).contiguous() for layer in state.memory for tensor in layer]
        return NativeState(memory, state.memory_mask[:, 0, 0].sum(1).numpy())

    def step(self, last: Int[Tensor, " n"], state: NativeState) -> tuple[Float[Tensor, "n v"], NativeState]:
        """Continue every row by its last token; return the logits of the next tokens, and the same state."""
        rows, length, sources = len(last), state.past.shape[1], state.memory[0].shape[1]
        assert rows == len(state.past)
        config, last = self.model.config, last.long().contiguous()
        logits = torch.empty(rows, self.vocab_size, dtype=torch.float32)
        position = rotation = None
        if config.positions == "sinusoidal":
            position = sinusoidal(length, 1, config.d_model, last.device)
        elif config.positions == "rotary":
            rotation = rotations(length, 1, config.d_model // config.num_heads, last.device)
        state.add_slots()
        self._decoder.embedding = self.embedding.data_ptr()  # sharing the model with another process moves it

        def advance(first: int, end: int) -> None:
            step = _Step(
                end - first, state.used - rows + first, state.slots.shape[2], length + 1, sources,
                last[first:end].data_ptr(), state.sentence[first:end].ctypes.data, state.past[first:end].ctypes.data,
                state.lengths.ctypes.data, _address(position), _address(rotation), state.slots.data_ptr(),
                state.pointers, logits[first:end].data_ptr(),
            )  # fmt: skip
            if self._library.step(ctypes.byref(self._decoder), ctypes.byref(step)):
                raise MemoryError("no memory for a step of the search")

        self._share(advance, rows)
        return logits, state

    def limited_to(self, ids: Int[Tensor, " u"]) -> "NativeDecoder":
        """Return a decoder whose `step` reads and predicts indices into these ids; see `Decoder`."""
        limited, bias = NativeDecoder.__new__(NativeDecoder), self.model.output_bias
        vars(limited).update(vars(self))  # not `copy.copy`, which would call `__getstate__`
        limited.embedding, limited.vocab_size = self.embedding.index_select(0, ids), len(ids)
        bias = None if bias is None else bias.index_select(0, ids)
        limited.output = lay_out_map(limited.embedding, bias, self.block)
        limited._decoder = _Decoder.from_buffer_copy(self._decoder)
        limited._decoder.embedding, limited._decoder.output = limited.embedding.data_ptr(), _map(limited.output)
        return limited

    def best_next(
        self, logits: Float[Tensor, "n v"], forbidden: Bool[Tensor, "n v"], count: int
    ) -> tuple[Float[Tensor, "n c"], Int[Tensor, "n c"]]:
        """Return each row's best tokens, best first, without forbidden ones: log-probabilities (nats) and ids."""
        logits, forbidden, (rows, size) = logits.float().contiguous(), forbidden.contiguous(), logits.shape
        count = min(count, size)
        if count > MOST_COMPILED:
            values, tokens = logits.log_softmax(-1).masked_fill_(forbidden, -torch.inf).topk(count)
            return values, tokens
        values, tokens = (torch.empty(rows, count, dtype=dtype) for dtype in (torch.float32, torch.long))

        def find(first: int, end: int) -> None:
            addresses = [tensor[first:end].data_ptr() for tensor in (logits, forbidden, values, tokens)]
            self._library.best_next(end - first, size, count, *addresses)

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

    def _lay_out(self, layer: nn.Module) -> tuple[list[Norm], list[Map]]:
        """Return a layer's normalisations and linear maps, in the order of the C structure."""
        assert isinstance(layer, DecoderLayer)
        own, cross, network = layer.self_attention, layer.cross_attention, layer.feed_forward
        assert isinstance(network, FeedForward | GatedFeedForward)
        up = [network.gate, network.up] if isinstance(network, GatedFeedForward) else [network.up]
        together = (
            [own.q_proj, own.k_proj, own.v_proj], [own.out_proj], [cross.q_proj], [cross.out_proj], up, [network.down]
        )  # fmt: skip
        residuals = (layer.self_residual, layer.cross_residual, layer.feed_forward_residual)
        maps = [lay_out_map(*joined(linears), self.block) for linears in together]
        return [lay_out_norm(residual.norm) for residual in residuals], maps


def joined(linears: Sequence[nn.Linear]) -> tuple[Float[Tensor, "o i"], Float[Tensor, " o"] | None]:
    """Return W and b of several maps of one input: their outputs side by side."""
    weights: list[Tensor] = [linear.weight for linear in linears]
    of_maps: list[Tensor | None] = [linear.bias for linear in linears]
    biases = [bias for bias in of_maps if bias is not None]
    return torch.cat(weights), torch.cat(biases) if biases else None


@torch.no_grad()
def lay_out_map(weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"] | None, block: int) -> Map:
    """Return a copy of x Wᵀ + b in the layout of the C code, whose blocks have `block` outputs."""
    outputs, missing = len(weight), -len(weight) % block
    blocks = F.pad(weight.float(), (0, 0, 0, missing)).reshape(-1, block, weight.shape[1]).transpose(1, 2)
    biases = F.pad(weight.new_zeros(outputs) if bias is None else bias.float(), (0, missing))
    return Map(blocks.clone(memory_format=torch.contiguous_format), biases.clone(), outputs)


def lay_out_norm(module: nn.Module) -> Norm:
    """Return a copy of a normalisation's weights."""
    if isinstance(module, nn.LayerNorm):
        return Norm(module.weight.detach().float().clone(), module.bias.detach().float().clone(), module.eps)
    if isinstance(module, nn.RMSNorm):
        assert module.eps is not None
        return Norm(module.weight.detach().float().clone(), None, module.eps)
    return Norm(None, None, 0.0)


def _map(layout: Map) -> _Map:
    return _Map(layout.weight.data_ptr(), layout.bias.data_ptr(), layout.weight.shape[1], layout.outputs)


def _norm(layout: Norm) -> _Norm:
    return _Norm(_address(layout.weight), _address(layout.bias), layout.eps)


def _address(values: Tensor | None) -> int | None:
    return None if values is None else values.data_ptr()
