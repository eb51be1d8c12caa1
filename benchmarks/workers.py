"""Compare lines per second of a long file: several processes (`--workers`), one process, and CTranslate2."""

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.ctranslate import Contestant, export_all
from benchmarks.data import one_of
from benchmarks.decoding import LIMIT
from benchmarks.race import Spread
from benchmarks.tables import Table
from seq2seq.bundle import load_bundle
from seq2seq.distributed.processes import stream
from seq2seq.evaluation.metrics import bleu
from seq2seq.interface import SearchRequest, Text
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translator import Translator

_SHORT = 4  # a quarter of the lines is also measured and subtracted, so that the start does not count


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of the measurement."""

    lines: int = 8192
    workers: int = 2
    rounds: int = 3
    beam: int = 5


def run(plan: Plan, model: Path, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Translate the sources with early stopping, in turns; each contestant uses all of PyTorch's threads."""
    threads, lines = torch.get_num_threads(), [src for src, _ in itertools.islice(itertools.cycle(pairs), plan.lines)]
    bundle = load_bundle(model)
    tokenizer = one_of(bundle.tokenizer)
    translator = Translator(bundle.model, Tokenizers.joint(tokenizer), search=LIMIT, device="cpu")
    request = translator.request(beam=plan.beam, length_penalty=1.0, early_stopping=plan.beam > 1)
    with tempfile.TemporaryDirectory() as folder:
        exports = export_all(bundle.model, tokenizer, LIMIT, Path(folder))
        split = Contestant(exports["float32"], threads, "split")

    def ours(workers: int) -> Callable[[list[str]], list[str]]:
        return lambda some: _ours(translator, request, workers, some)

    def theirs(some: list[str]) -> list[str]:
        return tokenizer.decode(split.search_file(some, beam=plan.beam, limit=LIMIT))

    contestants = {
        f"this project, --workers {plan.workers}": ours(plan.workers),
        "this project": ours(1),
        f"CTranslate2, {threads} batches at a time": theirs,
    }
    outputs: dict[str, list[str]] = {}
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(plan.rounds):
        names = list(contestants)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            short, long = (_seconds(contestants[name], some, outputs, name) for some in (lines[::_SHORT], lines))
            rates[name].append(plan.lines * (1 - 1 / _SHORT) / (long - short))
    references = [tgt for _, tgt in itertools.islice(itertools.cycle(pairs), plan.lines)]
    rows, first = [], next(iter(contestants))
    for name, of_name in rates.items():
        ratio = Spread.of([a / b for a, b in zip(rates[first], of_name, strict=True)])
        rows.append([name, Spread.of(of_name).show(1), ratio.show(2), f"{bleu(outputs[name], references):.2f}"])
    header = [f"a file, beam {plan.beam}", "lines/s (range)", "first ÷ it (range)", "BLEU"]
    return {"plan": asdict(plan), "rates": rates, "tables": [asdict(Table("Processes", header, rows))]}


def _ours(translator: Translator, request: SearchRequest, workers: int, lines: list[str]) -> list[str]:
    texts = [*map(Text, lines)]
    found = translator.stream(texts, request) if workers == 1 else stream(translator, texts, request, workers)
    return [best[0].text for best in found]


def _seconds(
    translate: Callable[[list[str]], list[str]], lines: list[str], outputs: dict[str, list[str]], name: str
) -> float:
    start = time.perf_counter()
    outputs[name] = translate(lines)
    return time.perf_counter() - start
