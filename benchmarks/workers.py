"""Speed of translating a long file on the CPU: several processes, one process, and CTranslate2, in turns."""

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.command import Options, Results, Table
from benchmarks.ctranslate import Contestant, export_all
from benchmarks.data import joint, read_test
from benchmarks.decoding import LIMIT
from benchmarks.race import Spread, race
from seq2seq.apps.distributed.bulk import stream
from seq2seq.evaluation.metrics import bleu
from seq2seq.translate.bundle import load_bundle
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import Text

SHORT = 4  # a quarter of the lines is also measured and subtracted, so that the start does not count


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `workers`."""

    data: Path  # folder with test.tsv, whose sentences are the lines of the file
    model: Path  # bundle of the published style (model/style=vaswani), which CTranslate2 can compute
    lines: int = 8192  # lines of the file; test.tsv is repeated if it has fewer
    workers: int = 2  # processes of this project, which share the threads (--workers of translate.py)
    rounds: int = 3  # times that every program translates the file; the table shows the median and the range
    beam: int = 5  # hypotheses that the search keeps; 1 is greedy search


def run(plan: Plan, device: torch.device) -> Results:
    """Translate the sources with early stopping; each contestant uses all of PyTorch's threads."""
    pairs = list(itertools.islice(itertools.cycle(read_test(plan.data)), plan.lines))
    lines, threads = [source for source, _ in pairs], torch.get_num_threads()
    bundle = load_bundle(plan.model)
    tokenizer = joint(bundle.tokenizer)
    translator = Translator(bundle.model, bundle.tokenizer, search=LIMIT, device="cpu")
    request = translator.request(beam=plan.beam, length_penalty=1.0, early_stopping=plan.beam > 1)
    with tempfile.TemporaryDirectory() as folder:
        exports = export_all(bundle.model, tokenizer, LIMIT, Path(folder))
        ct2 = Contestant(exports["float32"], threads, "many batches")
    longest = max(len(ids) for ids in tokenizer.encode(lines))
    limit = int(longest * LIMIT.max_length_ratio + LIMIT.max_length_offset)

    def ours(workers: int) -> Callable[[list[str]], list[str]]:
        def translate(some: list[str]) -> list[str]:
            texts = [*map(Text, some)]
            found = translator.stream(texts, request) if workers == 1 else stream(translator, texts, request, workers)
            return [best[0].text for best in found]

        return translate

    several = f"this project, --workers {plan.workers}"
    contestants = {
        several: ours(plan.workers),
        "this project": ours(1),
        f"CTranslate2, {threads} batches at a time": lambda some: tokenizer.decode(
            ct2.search(some, beam=plan.beam, max_length=limit)
        ),
    }
    short, whole = (
        race(contestants, [some], work=len(some), rounds=plan.rounds, device=device) for some in (lines[::SHORT], lines)
    )
    rates, rows, references = {}, [], [target for _, target in pairs]
    for name in contestants:
        seconds = [long - part for long, part in zip(whole.seconds[name], short.seconds[name], strict=True)]
        rates[name] = [(len(lines) - len(lines[::SHORT])) / one for one in seconds]
        ratio = Spread.of_ratios(rates[several], rates[name])
        rows.append(
            [name, Spread.of(rates[name]).show(1), ratio.show(2), f"{bleu(whole.outputs[name][0], references):.2f}"]
        )
    header = [f"a file, beam {plan.beam}", "lines/s (range)", "first ÷ it (range)", "BLEU"]
    return {"rates": rates}, [Table("Processes", header, rows)]
