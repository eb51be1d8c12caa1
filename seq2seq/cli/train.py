"""The command that trains: `train.py` and `seq2seq train` run this program, which turns Hydra's settings into ours."""

import contextlib
import ctypes
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.logging import RichHandler

from seq2seq.cli import jobs
from seq2seq.errors import UserError
from seq2seq.settings.choices import NO_PRESET, Origins, name_of, parse, with_preset
from seq2seq.settings.compose import expand_globs, general_defaults, home, one_line, settle
from seq2seq.settings.config import Config, to_plain
from seq2seq.settings.describe import markdown, show_help
from seq2seq.settings.loading import load_config, real_folder, register_schema
from seq2seq.settings.rules import AUTO
from seq2seq.training.refusals import refuse_early
from seq2seq.training.saved import interruption, running
from seq2seq.training.sweep import note_run, sweep_table

log = logging.getLogger(__name__)

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # threads that spin longer stall on a busy machine
if not os.environ.keys() & {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"}:
    os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"  # a GPU's memory gets fewer gaps; read as CUDA starts


def main(arguments: Sequence[str] | None = None) -> None:
    """Train with the arguments of a Hydra command line, by default this process's; errors are one line on stderr.

    With --debug, errors show their traceback.
    """
    own = list(sys.argv)
    given = own[1:] if arguments is None else list(arguments)
    is_debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    os.environ["SEQ2SEQ_HOME"] = str(home())  # conf/ refers to it
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors reach the handler below
    with one_line_errors(is_debug=is_debug):
        if {"--help", "-h"} & set(given):
            show_help(home() / "conf", general_defaults())
            return
        if "--help-markdown" in given:
            print(markdown(home() / "conf", general_defaults()), end="")
            return
        given, is_shown = without_cfg_job(given)
        register_schema()

        is_read = False

        def run(cfg: DictConfig) -> float | None:
            nonlocal is_read
            is_read = True
            sys.argv = own  # Lightning starts further processes with these arguments
            with one_line_errors(is_debug=is_debug):
                if is_shown:
                    config = settle_one(cfg)[0]
                    print(yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True), end="")
                    return None
                start_logging()
                return train_one(cfg)

        with sweep_table(expand_globs(with_preset(given)), Path("runs")) as arguments_of_hydra:
            sys.argv = [own[0], *arguments_of_hydra]
            try:
                hydra.main(version_base="1.3", config_path=str(home() / "conf"), config_name="config")(run)()
            except Exception as error:  # before a run, only the command line and the files of conf/ have been read
                if is_read or is_debug:
                    raise
                raise UserError(one_line(error)) from error


def without_cfg_job(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """Remove `--cfg job`: Hydra would print settings before the command line's choices override the experiment."""
    words = "".join(f"{argument}\0" for argument in arguments)
    left = re.sub(r"(?<![^\0])(--cfg|-c)[=\0]job\0", "", words)
    return left.split("\0")[:-1], left != words


def start_logging() -> None:
    """Log to stderr: with colours and times on a terminal, plain lines elsewhere."""
    handler = RichHandler(console=Console(stderr=True), show_path=False, show_level=False, log_time_format="%H:%M:%S")
    handler.setFormatter(logging.Formatter("%(message)s"))
    plain = logging.StreamHandler()
    plain.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler if sys.stderr.isatty() else plain], force=True)


def settle_one(cfg: DictConfig) -> tuple[Config, Origins, list[str]]:
    """Return the settings of a new or resumed run, who chose them, and the command line's overrides.

    Raises:
        UserError: a value is missing or out of range, or the run to resume does not exist.
    """
    own = HydraConfig.get()
    overrides = [override for override in own.overrides.task if not override.startswith("resume=")]
    if cfg.resume is None:
        return *settle(cfg, overrides, own.runtime.choices), overrides
    named = {override.key_or_group for override in parse(overrides)}
    named |= {"training.learning_rate"} if "resume_lr" in named else set()
    return load_config(cfg.resume, overrides), Origins(frozenset(named), others="the resumed run"), overrides


def train_one(cfg: DictConfig) -> float | None:
    """Train or resume one run, and return its best validation score, by which a sweep compares runs."""
    own = HydraConfig.get()
    config, origins, overrides = settle_one(cfg)
    if config.baseline not in (None, AUTO):  # runs/latest will be a link to this run
        config.baseline = str(real_folder(Path(config.baseline)))
    refuse_early(config)  # before the slow imports
    from seq2seq.training.finetune import start_from_bundle
    from seq2seq.training.folder import prepare_folder
    from seq2seq.training.processes import check_processes, choose_devices, choose_precision, rank
    from seq2seq.training.refusals import take_up
    from seq2seq.training.run import train

    choose_devices(config.trainer)
    check_processes(config.trainer, is_sweep=own.mode == RunMode.MULTIRUN)
    keep_freed_memory()
    config.trainer.precision = choose_precision(config.trainer)  # saved, so that a resumed run keeps it
    if config.init is not None and config.resume is None:
        config.init = jobs.imported(config.init, config.data.cache)
        config = start_from_bundle(config, overrides)
        origins = replace(origins, chosen=origins.chosen | {"model", "tokenizer"})  # init= sets them
    runs = Path("runs") / (config.series or "")
    if config.existing == "keep" and config.resume is None and (complete := take_up(config, runs)) is not None:
        note_run(runs / str(config.name), overrides)
        return complete.best
    stem = name_of(text_of(config, own.runtime.choices), overrides, own.runtime.choices)
    config, folder, checkpoint = prepare_folder(config, runs, stem)
    if rank() == 0:
        note_run(folder, overrides)
    with running(folder):
        best = train(config, folder, checkpoint, origins)
        if config.analyse and rank() == 0:
            analyse_tests(config, folder)
        return best


def analyse_tests(config: Config, folder: Path) -> None:
    """Write an analysis of the errors in a complete run's test translations to the run's folder."""
    import torch

    from seq2seq.explain.analysis import PAGE, training_sources, write_analysis
    from seq2seq.training.baseline import read_translations
    from seq2seq.translator import Translator

    try:
        tests = read_translations(folder)
        device = "cuda" if config.trainer.accelerator == "gpu" else config.trainer.accelerator
        reader = Translator.load(folder / "model", device, torch.float32)
        languages = config.data.src_lang, config.data.tgt_lang
        sources = training_sources(folder)
        write_analysis(folder / "analysis", tests, languages, sources, reader if reader.can_align else None)
    except UserError as error:
        log.warning("no analysis: %s", error)  # the run itself is complete
    else:
        log.info("what is wrong with the test translations: %s", folder / "analysis" / PAGE)


def text_of(config: Config, options: Mapping[str, Any]) -> str:
    """Return the name of a run's text: its experiment, else the option of data; for data=files, its first file."""
    if options.get("experiment") not in (None, NO_PRESET):
        return config.experiment_name
    first = Path(config.data.train[0]).name if config.data.train else config.data.hub or ""
    return first.partition(".")[0] if options["data"] == "files" else str(options["data"])


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
def one_line_errors(*, is_debug: bool) -> Iterator[None]:
    """Print an error in one line and exit with 1; with is_debug, show the traceback."""
    try:
        yield
    except (UserError, HydraException, OmegaConfBaseException) as error:
        if is_debug:
            raise
        sys.exit(f"error: {one_line(error)}")
    except KeyboardInterrupt:
        sys.exit(f"error: {interruption(None)}")
