"""Count the tensor operations of a step of a search, for the model and for the search; views count as operations."""

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.recording import record
from benchmarks.tables import Table
from seq2seq import engine
from seq2seq.model.decoding import FlatDecoder
from seq2seq.model.graphs import GraphedDecoder
from seq2seq.model.transformer import Transformer
from seq2seq.search_engine import Source
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig

MODEL = ModelConfig(d_model=64, num_heads=4, d_ff=128, num_encoder_layers=3, num_decoder_layers=4)
VOCAB_SIZE = 1024
SHORT, LONG = 10, 20  # tokens in the two searches; a step's count comes from the difference of the two
VIEWS = ("view", "slice", "transpose", "select", "permute", "unbind", "unsqueeze", "squeeze", "expand", "split")


class _Counting(TorchDispatchMode):
    """Counts operations by the package that called them and by whether they only make a view."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[tuple[str, bool]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        frame: Any = sys._getframe(1)
        while frame is not None and "/seq2seq/" not in frame.f_code.co_filename:
            frame = frame.f_back
        asked_by = "search" if frame is not None and "/search/" in frame.f_code.co_filename else "model"
        self.seen[asked_by, func.overloadpacket.__name__ in VIEWS] += 1
        return func(*args, **(kwargs or {}))


def per_step(beam: int, sentences: int = 1, *, is_recorded: bool = False) -> dict[str, float]:
    """Return the number of operations per step: in the model, in the search, and views in both.

    is_recorded counts what remains for Python beside the recorded step of a GPU's `--compile`.
    """
    torch.manual_seed(0)
    model, sources, seen = Transformer(MODEL, VOCAB_SIZE).eval(), [Source([*range(5, 12)])] * sentences, []
    recorded = GraphedDecoder(FlatDecoder(model, torch.float32), lambda: record)
    decoder = mock.patch.object(engine, "for_search", return_value=recorded) if is_recorded else nullcontext()
    with decoder:
        searching = engine.Engine(model, torch.device("cpu"), torch.float32, is_frozen=True)
        for length in (SHORT, LONG):
            settings = SearchConfig(beam=beam, max_length_ratio=0.0, max_length_offset=length)
            list(searching.search(sources, settings, 1))  # lays out the weights, and records the steps
            with _Counting() as counting:
                list(searching.search(sources, settings, 1))
            seen.append(counting.seen)
    steps = LONG - SHORT
    found = {key: (count - seen[0][key]) / steps for key, count in seen[1].items()}
    by_package = {name: found.get((name, True), 0.0) + found.get((name, False), 0.0) for name in ("model", "search")}
    return {**by_package, "views": sum(count for (_, is_view), count in found.items() if is_view)}


def run() -> dict[str, Any]:
    """Count operations for one sentence, by beam search and greedy search, with a decoder of four layers."""
    counts = {
        "beam 5": per_step(5),
        "greedy": per_step(1),
        "beam 5, beside a recorded step": per_step(5, is_recorded=True),
        "greedy, beside a recorded step": per_step(1, is_recorded=True),
    }
    header = ["operations a step, one sentence, 4 decoder layers", "model", "search", "views among them"]
    rows = [[name, *(f"{count:.0f}" for count in found.values())] for name, found in counts.items()]
    return {"per_step": counts, "tables": [asdict(Table("Operations", header, rows))]}
