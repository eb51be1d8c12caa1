"""Reads settings from Hydra or a run's config.yaml; suggests names for misspelt settings."""

import dataclasses
import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq.errors import UserError, in_short
from seq2seq.extras import train_command
from seq2seq.settings.bundle import first_line
from seq2seq.settings.choices import flatten, parse
from seq2seq.settings.config import Config
from seq2seq.settings.rules import AUTO

_MAX_YAML = 1_000_000  # bytes
_MAX_SUGGESTIONS = 3
_SINGLE = "give single values, as trainer.max_steps=5000"
# settings that a resumed run keeps, and why
_FIXED = {
    "name": "the run keeps its folder {folder}",
    "series": "the run keeps its folder {folder}",
    "init": "the weights come from the checkpoint",
    **dict.fromkeys(("data", "tokenizer", "model", "model/style", "training", "search"), _SINGLE),
    **dict.fromkeys(("trainer", "logger", "experiment"), _SINGLE),
    "training.learning_rate": "if you mean to, say resume_lr=",
}


def register_schema() -> None:
    """Register the types of settings with Hydra, so that Hydra refuses an unknown key or a wrong type."""
    ConfigStore.instance().store(name="schema", node=Config)


def from_hydra(cfg: DictConfig) -> Config:
    """Return the composed configuration as checked dataclasses.

    Raises:
        UserError: a value is missing or out of its range; the message names the key.
    """
    try:
        for key, value in flatten(OmegaConf.to_container(cfg, resolve=True)).items():
            if isinstance(value, list) and any(
                isinstance(one, dict | list) for one in value
            ):  # Hydra allows such lists
                raise UserError(f"{key}={in_short(value)} is no list of words")
        config = OmegaConf.to_object(cfg)
    except OmegaConfBaseException as error:
        raise UserError(first_line(error)) from error
    assert isinstance(config, Config)
    _require_known(config)
    return config


def _require_known(settings: Any, prefix: str = "") -> None:
    """Refuse settings that `+key=value` added and that nothing would read.

    Raises:
        UserError: there is such a setting.
    """
    names = {field.name for field in dataclasses.fields(settings)}
    for name, value in vars(settings).items():
        if name not in names:
            raise UserError(unknown_setting(prefix + name, setting_keys(Config)))
        if dataclasses.is_dataclass(value):
            _require_known(value, f"{prefix}{name}.")


def load_config(folder: str, overrides: list[str], option: str = "resume=") -> Config:
    """Read a run's config.yaml, with `key=value` overrides on top, to resume the run.

    option is the option by which the user named the folder, for errors.

    Raises:
        UserError: there is no such run, or an override or the file has an unknown key or a wrong value.
    """
    folder = str(real_folder(Path(folder)))
    path = Path(folder) / "config.yaml"
    if not path.is_file():
        raise UserError(f"{option}{folder}: there is no run (no {path})")
    for key, reason in _FIXED.items():
        if any(override.startswith(f"{key}=") for override in overrides):
            raise UserError(f"{key}= cannot be changed on resume: {reason.format(folder=folder)}")
    try:
        saved = OmegaConf.merge(OmegaConf.structured(Config), _plain_yaml(path))
    except UserError:
        raise
    except (OmegaConfBaseException, yaml.YAMLError, ValueError, OSError, RecursionError) as error:
        raise UserError(f"{path}: {in_short(first_line(error))}") from error
    assert isinstance(saved, DictConfig)
    _change(saved, overrides)
    saved.resume = folder
    config = from_hydra(saved)
    if config.resume_lr is not None:
        config.training.learning_rate, config.resume_lr = config.resume_lr, None
    return config


def real_folder(folder: Path) -> Path:
    """Return the folder by its own name: not runs/latest, a link that will change, and not `.`."""
    if folder.is_symlink():
        return folder.parent / folder.readlink()
    return folder if folder.name else folder.resolve()


def _change(settings: DictConfig, overrides: Sequence[str]) -> None:
    """Change values by `key=value` in Hydra's grammar.

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
        raise UserError(explain(error, setting_keys(Config)) or first_line(error)) from error
    keys = {override.key_or_group for override in parsed}
    if "trainer.max_epochs" in keys and "trainer.max_steps" not in keys:
        settings.trainer.max_steps = AUTO  # the saved number of updates follows from the old max_epochs


def _plain_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file of plain values: no tags, which name classes, and no anchors, which multiply values.

    Raises:
        UserError: the file has tags or anchors, or does not hold settings.
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


def setting_keys(schema: type, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of all settings in a dataclass and in the dataclasses of its fields."""
    types = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        if dataclasses.is_dataclass(types[field.name]):
            yield from setting_keys(types[field.name], f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def suggest(key: str, known: Iterable[str]) -> list[str]:
    """Return the known keys and groups whose name is nearest to the name of an unknown key, at most three.

    Keys of several sections can have this name; the nearest key comes first.
    """
    names = {one: one.replace("/", ".").rpartition(".")[2] for one in (key, *known)}
    name = names.pop(key)
    nearest = difflib.get_close_matches(name, set(names.values()), n=1, cutoff=0.75)
    same = [one for one in names if names[one] in nearest]
    return difflib.get_close_matches(key, same, _MAX_SUGGESTIONS, cutoff=0.0)


def unknown_setting(key: str, known: Iterable[str]) -> str:
    """Return the message for a setting that does not exist, with suggestions."""
    near = suggest(key, known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"`{train_command()} --help` lists all settings"
    return f"there is no setting {key}: {hint}"


def explain(error: Exception, known: Iterable[str]) -> str | None:
    """Return the message if an error of Hydra or OmegaConf is about a setting that does not exist, else None."""
    message = f"{error}\n{error.__cause__ or ''}"
    key = re.search(r"Could not override '(.+?)'", message) or re.search(r"full_key: (\S+)", message)
    if key is None or not re.search(r"Key '.*' (not in '|is not in struct)", message):
        return None
    if "reference_type=Dict" in message:
        section, _, name = key[1].rpartition(".")
        return f"{section} has no entry {name} yet: add it with a plus, as +{key[1]}=VALUE"
    return unknown_setting(key[1], known)
