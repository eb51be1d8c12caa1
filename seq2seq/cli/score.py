"""`seq2seq score`: a model's scores of given translations."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seq2seq.cli import options, shared
from seq2seq.errors import UserError
from seq2seq.storage.output import open_output, read_lines, require_other

if TYPE_CHECKING:
    from seq2seq.translate.types import ScoredTranslation

MAX_SCORED_TOKENS = 2048  # per side; all logits of a pair are in memory at once

Sources = Annotated[Path, options.files("--input", help="Sources, one per line.")]
Translations = Annotated[Path, options.files(help="Translations of the sources, one per line.")]
PerToken = Annotated[bool, options.files("--per-token", help="Also write every token's score.")]


@options.search_options("length_penalty", "batch_tokens")
def score(
    input_: Sources,
    translations: Translations,
    model: options.Models = None,
    output: options.Output = None,
    as_json: options.AsJson = False,
    per_token: PerToken = False,
    device: options.Device = "auto",
    *,
    changes: options.Changes,
) -> None:
    """Let a model score given translations: sum of log-probabilities (nats), and this sum / length^α.

    [bold]seq2seq score --input in.en --translations out.es[/bold]   one line per pair: score TAB normalised score

    [bold]seq2seq score --input in.en --translations out.es --json --per-token[/bold]   also tokens and alignment

    A long source is cut as `translate` cuts it; a pair with a side of more than 2,048 tokens is refused.
    """
    from seq2seq.evaluation.metrics import require_same_length

    require_other(output, input_, translations)
    sources, targets = list(read_lines(input_)), list(read_lines(translations))
    require_same_length(len(targets), len(sources), against="input")
    folders = shared.choose_models(model)
    shared.search_settings(folders[0], changes)  # refuses a value out of range before the model is loaded
    with open_output(output) as out:
        import torch

        from seq2seq.translate.translator import Translator

        translator = Translator.load(folders, device, torch.float32)  # exact on every device
        require_short("input", translator.tokenizer.source.encode(sources))
        require_short("translations", translator.tokenizer.target.encode(targets))
        for number, reading in enumerate(translator.score(sources, targets, align=as_json, **changes), start=1):
            out(show(number, reading, as_json=as_json, per_token=per_token))


def require_short(side: str, encoded: Iterable[Sequence[int]]) -> None:
    """Refuse a text that is too long for any model and for the memory: scoring reads each pair as a whole."""
    for number, ids in enumerate(encoded, start=1):
        if len(ids) > MAX_SCORED_TOKENS:
            raise UserError(
                f"--{side}, line {number} has {len(ids):,} tokens, and a side of a pair may have at most "
                f"{MAX_SCORED_TOKENS:,}: split both sides into sentences, or leave the pair out"
            )


def show(number: int, reading: "ScoredTranslation", *, as_json: bool, per_token: bool) -> str:
    """Return the scores of a translation as a line."""
    if not as_json:
        tokens = zip(reading.tokens, reading.log_probs, strict=True)
        per_piece = "".join(f"\t{token} {log_prob:.4f}" for token, log_prob in tokens) if per_token else ""
        return f"{reading.score:.4f}\t{reading.normalised_score:.4f}{per_piece}"
    plain = {"line": number, **asdict(reading)}
    if not per_token:
        del plain["tokens"], plain["log_probs"]
    return json.dumps(plain, ensure_ascii=False)
