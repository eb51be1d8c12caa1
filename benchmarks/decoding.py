"""Compare sentences per second of `Translator`, CTranslate2 and Hugging Face's `generate`, with the same weights."""

import copy
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import MarianMTModel

from benchmarks import huggingface, options
from benchmarks.agreement import Scored, agreement, agreement_table
from benchmarks.ctranslate import Contestant, export_all
from benchmarks.data import epochs_of, one_of, read_folder, read_test, to_device
from benchmarks.ours import Updates
from benchmarks.race import Race, race
from benchmarks.tables import Table
from seq2seq.bundle import load_bundle
from seq2seq.errors import UserError
from seq2seq.evaluation.metrics import bleu
from seq2seq.exchange.huggingface import to_marian
from seq2seq.interface import Compile
from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.dataset import PreparedData
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.training.module import learning_rate
from seq2seq.translation import MAX_SOURCE_TOKENS
from seq2seq.translator import Translator

log = logging.getLogger(__name__)
LIMIT = SearchConfig(max_length_ratio=1.3, max_length_offset=8)  # as in conf/experiment/tatoeba_cpu.yaml
Pairs = Sequence[tuple[str, str]]
OPPONENTS = {  # for each rival, our contestant with the same stopping rule
    "hf": "ours-early",
    "hf-eager": "ours-early",
    "hf-exact": "ours",
    "ct2": "ours-early",
    "ct2-split": "ours-early",
    "hf-bf16": "ours-bf16",
}
TOLD = {
    "ours": "this project, exact",
    "ours-textbook": "this project, exact, `--compile off`",
    "hf-exact": "Hugging Face, exact",
    "ours-early": "this project, early stopping",
    "ours-early-textbook": "this project, early stopping, `--compile off`",
    "hf": "Hugging Face",
    "hf-eager": "Hugging Face, eager attention",
    "ct2": "CTranslate2",
    "ct2-split": "CTranslate2, a thread for each part of the batch",
    "ours-ct2-int8": "this project, `--engine ctranslate2`, int8",
    "ours-bf16": "this project, early stopping, bf16",
    "hf-bf16": "Hugging Face, bf16",
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of the measurement."""

    rounds: int = 3
    sentences: int = 320  # of test.tsv, from its beginning
    batch: int = 32  # sentences
    beam: int = 5
    train_seconds: float = 60.0  # seconds of training if no trained model is given


@dataclass(frozen=True)
class Block:
    """One batch of source sentences of similar lengths."""

    indices: list[int]  # positions of the sentences in the test set
    texts: list[str]
    max_length: int  # most tokens of a translation without EOS: our limit for the longest source


@dataclass
class Field:
    """The models of all contestants and their translations."""

    tokenizer: Tokenizer
    translators: dict[str, Translator]
    marians: dict[str, tuple[MarianMTModel, dict[str, Any]]]  # model and options of `generate`
    ctranslates: dict[str, Contestant]
    plan: Plan
    outputs: dict[str, dict[int, str]] = field(default_factory=dict)  # translations by contestant and sentence

    def runs(self) -> dict[str, Callable[[Block], object]]:
        """Return, for each contestant in the order of the table, the function that translates a block."""
        entered = self.translators.keys() | self.ctranslates.keys() | self.marians.keys()
        return {name: lambda block, n=name: self._translate(n, block) for name in TOLD if name in entered}

    def _translate(self, name: str, block: Block) -> None:
        if name in self.translators:
            found = self.translators[name].translate(
                block.texts,
                beam=self.plan.beam,
                length_penalty=1.0,
            )
        elif name in self.ctranslates:
            ids = self.ctranslates[name].search(block.texts, beam=self.plan.beam, max_length=block.max_length)
            found = self.tokenizer.decode(ids)
        else:
            model, options = self.marians[name]
            found = huggingface.translate(
                model,
                self.tokenizer,
                block.texts,
                beam=self.plan.beam,
                max_length=block.max_length,
                options=options,
            )
        self.outputs.setdefault(name, {}).update(zip(block.indices, found, strict=True))

    def scored(self, block: Block) -> list[tuple[Scored, Scored]]:
        """Return our and transformers' exact float32 translations of a block, with scores."""
        found = self.translators["ours"].translate_nbest(
            block.texts,
            1,
            beam=self.plan.beam,
            length_penalty=1.0,
        )
        ours = [Scored(best[0].text, best[0].normalised_score, has_ended=True) for best in found]
        model, _ = self.marians["hf-exact"]
        theirs = huggingface.translate_scored(
            model, self.tokenizer, block.texts, beam=self.plan.beam, max_length=block.max_length
        )
        return list(zip(ours, theirs, strict=True))


def run_with(
    data: Path, model: Path | None, plan: Plan, size: str, vocab_size: int, device: torch.device
) -> dict[str, Any]:
    """Load or train a model, measure its translation of the folder's test set, and return JSON values."""
    if model is None:
        prepared = read_folder(data, vocab_size)
        trained = train_briefly(prepared, options.model_config(size), plan.train_seconds, device)
        tokenizer = one_of(prepared.tokenizer)
    else:
        bundle = load_bundle(model)
        trained, tokenizer = bundle.model, one_of(bundle.tokenizer)
    found = run(trained, tokenizer, read_test(data), plan, device)
    return {"data": str(data), "bundle": str(model) if model else None, **found}


def run(model: EncoderDecoder, tokenizer: Tokenizer, pairs: Pairs, plan: Plan, device: torch.device) -> dict[str, Any]:
    """Measure all contestants, score their translations and compare scores; return JSON values.

    Raises:
        UserError: the model is not of the published style, or the scores of the same translations differ.
    """
    model = model.to(device).eval()
    blocks = cut(pairs, tokenizer, plan)
    with tempfile.TemporaryDirectory() as folder:
        entrants = line_up(model, tokenizer, plan, device, Path(folder))
    count = sum(len(block.texts) for block in blocks)
    result = race(entrants.runs(), blocks, work=count, rounds=plan.rounds, device=device)
    agreed = agreement([pair for block in blocks for pair in entrants.scored(block)]) if plan.beam > 1 else {}
    first = next(iter(result.seconds))
    chosen = sorted(entrants.outputs[first])
    references = [pairs[index][1] for index in chosen]
    texts = {name: [outputs[index] for index in chosen] for name, outputs in entrants.outputs.items()}
    bleus = {name: bleu(of_name, references) for name, of_name in texts.items()}
    same = {name: share_equal(of_name, texts[first]) for name, of_name in texts.items()}
    return {
        "unit": "sentences/s",
        "plan": asdict(plan),
        "model": asdict(model.config),
        "bleu": bleus,
        "share_identical_to_ours": same,
        "agreement": agreed,
        **result.to_dict(OPPONENTS),
        "tables": [asdict(table(result, bleus, same)), *([asdict(agreement_table(agreed))] if agreed else [])],
    }


def cut(pairs: Pairs, tokenizer: Tokenizer, plan: Plan) -> list[Block]:
    """Return batches of the first sentences, longest first, without texts that `Translator` would split.

    Raises:
        UserError: no sentence is left.
    """
    lengths = [len(ids) for ids in tokenizer.encode([src for src, _ in pairs[: plan.sentences]])]
    chosen = [index for index, length in enumerate(lengths) if 0 < length <= MAX_SOURCE_TOKENS]
    if not chosen:
        raise UserError("there is no sentence to translate: give a test.tsv with text, and --sentences above 0")
    chosen.sort(key=lambda index: lengths[index], reverse=True)
    batches = [chosen[start : start + plan.batch] for start in range(0, len(chosen), plan.batch)]
    longest = [int(lengths[batch[0]] * LIMIT.max_length_ratio + LIMIT.max_length_offset) for batch in batches]
    return [Block(batch, [pairs[i][0] for i in batch], most) for batch, most in zip(batches, longest, strict=True)]


def line_up(model: EncoderDecoder, tokenizer: Tokenizer, plan: Plan, device: torch.device, folder: Path) -> Field:
    """Return all contestants with the model's weights; the folder receives the exports for CTranslate2.

    bf16 takes part only if the device computes in bf16: a CPU that emulates bf16 is ten times slower. Greedy search has
    only one stopping rule, so the contestants with the exact rule take part only in beam search.
    """
    has_bf16 = device.type != "cpu" or torch.cpu._is_avx512_bf16_supported()
    can_compile = device.type == "cpu" and shutil.which("cc") is not None
    early = replace(LIMIT, early_stopping=plan.beam > 1)
    ways: tuple[tuple[str, SearchConfig, torch.dtype, Compile], ...] = (
        ("ours", LIMIT, torch.float32, "auto"),
        ("ours-textbook", LIMIT, torch.float32, "off"),
        ("ours-early", early, torch.float32, "auto"),
        ("ours-early-textbook", early, torch.float32, "off"),
        ("ours-bf16", early, torch.bfloat16, "off"),
    )
    translators = {
        name: Translator(
            model, Tokenizers.joint(tokenizer), search=search, device=device, dtype=dtype, compiles=compiles
        )
        for name, search, dtype, compiles in ways
        if (can_compile or not name.endswith("-textbook"))
        and (has_bf16 or dtype == torch.float32)
        and (plan.beam > 1 or name not in ("ours", "ours-textbook"))
    }
    exports = export_all(model, tokenizer, LIMIT, folder)
    kinds = {"ct2": ("float32", "within"), "ct2-split": ("float32", "split"), "ours-ct2-int8": ("int8", "engine")}
    threads = torch.get_num_threads()
    ctranslates = {name: Contestant(exports[kind], threads, way) for name, (kind, way) in kinds.items()}
    marian = to_marian(model)
    marians: dict[str, tuple[MarianMTModel, dict[str, Any]]] = {
        "hf": (marian, {}),
        "hf-eager": (to_marian(model, "eager"), {}),
    }
    if plan.beam > 1:
        marians["hf-exact"] = (marian, huggingface.EXACT)
    if has_bf16:
        marians["hf-bf16"] = (copy.deepcopy(marian).bfloat16(), {})
    return Field(tokenizer, translators, marians, ctranslates, plan)


def share_equal(first: Sequence[str], second: Sequence[str]) -> float:
    """Return the share of positions where two lists of the same length are equal."""
    return sum(a == b for a, b in zip(first, second, strict=True)) / len(first)


def table(result: Race, bleus: dict[str, float], same: dict[str, float]) -> Table:
    """Return a table with one row per contestant."""
    rows = []
    for name in result.seconds:
        ours = OPPONENTS.get(name, "")
        ratios = [
            result.ratio(one, name).show(2) if one in result.seconds else "" for one in (ours, f"{ours}-textbook")
        ]
        rows.append([TOLD[name], result.rate(name).show(1), *ratios, f"{bleus[name]:.2f}", f"{same[name]:.1%}"])
    header = [
        "search",
        "sentences/s (range)",
        "× faster than it: this project, same rule (range)",
        "without a compiler",
    ]
    return Table("Decoding", [*header, "BLEU", "same as first"], rows)


def train_briefly(data: PreparedData, config: ModelConfig, seconds: float, device: torch.device) -> EncoderDecoder:
    """Return a model that is trained just long enough for its translations to end like those of a real model.

    Raises:
        UserError: the data has no sentence pair.
    """
    torch.manual_seed(1)
    model = build_model(config, *data.tokenizer.sizes).to(device)
    settings = TrainingConfig(max_tokens=1024, learning_rate=1e-3, warmup_steps=100, schedule="linear")
    ours = Updates(model, settings, options.precision("auto", device))
    loader = epochs_of(data.train, settings.max_tokens, seed=1)
    start, step = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for batch in loader:
            progress = (time.perf_counter() - start) / seconds
            if progress >= 1:
                break
            ours.set_rate(learning_rate(settings, step, progress))
            ours.update(to_device(batch, str(device)))
            step += 1
    log.info("trained for %.0f s, %d updates, to have something to decode with", seconds, step)
    return model.eval()
