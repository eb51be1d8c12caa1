"""Translate many lines in several processes on this machine, which share the model's weights."""

import itertools
import logging
from collections.abc import Iterable, Iterator
from functools import partial

import torch

from seq2seq.data.processes import Processes, is_stopping
from seq2seq.errors import UserError
from seq2seq.translate.translator import CHUNK_LINES, Translator
from seq2seq.translate.types import SearchRequest, Text, Translation


def stream(
    translator: Translator, texts: Iterable[Text], request: SearchRequest, workers: int, *, first_line: int = 1
) -> Iterator[list[Translation]]:
    """Translate as `Translator.stream` does, in order, but in `workers` processes that take one chunk at a time.

    Each process uses an equal share of the CPU threads. All share the weights of the model and of the compiled step.
    """
    if translator.device.type != "cpu" or not hasattr(translator.engine, "model"):
        raise UserError(f"--workers {workers} is for the pytorch engine on the CPU: leave it out")
    threads = max(1, torch.get_num_threads() // workers)
    with Processes(workers, partial(_begin, translator, request, threads), advice="lower --workers") as opened:
        for translated in opened.map(_translate, _chunks(iter(texts), first_line)):
            yield from translated


def _chunks(texts: Iterator[Text], first_line: int) -> Iterator[tuple[int, list[Text]]]:
    while chunk := list(itertools.islice(texts, CHUNK_LINES)):
        yield first_line, chunk
        first_line += len(chunk)


def _begin(translator: Translator, request: SearchRequest, threads: int) -> None:
    global _working
    logging.addLevelName(logging.WARNING, "warning")
    logging.basicConfig(format="%(levelname)s: %(message)s")
    torch.set_num_threads(threads)
    _working = translator, request


_working: tuple[Translator, SearchRequest]  # set in each worker process


def _translate(task: tuple[int, list[Text]]) -> list[list[Translation]]:
    (translator, request), (first_line, texts) = _working, task
    return list(translator.stream(texts, request, first_line=first_line, on_progress=_go_on))


def _go_on(count: int) -> None:
    if is_stopping():
        raise UserError("nobody waits for the translations any more")
