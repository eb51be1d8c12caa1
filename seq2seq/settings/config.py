"""The tree of all settings, and their descriptions, which are the comments of their fields."""

import dataclasses
import inspect
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from seq2seq.settings.bundle import BundleConfig
from seq2seq.settings.checks import check_ranges, require
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.settings.missing_packages import train_command
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.rules import AUTO
from seq2seq.settings.search import SearchConfig
from seq2seq.settings.training import LoggerConfig, TrainerConfig, TrainingConfig

EXAMPLES = """\
python train.py                                    the bundled corpus, some minutes on two CPU cores
python train.py data=files 'data.train=[mine.tsv]'   your own text; training stops when the model no longer improves
python train.py experiment=tatoeba_cpu data.root=FOLDER
python train.py --multirun training.learning_rate=5e-4,1e-3 data=files 'data.train=[mine.tsv]'
python train.py resume=runs/NAME                   resumes the run where it stopped
--debug shows tracebacks, --config-dir FOLDER adds a folder of your own options, --cfg job prints the settings.\
"""


@dataclass(kw_only=True)
class Config:
    """A whole run."""

    # folder under runs/; null: the experiment or the text, the chosen settings and the time; with resume=auto, the
    # experiment and the seed
    name: str | None = None
    series: str | None = None  # folder in runs/ for runs that belong together: runs/SERIES/NAME; null: none
    seed: int = 1  # random seed of initial weights, data order and dropout
    # folder of a run to continue exactly where it stopped; auto: the run of this name if it exists; a complete run is
    # left as it is; null: a new run
    resume: str | None = None
    # the first weights, sizes and vocabulary: a run or bundle folder, or a Marian model in Hugging Face's layout (a
    # folder, or a name on its hub, such as Helsinki-NLP/opus-mt-en-es); null: random weights
    init: str | None = None
    resume_lr: float | None = None  # with resume: the new peak learning rate; null: training.learning_rate
    # modules that register own parts (docs/extensions.md); resume= and translate.py need them named again
    extensions: list[str] = field(default_factory=list)
    analyse: bool = False  # at the end, write what is wrong with the test translations to analysis/ in the run's folder
    experiment_name: str | None = None  # in names of folders and in reports; null: the experiment's name, or the text's
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)

    def __post_init__(self) -> None:
        BundleConfig(self.model, self.search, self.data.src_lang, self.data.tgt_lang)  # refuses what no bundle may have
        check_ranges("", self, seed=(0, 2**32 - 1))  # NumPy's limits
        require(self.resume != AUTO or self.name is not None, "resume=auto finds a run by its name: give name=")
        for key in ("name", "series", "experiment_name"):  # names of folders under runs/
            value = getattr(self, key)
            require(
                value is None or (re.fullmatch(r"[^\W_][\w.+=,@ -]{0,199}", value) is not None and value != "latest"),
                f"{key}={value!r:.60} cannot be a folder's name: use letters, digits and . _ - + = , @, "
                "beginning with a letter or digit (and not latest)",
            )
        if self.resume_lr is not None:
            require(
                self.resume is not None, "resume_lr= changes a resumed run's learning rate: give resume=runs/NAME too"
            )
            require(0 < self.resume_lr < math.inf, f"resume_lr={self.resume_lr} must be greater than 0")
        if self.trainer.fast_dev_run:
            keeps = {
                "resume": self.resume,
                "analyse": self.analyse,
                "trainer.overfit_batches": self.trainer.overfit_batches,
                "trainer.profiler": self.trainer.profiler != "none",
            }
            used = next((name for name, value in keeps.items() if value), None)
            require(used is None, f"trainer.fast_dev_run tries a new run and keeps nothing of it: leave out {used}")
        missing = [f"model.{key}=none" for key in ("attention", "cross_attention") if vars(self.model)[key] == "none"]
        message = f"logger.attention=true draws attention to the source: leave it out, or {' and '.join(missing)}"
        require(not (self.logger.attention and missing), message)
        obstacle = self.replay_obstacle()
        require(
            self.trainer.replay is not True or obstacle is None,
            f"trainer.replay=true records a Transformer's updates on a GPU, not with {obstacle}: leave out one of them",
        )

    def replay_obstacle(self) -> str | None:
        """Return a setting with which updates cannot be recorded (trainer.replay); None: there is none."""
        obstacles = {
            "trainer.replay=false": self.trainer.replay is False,
            "trainer.accelerator=cpu": self.trainer.accelerator == "cpu",
            f"model.architecture={self.model.architecture}": self.model.architecture != "transformer",
            "training.activation_checkpointing=true": self.training.activation_checkpointing,
            "trainer.detect_anomaly=true": self.trainer.detect_anomaly,
        }
        return next((setting for setting, is_set in obstacles.items() if is_set), None)


