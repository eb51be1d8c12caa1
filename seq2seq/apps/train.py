"""Training by the overrides of a command line, or of a Python program, and the run that it leaves."""

import json
import logging
import math
import multiprocessing
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.types import RunMode
from omegaconf import DictConfig

from seq2seq.apps.exchange.cached import imported
from seq2seq.errors import StoppedError, UserError
from seq2seq.progress import console, enable, phase
from seq2seq.settings.compose import MAX_NAME, as_folder_name, checked_config, compose_by_hydra, parse
from seq2seq.settings.config import Config
from seq2seq.settings.loading import load_config
from seq2seq.settings.missing_packages import translate_command
from seq2seq.settings.rules import AUTO
from seq2seq.training.run_files import best_value, read_metrics, running
from seq2seq.training.run_state import extend_command, find_existing, refuse_early

if TYPE_CHECKING:
    from lightning import Callback

    from seq2seq.translate.translator import Translator

log = logging.getLogger(__name__)
PICTURE = "alignment.png"  # in a run's folder
_NAMED = ("model", "tokenizer", "training", "search")  # sections whose choices appear in a run's derived name


@dataclass(frozen=True)
class Run:
    """A complete run.

    Attributes:
        folder: the run's folder, `runs/NAME`.
        best: the best validation by `training.monitor`: BLEU, or the loss (nats per target token); None: none was made.
    """

    folder: Path
    best: float | None

    @property
    def scores(self) -> dict[str, Any]:
        """The scores of each test set with their signatures, as in `results.json`."""
        return json.loads((self.folder / "results.json").read_text(encoding="utf-8"))["scores"]

    @property
    def metrics(self) -> list[dict[str, float]]:
        """The rows of `metrics.csv`, by update (`step`), without empty cells."""
        return [{key: float(value) for key, value in row.items() if value} for row in read_metrics(self.folder)]

    def translator(self, device: str = "auto") -> "Translator":
        """Load the run's model, on the CPU, on cuda or cuda:N; auto: on a GPU if there is one."""
        from seq2seq.translate.translator import Translator

        return Translator.load(self.folder / "model", device)


def train(*overrides: str, callbacks: Sequence["Callback"] = ()) -> Run:
    """Train as `python train.py` does with these overrides, such as `data=files`, and return the complete run.

    callbacks are Lightning's, called beside the run's own. The folder `runs/` lies in the working directory. A program
    trains on one device: further processes would run the program again.

    Raises:
        UserError: a setting, the text or the disk does not allow the run, or a signal stopped it.
    """
    if multiprocessing.parent_process() is not None:
        raise UserError('a process of the run imports this program: call train below `if __name__ == "__main__":`')
    cfg = compose_by_hydra(overrides)
    try:
        return start(cfg, cfg.pop("hydra"), callbacks, is_program=True)
    except SystemExit as error:  # Lightning's, after a second Ctrl-C
        raise StoppedError("interrupted: `seq2seq runs` lists what was saved") from error


def start(cfg: DictConfig, own: Any, callbacks: Sequence["Callback"] = (), *, is_program: bool = False) -> Run:
    """Train or resume the run of Hydra's composed settings; own are Hydra's own settings.

    is_program says that a program called, which trains on one device.
    """
    choices, is_sweep = own.runtime.choices, own.mode == RunMode.MULTIRUN
    overrides = [override for override in own.overrides.task if not override.startswith("resume=")]
    named = frozenset(override.key_or_group.replace("/", ".") for override in parse(overrides))
    if is_resumed := cfg.resume not in (None, AUTO):
        config = load_config(cfg.resume, overrides)
        runs, config.name = Path(str(config.resume)).parent, Path(str(config.resume)).name  # it may have been moved
    else:
        config = checked_config(cfg, choices)
        runs = Path("runs") / (config.series or "")
    if is_program:
        if not {config.trainer.devices, config.trainer.num_nodes} <= {1, AUTO}:
            raise UserError("trainer.devices: a program trains on one device; on several, `python train.py` does")
        config.trainer.devices = config.trainer.num_nodes = 1
    refuse_early(config)  # before the slow imports
    if is_resumed and find_existing(config, runs):
        return _complete(runs / str(config.name), config)
    enable(config.trainer.progress_bar)
    with phase("loading PyTorch"):
        from seq2seq.training import processes
        from seq2seq.training.finetune import start_from_bundle
        from seq2seq.training.run import train as train_model
        from seq2seq.training.run_folder import prepare_folder

    then, launch = (config.trainer.devices, config.trainer.num_nodes), processes.find_launch()
    is_open = is_resumed and not (is_program or AUTO in then or named & {"trainer.devices", "trainer.num_nodes"})
    if launch and is_open and (math.prod(then) != launch.processes or launch.nodes not in (0, then[1])):
        config.trainer.devices = config.trainer.num_nodes = AUTO  # as many as were started now
    processes.choose_devices(config.trainer)
    processes.check_processes(config.trainer, is_sweep=is_sweep)
    config.trainer.precision = processes.choose_precision(config.trainer)  # saved, so that a resumed run keeps it
    if (source := config.init) is not None and not is_resumed:
        config.init = str(
            processes.share_folder("init", lambda: Path(imported(source, config.data.cache, f"init={source}")))
        )
        config = start_from_bundle(config, overrides)
        named |= {"model", "tokenizer"}  # init= sets them
    if config.resume == AUTO and find_existing(config, runs):
        return _complete(runs / str(config.name), config)
    adapts = not is_resumed or "training.accumulate" not in named
    stem = run_name(str(config.experiment_name), overrides, choices)
    config, folder, checkpoint = prepare_folder(config, runs, stem, adapts=adapts)
    if config.logger.attention:
        from seq2seq.apps.explain.logged import AttentionPictures

        callbacks = [*callbacks, AttentionPictures()]
    with running(folder, is_resumed=is_resumed):
        best = train_model(config, folder, checkpoint, named, callbacks)
        if config.analyse and processes.rank() == 0:
            analyse_tests(config, folder)
        if processes.rank() == 0 and not (is_program or is_sweep or config.trainer.fast_dev_run):
            show_model(config, folder)
        return Run(folder.absolute(), best)


