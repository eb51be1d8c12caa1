"""The contestant CTranslate2, used as its users do, on an export of the same weights."""

import multiprocessing
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import torch

from benchmarks.data import joint
from seq2seq.apps.exchange.ctranslate2 import export_ctranslate2
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.search.types import Source
from seq2seq.settings.missing_packages import require_package
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.bundle import Bundle, BundleConfig, save_bundle
from seq2seq.translate.ctranslate2_engine import load_export

with require_package("ctranslate2"):
    import ctranslate2

BATCH = 64  # sentences of a batch of a file, as many as a batch of this project may have
Way = Literal["one batch", "many batches", "engine"]


def export_all(model: EncoderDecoder, tokenizer: Tokenizer, search: SearchConfig, folder: Path) -> dict[str, Path]:
    """Export the model in float32 and int8; return the folders by precision."""
    bundle = Bundle(model, Tokenizers.joint(tokenizer), BundleConfig(model.config, search))
    save_bundle(folder / "bundle", bundle, "Exported for a benchmark.\n")
    exports = {precision: folder / precision for precision in ("float32", "int8")}
    for precision, export in exports.items():
        export_ctranslate2(folder / "bundle", export, precision)
    return exports


class Contestant:
    """CTranslate2 in a separate process, because it changes the number of PyTorch's threads in its process.

    There are three ways to use the threads. "one batch": all threads work on the same batch. "many batches": each
    thread works on its own batch of a file. "engine": this project's engine calls CTranslate2 with one batch.
    """

    def __init__(self, folder: Path, threads: int, way: Way) -> None:
        """Start the process with the export in the folder."""
        context = multiprocessing.get_context("spawn")
        self._pipe, end = context.Pipe()
        self._process = context.Process(target=_serve, args=(end, folder, threads, way), daemon=True)
        self._process.start()
        self._pipe.recv()  # wait until the process is ready

    def search(self, texts: Sequence[str], *, beam: int, max_length: int) -> list[list[int]]:
        """Return the ids of all texts' translations by beam search with length penalty 1.

        Other settings are CTranslate2's defaults; the engine's are those of the export.
        """
        self._pipe.send((list(texts), beam, max_length))
        return self._pipe.recv()


def _serve(pipe: Connection, folder: Path, threads: int, way: Way) -> None:
    torch.set_num_threads(threads)
    export = load_export(folder, "cpu", threads)
    tokenizer = joint(export.tokenizer)
    subwords = tokenizer.tokens(range(tokenizer.vocab_size))
    ids = {subword: number for number, subword in enumerate(subwords)}
    at_once = threads if way == "many batches" else 1
    translator = ctranslate2.Translator(str(folder), inter_threads=at_once, intra_threads=threads // at_once)
    pipe.send("ready")
    while True:
        try:
            texts, beam, max_length = pipe.recv()
        except EOFError:  # the benchmark has ended
            return
        sources = tokenizer.encode(texts)
        if way == "engine":
            settings = replace(export.search, beam=beam, length_penalty=1.0)
            found = dict(one for batch in export.engine.search([*map(Source, sources)], settings, 1) for one in batch)
            pipe.send([found[index][0].ids for index in range(len(texts))])
            continue
        results = translator.translate_batch(  # it sorts the sentences by length before it cuts batches
            [tokenizer.tokens(source) for source in sources],
            beam_size=beam,
            length_penalty=1.0,
            max_decoding_length=max_length,
            max_batch_size=BATCH if way == "many batches" else 0,
        )
        pipe.send([[ids[subword] for subword in result.hypotheses[0]] for result in results])
