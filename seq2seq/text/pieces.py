"""Work cut into pieces, each a folder that is whole or absent: a job that was killed goes on from what is whole.

Knows neither text nor the machines that work.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seq2seq.text.cache import is_whole, whole_folder

_VALUE = "value.json"


def piece(folder: Path, build: Callable[[Path], Any]) -> Any:
    """Make a piece unless it is there and undamaged; give what build returned when it was made, as plain values.

    build writes files into the folder that it is given and returns what JSON can hold.
    """
    if not is_whole(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        whole_folder(folder, lambda draft: _write(draft / _VALUE, build(draft)))
    return value_of(folder)


def value_of(folder: Path) -> Any:
    """Give what a piece's build returned; the piece must be there."""
    return json.loads((folder / _VALUE).read_text(encoding="utf-8"))


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
