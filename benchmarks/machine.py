"""Describe the machine of a measurement, and write results."""

import json
import os
import platform
from importlib import metadata, util
from pathlib import Path
from typing import Any

import torch

from seq2seq.errors import UserError


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Return the hardware and the versions that affect speed, as JSON values."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "torch": torch.__version__,
        "transformers": metadata.version("transformers") if util.find_spec("transformers") else None,
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),  # processes running or waiting in the last minute
    }


def in_words(machine: dict[str, Any]) -> str:
    """Return the description of a machine in one line."""
    where = machine["gpu"] or f"{machine['cpu']}, {machine['cores']} cores ({machine['cpu_capability']})"
    versions = f"PyTorch {machine['torch']}"
    if machine["transformers"] is not None:
        versions += f", transformers {machine['transformers']}"
    return f"{where}, {machine['threads']} threads, {versions}, load {machine['load']} at the start"


def write_json(path: Path, values: dict[str, Any]) -> None:
    """Write results as JSON.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
