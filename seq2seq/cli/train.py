"""The command that trains: `train.py` and `seq2seq train` run this program, which turns Hydra's settings into ours."""

import contextlib
import ctypes
import logging
import os
import sys
from collections.abc import Iterator, Sequence

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from seq2seq.apps.train import start
from seq2seq.cli.inputs import standard_streams
from seq2seq.errors import StoppedError, UserError
from seq2seq.progress import log_handler
from seq2seq.settings.compose import compose, home, one_line, register_schema, rewrite
from seq2seq.settings.config import show_help
from seq2seq.training.run_files import interruption

log = logging.getLogger(__name__)

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # threads that spin longer stall on a busy machine
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a process that ended is one line, without PyTorch's stack
if not os.environ.keys() & {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"}:
    os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"  # a GPU's memory gets fewer gaps; read as CUDA starts


def main(arguments: Sequence[str] | None = None) -> None:
    """Train with the arguments of a Hydra command line, by default this process's; errors are one line on stderr.

    With --debug, errors show their traceback.
    """
    own = list(sys.argv)
    all_words = own[1:] if arguments is None else list(arguments)
    is_debug, words = "--debug" in all_words, [word for word in all_words if word != "--debug"]
    os.environ["SEQ2SEQ_HOME"] = str(home())  # conf/ refers to it
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach the handler below
    with one_line_errors(is_debug=is_debug), standard_streams():
        if {"--help", "-h"} & set(words):
            show_help(home() / "conf", compose(["data=files"]))
            return
        register_schema()
        is_composed = False

        def run(cfg: DictConfig) -> float | None:
            nonlocal is_composed
            is_composed = True
            sys.argv = own  # Lightning starts further processes with these arguments
            start_logging()
            with one_line_errors(is_debug=is_debug, is_sweep=HydraConfig.get().mode == RunMode.MULTIRUN):
                keep_freed_memory()
                return start(cfg, HydraConfig.get()).best

        sys.argv = [own[0], *rewrite(words)]
        try:
            hydra.main(version_base="1.3", config_path=str(home() / "conf"), config_name="config")(run)()
        except Exception as error:  # before a run, only the command line and the files of conf/ have been read
            if is_composed or is_debug:
                raise
            raise UserError(one_line(error)) from error


def start_logging() -> None:
    """Log to stderr, as `log_handler` says."""
    logging.basicConfig(level=logging.INFO, handlers=[log_handler()], force=True)
    for client in ("httpx", "httpx2"):  # not a line for each request to the hub
        logging.getLogger(client).setLevel(logging.WARNING)


def keep_freed_memory() -> None:
    """Let glibc keep freed memory for the next update, so that not every update gets 10,000 pages from the kernel.

    Training on the CPU is about 4 % faster (docs/performance.md). Other C libraries do not have this setting.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mmap_threshold, trim_threshold = -3, -1  # malloc.h: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
        mallopt(mmap_threshold, 32 * 2**20)  # bytes; the most that is allowed
        mallopt(trim_threshold, 2**31 - 1)


@contextlib.contextmanager
def one_line_errors(*, is_debug: bool, is_sweep: bool = False) -> Iterator[None]:
    """Print an error in one line and exit with 1; with is_debug, show the traceback.

    In a run of a sweep, log the error and raise it: Hydra goes on with the next run, and raises the error at the end of
    the sweep. Ctrl-C and signals end the sweep.
    """
    try:
        yield
    except (UserError, HydraException, OmegaConfBaseException) as error:
        if is_sweep and not isinstance(error, StoppedError):
            log.error("error: %s", one_line(error))
            raise
        if is_debug:
            raise
        sys.exit(f"error: {one_line(error)}")
    except KeyboardInterrupt:
        sys.exit(f"error: {interruption(None)}")
