"""How train.py has memory allocated: freed memory is kept on the host, and a GPU's segments grow."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COUNT_FAULTS = """
import resource, sys
import numpy as np
from seq2seq.cli import train as cli_train
if sys.argv[1] == "keep":
    cli_train.keep_freed_memory()
for _ in range(5):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.ones(30 << 20, dtype=np.uint8) for _ in range(4)]
    del arrays
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
def test_freed_memory_is_not_given_back_between_updates():
    def faults(mode: str) -> int:
        command = [sys.executable, "-c", COUNT_FAULTS, mode]
        return int(
            subprocess.run(
                command,
                cwd=ROOT,
                env=os.environ | {"NUMPY_MADVISE_HUGEPAGE": "0"},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )

    pages = 4 * (30 << 20) // 4096
    assert faults("default") > pages / 2
    assert faults("keep") < pages / 100


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"},
        {"PYTORCH_CUDA_ALLOC_CONF": "backend:native"},
        {"PYTORCH_HIP_ALLOC_CONF": ""},
    ],
)
def test_a_gpus_allocator_extends_its_segments_unless_a_user_set_it_up(given: dict[str, str]):
    """PyTorch reads the settings as CUDA starts, so they must be there before it is imported."""
    code = "import os, sys; import seq2seq.cli.train; assert 'torch' not in sys.modules\n"
    code += "print({name: value for name, value in os.environ.items() if name.endswith('_ALLOC_CONF')})"
    known = {name: value for name, value in os.environ.items() if not name.endswith("_ALLOC_CONF")}
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, cwd=ROOT, env=known | given, capture_output=True, text=True, check=True).stdout
    assert told.strip() == str(given or {"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
