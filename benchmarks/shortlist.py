"""Compare sentences per second and BLEU of this project's beam search without and with shortlists."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.data import one_of
from benchmarks.decoding import LIMIT, Block, Pairs, Plan, cut, share_equal
from benchmarks.race import race
from benchmarks.tables import Table
from seq2seq.bundle import Bundle
from seq2seq.evaluation.metrics import bleu
from seq2seq.search.shortlist import Shortlist
from seq2seq.translator import Translator

WHOLE = "the whole vocabulary"


def run(bundle: Bundle, files: Sequence[Path], pairs: Pairs, plan: Plan, device: torch.device) -> dict[str, Any]:
    """Translate the first test sentences with every shortlist, compiled and not; return JSON values."""
    tokenizer = one_of(bundle.tokenizer)
    blocks = cut(pairs, tokenizer, plan)
    shortlists = {WHOLE: None} | {f"`{file.name}`": Shortlist.load(file) for file in files}
    is_compiled = [False, True] if device.type == "cpu" and shutil.which("cc") else [False]
    model = bundle.model.to(device).eval()
    translators = {
        (name, compiled): Translator(
            model, bundle.tokenizer, search=LIMIT, device=device, dtype=torch.float32, 
            compiles="on" if compiled else "off", shortlist=shortlist,
        )
        for compiled in is_compiled
        for name, shortlist in shortlists.items()
    }  # fmt: skip
    outputs: dict[tuple[str, bool], dict[int, str]] = {one: {} for one in translators}

    def translating(one: tuple[str, bool]) -> Callable[[Block], None]:
        def translate(block: Block) -> None:
            found = translators[one].translate(block.texts, beam=plan.beam, length_penalty=1.0)
            outputs[one].update(zip(block.indices, found, strict=True))

        return translate

    runs = {_told(*one): translating(one) for one in translators}
    count = sum(len(block.texts) for block in blocks)
    result = race(runs, blocks, work=count, rounds=plan.rounds, device=device)
    chosen = sorted(outputs[WHOLE, False])
    whole, references = [outputs[WHOLE, False][i] for i in chosen], [pairs[i][1] for i in chosen]
    rows, ids = [], [tokenizer.encode(block.texts) for block in blocks]
    for name, compiled in translators:
        shortlist, told = shortlists[name], _told(name, compiled)
        sizes = [tokenizer.vocab_size if shortlist is None else len(shortlist.union(one)) for one in ids]
        texts = [outputs[name, compiled][i] for i in chosen]
        rows.append(
            [
                *(told, f"{sum(sizes) / len(sizes):,.0f}", result.rate(told).show(1)),
                "" if shortlist is None else result.ratio(told, _told(WHOLE, compiled)).show(2),
                *(f"{bleu(texts, references):.2f}", f"{share_equal(texts, whole):.1%}"),
            ]
        )
    header = [
        f"beam {plan.beam}, batch {plan.batch}",
        "subwords",
        "sentences/s (range)",
        "× faster than without (range)",
    ]
    table = Table("Shortlists", [*header, "BLEU", "same as first"], rows)
    return {"plan": asdict(plan), **result.to_dict({}), "tables": [asdict(table)]}


def _told(name: str, is_compiled: bool) -> str:
    return name if is_compiled else f"{name}, `--compile off`"
