"""What a run leaves for people to read: curves, results, the model card. Trains nothing."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from seq2seq.bundle import example
from seq2seq.evaluation.metrics import Scores
from seq2seq.settings.config import Config

NETWORKS = {"transformer": "An encoder–decoder Transformer", "recurrent": "A recurrent encoder–decoder (LSTM)"}
LICENCE_NOTE = "The weights may be used under the terms of the texts they were trained on."


def draw_curves(metrics: Path, picture: Path) -> None:
    """Draw training and validation loss, BLEU, learning rate and speed of a metrics.csv into one picture."""
    if not metrics.exists():  # a run too short for a single entry
        return
    from matplotlib.figure import Figure

    with metrics.open(newline="") as file:
        rows = list(csv.DictReader(file))
    figure = Figure(figsize=(11, 7), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True)
    panels: list[tuple[str, list[tuple[str, str]]]] = [
        ("loss (nats per target token)", [("loss", "training"), ("val_loss", "validation")]),
        ("BLEU on the validation sample", [("val_bleu", "validation")]),
        ("learning rate", [("learning_rate", "")]),
        ("target tokens per second", [("tokens_per_second", "")]),
    ]
    for axis, (title, curves) in zip(axes.flat, panels, strict=True):
        for key, label in curves:
            points = [(int(row["step"]), float(row[key])) for row in rows if row.get(key)]
            if points:
                axis.plot(
                    *zip(*points, strict=True), label=label, marker="o" if len(points) < 30 else None, markersize=3
                )
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
        if len(curves) > 1:
            axis.legend()
    for axis in axes[-1]:
        axis.set_xlabel("updates")
    figure.savefig(picture, dpi=110)


def scores_table(scores: Mapping[str, Scores]) -> Table:
    """Every test set's scores, a line each."""
    table = Table("test set", "sentences", "BLEU ↑", "chrF++ ↑", "TER ↓", title="Test scores", title_justify="left")
    for name, of_set in scores.items():
        values = (of_set.bleu.value, of_set.chrf.value, of_set.ter.value)
        table.add_row(name, f"{of_set.num_sentences:,}", *(f"{value:.1f}" for value in values))
    return table


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write plain values, readable by people too."""
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def model_card(
    config: Config,
    facts: Mapping[str, Any],
    scores: Mapping[str, Scores],
    samples: Sequence[tuple[str, str, str]],
) -> str:
    """The bundle's README.md: a Hugging Face model card with data, recipe, scores and known failures.

    facts are `results.json`'s values; samples are (source, reference, translation), the worst of the test set first.
    """
    src, tgt = config.data.src_lang, config.data.tgt_lang
    rows = "\n".join(
        f"| {name} | {s.num_sentences} | {s.bleu.value:.1f} | {s.chrf.value:.1f} | {s.ter.value:.1f} |"
        for name, s in scores.items()
    )
    signatures = "\n".join(f"- `{m.signature}`" for s in list(scores.values())[:1] for m in (s.bleu, s.chrf, s.ter))
    failures = "\n".join(f"| {_cell(a)} | {_cell(c)} | {_cell(b)} |" for a, b, c in samples)
    began = f"It began with the weights of `{'/'.join(Path(config.init).parts[-2:])}`." if config.init else ""
    loss = facts["validation_loss"]
    ended = f"seed {config.seed}." + ("" if loss is None else f" Validation loss: {loss} nats per token.")
    corpora = ", ".join(f"`{Path(file['name']).name}`" for file in facts["data"]["files"])
    return f"""---
language: [{src}, {tgt}]
pipeline_tag: translation
library_name: seq2seq
tags: [translation, {config.model.architecture}]
---

# {config.name}: {src}→{tgt} translation

{NETWORKS[config.model.architecture]} of {facts["parameters"]:,} parameters, trained by `seq2seq` {facts["version"]}.

```
seq2seq translate --model FOLDER "{example(src)}"
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

| test set | sentences | BLEU | chrF++ | TER |
|---|---|---|---|---|
{rows}

{signatures}

## Known failures

Its worst translations of the test sets, by sentence chrF. Words that the training texts do not hold are guessed; so
are meanings that depend on more than the sentence.

| source | translation | reference |
|---|---|---|
{failures}
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
