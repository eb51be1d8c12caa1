"""Train a translation model: `python train.py`, `python train.py --help`, `python train.py experiment=tatoeba_cpu`."""

import contextlib
import ctypes
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.logging import RichHandler

from seq2seq.compose import expand_globs, one_line
from seq2seq.config import from_hydra, load_config, register_schema
from seq2seq.errors import UserError

os.environ["SEQ2SEQ_HOME"] = str(Path(__file__).resolve().parent)
os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach `main`, which tells them in one line
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # threads that spin longer stall on a busy machine
register_schema()
DEBUG = "--debug" in sys.argv


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def run(cfg: DictConfig) -> float | None:
    """Compose the settings and train; what a sweep compares its runs by."""
    handler = RichHandler(console=Console(stderr=True), show_path=False, show_level=False, log_time_format="%H:%M:%S")
    handler.setFormatter(logging.Formatter("%(message)s"))
    plain = logging.StreamHandler()
    plain.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler if sys.stderr.isatty() else plain], force=True)
    with one_line_errors():
        return assemble(cfg)


def assemble(cfg: DictConfig) -> float | None:
    """From settings to a finished run, and its best validation."""
    config = from_hydra(cfg)
    overrides = [o for o in HydraConfig.get().overrides.task if not o.startswith("resume=")]
    if config.resume is not None:
        config = load_config(config.resume, overrides)
    from seq2seq.training.existing import take_up
    from seq2seq.training.finetune import start_from_bundle
    from seq2seq.training.folder import prepare_folder
    from seq2seq.training.precision import choose_precision
    from seq2seq.training.processes import check_processes
    from seq2seq.training.run import train

    check_processes(config.trainer, is_sweep=HydraConfig.get().mode == RunMode.MULTIRUN)
    keep_freed_memory()
    config.trainer.precision = choose_precision(config.trainer)  # written down, so that a resumed run keeps it
    if config.init is not None and config.resume is None:
        config = start_from_bundle(config, overrides)
    runs = Path("runs") / (config.series or "")
    if config.existing == "keep" and config.resume is None and (complete := take_up(config, runs)) is not None:
        return complete.best
    return train(*prepare_folder(config, runs))


def keep_freed_memory() -> None:
    """Let glibc keep what is freed for the next update, instead of getting 10,000 pages from the kernel in each.

    Training on the CPU is some 4 % faster for it (docs/performance.md). Other C libraries have no such setting.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mmap_threshold, trim_threshold = -3, -1  # malloc.h: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
        mallopt(mmap_threshold, 32 * 2**20)  # bytes; the most that is allowed
        mallopt(trim_threshold, 2**31 - 1)


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Tell errors in one line and exit with 1; with --debug, show the traceback."""
    try:
        yield
    except (UserError, HydraException, OmegaConfBaseException) as error:
        if DEBUG:
            raise
        sys.exit(f"error: {one_line(error)}")
    except KeyboardInterrupt:
        sys.exit("error: interrupted; a run that was training goes on from its last checkpoint with resume=runs/NAME")


def main() -> None:
    """Run Hydra's command line, with --debug taken out of it."""
    sys.argv = [argument for argument in sys.argv if argument != "--debug"]
    with one_line_errors():
        sys.argv = expand_globs(sys.argv)
        run()


if __name__ == "__main__":
    main()