class Setting(NamedTuple):
    """One setting: its dotted key, its value, and the section (an instance of a dataclass) that has it."""

    key: str
    value: Any
    section: Any


def walk(section: Any, prefix: str = "") -> Iterator[Setting]:
    """Yield every setting of a section and of the sections in it."""
    for name, value in vars(section).items():
        if dataclasses.is_dataclass(value):
            yield from walk(value, f"{prefix}{name}.")
        else:
            yield Setting(prefix + name, value, section)


def flatten(config: Config) -> dict[str, Any]:
    """Return all settings by their dotted keys, as on the command line."""
    return {setting.key: setting.value for setting in walk(config)}


def used_settings(config: Config) -> dict[str, Any]:
    """Return all settings by their dotted keys but those of the model that its architecture ignores."""
    used = config.model.used()
    is_used = {f"model.{name}": name in used for name in vars(config.model)}
    return {key: value for key, value in flatten(config).items() if is_used.get(key, True)}


def meanings(config: Config) -> Iterator[tuple[str, str]]:
    """Yield every setting as on the command line, KEY=VALUE, and its meaning."""
    for key, value, section in walk(config):
        comments = field_comments(type(section))
        yield f"{key}={json.dumps(value, ensure_ascii=False)}".replace('"', ""), comments[key.rpartition(".")[2]]


@cache
def field_comments(schema: type) -> dict[str, str]:
    """Return the comment of each field of a dataclass: the comment lines above the field, or at the end of its line."""
    comment_of: dict[str, str] = {}
    comments: list[str] = []
    for line in inspect.getsource(schema).splitlines():
        code, _, comment = line.strip().partition("# ")
        if comment:
            comments.append(comment)
        if code.startswith("def "):
            break
        if start := re.match(r"(\w+): ", code):
            comment_of[start[1]] = " ".join(comments)
            comments = []
    return comment_of


def options(conf: Path) -> Iterator[tuple[str, str]]:
    """Yield the options of every group of a conf folder, as GROUP=NAME, each with the first sentence of its file."""
    for path in sorted(conf.rglob("*.yaml")):
        group = path.parent.relative_to(conf).as_posix()
        if group != ".":
            lines = [line[1:].strip() for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "#"]
            text = " ".join(line for line in lines if not line.startswith("@package"))
            group, name = (group, path.stem) if group != "experiment/lab" else ("experiment", f"lab/{path.stem}")
            yield f"{group}={name}", re.split(r"(?<!\bal)\.(?:\s|$)|:\s+python ", text)[0].rstrip(":. ")


def show_help(conf: Path, config: Config) -> None:
    """Print all options and settings for a terminal."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 110, highlight=False, markup=False)
    console.print("Train a translation model. Each run is stored in runs/NAME, its model in runs/NAME/model.\n")
    groups = ("option", "Groups: choose with GROUP=OPTION", options(conf))
    values = ("value", "Values: set with KEY=VALUE", meanings(config))
    for heading, title, rows in (groups, values):
        table = Table(heading, "meaning", title=title, title_justify="left", box=None)
        for row in rows:
            table.add_row(*row)
        console.print(table, "")
    console.print(EXAMPLES.replace("python train.py", train_command()))
