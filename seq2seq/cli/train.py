"""The command that trains: `train.py` and `seq2seq train` run this program, which turns Hydra's settings into ours."""

import contextlib
import ctypes
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.logging import RichHandler

from seq2seq.apps.exchange.sources import imported
from seq2seq.cli.streams import standard_streams
from seq2seq.errors import StoppedError, UserError
from seq2seq.settings.compose import (
    MAX_NAME,
    as_folder_name,
    checked_config,
    compose,
    home,
    one_line,
    parse,
    register_schema,
    rewrite,
)
from seq2seq.settings.config import Config
from seq2seq.settings.describe import markdown, show_help
from seq2seq.settings.loading import load_config
from seq2seq.settings.rules import AUTO
from seq2seq.training.preflight import find_existing, refuse_early
from seq2seq.training.run_files import best_value, interruption, running

log = logging.getLogger(__name__)
_NAMED = ("model", "tokenizer", "training", "search")  # sections whose choices appear in a run's derived name

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
    given = own[1:] if arguments is None else list(arguments)
    is_debug, words = "--debug" in given, [word for word in given if word != "--debug"]
    os.environ["SEQ2SEQ_HOME"] = str(home())  # conf/ refers to it
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach the handler below
    with one_line_errors(is_debug=is_debug), standard_streams():
        if {"--help", "-h"} & set(words):
            show_help(home() / "conf", compose(["data=files"]))
            return
        if "--help-markdown" in words:
            print(markdown(home() / "conf", compose(["data=files"])), end="")
            return
        register_schema()
        is_composed = False

        def run(cfg: DictConfig) -> float | None:
            nonlocal is_composed
            is_composed = True
            sys.argv = own  # Lightning starts further processes with these arguments
            start_logging()
            with one_line_errors(is_debug=is_debug, is_sweep=HydraConfig.get().mode == RunMode.MULTIRUN):
                return train_one(cfg)

        sys.argv = [own[0], *rewrite(words)]
        try:
            hydra.main(version_base="1.3", config_path=str(home() / "conf"), config_name="config")(run)()
        except Exception as error:  # before a run, only the command line and the files of conf/ have been read
            if is_composed or is_debug:
                raise
            raise UserError(one_line(error)) from error


def start_logging() -> None:
    """Log to stderr: with colours and times on a terminal, plain lines elsewhere."""
    handler = RichHandler(console=Console(stderr=True), show_path=False, show_level=False, log_time_format="%H:%M:%S")
    handler.setFormatter(logging.Formatter("%(message)s"))
    plain = logging.StreamHandler()
    plain.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler if sys.stderr.isatty() else plain], force=True)


def train_one(cfg: DictConfig) -> float | None:
    """Train or resume one run, and return its best validation score, by which a search compares runs."""
    own = HydraConfig.get()
    choices, is_sweep = own.runtime.choices, own.mode == RunMode.MULTIRUN
    overrides = [override for override in own.overrides.task if not override.startswith("resume=")]
    named = frozenset(override.key_or_group.replace("/", ".") for override in parse(overrides))
    if is_resumed := cfg.resume not in (None, AUTO):
        config = load_config(cfg.resume, overrides)
        runs, config.name = Path(str(config.resume)).parent, Path(str(config.resume)).name  # it may have been moved
    else:
        config = checked_config(cfg, choices)
        runs = Path("runs") / (config.series or "")
    refuse_early(config)  # before the slow imports
    if is_resumed and find_existing(config, runs):
        return best_value(runs / str(config.name), config.training.monitor)
    from seq2seq.training.finetune import start_from_bundle
    from seq2seq.training.processes import check_processes, choose_devices, choose_precision, rank, share_folder
    from seq2seq.training.run import train
    from seq2seq.training.run_folder import prepare_folder

    choose_devices(config.trainer, is_resumed=is_resumed)
    check_processes(config.trainer, is_sweep=is_sweep)
    keep_freed_memory()
    config.trainer.precision = choose_precision(config.trainer)  # saved, so that a resumed run keeps it
    if (source := config.init) is not None and not is_resumed:
        config.init = str(share_folder("init", lambda: Path(imported(source, config.data.cache, f"init={source}"))))
        config = start_from_bundle(config, overrides)
        named |= {"model", "tokenizer"}  # init= sets them
    if config.resume == AUTO and find_existing(config, runs):
        return best_value(runs / str(config.name), config.training.monitor)
    config, folder, checkpoint = prepare_folder(config, runs, run_name(str(config.experiment_name), overrides, choices))
    with running(folder, is_resumed=is_resumed):
        best = train(config, folder, checkpoint, named)
        if config.analyse and rank() == 0:
            analyse_tests(config, folder)
        return best


def analyse_tests(config: Config, folder: Path) -> None:
    """Write an analysis of the errors in a complete run's test translations to the run's folder."""
    import torch

    from seq2seq.apps.explain.attention_analysis import PAGE, training_sources, write_analysis
    from seq2seq.training.finish_run import read_translations
    from seq2seq.training.target_words import words_of_run
    from seq2seq.translate.translator import Translator

    try:
        tests = read_translations(folder)
        device = "cuda" if config.trainer.accelerator == "gpu" else config.trainer.accelerator
        reader = Translator.load(folder / "model", device, torch.float32)
        languages = config.data.src_lang, config.data.tgt_lang
        aligner = reader if reader.can_align else None
        texts, known = training_sources(folder), words_of_run(folder)
        write_analysis(folder / "analysis", tests, languages, translator=aligner, texts=texts, known=known)
    except UserError as error:
        log.warning("no analysis: %s; `seq2seq analyse --model %s` makes it", error, folder)  # the run is complete
    else:
        log.info("what is wrong with the test translations: %s", folder / "analysis" / PAGE)


def run_name(experiment: str, overrides: Sequence[str], choices: Mapping[str, Any]) -> str:
    """Return a folder's name for a run: its experiment or text, and what the command line chose for the model.

    Options appear by their name (`base`), values with the last part of their key (`learning_rate_0.001`); choices are
    the option of every group. What would make the name too long is left out.
    """
    name = experiment
    for override in parse(overrides):
        key, value = override.key_or_group, str(override.value())
        if key == "seed" or key.replace("/", ".").partition(".")[0] in _NAMED:
            part = as_folder_name(value if key in choices else f"{key.rpartition('.')[2]}_{value}")
            if len(name) + len(part) < MAX_NAME:
                name += f"-{part}"
    return name


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
