"""The contestant CTranslate2, called as by its users, on an export of the same weights."""

import multiprocessing
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import ctranslate2
import torch

from seq2seq.bundle import Bundle, BundleConfig, save_bundle
from seq2seq.exchange.ctranslate2 import export_ctranslate2
from seq2seq.exchange.ctranslate2_engine import load_export
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.search_engine import Source
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import Tokenizer

MOST_AT_ONCE = 64  # sentences of a batch of a long file


def export_all(model: EncoderDecoder, tokenizer: Tokenizer, search: SearchConfig, folder: Path) -> dict[str, Path]:
    """Export the model in float32 and int8; return the folders by precision."""
    bundle = Bundle(model, tokenizer, BundleConfig(model.config, search))
    save_bundle(folder / "bundle", bundle, "Exported for a benchmark.\n")
    found = {}
    for precision in ("float32", "int8"):
        found[precision] = folder / precision
        export_ctranslate2(folder / "bundle", found[precision], precision)
    return found


class Contestant:
    """CTranslate2 in a separate process, because it changes the number of PyTorch's threads in its process.

    Two ways to use t threads are its users' own, within a batch or a part of the batch each; the third is this
    project's engine around it.
    """

    def __init__(self, folder: Path, threads: int, way: str) -> None:
        """Start it on the export in folder; way is "within", "split" or "engine"."""
        context = multiprocessing.get_context("spawn")
        self._pipe, end = context.Pipe()
        self._process = context.Process(target=_serve, args=(end, folder, threads, way), daemon=True)
        self._process.start()
        self._pipe.recv()  # it is ready

    def search(self, texts: Sequence[str], *, beam: int, max_length: int) -> list[list[int]]:
        """Return ids of one batch's translations by beam search with length penalty 1 and CTranslate2's defaults."""
        self._pipe.send((list(texts), beam, max_length))
        return self._pipe.recv()


def _serve(pipe: Connection, folder: Path, threads: int, way: str) -> None:
    torch.set_num_threads(threads)
    export = load_export(folder, "cpu", threads)
    tokenizer = export.tokenizer
    ids = {piece: number for number, piece in enumerate(tokenizer.tokens(range(tokenizer.vocab_size)))}
    parts = threads if way == "split" else 1
    translator = ctranslate2.Translator(str(folder), inter_threads=parts, intra_threads=threads // parts)
    pipe.send("ready")
    while True:
        try:
            texts, beam, max_length = pipe.recv()
        except EOFError:  # the benchmark has ended
            return
        encoded = tokenizer.encode(texts)
        if way == "engine":
            settings = replace(export.search, beam=beam, length_penalty=1.0)
            found = dict(one for batch in export.engine.search([*map(Source, encoded)], settings, 1) for one in batch)
            pipe.send([found[index][0].ids for index in range(len(texts))])
            continue
        results = translator.translate_batch(
            [tokenizer.tokens(row) for row in encoded],
            beam_size=beam,
            length_penalty=1.0,
            max_decoding_length=max_length,
            max_batch_size=min(MOST_AT_ONCE, -(-len(texts) // parts)),  # longest first
        )
        pipe.send([[ids[piece] for piece in result.hypotheses[0]] for result in results])
