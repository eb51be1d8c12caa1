"""The tree of all settings, and its way through Hydra and YAML; the only file that knows Hydra and OmegaConf.

`conf/` holds values, the classes here and in `seq2seq.settings` hold types, defaults and checks. After `from_hydra`
there is no `DictConfig` any more.
"""

import dataclasses
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq.errors import UserError
from seq2seq.settings.checks import require, require_choice
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.settings.trainer import TrainerConfig
from seq2seq.settings.training import NoiseConfig, SubwordSamplingConfig, TrainingConfig

__all__ = [
    "Config",
    "DataConfig",
    "ModelConfig",
    "NoiseConfig",
    "SearchConfig",
    "SubwordSamplingConfig",
    "TokenizerConfig",
    "TrainerConfig",
    "TrainingConfig",
    "from_hydra",
    "load_config",
    "model_config_from_plain",
    "register_schema",
    "require_choice",
    "search_config_from_plain",
    "to_plain",
]

_MAX_YAML = 1_000_000  # bytes


@dataclass(kw_only=True)
class Config:
    """A whole run."""

    name: str | None = None  # folder under runs/; null: the experiment's name and the time
    series: str | None = None  # folder between runs/ and the run's, for runs that belong together; null: none
    existing: str = (
        "refuse"  # a name that is a run already: refuse it | keep the run, gone on with if it was broken off
    )
    seed: int = 1
    resume: str | None = None  # a run's folder, to go on with it
    init: str | None = None  # a run's or bundle's folder whose weights, sizes and vocabulary training starts from
    resume_lr: float | None = None  # on resume: the peak learning rate from here on, in training.learning_rate's place
    experiment_name: str = "run"
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)

    def __post_init__(self) -> None:
        require(
            self.trainer.strategy != "fsdp" or self.training.ema_decay == 0,
            "trainer.strategy=fsdp keeps no running average of the weights: use trainer.strategy=ddp, or set "
            "training.ema_decay=0 training.final_weights=last",
        )
        require(
            self.trainer.strategy != "fsdp" or self.training.lora_rank == 0,
            "trainer.strategy=fsdp trains whole weights: use trainer.strategy=ddp with training.lora_rank",
        )
        require(
            self.training.lora_rank == 0 or self.model.relevance != "shared",
            "training.lora_rank adapts queries and keys apart, which model.relevance=shared has as one: leave one out",
        )
        require_choice("existing", self.existing, ("refuse", "keep"))
        require(
            self.existing == "refuse" or self.name is not None,
            "existing=keep finds runs by their names: give name=, as name='${experiment_name}-${seed}'",
        )
        is_transformer = self.model.architecture == "transformer"
        require(
            is_transformer or (self.trainer.strategy != "fsdp" and not self.trainer.compile),
            f"model.architecture={self.model.architecture} is a small network that goes step by step: use "
            "trainer.strategy=ddp and leave out trainer.compile, which are for Transformers",
        )
        for key in ("name", "series", "experiment_name"):  # they become folders under runs/
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
        require(
            not self.trainer.compile
            or (self.trainer.strategy != "fsdp" and not self.training.activation_checkpointing),
            "trainer.compile=true decides itself what to compute again and what to gather: leave out "
            "training.activation_checkpointing, and use trainer.strategy=ddp",
        )


def register_schema() -> None:
    """Tell Hydra the types, so that an unknown key or a wrong type stops at composition."""
    ConfigStore.instance().store(name="schema", node=Config)


def from_hydra(cfg: DictConfig) -> Config:
    """The composed configuration as checked dataclasses.

    Raises:
        UserError: a value is missing or out of its range; the message names the key.
    """
    try:
        config = OmegaConf.to_object(cfg)
    except OmegaConfBaseException as error:
        raise UserError(str(error).strip().splitlines()[0]) from error
    assert isinstance(config, Config)
    return config


def to_plain(config: object) -> dict[str, Any]:
    """A dataclass of settings as plain values, for YAML and JSON."""
    assert dataclasses.is_dataclass(config)
    assert not isinstance(config, type)
    return dataclasses.asdict(config)


def load_config(folder: str, overrides: list[str], option: str = "resume=") -> Config:
    """Read a run's config.yaml again, with `key=value` overrides on top, to resume it.

    option is what the user gave the folder by, for errors.

    Raises:
        UserError: there is no such run, or an override or the file has an unknown key or a wrong value.
    """
    path = Path(folder) / "config.yaml"
    if not path.is_file():
        raise UserError(f"{option}{folder}: there is no run (no {path})")
    if any(override.startswith("init=") for override in overrides):
        raise UserError("init= cannot be changed on resume: the weights come from the checkpoint")
    for group in ("data", "tokenizer", "model", "training", "search", "trainer", "experiment"):
        if any(override.startswith(f"{group}=") for override in overrides):
            raise UserError(f"{group}= cannot be changed on resume: give single values, as {group}.key=value")
    if any(override.startswith("training.learning_rate=") for override in overrides):
        raise UserError("training.learning_rate= cannot be changed on resume: if you mean to, say resume_lr=")
    try:
        settings = _plain_yaml(path)
        saved = OmegaConf.merge(OmegaConf.structured(Config), settings, OmegaConf.from_dotlist(overrides))
    except (OmegaConfBaseException, yaml.YAMLError, UnicodeDecodeError, OSError, RecursionError) as error:
        raise UserError(f"{path}: {str(error).strip().splitlines()[0]}") from error
    assert isinstance(saved, DictConfig)
    saved.resume = folder
    config = from_hydra(saved)
    if config.resume_lr is not None:
        config.training.learning_rate, config.resume_lr = config.resume_lr, None
    return config


def _plain_yaml(path: Path) -> dict[str, Any]:
    """A YAML file of plain values: no tags, which would name classes, and no anchors, which would multiply.

    Raises:
        UserError: there are such, or the file holds something else than settings.
    """
    if path.stat().st_size > _MAX_YAML:
        raise UserError(f"{path} has {path.stat().st_size:,} bytes: it is no config.yaml of train.py")
    text = path.read_text(encoding="utf-8")
    if any(isinstance(token, yaml.AliasToken | yaml.AnchorToken | yaml.TagToken) for token in yaml.scan(text)):
        raise UserError(f"{path} has tags or anchors, which train.py never writes: it is forged")
    settings = yaml.safe_load(text)
    if not isinstance(settings, dict) or "${" in text:
        raise UserError(f"{path} holds no plain settings: it is forged or damaged")
    return settings


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested plain values by their dotted keys, as the command line has them."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def model_config_from_plain(values: dict[str, Any]) -> ModelConfig:
    """A model's settings out of a bundle's plain values.

    Raises:
        UserError: a key is unknown or a value has the wrong type or range.
    """
    return _typed(ModelConfig, values)


def search_config_from_plain(values: dict[str, Any]) -> SearchConfig:
    """A bundle's search defaults out of its plain values.

    Raises:
        UserError: a key is unknown or a value has the wrong type or range.
    """
    return _typed(SearchConfig, values)


def _typed(schema: type, values: dict[str, Any]) -> Any:
    try:
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.create(values)))
    except (OmegaConfBaseException, AssertionError, ValueError) as error:
        raise UserError(str(error).strip().splitlines()[0]) from error
