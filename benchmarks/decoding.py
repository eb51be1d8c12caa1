"""Decoding speed: beam search of this project, CTranslate2 and Hugging Face in turns, with the same weights."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from benchmarks import huggingface
from benchmarks.command import Options, Results, Table
from benchmarks.data import joint, read_test
from benchmarks.race import Race, race
from seq2seq.apps.exchange.huggingface import to_marian
from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import bleu
from seq2seq.search.shortlist import Shortlist
from seq2seq.settings.search import Compile, SearchConfig
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.translate.bundle import Bundle, load_bundle
from seq2seq.translate.segmenter import MAX_SOURCE_TOKENS
from seq2seq.translate.translator import Translator

LIMIT = SearchConfig(max_length_ratio=1.3, max_length_offset=8)  # as in conf/experiment/tatoeba_cpu.yaml
CONTESTANTS = {  # the row's name, and for a rival our contestant with the same stopping rule; in the order of the table
    "ours": ("this project, exact", ""),
    "ours-textbook": ("this project, exact, `--compile off`", ""),
    "hf-exact": ("Hugging Face, exact", "ours"),
    "ours-early": ("this project, early stopping", ""),
    "ours-early-textbook": ("this project, early stopping, `--compile off`", ""),
    "hf": ("Hugging Face", "ours-early"),
    "hf-eager": ("Hugging Face, eager attention", "ours-early"),
    "ct2": ("CTranslate2", "ours-early"),
    "ours-ct2-int8": ("this project, `--engine ctranslate2`, int8", ""),
}


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `decoding`."""

    data: Path  # folder with test.tsv, whose sentences are translated
    model: Path  # bundle of the published style (model/style=vaswani), the only style that all programs can compute
    rounds: int = 3  # times that every program translates all sentences; the table shows the median and the range
    sentences: int = 320  # sentences to translate, from the beginning of test.tsv
    batch: int = 32  # sentences that are translated at once; 1 shows how long a single sentence takes
    beam: int = 5  # hypotheses that the search keeps; 1 is greedy search
    # file of `seq2seq shortlist`, to measure this project's exact search with it, too; may be given several times
    shortlist: list[Path] = field(default_factory=list)


@dataclass(frozen=True)
class Block:
    """One batch of source sentences of similar lengths."""

    texts: list[str]
    references: list[str]
    max_length: int  # most tokens of a translation without EOS: our limit for the longest source


Translate = Callable[[Block], list[str]]


def run(plan: Plan, device: torch.device) -> Results:
    """Measure all contestants and score their translations."""
    bundle, pairs = load_bundle(plan.model), read_test(plan.data)
    tokenizer = joint(bundle.tokenizer)
    bundle.model.to(device).eval()
    blocks = cut(pairs, tokenizer, plan)
    with tempfile.TemporaryDirectory() as folder:
        entered = contestants(bundle, tokenizer, plan, device, Path(folder))
    count = sum(len(block.texts) for block in blocks)
    result = race(entered, blocks, work=count, rounds=plan.rounds, device=device)
    references = [text for block in blocks for text in block.references]
    texts = {name: [*chain(*of_blocks)] for name, of_blocks in result.outputs.items()}
    first = next(iter(texts.values()))
    scores = {
        name: (bleu(found, references), sum(a == b for a, b in zip(found, first, strict=True)) / len(first))
        for name, found in texts.items()
    }
    values = {"bleu_and_share_same": scores, "sentences": count, "seconds": result.seconds}
    return values, [table(result, scores, plan.beam)]


def cut(pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, plan: Plan) -> list[Block]:
    """Return batches of the first sentences, longest first, without texts that `Translator` would split."""
    lengths = [len(ids) for ids in tokenizer.encode([src for src, _ in pairs[: plan.sentences]])]
    chosen = [index for index, length in enumerate(lengths) if 0 < length <= MAX_SOURCE_TOKENS]
    if not chosen:
        raise UserError("there is no sentence to translate: give --data with a test.tsv that has text")
    chosen.sort(key=lambda index: lengths[index], reverse=True)
    batches = [chosen[start : start + plan.batch] for start in range(0, len(chosen), plan.batch)]
    longest = [int(lengths[batch[0]] * LIMIT.max_length_ratio + LIMIT.max_length_offset) for batch in batches]
    return [
        Block([pairs[i][0] for i in batch], [pairs[i][1] for i in batch], most)
        for batch, most in zip(batches, longest, strict=True)
    ]


