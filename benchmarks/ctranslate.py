"""The contestant CTranslate2, used as its users do, on an export of the same weights."""

import multiprocessing
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import ctranslate2
import torch

from benchmarks.data import one_of
from seq2seq.bundle import Bundle, BundleConfig, save_bundle
from seq2seq.exchange.ctranslate2 import export_ctranslate2
from seq2seq.exchange.ctranslate2_engine import load_export
from seq2seq.interface import Source
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers

AT_ONCE = 64  # sentences per batch of a file


def export_all(model: EncoderDecoder, tokenizer: Tokenizer, search: SearchConfig, folder: Path) -> dict[str, Path]:
    """Export the model in float32 and int8; return the folders by precision."""
    bundle = Bundle(model, Tokenizers.joint(tokenizer), BundleConfig(model.config, search))
    save_bundle(folder / "bundle", bundle, "Exported for a benchmark.\n")
    found = {}
    for precision in ("float32", "int8"):
        found[precision] = folder / precision
        export_ctranslate2(folder / "bundle", found[precision], precision)
    return found


class Contestant:
    """CTranslate2 in a separate process, because it changes the number of PyTorch's threads in its process.

    There are three ways to use the threads. "within": all threads work on the same batch. "split": each thread works on
    its own part of the batch, or on its own batch of a file. "engine": this project's engine calls CTranslate2.
    """

    def __init__(self, folder: Path, threads: int, way: str) -> None:
        """Start the process with the export in folder; way is "within", "split" or "engine"."""
        context = multiprocessing.get_context("spawn")
        self._pipe, end = context.Pipe()
        self._process = context.Process(target=_serve, args=(end, folder, threads, way), daemon=True)
        self._process.start()
        self._pipe.recv()  # wait until the process is ready

    def search(self, texts: Sequence[str], *, beam: int, max_length: int) -> list[list[int]]:
        """Return the ids of one batch's translations by beam search with length penalty 1.

        Other settings are CTranslate2's defaults.
        """
        self._pipe.send((list(texts), beam, max_length))
        return self._pipe.recv()

    def search_file(self, texts: Sequence[str], *, beam: int, limit: SearchConfig) -> list[list[int]]:
        """Return the ids of many texts' translations.

        Batches have texts of similar lengths. A batch's limit is that of its longest text.
        """
        self._pipe.send((list(texts), beam, limit))
        return self._pipe.recv()


def _serve(pipe: Connection, folder: Path, threads: int, way: str) -> None:
    torch.set_num_threads(threads)
    export = load_export(folder, "cpu", threads)
    tokenizer = one_of(export.tokenizer)
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
        batches = [([*range(len(texts))], max_length)]
        if isinstance(max_length, SearchConfig):
            order = sorted(range(len(texts)), key=lambda index: len(encoded[index]), reverse=True)
            cut = [order[start : start + AT_ONCE] for start in range(0, len(order), AT_ONCE)]
            batches = [(batch, most_tokens(len(encoded[batch[0]]), max_length)) for batch in cut]
        asked = [
            translator.translate_batch(
                [tokenizer.tokens(encoded[index]) for index in batch],
                beam_size=beam,
                length_penalty=1.0,
                max_decoding_length=longest,
                max_batch_size=len(batch) if len(batches) > 1 else -(-len(batch) // parts),
                asynchronous=True,
            )
            for batch, longest in batches
        ]
        found = {}
        for (batch, _), results in zip(batches, asked, strict=True):
            found |= {index: result.result().hypotheses[0] for index, result in zip(batch, results, strict=True)}
        pipe.send([[ids[piece] for piece in found[index]] for index in range(len(texts))])


def most_tokens(length: int, limit: SearchConfig) -> int:
    """Return the largest number of tokens in a translation of a source with `length` tokens."""
    return int(length * limit.max_length_ratio + limit.max_length_offset)
