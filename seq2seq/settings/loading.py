"""Reads the settings of an existing run from its config.yaml, with changes, to resume the run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from seq2seq.errors import UserError, shorten
from seq2seq.settings.bundle import RETIRED, first_line, read_bounded
from seq2seq.settings.checks import load_extensions
from seq2seq.settings.compose import from_hydra, one_line, parse
from seq2seq.settings.config import Config
from seq2seq.settings.rules import AUTO

_MAX_YAML = 1_000_000  # bytes
_SINGLE = "give single values, as trainer.max_steps=5000"
# settings of earlier versions: the values that changed nothing; () are all values
_RETIRED: dict[str, tuple[Any, ...]] = {
    "baseline": (AUTO,),
    "training.freeze": ([],),
    "training.lora_rank": (0,),
    "training.subword_sampling.nbest": (-1,),
    **{f"search.{key}": () if off is None else (off,) for key, off in RETIRED.items()},
    **dict.fromkeys(("training.lora_alpha", "training.lora_dropout", "training.lora_targets", "trainer.compile"), ()),
}
# settings that a resumed run keeps, and why
_FIXED = {
    "name": "the run keeps its folder {folder}",
    "series": "the run keeps its folder {folder}",
    "init": "the weights come from the checkpoint",
    **dict.fromkeys(("data", "tokenizer", "model", "model/style", "training", "search"), _SINGLE),
    **dict.fromkeys(("trainer", "logger", "experiment"), _SINGLE),
    "training.learning_rate": "if you mean to, say resume_lr=",
}


def load_config(folder: str, overrides: list[str], option: str = "resume=") -> Config:
    """Read a run's config.yaml, with `key=value` overrides on top, to resume the run.

    option is the option by which the user named the folder, for errors.
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
    except ConfigKeyError as error:
        advice = "use the version of seq2seq that began this run, or start a new run"
        raise UserError(f"{path} has {shorten(str(error.full_key))}, which is no setting any more: {advice}") from error
    except (OmegaConfBaseException, yaml.YAMLError, ValueError, OSError, RecursionError) as error:
        raise UserError(f"{path}: {shorten(first_line(error))}") from error
    assert isinstance(saved, DictConfig)
    saved.extensions = []  # nothing is imported because a file says so
    _change(saved, overrides)
    load_extensions(saved.extensions)
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
    """Change values by `key=value` in Hydra's grammar."""
    try:
        parsed = parse(overrides)
        for override in parsed:
            if override.is_delete() or override.is_add() or override.is_force_add() or override.is_sweep_override():
                raise UserError(f"{override.input_line}: only key=value can be given here")
            OmegaConf.update(settings, override.key_or_group, override.value())
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(one_line(error)) from error
    keys = {override.key_or_group for override in parsed}
    if "trainer.max_epochs" in keys and "trainer.max_steps" not in keys:
        settings.trainer.max_steps = AUTO  # the saved number of updates follows from the old max_epochs


def _plain_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file of plain values: no tags, which name classes, and no anchors, which multiply values."""
    text = read_bounded(path, _MAX_YAML).decode()
    if any(isinstance(token, yaml.AliasToken | yaml.AnchorToken | yaml.TagToken) for token in yaml.scan(text)):
        raise UserError(f"{path} has tags or anchors, which train.py never writes: it is forged")
    settings = yaml.safe_load(text)
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings) or "${" in text:
        raise UserError(f"{path} holds no plain settings: it is forged or damaged")
    for key, unused in _RETIRED.items():
        *sections, name = key.split(".")
        holder: Any = settings
        for section in sections:
            holder = holder.get(section) if isinstance(holder, dict) else None
        value = holder.pop(name, None) if isinstance(holder, dict) else None
        if unused and value is not None and value not in unused:
            raise UserError(f"{path} has {key}={shorten(value)} of an earlier version: go on with that version")
    return settings
