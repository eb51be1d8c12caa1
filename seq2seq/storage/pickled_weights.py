"""Read files of `torch.save` without running code in them, and without more memory than their size."""

import io
import pickletools
import zipfile
from pathlib import Path
from typing import Any

import torch

from seq2seq.errors import UserError, shorten

_PLAIN = {  # the names in a pickle of tensors, dictionaries, lists and numbers by torch.save
    "collections.OrderedDict",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_parameter",
    *(
        f"torch.{kind}Storage"
        for kind in ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Char", "Byte", "Bool")
    ),
}
_MAX_VALUES, _MAX_DEPTH = 10**6, 50  # a checkpoint has about a hundred values a layer, at depth 6
_FORGED = "weights are plain values, this one is forged and was not loaded"
_FOLDER = 0x10  # the bit of a record's attributes that makes it a folder
_OLD_PICKLES = 5  # that a file of PyTorch before 1.6 begins with; the numbers of the tensors follow


class DamagedError(Exception):
    """A file's bytes differ from the bytes that were written; the message says how."""


def read_pickled(path: Path, device: str) -> Any:
    """Return the values of a file of `torch.save`; on the meta device, tensors stay on the disk."""
    try:
        if not path.is_file():
            raise DamagedError("it is no regular file")
        size = path.stat().st_size
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                _check_archive(archive, path, size)
        else:
            with path.open("rb") as file:
                for _ in range(_OLD_PICKLES):
                    _check_pickle(file, path)
        values = torch.load(path, map_location=device, weights_only=True)
    except (UserError, DamagedError):
        raise
    except Exception as error:  # a broken pickle may raise anything
        raise DamagedError(shorten(error)) from error
    _check_values(values, path, size)
    return values


def _check_archive(archive: zipfile.ZipFile, path: Path, size: int) -> None:
    """Check each record's checksum, and look for code in the pickled record without running it."""
    entries = archive.infolist()
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > size:
            raise UserError(f"{path} holds {shorten(entry.filename)} of {entry.file_size} bytes, packed: it is forged")
    if (total := sum(entry.file_size for entry in entries)) > size:
        raise UserError(f"{path} holds {total} bytes in {size}: it is forged")
    for entry in entries:  # zipfile checks no checksum of a shortened record, and PyTorch reads nothing of a folder
        if entry.compress_size != entry.file_size or entry.external_attr & _FOLDER:
            raise DamagedError(f"wrong size or kind of {shorten(entry.filename)}")
    broken = archive.testzip()
    if broken is not None:
        raise DamagedError(f"wrong checksum of {shorten(broken)}")
    for entry in entries:
        if entry.filename.endswith(".pkl"):
            _check_pickle(io.BytesIO(archive.read(entry)), path)


def _check_pickle(file: io.BytesIO | io.BufferedReader, path: Path) -> None:
    """Read a pickle to its end without loading anything; refuse one that names code."""
    for opcode, argument, _ in pickletools.genops(file):
        name = opcode.name
        if name in ("GLOBAL", "INST") and (code := str(argument).replace(" ", ".")) not in _PLAIN:
            raise UserError(f"{path} asks for {shorten(code)}: {_FORGED}")
        if name in ("STACK_GLOBAL", "EXT1", "EXT2", "EXT4"):
            raise UserError(f"{path} asks for code by {name}: {_FORGED}")


def _check_values(values: Any, path: Path, size: int) -> None:
    """Refuse values that are small in the file and huge in memory: repeated tensors, lists of the same lists."""
    count, waiting = 0, [(values, 0)]
    while waiting:
        value, depth = waiting.pop()
        count += 1
        if count > _MAX_VALUES or depth > _MAX_DEPTH:
            raise UserError(f"{path} holds more values, or deeper ones, than a file of weights can: it is forged")
        if isinstance(value, torch.Tensor) and value.numel() * value.element_size() > size:
            raise UserError(f"{path} holds a tensor of {value.numel():,} numbers, more than fit into it: it is forged")
        if isinstance(value, dict | list | tuple | set):
            waiting += [(item, depth + 1) for item in (value.values() if isinstance(value, dict) else value)]
