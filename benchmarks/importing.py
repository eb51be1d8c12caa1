"""Measure import and export of models of OPUS-MT's sizes: equality with transformers, seconds, memory."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM

from benchmarks.apart import apart
from benchmarks.checkpoints import marian_tokenizer, write_checkpoint
from benchmarks.tables import Table
from seq2seq.exchange.huggingface import export_huggingface
from seq2seq.exchange.huggingface_import import import_huggingface
from seq2seq.text.tokenizer import EOS
from seq2seq.translator import Translator

LIMIT = 40  # most tokens of a translation
NO_REPEAT = 2  # no such number of tokens in a row may repeat, since a random network would repeat itself
BATCH = 20
ODD = [
    "", "  two  spaces ", "tab\tand\u00a0no-break", "ﬁ ligature, ½, １２３", "日本語 😀", "a" * 300, "?!...",
    "O'Brien's \"quotes\" — dashes…", "\u200bzero\u200bwidth", "\u0301accent first", ">>spa",
    "e\u0301 and é", "\x07bell",
]  # fmt: skip


def run(size: str, pieces: int, sentences: Sequence[str], searched: int) -> dict[str, Any]:
    """Write a random checkpoint of this size, import it, export it again, and compare everything; return JSON values.

    Args:
        size: one of `benchmarks.checkpoints.SIZES`.
        pieces: smallest size of the vocabulary; 0: the size of the bundled corpus's vocabulary.
        sentences: English sentences to tokenise; the texts in `ODD` are added.
        searched: how many of the texts are also translated.
    """
    with tempfile.TemporaryDirectory() as work:
        source, bundle, back = (Path(work) / name for name in ("source", "bundle", "back"))
        source.mkdir()
        write_checkpoint(source, size, pieces=pieces)
        there = apart(import_bundle, source, bundle)
        again = apart(export_huggingface, bundle, back)
        before, after = (load_file(one / "model.safetensors") for one in (source, back))
        same = before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
        models = all(
            (source / name).read_bytes() == (back / name).read_bytes() for name in ("source.spm", "target.spm")
        )
        ids = [json.loads((folder / "vocab.json").read_text(encoding="utf-8")) for folder in (source, back)]
        same_tokenizers = models and ids[0] == ids[1]
        translator = Translator.load(bundle, "cpu", torch.float32)
        texts = [*sentences, *ODD]
        split = share_split_alike(translator, source, texts)
        model = AutoModelForSeq2SeqLM.from_pretrained(source).eval()
        fit = [
            text for text, ids in zip(texts, translator.tokenizer.source.encode(texts), strict=True) if len(ids) <= 200
        ]
        compared = compare(translator, model, source, fit[:searched])
    size_told = f"{translator.num_parameters or 0:,}"
    rows = [
        ["parameters", size_told],
        ["import, seconds and peak memory", f"{there.seconds:.1f} s, {there.peak / 1e9:.2f} GB"],
        ["export, seconds and peak memory", f"{again.seconds:.1f} s, {again.peak / 1e9:.2f} GB"],
        ["largest difference of a logit", f"{compared['logits']:.1e}"],
        ["greedy translations with the same tokens", f"{compared['beam 1']:.1%} of {compared['ended 1']}"],
        ["beam-4 translations with the same tokens", f"{compared['beam 4']:.1%} of {compared['ended 4']}"],
        [f"texts split alike, of {len(texts):,}", f"{split:.1%}"],
        ["weights bit for bit the same after import and export", "yes" if same else "no"],
        ["tokenizers the same after import and export", "yes" if same_tokenizers else "no"],
    ]
    found = {
        "size": size,
        "import": there[:2],
        "export": again[:2],
        "split": split,
        "weights": same,
        "tokenizers": same_tokenizers,
    }
    return found | compared | {"tables": [vars(Table(f"Import of {size}", ["", size], rows))]}


def import_bundle(source: Path, bundle: Path) -> None:
    """Import a folder without returning the bundle, which would have to be sent between processes."""
    import_huggingface(str(source), bundle)


def share_split_alike(translator: Translator, source: Path, texts: Sequence[str]) -> float:
    """Return the share of texts that transformers' MarianTokenizer splits into the same ids."""
    side = translator.tokenizer.source
    expected = marian_tokenizer(source)(list(texts)).input_ids
    original_ids = side.original_ids
    encoded = [[original_ids[token] for token in [*row, EOS]] for row in side.encode(texts)]
    return sum(ours == theirs for ours, theirs in zip(encoded, expected, strict=True)) / len(texts)


@torch.no_grad()
def compare(translator: Translator, model: Any, source: Path, texts: Sequence[str]) -> dict[str, float]:
    """Return the largest difference of a logit, and the shares of translations with the same tokens.

    Translations that reach the limit do not count. The numbers of the other translations are also returned.
    """
    from seq2seq.bundle import load_bundle

    tokenizer, order = marian_tokenizer(source), translator.tokenizer.target.original_ids
    ours = load_bundle(source.parent / "bundle").model
    equal: dict[int, list[bool]] = {1: [], 4: []}
    difference, rows = 0.0, list[list[int]]()
    for start in range(0, len(texts), BATCH):
        some = list(texts[start : start + BATCH])
        batch = tokenizer(some, return_tensors="pt", padding=True)
        for beam in equal:
            options = {"num_beams": beam, "early_stopping": "never", "no_repeat_ngram_size": NO_REPEAT}
            rows = model.generate(**batch, **options, max_new_tokens=LIMIT + 1).tolist()
            found = translator.translate_nbest(some, 1, beam=beam, max_length=LIMIT, no_repeat_ngram=NO_REPEAT)
            for row, (one,) in zip(rows, found, strict=True):
                ids, theirs = [order[i] for i in translator.tokenizer.target.ids(one.tokens)], row[1 : row.index(0, 1)]
                if len(theirs) < LIMIT:  # at the limit, transformers ends hypotheses at no cost
                    equal[beam].append(ids == theirs)
        places = torch.tensor(order).argsort()  # our id for each of their ids
        tgt_in = torch.tensor([row[: min(map(len, rows))] for row in rows])
        theirs = model(**batch, decoder_input_ids=tgt_in).logits[:, :, order]
        logits, _ = ours.decode(places[tgt_in], ours.encode(places[batch.input_ids]))
        difference = max(difference, float((logits - theirs).abs().max()))
    counts = {f"ended {beam}": len(found) for beam, found in equal.items()}
    shares = {f"beam {beam}": sum(found) / max(1, len(found)) for beam, found in equal.items()}
    return {"logits": difference, **counts, **shares}
