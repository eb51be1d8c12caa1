"""The decoder for search in C (`decoding.c`): `FlatDecoder`'s step in one call, for the CPU in float32.

The library is compiled for this processor by the C compiler that is there, in about a second, and kept in the cache.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int64
from torch import Tensor, nn

from seq2seq.errors import UserError, in_short
from seq2seq.model.layers import DecoderLayer, FeedForward, GatedFeedForward
from seq2seq.model.positions import rotations, sinusoidal
from seq2seq.model.products import joined_weights
from seq2seq.model.state import aligning_layer
from seq2seq.model.transformer import Transformer
from seq2seq.settings.data import cache_root

SPARE_STEPS = 32  # steps for which slots are allotted at first and after every clearing
_SOURCE = Path(__file__).with_name("decoding.c")
# Sums may be taken in any order, as in any library of matrix products; -ffast-math would change all of the process.
_FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros")


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
        *((name, ctypes.c_int64) for name in ("layers", "heads", "width", "is_pre_norm", "is_gated", "watched")),
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
    """Everything that a `NativeDecoder` remembers of one search; steps and `reorder` change it in place.

    Attributes:
        memory: each layer's keys and values of the encoded sentences, (b, s, d) each.
        lengths: tokens of the sources.
        slots: keys and values of the target tokens, (layers, 2, capacity, d); the first `used` are written.
        past: the slots of each row's target tokens.
        sentence: each row's sentence, by its index in `memory`.
        watches: whether the aligning layer's cross-attention is kept.
        attention: how much each row took of each source position in the last step, mean of the heads.
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
        """Keep the attention of the layer that aligns best from now on, in this very state."""
        self.watches = True
        return self

    def reorder(self, rows: Int[Tensor, " n"], counts: Sequence[int]) -> "NativeState":
        """Let new row i continue old row rows[i]; no key and no value moves."""
        index = rows.numpy()
        self.past, self.sentence = self.past[index], self.sentence[index]
        return self

    def add_slots(self) -> None:
        """Give every row a slot for its next token; if there is none left, clear those that are no row's past."""
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
    """A Transformer's decoder for search, compiled; a `Decoder` (see `decoding.py`) with a copy of the weights."""

    def __init__(self, model: Transformer) -> None:
        """Lay out the present weights.

        Raises:
            UserError: there is no C compiler, or it fails.
        """
        config = model.config
        self.library, self.model, self.positions = load_library(), model, config.positions
        self.channels, self.vocab_size = config.d_model // config.num_heads, len(model.embedding.weight)
        self._kept: list[Tensor] = []  # the tensors that the C structures point to
        self._embedding = model.embedding.weight.detach().float().contiguous()
        layers = [self._layer(layer) for layer in model.decoder_layers if isinstance(layer, DecoderLayer)]
        self._layers = (_Layer * len(layers))(*layers)
        self._decoder = _Decoder(
            len(layers), config.num_heads, config.d_model, config.norm_position == "pre", config.activation == "swiglu",
            aligning_layer(len(layers)), config.d_model**0.5, self._embedding.data_ptr(), self._layers,
            self._norm(model.decoder_norm), self._map([], weight=self._embedding),
        )  # fmt: skip

    def encode(self, src: Int[Tensor, "b s"]) -> NativeState:
        """Read the source by the textbook encoder; return the state before the first target token."""
        state = self.model.encode(src)
        memory = [part.transpose(1, 2).flatten(2).float().contiguous() for layer in state.memory for part in layer]
        return NativeState(memory, state.memory_mask.sum((1, 2, 3)).numpy())

    def step(self, last: Int[Tensor, " n"], state: NativeState) -> tuple[Float[Tensor, "n v"], NativeState]:
        """Continue every row by its last token; return the logits of the next tokens, and the same state."""
        rows, length, sources = len(last), state.past.shape[1], state.memory[0].shape[1]
        cpu, last = last.device, last.contiguous()
        logits = torch.empty(rows, self.vocab_size)
        position = sinusoidal(length, 1, self._decoder.width, cpu) if self.positions == "sinusoidal" else None
        rotation = rotations(length, 1, self.channels, cpu) if self.positions == "rotary" else None
        state.attention = torch.zeros(rows, 1, sources) if state.watches else None
        state.add_slots()
        step = _Step(
            rows, state.used - rows, state.slots.shape[2], length + 1, sources, last.data_ptr(),
            state.sentence.ctypes.data, state.past.ctypes.data, state.lengths.ctypes.data, _pointer(position),
            _pointer(rotation), state.slots.data_ptr(), state.pointers, logits.data_ptr(), _pointer(state.attention),
        )  # fmt: skip
        if self.library.step(ctypes.byref(self._decoder), ctypes.byref(step)):
            raise MemoryError("no memory for a step of the search")
        return logits, state

    def best_next(
        self, logits: Float[Tensor, "n v"], banned: Int[Tensor, " u"], count: int
    ) -> tuple[Float[Tensor, "n c"], Int[Tensor, "n c"]]:
        """Return each row's best tokens, best first, without the banned ones: log-probabilities (nats) and ids."""
        rows, size = logits.shape
        count = min(count, size)
        values, tokens = torch.empty(rows, count), torch.empty(rows, count, dtype=torch.long)
        self.library.best_next(
            *(_pointer(logits), ctypes.c_int64(rows), ctypes.c_int64(size), _pointer(banned)),
            *(ctypes.c_int64(len(banned)), ctypes.c_int64(count), _pointer(values), _pointer(tokens)),
        )
        return values, tokens

    def _layer(self, layer: DecoderLayer) -> _Layer:
        own, cross, network = layer.self_attention, layer.cross_attention, layer.feed_forward
        assert isinstance(network, FeedForward | GatedFeedForward)
        up = [network.gate, network.up] if isinstance(network, GatedFeedForward) else [network.up]
        norms = (residual.norm for residual in (layer.self_residual, layer.cross_residual, layer.feed_forward_residual))
        maps = (
            self._map([own.q_proj, own.k_proj, own.v_proj], [own.stretch, 1.0, 1.0]), self._map([own.out_proj]),
            self._map([cross.q_proj], [cross.stretch]), self._map([cross.out_proj]), self._map(up, [1.0] * len(up)),
            self._map([network.down]),
        )  # fmt: skip
        return _Layer((_Norm * 3)(*map(self._norm, norms)), (_Map * 6)(*maps))

    def _map(self, maps: Sequence[nn.Module], stretches: Sequence[float] = (1.0,), weight: Any = None) -> _Map:
        """Lay out maps of the same input as one: blocks of outputs, each (in, block)."""
        weight, bias = (weight, None) if weight is not None else joined_weights(maps, stretches)
        outputs, inputs = weight.shape
        block = self.library.block_size()
        padded = F.pad(weight.float(), (0, 0, 0, -outputs % block)).unflatten(0, (-1, block)).transpose(1, 2)
        biases = F.pad(weight.new_zeros(outputs) if bias is None else bias.float(), (0, -outputs % block))
        return _Map(self._keep(padded), self._keep(biases), inputs, outputs)

    def _norm(self, module: nn.Module) -> _Norm:
        if isinstance(module, nn.LayerNorm):
            return _Norm(self._keep(module.weight), self._keep(module.bias), module.eps)
        if isinstance(module, nn.RMSNorm):
            return _Norm(self._keep(module.weight), None, module.eps)
        return _Norm(None, None, 0.0)

    def _keep(self, values: Tensor) -> int:
        """Return the address of a copy."""
        self._kept.append(values.detach().float().clone(memory_format=torch.contiguous_format))
        return self._kept[-1].data_ptr()


