"""The start of a run of several processes with prepared text: seconds to its first update, and bytes that it reads."""

import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks import processes
from benchmarks.command import Options, Results, Table
from benchmarks.data import write_corpus
from benchmarks.slopes import VOCABULARY


@dataclass(frozen=True, kw_only=True)
class Plan(Options):
    """The options of `starts`."""

    pairs: int = 3_000_000  # sentence pairs of made-up text
    processes: int = 8  # processes of the run, which exchange values by gloo
    rounds: int = 3  # times that the run is started


def run(plan: Plan, device: torch.device) -> Results:
    """Prepare made-up text, then start a run by torchrun on the CPU."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder, plan.pairs)
        names = ",".join(sorted(path.name for path in folder.glob("train*.tsv")))
        settings = (
            "data=files", f"data.root={folder}", f"data.train=[{names}]", "data.validation=[validation.tsv]",
            "data.test=[validation.tsv]", f"data.cache={folder}/prepared", f"tokenizer.vocab_size={VOCABULARY}",
            "tokenizer.input_sentence_size=100000",
        )  # fmt: skip
        processes.run((*processes.SEQ2SEQ, "prepare", *settings), folder=folder)
        text = sum(path.stat().st_size for pattern in ("*.tsv", "prepared/*/*") for path in folder.glob(pattern))
        starts = [start(folder, settings, plan.processes) for _ in range(plan.rounds)]
    rows = [[f"{seconds:.1f}", f"{max(reads) / 1e9:.2f}", f"{sum(reads) / 1e9:.2f}"] for seconds, reads in starts]
    title = f"{plan.processes} processes, {text / 1e9:.2f} GB of text and prepared text"
    return {"text": text, "starts": starts}, [Table(title, ["seconds", "GB read by one process", "by all"], rows)]


def start(folder: Path, settings: tuple[str, ...], count: int) -> tuple[float, list[int]]:
    """Train until the first update is logged; return the seconds, and the bytes that each process read until then."""
    read: dict[str, int] = {}

    def watch(process: int) -> bool:
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # the process has ended meanwhile, or belongs to somebody else
                if f"train.py\0data=files\0data.root={folder}" in (path / "cmdline").read_text(errors="replace"):
                    read[path.name] = int((path / "io").read_text().split()[1])
        return any(folder.glob("runs/*/metrics.csv"))

    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count))
    few = ("model=tiny", "training.max_tokens=1024", "trainer.log_every=1", "trainer=ddp", "trainer.accelerator=cpu")
    command = (*torchrun, "--no-python", sys.executable, str(processes.REPOSITORY / "train.py"), *settings, *few)
    done = processes.run(command, folder=folder, watch=watch, OMP_NUM_THREADS="1")
    for number in read:  # torchrun starts each process in a session of its own
        with suppress(ProcessLookupError):
            os.kill(int(number), signal.SIGKILL)
    shutil.rmtree(folder / "runs", ignore_errors=True)
    return done.seconds, list(read.values())
