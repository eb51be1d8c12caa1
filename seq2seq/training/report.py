"""Reports of a run: a table before the first update, curves, scores, the model card."""

import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from seq2seq.data.dataset import PreparedData
from seq2seq.data.dataset import example as example_pair
from seq2seq.evaluation.metrics import METRICS, Scores
from seq2seq.evaluation.robustness import HEADINGS
from seq2seq.settings.config import Config
from seq2seq.settings.rules import AUTO
from seq2seq.storage.atomic import replacing
from seq2seq.training.calibration import ACCEPTABLE, Reliability, bar
from seq2seq.training.processes import uses_gpu
from seq2seq.training.replay import recording_obstacle
from seq2seq.training.run_files import curve, read_metrics, write_text
from seq2seq.translate.bundle import example

log = logging.getLogger(__name__)
NETWORKS = {"transformer": "An encoder–decoder Transformer", "recurrent": "A recurrent encoder–decoder (LSTM)"}
LICENCE_NOTE = "The weights may be used under the terms of the texts they were trained on."

_TEXT = ("data.train", "data.hub", "data.root", "data.src_lang", "data.tgt_lang", "data.languages")
_DEVICE = ("trainer.accelerator", "trainer.devices", "trainer.precision", "trainer.replay")
_RATE = ("training.optimizer", "training.learning_rate", "training.warmup_steps", "training.schedule")
_END = ("trainer.max_steps", "trainer.max_epochs", "trainer.max_time", "training.patience")


def summary_table(
    config: Config,
    data: PreparedData,
    decided: tuple[Collection[str], Collection[str]],
    updates_per_epoch: float,
    parameters: int,
    hardware: str,
) -> Table:
    """Return a table of a run's settings and what decided each.

    decided holds the keys and groups that the command line names, and the keys that rules replaced; files in conf/ and
    defaults decide the rest.
    """
    training = config.training
    steps = training.warmup_steps
    warmup = "a warm-up of a tenth of the run" if steps == AUTO else f"{steps:,} updates of warm-up"
    rate = f"{training.optimizer}, {training.learning_rate:g} after {warmup}, then {training.schedule}"
    validation = f"every {config.trainer.validate_every:,} updates, by {training.monitor}{_sets(data)}"
    table = Table("", "this run", "decided by", title="Before the first update", title_justify="left")
    for name, text, keys in (
        ("text", _text(data), _TEXT),
        ("pairs", _pairs(config, data), (*_TEXT, "data.validation", "data.test", "data.held_out")),
        ("example", escape(example_pair(data)), _TEXT),
        ("vocabulary", _vocabulary(config, data), ("tokenizer.type", "tokenizer.vocab_size", "tokenizer.model")),
        ("model", _model(config, parameters), ("model",)),
        ("dropout", f"{config.model.dropout:g}", ("model.dropout",)),
        ("device", _device(config, hardware), _DEVICE),
        ("batch", _batch(config, updates_per_epoch), ("training.max_tokens", "training.accumulate")),
        ("learning rate", rate, _RATE),
        ("ends", _end(config, updates_per_epoch), _END),
        ("validation", validation, ("trainer.validate_every", "training.patience", "training.monitor")),
    ):
        table.add_row(name, text, _decided_by(keys, *decided))
    return table


def _decided_by(keys: Sequence[str], named: Collection[str], ruled: Collection[str]) -> str:
    deciders = set[str]()
    for key in keys:
        is_named = any(name == key or key.startswith(f"{name}.") or name.startswith(f"{key}.") for name in named)
        deciders |= {"rule"} if key in ruled else {"you"} if is_named else set()
    return " + ".join(sorted(deciders, reverse=True)) or "conf/"


def _vocabulary(config: Config, data: PreparedData) -> str:
    target, source = data.tokenizer.sizes
    sizes = [target] if source is None else [source, target]
    kind = config.tokenizer.type if config.tokenizer.model is None else "ready made"
    return f"{' and '.join(f'{size:,}' for size in sizes)} subwords, {kind}"


def _text(data: PreparedData) -> str:
    names = [str(file["name"]).rpartition("/")[2] for file in data.report["files"]]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _pairs(config: Config, data: PreparedData) -> str:
    tests = "".join(f", {name} {len(pairs):,}" for name, pairs in data.tests.items())
    languages = f"{config.data.src_lang}→{config.data.tgt_lang}"
    return f"{languages}: {len(data.train):,} to train on, {len(data.validation):,} to validate{tests}"


