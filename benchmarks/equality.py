"""Compare our translations with CTranslate2's and Hugging Face's, token for token, with the same weights."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from benchmarks import huggingface
from benchmarks.ctranslate import Contestant, export_all
from benchmarks.tables import Table
from seq2seq.engine import Engine
from seq2seq.exchange.huggingface import to_marian
from seq2seq.interface import Source
from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import EOS, Tokenizer

BATCH = 32
RIVALS = {"ct2": "CTranslate2, float32", "hf": "Hugging Face, float32"}


@dataclass(frozen=True)
class Difference:
    """A sentence with two different translations, and our model's scores of both (score / length, nats)."""

    source: str
    ours: str
    theirs: str
    our_score: float
    their_score: float


def run(model: EncoderDecoder, tokenizer: Tokenizer, sources: Sequence[str], device: torch.device) -> dict[str, Any]:
    """Translate greedily and with beam 5; return every difference as JSON values."""
    model = model.to(device).eval()
    engine = Engine(model, device, torch.float32)
    ids = tokenizer.encode(sources)
    order = sorted((index for index, row in enumerate(ids) if row), key=lambda index: len(ids[index]), reverse=True)
    results: dict[str, Any] = {"sentences": len(order)}
    with tempfile.TemporaryDirectory() as folder:
        exports = export_all(model, tokenizer, SearchConfig(), Path(folder))
        ct2 = Contestant(exports["float32"], torch.get_num_threads(), "within")
    marian = to_marian(model)
    rows = []
    for beam in (1, 5):
        found: dict[str, dict[int, list[int]]] = {"ours": {}, **{name: {} for name in RIVALS}}
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            limit = 2 * len(ids[batch[0]]) + 20  # the same limit for all three programs
            settings = SearchConfig(beam=beam, max_length_ratio=0, max_length_offset=limit, batch_tokens=10**6)
            for of_batch in engine.search([Source(ids[index]) for index in batch], settings, 1):
                found["ours"] |= {batch[place]: best[0].ids for place, best in of_batch}
            texts = [sources[index] for index in batch]
            found["ct2"] |= dict(zip(batch, ct2.search(texts, beam=beam, max_length=limit), strict=True))
            generated = huggingface.generate(
                marian, [ids[index] for index in batch], beam=beam, max_length=limit, options={}
            )
            found["hf"] |= dict(zip(batch, (without_special(row, limit) for row in generated.tolist()), strict=True))
        for name, told in RIVALS.items():
            different = [index for index in order if found[name][index] != found["ours"][index]]
            listed = differences(engine, tokenizer, sources, ids, different, found["ours"], found[name])
            worse = sum(one.our_score < one.their_score - 1e-5 for one in listed)
            share, name_of_search = 1 - len(listed) / len(order), f"beam {beam}" if beam > 1 else "greedy"
            rows.append([name_of_search, told, f"{share:.1%}", str(len(listed)), str(worse)])
            results[f"{name}-{beam}"] = [vars(one) for one in listed]
    header = ["search", "compared with", "equal, token for token", "different", "of these, ours scores lower"]
    tables = [vars(Table("Equality", header, rows)), vars(compiled_table(model, [ids[index] for index in order]))]
    return results | {"tables": tables}


STYLES: dict[str, dict[str, Any]] = {  # of models with random weights; the last one as models of OPUS-MT
    "modern": {"norm": "rmsnorm", "norm_position": "pre", "activation": "swiglu", "positions": "rotary"},
    "Marian": {"activation": "swish", "output_bias": True},
}
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "beam 5, exact": {},
    "beam 5, early stopping": {"early_stopping": True},
    "sampling": {"sampling": True, "top_k": 20, "top_p": 0.9},
    "diverse": {"beam": 6, "groups": 3},
    "rules": {"no_repeat_ngram": 2, "repetition_penalty": 1.2, "min_length": 4},
    "phrases": {},
}


def compiled_table(model: EncoderDecoder, ids: Sequence[list[int]]) -> Table:
    """Compare the compiled search with the textbook's: translations that differ, and the largest error of a score."""
    models = {"this model": model}
    sizes = replace(model.config, d_model=64, num_heads=4, d_ff=128, num_encoder_layers=2, num_decoder_layers=2)
    for name, style in STYLES.items():
        torch.manual_seed(1)
        models[name] = build_model(replace(sizes, **style), model.vocab_size).eval()
        for parameter in models[name].parameters():
            parameter.data.mul_(5)  # so that sources matter
    rows = []
    for name, changes in SEARCHES.items():
        settings = SearchConfig(**{"max_length_ratio": 1.0, "max_length_offset": 4, **changes})
        phrases = [[7, 8], [9]] if name == "phrases" else []
        sources = [Source(row, phrases=phrases, key=key) for key, row in enumerate(ids)]
        cells = []
        for searched in models.values():
            compiled, textbook = (
                dict(chain(*Engine(searched, "cpu", torch.float32, compiles=way).search(sources, settings, 1)))
                for way in ("on", "off")
            )
            different = [i for i in textbook if compiled[i][0].ids != textbook[i][0].ids]
            errors = [abs(compiled[i][0].score / textbook[i][0].score - 1) for i in textbook if i not in different]
            cells.append(f"{len(different)}, {max(errors):.0e}")
        rows.append([name, *cells])
    title = f"Compiled and textbook search, {len(ids)} sentences: different translations, largest relative error"
    return Table(title, ["search", *models], rows)


def without_special(row: list[int], limit: int) -> list[int]:
    """Return the tokens between BOS and EOS; without EOS, cut at the limit, which transformers exceeds by one token."""
    row = row[1:]
    return row[: row.index(EOS)] if EOS in row else row[:limit]


def differences(
    engine: Engine,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    ids: Sequence[list[int]],
    different: Sequence[int],
    ours: dict[int, list[int]],
    theirs: dict[int, list[int]],
) -> list[Difference]:
    """Return the sentences with different translations, each with both scores by forced decoding."""
    pairs = [(index, of[index]) for index in different for of in (ours, theirs)]
    forced = dict(
        one
        for batch in engine.score([ids[index] for index, _ in pairs], [row for _, row in pairs], 4096)
        for one in batch
    )
    scores = [sum(forced[place].log_probs) / len(forced[place].log_probs) for place in range(len(pairs))]
    found = []
    for place, index in enumerate(different):
        our_text, their_text = tokenizer.decode([ours[index], theirs[index]])
        found.append(Difference(sources[index], our_text, their_text, *scores[2 * place : 2 * place + 2]))
    return found
