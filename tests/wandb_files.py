"""Reads what Weights & Biases writes offline, for tests."""

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Found = tuple[list[tuple[str, str, str]], dict[int, dict[str, Any]]]


def offline_runs(folder: Path, updates: int) -> Found:
    """Id, project and name of each offline run in a run's folder, and the rows of all of them by update.

    A process of its own writes the files and may end after the training; so many updates are waited for.
    """
    deadline = time.monotonic() + 60
    while len((found := _read(folder))[1]) < updates and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def _read(folder: Path) -> Found:
    runs, rows = [], {}
    for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        for record in _records(path):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                runs.append((record.run.run_id, record.run.project, record.run.display_name))
            elif kind == "history":
                row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                rows.setdefault(row["trainer/global_step"], {}).update(row)
    return runs, rows


def _records(path: Path) -> Iterator[Any]:
    """The records of a file in the format of LevelDB's log: blocks of 32 KiB, pieces with heads of seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue]

    data, place, whole = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last piece of one
            yield Record.FromString(whole)
            whole = b""
