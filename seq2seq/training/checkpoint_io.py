"""Write checkpoints to the disk: each is complete or absent, also after a power failure."""

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from seq2seq.errors import UserError
from seq2seq.settings.missing_packages import resume_command
from seq2seq.training.run_state import list_checkpoints


class DurableIO(TorchCheckpointIO):
    """Writes a checkpoint under another name, forces it to the disk, and renames it."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """Write one file."""
        path = Path(path)
        draft = path.with_name("saving.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with draft.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            _sync_folder(path.parent)
        except (OSError, RuntimeError) as error:
            reason = error if isinstance(error, OSError) else error.__context__  # torch.save replaces its file's error
            if not isinstance(reason, OSError):
                raise
            draft.unlink(missing_ok=True)
            before = "; the checkpoint before is whole" if list_checkpoints(path.parent) else ""
            raise UserError(
                f"cannot write {path}: {reason.strerror or reason}{before}: "
                f"make room, then `{resume_command(path.parent.parent)}`"
            ) from error


def link(path: Path, name: Path) -> None:
    """Give a file a second name, or make a copy on a file system without hard links."""
    if name.exists() and name.samefile(path):
        return
    draft = name.with_name("best.tmp")
    try:
        draft.unlink(missing_ok=True)
        try:
            os.link(path, draft)
        except OSError:
            shutil.copyfile(path, draft)
            with draft.open("rb") as file:
                os.fsync(file.fileno())
        draft.replace(name)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(name.parent)


def _sync_folder(folder: Path) -> None:
    """Force new and changed names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
