"""Measure the peak memory of one attention in its own process: `python -m benchmarks.peak FORM LENGTH DEVICE`.

On the CPU, the result is the peak of resident memory (Linux's VmHWM, which is reset first) minus the resident memory
before. The process must be new: a process that has computed before reuses freed pages, which hide a part of the peak.
On a GPU, the result is the peak of PyTorch's allocator.
"""

import contextlib
import re
import resource
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.attention import FORMS, random_text
from seq2seq.errors import UserError

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def measure_peak(form: str, length: int, device: torch.device) -> int:
    """Return the peak memory (bytes) of attention over `length` positions, without inputs, from a new process.

    Raises:
        UserError: the process failed, for example because memory is not sufficient.
    """
    command = [sys.executable, "-m", "benchmarks.peak", form, str(length), str(device)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["it was killed: too little memory"])[-1]
        raise UserError(f"the memory of {form} attention over {length} positions cannot be measured: {reason}")
    return int(done.stdout)


def peak_here(form: str, length: int, device: torch.device) -> int:
    """Return the peak memory (bytes) of attention in this process, which must not have computed anything before."""
    compute = FORMS[form]
    with torch.no_grad():
        compute(*random_text(8, device))  # start threads, load kernels
        inputs = random_text(length, device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            compute(*inputs)
            return torch.cuda.max_memory_allocated(device) - before
        with contextlib.suppress(OSError):  # not Linux: the peak of the imports remains
            _CLEAR.write_text("5")
        before = _highest()
        compute(*inputs)
        return max(0, _highest() - before)


def _highest() -> int:
    """Return the peak of resident memory (bytes)."""
    if _STATUS.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())):
        return int(found.group(1)) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    print(peak_here(sys.argv[1], int(sys.argv[2]), torch.device(sys.argv[3])))