def _pointer(values: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if values is None else values.data_ptr())


@cache
def load_library() -> ctypes.CDLL:
    """Load the compiled code from the cache, or compile it.

    Raises:
        UserError: there is no C compiler, or it fails.
    """
    wanted = os.environ.get("CC", "cc")
    compiler = shutil.which(wanted)
    if compiler is None:
        raise UserError(
            f"--compile needs a C compiler, and there is no {wanted}: install gcc or clang, or leave it out"
        )
    version = subprocess.run([compiler, "--version"], capture_output=True).stdout
    key = hashlib.sha256(b"\0".join([_SOURCE.read_bytes(), version, _processor(), *map(str.encode, _FLAGS)]))
    path = cache_root() / f"decoding-{key.hexdigest()[:20]}.so"
    if not path.exists():
        _compile(compiler, path)
    library = ctypes.CDLL(str(path))
    library.block_size.restype = ctypes.c_int64
    return library


def _compile(compiler: str, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            draft = Path(folder, path.name)
            command = [compiler, *_FLAGS, "-shared", "-fPIC", "-o", str(draft), str(_SOURCE), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode or not draft.exists():
                told = in_short(done.stderr) or "wrote nothing"
                raise UserError(f"{compiler} cannot compile {_SOURCE}: {told}: leave out --compile")
            draft.replace(path)
    except OSError as error:
        told = f"cannot write {path.parent} ({error.strerror}): set SEQ2SEQ_CACHE to another folder"
        raise UserError(told) from error


def _processor() -> bytes:
    """Tell this processor from others that the cache's folder may serve."""
    about = Path("/proc/cpuinfo")
    return about.read_bytes().partition(b"\n\n")[0] if about.exists() else platform.processor().encode()
