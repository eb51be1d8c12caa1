"""Write checkpoints to the disk: each is complete or absent, also after a power failure."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from seq2seq.errors import UserError
from seq2seq.settings.missing_packages import resume_command
from seq2seq.storage.atomic import link_or_copy
from seq2seq.training.run_state import list_checkpoints


class DurableIO(TorchCheckpointIO):
    """Writes a checkpoint under another name, forces it to the disk, and renames it."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write one file."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _durable(path, path.with_name("saving.tmp")) as draft, draft.open("wb") as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError) as error:
            reason = error if isinstance(error, OSError) else error.__context__  # torch.save replaces its file's error
            if not isinstance(reason, OSError):
                raise
            before = "; the checkpoint before is whole" if list_checkpoints(path.parent) else ""
            raise UserError(
                f"cannot write {path}: {reason.strerror or reason}{before}: "
                f"make room, then `{resume_command(path.parent.parent)}`"
            ) from error


def link(path: Path, name: Path) -> None:
    """Give a file a second name, or make a copy on a file system without hard links."""
    if not (name.exists() and name.samefile(path)):
        with _durable(name, name.with_name("best.tmp")) as draft:
            draft.unlink(missing_ok=True)  # of a killed process
            link_or_copy(path, draft)


@contextlib.contextmanager
def _durable(path: Path, draft: Path) -> Iterator[Path]:
    """Yield a draft to write, and then rename it; force its bytes and its new name to the disk."""
    try:
        yield draft
        _sync(draft)
        draft.replace(path)
        _sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
