"""Import of an OPUS-MT model with random weights, and export again: equality with transformers, seconds, memory."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file

from benchmarks import processes
from benchmarks.checkpoints import marian_tokenizer, write_checkpoint
from benchmarks.command import Options, Results, Table
from benchmarks.data import read_test
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.missing_packages import require_package
from seq2seq.text.tokenizer import EOS, Tokenizer
from seq2seq.translate.bundle import load_bundle
from seq2seq.translate.segmenter import MAX_SOURCE_TOKENS
from seq2seq.translate.translator import Translator

with require_package("huggingface"):
    from transformers import AutoModelForSeq2SeqLM

LIMIT = 40  # most tokens of a translation
NO_REPEAT = 2  # no such number of tokens in a row may repeat, since a random network would repeat itself
BATCH = 20


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `importing`."""

    # folder with test.tsv, whose English sentences are tokenised; without it, the bundled sentences
    data: Path | None = None
    size: Literal["opus-mt", "tc-big", "tiny"] = "opus-mt"  # size of the network, by its family in Helsinki-NLP's hub
    vocab_size: int = 65_001  # subwords of the vocabulary, at least; most are made up
    sentences: int = 2000  # sentences to tokenise, from the beginning of the file
    searched: int = 100  # sentences that are also translated, greedily and with beam 4


def run(plan: Plan, device: torch.device) -> Results:
    """Write a random checkpoint of this size, import it, export it again, and compare everything, on the CPU."""
    texts = [source for source, _ in read_test(plan.data)[: plan.sentences]]
    with tempfile.TemporaryDirectory() as folder:
        source, imported, back = (Path(folder) / name for name in ("source", "bundle", "back"))
        source.mkdir()
        write_checkpoint(source, plan.size, vocab_size=plan.vocab_size)
        huggingface = (*processes.SEQ2SEQ, "import", "huggingface", str(source), "--output", str(imported))
        export = (*processes.SEQ2SEQ, "export", "huggingface", "--model", str(imported), "--output", str(back))
        times = {"import": processes.run(huggingface), "export": processes.run(export)}
        before, after = (load_file(one / "model.safetensors") for one in (source, back))
        translator, network = Translator.load(imported, "cpu", torch.float32), load_bundle(imported).model.eval()
        model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(source).eval(), marian_tokenizer(source)
        values = {
            "seconds": {name: one.seconds for name, one in times.items()},
            "peaks": {name: one.peak for name, one in times.items()},
            "weights": before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before),
            "tokenizers": _tokenizer_files(source) == _tokenizer_files(back),
            "split": share_split_alike(translator.tokenizer.source, tokenizer, texts),
            **compare(translator, network, model, tokenizer, texts[: plan.searched]),
        }
    rows = [
        ["parameters", f"{translator.num_parameters or 0:,}"],
        *(
            [f"{name}, seconds and peak memory", f"{one.seconds:.1f} s, {one.peak / 1e9:.2f} GB"]
            for name, one in times.items()
        ),
        ["largest difference of a logit", f"{values['logits']:.1e}"],
        ["greedy translations with the same tokens", f"{values['beam 1']:.1%} of {values['ended 1']}"],
        ["beam-4 translations with the same tokens", f"{values['beam 4']:.1%} of {values['ended 4']}"],
        [f"texts split alike, of {len(texts):,}", f"{values['split']:.1%}"],
        ["weights bit for bit the same after import and export", "yes" if values["weights"] else "no"],
        ["tokenizers the same after import and export", "yes" if values["tokenizers"] else "no"],
    ]
    return values, [Table(f"Import of {plan.size}", ["", plan.size], rows)]


def _tokenizer_files(folder: Path) -> tuple[Any, ...]:
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    return vocabulary, *((folder / name).read_bytes() for name in ("source.spm", "target.spm"))


def share_split_alike(ours: Tokenizer, theirs: Any, texts: Sequence[str]) -> float:
    """Return the share of texts that transformers' MarianTokenizer splits into the same ids."""
    encoded = [[ours.original_ids[token] for token in (*row, EOS)] for row in ours.encode(texts)]
    return sum(a == b for a, b in zip(encoded, theirs(list(texts)).input_ids, strict=True)) / len(texts)


@torch.no_grad()
def compare(
    translator: Translator, network: EncoderDecoder, model: Any, tokenizer: Any, texts: Sequence[str]
) -> dict[str, float]:
    """Return the largest difference of a logit, and the shares of translations with the same tokens.

    Texts that are translated in sentences, and translations that reach the limit, do not count. The numbers of the
    other translations are also returned.
    """
    source, target = translator.tokenizer.source, translator.tokenizer.target
    original_ids = target.original_ids
    texts = [text for text in texts if len(source.encode([text])[0]) <= MAX_SOURCE_TOKENS]
    our_ids = torch.tensor(original_ids).argsort()  # by their id
    equal: dict[int, list[bool]] = {1: [], 4: []}
    difference, rows = 0.0, list[list[int]]()
    for start in range(0, len(texts), BATCH):
        some = texts[start : start + BATCH]
        batch = tokenizer(some, return_tensors="pt", padding=True)
        for beam in equal:
            options = {"num_beams": beam, "early_stopping": "never", "no_repeat_ngram_size": NO_REPEAT}
            rows = model.generate(**batch, **options, max_new_tokens=LIMIT + 1).tolist()
            found = translator.translate_nbest(some, 1, beam=beam, max_length=LIMIT, no_repeat_ngram=NO_REPEAT)
            for row, (best,) in zip(rows, found, strict=True):
                ours, theirs = [original_ids[i] for i in target.ids(best.tokens)], row[1 : row.index(0, 1)]
                if len(theirs) < LIMIT:  # at the limit, transformers ends hypotheses at no cost
                    equal[beam].append(ours == theirs)
        tgt_in = torch.tensor([row[: min(map(len, rows))] for row in rows])
        theirs = model(**batch, decoder_input_ids=tgt_in).logits[:, :, original_ids]
        logits, _ = network.decode(our_ids[tgt_in], network.encode(our_ids[batch.input_ids]))
        difference = max(difference, float((logits - theirs).abs().max()))
    counts = {f"ended {beam}": len(found) for beam, found in equal.items()}
    shares = {f"beam {beam}": sum(found) / max(1, len(found)) for beam, found in equal.items()}
    return {"logits": difference, **counts, **shares}
