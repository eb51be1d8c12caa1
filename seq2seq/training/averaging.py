"""The mean of several models' weights as a new model (Junczys-Dowmunt et al. 2016; Vaswani et al. 2017, §6.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq import __version__
from seq2seq.errors import UserError
from seq2seq.settings.model import DROPOUTS, ModelConfig
from seq2seq.training.report import NETWORKS, front_matter
from seq2seq.training.run_folder import read_checkpoint
from seq2seq.training.run_state import list_resumable, step_of
from seq2seq.translate.bundle import Bundle, load_bundle, save_bundle


def average_bundles(folders: Sequence[Path], output: Path) -> list[str]:
    """Write the mean of bundles as a bundle with the first one's settings; return the folders' names."""
    if len(folders) < 2:
        raise UserError(f"{len(folders)} model: give --model at least twice, or --run with --last")
    bundles = [load_bundle(folder) for folder in folders]
    names, first = [str(folder) for folder in folders], bundles[0]
    for name, bundle in zip(names, bundles, strict=True):
        theirs, ours = (f"{config.src_lang}→{config.tgt_lang}" for config in (bundle.config, first.config))
        if theirs != ours:
            raise UserError(f"{name} translates {theirs}, but {names[0]} {ours}: only like models have a mean")
        _require_like(name, asdict(bundle.config.model), bundle.tokenizer.digest[:16], first, names[0])
    return _write(names, [bundle.model.state_dict() for bundle in bundles], first, output)


def average_checkpoints(run: Path, last: int, output: Path) -> list[str]:
    """Write the mean of a run's last checkpoints as a bundle; return the checkpoints' names.

    Settings and tokenizer are those of the run's bundle. With a running average, checkpoints hold the average.
    """
    if last < 2:
        raise UserError(f"--last {last} has no mean: average at least 2 checkpoints")
    bundle, by_update = load_bundle(run / "model"), checkpoints_by_update(run)
    if len(by_update) < last:
        raise UserError(
            f"{run / 'checkpoints'} has checkpoints of {len(by_update)} updates, --last asks for {last}: "
            f"lower it, or let a run keep so many, with trainer.keep_last={last} or training.keep_best={last}"
        )
    paths = [by_update[update] for update in sorted(by_update)[-last:]]
    return _write(list(map(str, paths)), [read_weights(path, run, bundle) for path in paths], bundle, output)


def checkpoints_by_update(run: Path) -> dict[int, Path]:
    """Return a run's checkpoints, the best ones too, by the number of updates."""
    return {step_of(path): path for path in reversed(list_resumable(run / "checkpoints", also_damaged=True))}


def read_weights(path: Path, run: Path, bundle: Bundle) -> dict[str, Tensor]:
    """Read the weights of a run's checkpoint, for the model of the run's bundle."""
    checkpoint = read_checkpoint(path, "cpu")
    if not {"belongs_to", "state_dict"} <= checkpoint.keys():
        raise UserError(f"{path} holds no weights: restore it from a copy, or remove it")
    identity = asdict(ModelConfig()) | checkpoint["belongs_to"]  # older checkpoints lack the newer settings
    _require_like(str(path), identity, str(identity.get("vocabulary")), bundle, str(run / "model"))
    weights = {name.removeprefix("model."): tensor for name, tensor in checkpoint["state_dict"].items()}
    if weights.keys() != bundle.model.state_dict().keys():  # LoRA's of an earlier version, for example
        raise UserError(f"{path} has other weights than {run / 'model'}: only weights of the same layers have a mean")
    return weights


def _require_like(name: str, sizes: Mapping[str, Any], vocabulary: str, like: Bundle, like_name: str) -> None:
    """Refuse weights of other sizes or of another vocabulary than a bundle's."""
    for key, value in asdict(like.config.model).items():
        if key not in DROPOUTS and sizes[key] != value:
            raise UserError(
                f"{name} has {key}={sizes[key]}, but {like_name} has {value}: only models of the same sizes have a mean"
            )
    if vocabulary != like.tokenizer.digest[:16]:
        raise UserError(f"{name} has another vocabulary than {like_name}: a mean needs the same tokenizer")


def mean_weights(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each weight, computed in float64, so that the mean of equal weights equals them exactly."""
    return {
        name: torch.stack([state[name].double() for state in states]).mean(0).to(first.dtype)
        for name, first in states[0].items()
    }


def _write(names: list[str], states: Sequence[Mapping[str, Tensor]], like: Bundle, output: Path) -> list[str]:
    """Write the mean of the named models' weights as a bundle with the settings of another one; return the names."""
    config, model = like.config, like.model
    model.load_state_dict(mean_weights(states))
    config.calibration = None  # it belongs to other weights
    listed = "\n".join(f"- `{name}`" for name in names)
    network = NETWORKS.get(config.model.architecture, "A network of an extension")
    parameters = sum(weights.numel() for weights in model.parameters())
    card = f"""{front_matter(config.src_lang, config.tgt_lang, config.model.architecture)}
# {config.src_lang}→{config.tgt_lang} translation, the mean of {len(states)} models

{network} of {parameters:,} parameters. Each weight is the mean of these models' weights,
made by `seq2seq average` {__version__}; data, recipe and licence are theirs:

{listed}

Its scores are not theirs and were not measured: `seq2seq translate --model FOLDER --input FILE --reference FILE`.
"""
    save_bundle(output, like, card, is_new=True)
    return names