def _sets(data: PreparedData) -> str:
    """Return the phrase that names the validation sets behind a mean; an empty text if there is one set."""
    names = list(data.validation_sets)
    return f", the mean over {', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else ""


def _model(config: Config, parameters: int) -> str:
    model = config.model
    layers = f"{model.num_encoder_layers}+{model.num_decoder_layers} layers of width {model.d_model}"
    return f"{model.architecture}, {layers}, {parameters:,} parameters"


def _device(config: Config, hardware: str) -> str:
    number = config.trainer.devices * config.trainer.num_nodes
    spread = f", {number} processes" if number > 1 else ""
    is_tf32 = uses_gpu(config.trainer) and config.trainer.precision == "32-true"
    obstacle = recording_obstacle(config)
    recorded = {None: ", updates recorded", "no GPU": ""}.get(obstacle, f", updates not recorded ({obstacle})")
    return f"{hardware}, {config.trainer.precision}{' with products in TF32' if is_tf32 else ''}{recorded}{spread}"


def _batch(config: Config, updates_per_epoch: float) -> str:
    number = config.training.accumulate * config.trainer.devices * config.trainer.num_nodes
    times = f" × {number}" if number > 1 else ""
    return f"{config.training.max_tokens:,}{times} positions an update; {updates_per_epoch:,.0f} updates an epoch"


def _end(config: Config, updates_per_epoch: float) -> str:
    trainer = config.trainer
    epochs = trainer.max_steps / updates_per_epoch
    time = f" or {trainer.max_time} (days:hours:minutes:seconds)" if trainer.max_time else ""
    patience = config.training.patience
    stopped = f", or after {patience} validations without improvement" if patience else ""
    return f"after {trainer.max_steps:,} updates ({epochs:.1f} epochs){time}{stopped}"


def draw_curves(folder: Path) -> None:
    """Draw training and validation loss, BLEU, learning rate and speed of a run's metrics.csv into curves.png."""
    rows = read_metrics(folder)
    if not rows:  # a run too short for a single entry
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True)
    panels = {  # titles and columns
        "loss (nats per target token)": ("loss", "val_loss"),
        "BLEU on the validation sample": ("val_bleu",),
        "learning rate": ("learning_rate",),
        "target tokens per second": ("tokens_per_second",),
    }
    names = dict.fromkeys(name for row in rows for name in row)
    for axis, (title, columns) in zip(axes.flat, panels.items(), strict=True):
        for name in names:
            if name.partition("/")[0] in columns:  # val_loss, and val_loss/SET of several sets
                points = curve(rows, name)
                marker = "o" if len(points) < 30 else None
                axis.plot([*points], [*points.values()], label=name, marker=marker, markersize=3)
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
        if len(axis.lines) > 1:
            axis.legend()
    for axis in axes[-1]:
        axis.set_xlabel("updates")
    try:
        with replacing(folder / "curves.png") as draft:
            figure.savefig(draft, dpi=110, format="png")
    except OSError as error:  # the run is worth more than its picture
        log.warning("%s cannot be drawn: %s", folder / "curves.png", error.strerror or error)


def scores_table(scores: Mapping[str, Scores]) -> Table:
    """Return a table with a row of scores for each test set."""
    headings = (heading for heading, _ in METRICS.values())
    table = Table("test set", "sentences", *headings, title="Test scores", title_justify="left")
    for name, of_set in scores.items():
        values = (f"{getattr(of_set, metric).value:.1f}" for metric in METRICS)
        table.add_row(name, f"{of_set.num_sentences:,}", *values)
    return table


def _confidences(reliabilities: Mapping[str, Reliability]) -> str:
    """Return the model card's section with the reliability diagram of every test set; empty without confidences."""
    if not reliabilities:
        return ""
    parts = [
        f"""
## Confidence

`--json` gives every translation a confidence: the probability that it is acceptable, that is, that its chrF++ against
the reference is {ACCEPTABLE:g} or more. It was calibrated on validation pairs. A bar is the share of acceptable
translations; ◆ marks their mean confidence, where the bar would end if confidences were exact.
"""
    ]
    for name, reliability in reliabilities.items():
        bins = "\n".join(f"{each.confidence:4.0%} {bar(each)} {each.translations:,}" for each in reliability.bins)
        parts.append(f"\n{name}: {reliability.summary()}.\n\n```\n{bins}\n```\n")
    return "".join(parts)