def contestants(
    bundle: Bundle, tokenizer: Tokenizer, plan: Plan, device: torch.device, folder: Path
) -> dict[str, Translate]:
    """Return all contestants with the model's weights; the folder receives the exports for CTranslate2.

    Greedy search has only one stopping rule, so the contestants with the exact rule take part only in beam search. A
    shortlist's search is exact and has the name of its file.
    """
    early = replace(LIMIT, early_stopping=plan.beam > 1)
    ours: list[tuple[str, SearchConfig, Compile, Path | None]] = [
        ("ours", LIMIT, "auto", None),
        ("ours-textbook", LIMIT, "off", None),
        ("ours-early", early, "auto", None),
        ("ours-early-textbook", early, "off", None),
        *((f"this project, exact, `{file.name}`", LIMIT, "auto", file) for file in plan.shortlist),
    ]
    entered: dict[str, Translate] = {}
    for name, search, compiles, file in ours:
        translator = Translator(
            bundle.model, bundle.tokenizer, search=search, device=device, dtype=torch.float32, compiles=compiles,
            shortlist=file and Shortlist.load(file),
        )  # fmt: skip
        entered[name] = lambda block, t=translator: t.translate(block.texts, beam=plan.beam, length_penalty=1.0)
    marian = to_marian(bundle.model)
    theirs: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("hf", marian, {}),
        ("hf-eager", to_marian(bundle.model, "eager"), {}),
        ("hf-exact", marian, huggingface.EXACT),
    )
    for name, model, options in theirs:
        entered[name] = lambda block, m=model, o=options: huggingface.translate(
            m, tokenizer, block.texts, beam=plan.beam, max_length=block.max_length, **o
        )
    if device.type == "cpu":
        entered |= exported(bundle, tokenizer, plan, folder)
    absent = {"ours", "ours-textbook", "hf-exact"} if plan.beam == 1 else set[str]()
    if device.type != "cpu":  # no search is compiled there
        absent |= {"ours-textbook", "ours-early-textbook"}
    return {name: entered[name] for name in (*CONTESTANTS, *entered) if name in entered.keys() - absent}


def exported(bundle: Bundle, tokenizer: Tokenizer, plan: Plan, folder: Path) -> dict[str, Translate]:
    """Return the contestants that compute with CTranslate2, here on the CPU only."""
    from benchmarks.ctranslate import Contestant, Way, export_all  # a race on a GPU needs no CTranslate2

    exports, threads = export_all(bundle.model, tokenizer, LIMIT, folder), torch.get_num_threads()
    ways: tuple[tuple[str, str, Way], ...] = (("ct2", "float32", "one batch"), ("ours-ct2-int8", "int8", "engine"))
    entered: dict[str, Translate] = {}
    for name, precision, way in ways:
        contestant = Contestant(exports[precision], threads, way)
        entered[name] = lambda block, c=contestant: tokenizer.decode(
            c.search(block.texts, beam=plan.beam, max_length=block.max_length)
        )
    return entered


def row_name(name: str, beam: int) -> str:
    """Return a contestant's name in tables; greedy search has no stopping rule."""
    return CONTESTANTS.get(name, (name, ""))[0].replace(", early stopping", "" if beam == 1 else ", early stopping")


def table(result: Race, scores: dict[str, tuple[float, float]], beam: int) -> Table:
    """Return a table with one row per contestant."""
    rows = []
    for name in result.seconds:
        _, ours = CONTESTANTS.get(name, (name, ""))
        ratios = [
            result.ratio(one, name).show(2) if one in result.seconds else "" for one in (ours, f"{ours}-textbook")
        ]
        score, same = scores[name]
        rows.append([row_name(name, beam), result.rate(name).show(1), *ratios, f"{score:.2f}", f"{same:.1%}"])
    header = [
        "search",
        "sentences/s (range)",
        "× faster than it: this project, same rule (range)",
        "without a compiler",
    ]
    return Table("Decoding", [*header, "BLEU", "same as first"], rows)
