"""The mean of several models' weights as a new model (Junczys-Dowmunt et al. 2016; Vaswani et al. 2017, §6.1)."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from seq2seq import __version__
from seq2seq.bundle import Bundle, load_bundle, save_bundle
from seq2seq.errors import UserError
from seq2seq.settings.loading import load_config
from seq2seq.settings.model import ModelConfig
from seq2seq.training.finetune import NO_SIZES, mean_weights, merge_adapters
from seq2seq.training.report import NETWORKS
from seq2seq.training.restore import DamagedError, read_checkpoint

_STEP = re.compile(r"step=(\d+)")


@dataclass(frozen=True)
class Ingredient:
    """One set of weights and where it is from."""

    name: str
    sizes: Mapping[str, Any]  # of the model, as plain values; dropout left out
    vocabulary: str  # the tokenizer's hash
    weights: dict[str, Tensor]


def average_bundles(folders: Sequence[Path], output: Path) -> list[str]:
    """Write the mean of bundles as a bundle with the first one's settings; the names of what went in.

    Raises:
        UserError: there are fewer than two, one is missing or damaged, or sizes, vocabularies or languages differ.
    """
    if len(folders) < 2:
        raise UserError(f"{len(folders)} model: give --model at least twice, or --run with --last")
    bundles = [load_bundle(folder) for folder in folders]
    first = bundles[0].config
    for folder, bundle in zip(folders, bundles, strict=True):
        theirs, ours = (f"{one.src_lang}→{one.tgt_lang}" for one in (bundle.config, first))
        if theirs != ours:
            raise UserError(f"{folder} translates {theirs}, but {folders[0]} {ours}: only like models have a mean")
    parts = [
        Ingredient(str(folder), _sizes(asdict(bundle.config.model)), _hash(bundle), bundle.model.state_dict())
        for folder, bundle in zip(folders, bundles, strict=True)
    ]
    return _write(parts, bundles[0], str(folders[0]), output)


def average_checkpoints(run: Path, last: int, output: Path) -> list[str]:
    """Write the mean of a run's checkpoints of its last so many updates as a bundle; the names of what went in.

    Settings and tokenizer are those of the run's bundle. Of a run with a running average, checkpoints hold that; of
    one with adapters, they are merged first.

    Raises:
        UserError: the run has no bundle or fewer checkpoints, one is damaged, or belongs to another model.
    """
    if last < 2:
        raise UserError(f"--last {last} has no mean: average at least 2 checkpoints")
    bundle, config = load_bundle(run / "model"), load_config(str(run), [], option="--run ")
    by_update = {}
    for path in sorted((run / "checkpoints").glob("*.ckpt")):
        if (found := _STEP.search(path.name)) and not path.name.startswith("damaged-"):
            by_update[int(found[1])] = path
    if len(by_update) < last:
        raise UserError(
            f"{run / 'checkpoints'} has checkpoints of {len(by_update)} updates, --last asks for {last}: "
            f"lower it, or let a run keep so many, with trainer.keep_last={last} or training.keep_best={last}"
        )
    parts = []
    for update in sorted(by_update)[-last:]:
        path = by_update[update]
        try:
            found = read_checkpoint(path, "cpu")
            if not {"belongs_to", "state_dict"} <= found.keys():
                raise DamagedError("it holds no weights")
        except DamagedError as error:
            raise UserError(f"{path} cannot be averaged ({error}): restore it from a copy, or remove it") from error
        belongs = found["belongs_to"]
        weights = {name.removeprefix("model."): tensor for name, tensor in found["state_dict"].items()}
        merged = merge_adapters(weights, config.training)
        sizes = {name: belongs.get(name, default) for name, default in asdict(ModelConfig()).items()}
        parts.append(Ingredient(str(path), _sizes(sizes), str(belongs.get("vocabulary")), merged))
    return _write(parts, bundle, str(run / "model"), output)


def _sizes(model: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in model.items() if name not in NO_SIZES}


def _hash(bundle: Bundle) -> str:
    """As in a checkpoint's `belongs_to`."""
    return hashlib.sha256(bundle.tokenizer.model_bytes).hexdigest()[:16]


def _write(parts: Sequence[Ingredient], like: Bundle, its_name: str, output: Path) -> list[str]:
    """Put the mean into the bundle that it has to be like, which gives settings and tokenizer, and save that."""
    sizes, vocabulary = _sizes(asdict(like.config.model)), _hash(like)
    for part in parts:
        for name, value in sizes.items():
            if part.sizes[name] != value:
                raise UserError(
                    f"{part.name} has {name}={part.sizes[name]}, but {its_name} has {value}: "
                    "only models of the same sizes have a mean"
                )
        if part.vocabulary != vocabulary:
            raise UserError(f"{part.name} has another vocabulary than {its_name}: a mean needs the same tokenizer")
    like.model.load_state_dict(mean_weights([part.weights for part in parts]))
    names = [part.name for part in parts]
    save_bundle(output, like, average_card(names, like))
    return names


def average_card(names: Sequence[str], bundle: Bundle) -> str:
    """The model card of a mean: what it was made of."""
    config = bundle.config
    parameters = sum(weights.numel() for weights in bundle.model.parameters())
    listed = "\n".join(f"- `{name}`" for name in names)
    return f"""---
language: [{config.src_lang}, {config.tgt_lang}]
pipeline_tag: translation
library_name: seq2seq
tags: [translation, {config.model.architecture}]
---

# {config.src_lang}→{config.tgt_lang} translation, the mean of {len(names)} models

{NETWORKS[config.model.architecture]} of {parameters:,} parameters. Each weight is the mean of these models' weights,
made by `seq2seq average` {__version__}; data, recipe and licence are theirs:

{listed}

Its scores are not theirs and were not measured: `seq2seq translate --model FOLDER --input FILE --reference FILE`.
"""