def _families(families: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the model card's section on unusual texts; empty without such texts."""
    if not families:
        return ""
    rows = [[name, *("" if value is None else value for value in family.values())] for name, family in families.items()]
    return f"""
## Unusual texts

What becomes of unusual forms of test sentences: translations that repeat something endlessly, that lack a number of the
source or a placeholder or emoji, and that are mere copies; chrF++ regardless of case; words that neither the source nor
the training text has.

| {" | ".join(HEADINGS)} |
|{"---|" * len(HEADINGS)}
{_rows(rows)}
"""


def _rows(rows: Iterable[Iterable[object]]) -> str:
    """Return rows of a Markdown table."""
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in rows)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write plain values as indented JSON, by `write_text`."""
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def front_matter(src_lang: str, tgt_lang: str, architecture: str) -> str:
    """Return the head of a model card, which the Hugging Face hub reads."""
    return f"""---
language: [{src_lang}, {tgt_lang}]
pipeline_tag: translation
library_name: seq2seq
tags: [translation, {architecture}]
---
"""


def model_card(
    config: Config,
    facts: Mapping[str, Any],
    samples: Sequence[tuple[str, str, str]] = (),
    confidences: Mapping[str, Reliability] | None = None,
) -> str:
    """Return the bundle's README.md: a Hugging Face model card with data, recipe, scores and known failures.

    facts are the values of `results.json`; samples are (source, reference, translation), the worst translation first;
    confidences are the reliability of the model's confidences, by test set.
    """
    src_lang, tgt_lang = config.data.src_lang, config.data.tgt_lang
    scores = facts.get("scores", {})
    network = NETWORKS.get(config.model.architecture, "A network of an extension")
    headings = ["test set", "sentences", *(heading.partition(" ")[0] for heading, _ in METRICS.values())]
    rows = [
        [name, of_set["num_sentences"], *(f"{of_set[metric]['value']:.1f}" for metric in METRICS)]
        for name, of_set in scores.items()
    ]
    first = list(scores.values())[:1]
    signatures = "\n".join(f"- `{of_set[metric]['signature']}`" for of_set in first for metric in METRICS)
    failures = [[text.replace("|", "\\|") for text in (src, line, tgt)] for src, tgt, line in samples]
    began = f"It began with the weights of `{'/'.join(Path(config.init).parts[-2:])}`." if config.init else ""
    ended = f"seed {config.seed}. "
    if "weights_after" in facts:
        ended += f"The run is not finished: these are the weights after update {facts['weights_after']:,}."
    else:
        ended += f"Validation loss: {facts['validation_loss']} nats per token."
    corpora = ", ".join(f"`{Path(file['name']).name}`" for file in facts["data"]["files"])
    return f"""{front_matter(src_lang, tgt_lang, config.model.architecture)}
# {config.name}: {src_lang}→{tgt_lang} translation

{network} of {facts["parameters"]:,} parameters, trained by `seq2seq` {facts["version"]}.

```
seq2seq translate --model FOLDER "{example(src_lang)}"
```

## Data

{facts["data"]["sizes"]["train"]:,} sentence pairs from {corpora}. {LICENCE_NOTE}
What was dropped, by reason, is in the run's `results.json`.

## Recipe

{began}
{facts["updates"]:,} updates in {facts["training_seconds"] / 60:.1f} minutes on {facts["hardware"]}, {ended}
The whole recipe is the run's `config.yaml`:

```json
{json.dumps({"model": facts["model"], "training": facts["training"]}, indent=1)}
```

## Scores

Beam {config.search.beam}, length penalty {config.search.length_penalty}, raw references, sacreBLEU.

{_rows([headings])}
|{"---|" * len(headings)}
{_rows(rows)}

{signatures}
{_confidences(confidences or {})}{_families(facts.get("robustness", {}))}
## Known failures

Its worst translations of the test sets, by sentence chrF. Words that the training texts do not hold are guessed; so
are meanings that depend on more than the sentence.

| source | translation | reference |
|---|---|---|
{_rows(failures)}
"""
