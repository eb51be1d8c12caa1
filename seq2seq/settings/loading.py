"""Reads settings from Hydra, a run's config.yaml, or a bundle's plain values, and returns dataclasses."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq.errors import UserError, in_short
from seq2seq.settings.choices import flatten, parse
from seq2seq.settings.config import Config
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.rules import AUTO
from seq2seq.settings.search import SearchConfig
from seq2seq.settings.suggest import explain, setting_keys, unknown_setting

_MAX_YAML = 1_000_000  # bytes


def register_schema() -> None:
    """Tell Hydra the types, so that an unknown key or a wrong type stops at composition."""
    ConfigStore.instance().store(name="schema", node=Config)


def from_hydra(cfg: DictConfig) -> Config:
    """The composed configuration as checked dataclasses.

    Raises:
        UserError: a value is missing or out of its range; the message names the key.
    """
    try:
        for key, value in flatten(OmegaConf.to_container(cfg, resolve=True)).items():
            if isinstance(value, list) and any(isinstance(one, dict | list) for one in value):  # for Hydra it is one
                raise UserError(f"{key}={in_short(value)} is no list of words")
        config = OmegaConf.to_object(cfg)
    except OmegaConfBaseException as error:
        raise UserError(str(error).strip().splitlines()[0]) from error
    assert isinstance(config, Config)
    _require_known(config)
    return config


def _require_known(settings: Any, prefix: str = "") -> None:
    """Refuse settings that `+key=value` added and that nothing would read.

    Raises:
        UserError: there is one.
    """
    names = {field.name for field in dataclasses.fields(settings)}
    for name, value in vars(settings).items():
        if name not in names:
            raise UserError(unknown_setting(prefix + name, setting_keys(Config)))
        if dataclasses.is_dataclass(value):
            _require_known(value, f"{prefix}{name}.")


def load_config(folder: str, overrides: list[str], option: str = "resume=") -> Config:
    """Read a run's config.yaml again, with `key=value` overrides on top, to resume it.

    option is what the user gave the folder by, for errors.

    Raises:
        UserError: there is no such run, or an override or the file has an unknown key or a wrong value.
    """
    folder = str(_real(Path(folder)))
    path = Path(folder) / "config.yaml"
    if not path.is_file():
        raise UserError(f"{option}{folder}: there is no run (no {path})")
    for key in ("name", "series"):
        if any(override.startswith(f"{key}=") for override in overrides):
            raise UserError(f"{key}= cannot be changed on resume: the run keeps its folder {folder}")
    if any(override.startswith("init=") for override in overrides):
        raise UserError("init= cannot be changed on resume: the weights come from the checkpoint")
    for group in ("data", "tokenizer", "model", "model/style", "training", "search", "trainer", "logger", "experiment"):
        if any(override.startswith(f"{group}=") for override in overrides):
            raise UserError(f"{group}= cannot be changed on resume: give single values, as trainer.max_steps=5000")
    if any(override.startswith("training.learning_rate=") for override in overrides):
        raise UserError("training.learning_rate= cannot be changed on resume: if you mean to, say resume_lr=")
    try:
        settings = _plain_yaml(path)
        saved = OmegaConf.merge(OmegaConf.structured(Config), settings)
    except UserError:
        raise
    except (OmegaConfBaseException, yaml.YAMLError, ValueError, OSError, RecursionError) as error:
        raise UserError(f"{path}: {in_short(str(error).strip().splitlines()[0])}") from error
    assert isinstance(saved, DictConfig)
    change(saved, overrides)
    saved.resume = folder
    config = from_hydra(saved)
    if config.resume_lr is not None:
        config.training.learning_rate, config.resume_lr = config.resume_lr, None
    return config


def _real(folder: Path) -> Path:
    """The folder with its own name: not runs/latest, which moves on, and not `.`."""
    if folder.is_symlink():
        return folder.parent / folder.readlink()
    return folder if folder.name else folder.resolve()


def change(settings: DictConfig, overrides: Sequence[str]) -> None:
    """Set values of a tree of settings by `key=value` in Hydra's grammar.

    Raises:
        UserError: an override is malformed or no `key=value`, its key is unknown, or its value has the wrong type.
    """
    try:
        parsed = parse(overrides)
        for override in parsed:
            if override.is_delete() or override.is_add() or override.is_force_add() or override.is_sweep_override():
                raise UserError(f"{override.input_line}: only key=value can be given here")
            OmegaConf.update(settings, override.key_or_group, override.value())
    except (HydraException, OmegaConfBaseException) as error:
        message = explain(error, setting_keys(Config))
        raise UserError(message or str(error).strip().splitlines()[0]) from error
    keys = {override.key_or_group for override in parsed}
    if "trainer.max_epochs" in keys and "trainer.max_steps" not in keys:
        settings.trainer.max_steps = AUTO  # else the updates that the epochs of then made would stay the limit


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
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings) or "${" in text:
        raise UserError(f"{path} holds no plain settings: it is forged or damaged")
    return settings


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
