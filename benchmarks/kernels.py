"""Operations that the host sends to a GPU for an update and for a step of a search, counted without a GPU."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from benchmarks.command import Options, Results, Table
from benchmarks.data import drawn_pairs
from benchmarks.ours import SEED, Updates
from seq2seq.data.batching import Batch, all_indices, gather
from seq2seq.model import attention, layers
from seq2seq.model.build import build_model
from seq2seq.search.types import Source
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.training import loss
from seq2seq.training.module import TranslationModule
from seq2seq.training.replay import Computation
from seq2seq.translate.engine import Engine

VOCAB_SIZE, MAX_TOKENS = 100, 256  # sizes change no number of operations, layers do
BASE = ModelConfig(d_model=32, num_heads=4, d_ff=64, num_encoder_layers=6, num_decoder_layers=6, dropout=0.1)
MODERN = replace(BASE, norm_position="pre", norm="rmsnorm", activation="swiglu", positions="rotary", bias=False)
TRAININGS = {  # name: network and optimizer
    "vaswani, AdamW": (BASE, "adamw"),
    "modern, AdamW": (MODERN, "adamw"),
    "modern, Muon": (MODERN, "muon"),
}
KINDS = {  # name: beginnings of PyTorch's names of operations
    "casts and copies": ("_to_copy", "copy_", "clone"),
    "products": ("mm", "addmm", "bmm", "baddbmm"),
    "attention": ("_scaled_dot_product",),
    "norms": ("native_layer_norm",),
    "dropout": ("native_dropout",),
    "clipping and optimizer": ("_foreach", "_fused_adamw", "linalg_vector_norm"),
    "sums": ("sum", "add", "sub"),
    "other elementwise operations": ("",),
}
_FREE = ("empty", "detach", "_unsafe_view", "_reshape_alias", "_local_scalar_dense")  # no work for the device


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `kernels`: only the common ones; --device changes nothing."""


def run(plan: Plan, device: torch.device) -> Results:
    """Count the operations of an update for each style and optimizer with the layers of model=base."""
    counts = {name: count_update(*training) for name, training in TRAININGS.items()}
    recorded = {name: count_update(*training, is_recorded=True) for name, training in TRAININGS.items()}
    rows = [[kind, *(str(by_kind(one)[kind]) for one in counts.values())] for kind in KINDS]
    rows.append(["all", *(str(one.total()) for one in counts.values())])
    rows.append(["beside one recorded graph", *(str(one.total()) for one in recorded.values())])
    searches = {
        f"{style}, {name}": count_step(model, beam)
        for style, model in {"vaswani": BASE, "modern": MODERN}.items()
        for name, beam in {"greedy": 1, "beam 5": 5}.items()
    }
    steps = [[kind, *(str(by_kind(one)[kind]) for one in searches.values())] for kind in KINDS]
    steps.append(["all", *(str(one.total()) for one in searches.values())])
    tables = [
        Table("Operations of an update on a GPU, 6 + 6 layers, bf16", ["", *TRAININGS], rows),
        Table("Operations of a step of a search, likewise", ["", *searches], steps),
    ]
    return {"operations": counts, "recorded": recorded, "steps": searches}, tables


class Operations(TorchDispatchMode):
    """Counts operations that compute while the mode is active; views and new memory are not counted."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if func.namespace == "aten" and not func.is_view and not name.startswith(_FREE):
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


def by_kind(counts: Counter[str]) -> Counter[str]:
    """Return the number of operations of each kind of `KINDS`."""
    found: Counter[str] = Counter()
    for name, count in counts.items():
        found[next(kind for kind, names in KINDS.items() if name.startswith(names))] += count
    return found


@contextmanager
def as_a_gpu_computes() -> Iterator[None]:
    """Inside the block, training on the CPU sends a GPU's operations."""

    def dropped(self: layers.Dropout, x: Tensor) -> Tensor:
        return torch.native_dropout(x, self.rate, True)[0] if self.training and self.rate else x

    def normed(x: Tensor, shape: list[int], weight: Tensor, eps: float) -> Tensor:
        return F.layer_norm(x, shape, weight, None, eps)  # as many operations as a GPU's RMSNorm

    with (
        mock.patch.object(attention, "uses_fused_kernel", return_value=True),
        mock.patch.object(layers.Dropout, "forward", dropped),
        mock.patch.object(F, "rms_norm", normed),
        mock.patch.object(loss, "LEAVES_OUT_PADDING", ()),
        mock.patch.object(loss, "CHUNK", loss.CHUNK_ELSEWHERE),
        mock.patch.object(TranslationModule, "require_finite"),  # a GPU would be waited for
    ):
        yield


def record_uncounted(compute: Computation) -> Computation:
    """Return what computes again, with no operation counted, as a graph that is replayed."""

    def run() -> tuple[Tensor, ...]:
        with _disable_current_modes():
            return compute()

    return run


def count_update(model: ModelConfig, optimizer: str, *, is_recorded: bool = False) -> Counter[str]:
    """Return the number of each operation in the second or the third update, whichever has more.

    With is_recorded, the recorded graph's operations are not counted.
    """
    training = TrainingConfig(max_tokens=MAX_TOKENS, learning_rate=1e-3, label_smoothing=0.1, optimizer=optimizer)
    batch = make_batch()
    with as_a_gpu_computes():
        recorder = record_uncounted if is_recorded else None
        module = TranslationModule(build_model(model, VOCAB_SIZE), training, is_bf16=True, recorder=recorder)
        updates = Updates(module)
        updates.update(batch)  # the optimizer makes its state
        counts = []
        for _ in range(2):  # Muon changes the matrices in every second update
            with Operations() as operations:
                updates.update(batch)
            counts.append(operations.counts)
    return max(counts, key=lambda one: one.total())


def count_step(model: ModelConfig, beam: int) -> Counter[str]:
    """Return the number of each operation in the fourth step of a search for eight sources.

    It has a step's usual rows: in the first, each source has one.
    """
    at_step: list[Counter[str]] = []
    settings = SearchConfig(beam=beam, max_length_ratio=0.0, max_length_offset=8)
    with as_a_gpu_computes(), Operations() as operations:
        engine = Engine(build_model(model, VOCAB_SIZE), "cpu", torch.bfloat16, compiles="off")
        sources = [Source(src.tolist()) for src, _ in drawn_pairs(8, VOCAB_SIZE, SEED)]
        list(engine.search(sources, settings, 1, on_step=lambda: at_step.append(operations.counts.copy())))
    return at_step[4] - at_step[3]


def make_batch() -> Batch:
    """Return a batch of random ids."""
    pairs = drawn_pairs(8, VOCAB_SIZE, SEED)
    return gather(pairs, all_indices(len(pairs)))
