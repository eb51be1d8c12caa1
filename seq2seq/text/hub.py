"""Sentence pairs from the Hugging Face hub, or from a local folder of the same layout, through `datasets`."""

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from seq2seq.text.corpus import Corpus, Pair, find_columns, open_records, pick

logger = logging.getLogger(__name__)
_ROWS = 1000  # converted to Python at a time


def open_hub_split(split: str, data: DataConfig) -> Corpus:
    """Load one split of the set data.hub; the hub client downloads it once and keeps it as Arrow files.

    Raises:
        UserError: there is no such set, configuration or split, or no connection to fetch it.
    """
    name = f"{data.hub}[{split}]"
    rows = _load(name, split, data, streaming=False)
    paths = tuple(Path(file["filename"]) for file in rows.cache_files)
    return Corpus(name, split, paths, partial(open_records, partial(_read, rows, name, data)))


def stream_hub_split(split: str, data: DataConfig) -> Corpus:
    """Stream one split of the set data.hub: nothing is kept on disk, rows are fetched while they are read.

    Raises:
        UserError: there is no such set, configuration or split, or no connection to fetch it.
    """
    name = f"{data.hub}[{split}]"
    return Corpus(name, split, (), partial(open_records, partial(_stream, name, split, data)))


def _stream(name: str, split: str, data: DataConfig, skipped: int) -> Iterator[Pair]:
    rows = _load(name, split, data, streaming=True)
    first = next(iter(rows), None)
    if first is None:
        return
    columns = find_columns(list(first), data, name)
    for number, row in enumerate(rows.skip(skipped), start=skipped + 1):
        yield pick(row, columns, f"{name}, row {number}")


def _load(name: str, split: str, data: DataConfig, *, streaming: bool) -> Any:
    import datasets

    assert data.hub is not None
    path, config = _split_name(data.hub)
    logger.info("loading %s", name)
    try:
        if streaming:
            return datasets.load_dataset(path, config, split=split, streaming=True)
        return datasets.load_dataset(path, config, split=split, keep_in_memory=False)
    except Exception as error:  # whatever the hub client and its network stack raise, the way out is the same
        reason = " ".join(str(error).split())[:200]
        raise UserError(
            f"data.hub={name} cannot be loaded ({type(error).__name__}: {reason}): "
            "check name, configuration and split, and the connection; or give files with data.root"
        ) from error


def _split_name(hub: str) -> tuple[str, str | None]:
    path, _, config = hub.rpartition(":")
    return (path, config) if path else (config, None)


def _read(rows: Any, name: str, data: DataConfig, skipped: int) -> Iterator[Pair]:
    columns = find_columns(rows.column_names, data, name)
    rows = rows.select_columns(list(dict.fromkeys(keys[0] for keys in columns)))
    if skipped >= len(rows):
        return
    rows, number = rows.skip(skipped), skipped
    for batch in rows.iter(batch_size=_ROWS):
        for values in zip(*batch.values(), strict=True):
            number += 1
            yield pick(dict(zip(batch, values, strict=True)), columns, f"{name}, row {number}")