def _complete(folder: Path, config: Config) -> Run:
    return Run(folder.absolute(), best_value(folder, config.training.monitor))


def analyse_tests(config: Config, folder: Path) -> None:
    """Write an analysis of the errors in a complete run's test translations to the run's folder."""
    import torch

    from seq2seq.apps.explain.analysis import PAGE, training_sources, write_analysis
    from seq2seq.training.final_scores import words_of_run
    from seq2seq.training.finish_run import read_translations
    from seq2seq.translate.translator import Translator

    try:
        tests = read_translations(folder)
        device = "cuda" if config.trainer.accelerator == "gpu" else config.trainer.accelerator
        reader = Translator.load(folder / "model", device, torch.float32)
        languages = config.data.src_lang, config.data.tgt_lang
        aligner = reader if reader.can_align else None
        texts, known = training_sources(folder), words_of_run(folder)
        with phase("analysing the test translations"):
            write_analysis(folder / "analysis", tests, languages, translator=aligner, texts=texts, known=known)
    except (UserError, OSError) as error:
        log.warning("no analysis: %s; `seq2seq analyse --model %s` makes it", error, folder)  # the run is complete
    else:
        log.info("what is wrong with the test translations: %s", folder / "analysis" / PAGE)


def show_model(config: Config, folder: Path) -> None:
    """Show three test translations of a complete run, a picture of what the first attends to, and what to type next."""
    from seq2seq.training.finish_run import read_translations
    from seq2seq.translate.bundle import example

    try:
        tests = read_translations(folder)
    except UserError:  # there are none, such as without test sets
        tests = []
    triples = [triple for test in tests for triple in zip(test.sources, test.hypotheses, test.references, strict=True)]
    samples = sorted(triples[:: max(1, len(triples) // 3)][:3], key=lambda sample: sample[1] != sample[2])
    shown, model = example(config.data.src_lang), shlex.quote(str(folder))
    text = shlex.quote(samples[0][0] if samples and shown == "…" else shown)
    lines = ["", "Test sentences, as the model translates them:"] if samples else []
    for source, translation, reference in samples:
        lines += [f"  {source}", f"  → {translation}" + f"   (reference: {reference})" * (translation != reference)]
    picture = draw_alignment(folder, *samples[0][:2]) if samples else None
    if picture is not None:
        lines += ["", "A picture of what the words of the first translation attend to:", f"  {picture}"]
    lines += ["", "What to type next:"]
    lines += [f"  {translate_command()} --model {model} {text}"]
    lines += [f"  seq2seq attend {text} --model {model} --output attention"] * (picture is not None)
    lines += [f"  {extend_command(config, folder)}"]
    console().print("\n".join(lines), markup=False, emoji=False, highlight=False, soft_wrap=True)


def draw_alignment(folder: Path, source: str, translation: str) -> Path | None:
    """Draw the cross-attention of a translation into a run's folder; None: there is none, or it cannot be drawn."""
    import torch

    from seq2seq.apps.explain.explanation import explain
    from seq2seq.apps.explain.picture import draw
    from seq2seq.translate.translator import Translator

    try:
        translator = Translator.load(folder / "model", "cpu", torch.float32)
        if not (translator.can_align and translation):
            return None
        draw(explain(translator, source, translation), folder / PICTURE, ["alignment"])
    except (UserError, OSError) as error:  # the run is complete
        log.warning("%s cannot be drawn: %s", folder / PICTURE, error)
        return None
    return folder / PICTURE


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
