"""The memory that one computation takes at its peak, measured in a process of its own: `python -m … FORM N DEVICE`.

On the CPU it is what the operating system had given the process at most, beyond what it had before (resident pages,
Linux's VmHWM, set back right before); a process that computed before would have pages left over, and hide some. On a
GPU it is what PyTorch's allocator gave out at most.
"""

import contextlib
import re
import resource
import subprocess
import sys
from pathlib import Path

import torch

from seq2seq.errors import UserError
from seq2seq.explain.lab.forms import FORMS, draw

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def measure_peak(form: str, length: int, device: torch.device) -> int:
    """Bytes that attention of `length` positions to themselves takes at its peak, inputs not counted.

    Raises:
        UserError: the process that was to measure it failed, as when memory does not suffice.
    """
    command = [sys.executable, "-m", "seq2seq.explain.lab.peak", form, str(length), str(device)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["it was killed: too little memory"])[-1]
        raise UserError(f"the memory of {form} attention over {length} positions cannot be measured: {reason}")
    return int(done.stdout)


def peak_here(form: str, length: int, device: torch.device) -> int:
    """The same, measured in this process, which should have done nothing before."""
    compute = FORMS[form]
    with torch.no_grad():
        compute(*draw(8, device))  # what is only done once: threads, kernels
        inputs = draw(length, device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            compute(*inputs)
            return torch.cuda.max_memory_allocated(device) - before
        before = _start()
        compute(*inputs)
        return max(0, _highest() - before)


def _start() -> int:
    """Set the high-water mark back to the pages of now, if the system can; what it is then (bytes)."""
    with contextlib.suppress(OSError):  # no Linux: the mark stays where importing left it
        _CLEAR.write_text("5")
    return _highest()


def _highest() -> int:
    """The most memory that was resident (bytes)."""
    if _STATUS.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())):
        return int(found.group(1)) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    print(peak_here(sys.argv[1], int(sys.argv[2]), torch.device(sys.argv[3])))
