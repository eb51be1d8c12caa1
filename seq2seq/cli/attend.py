"""The command that shows what attention does with one sentence."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from seq2seq.cli import options, shared
from seq2seq.errors import UserError
from seq2seq.storage.output import find_model, open_output, output_folder

OVER_PAGE, OVER_PICTURE = "over.html", "over.gif"
PAGE, PICTURE, LARGE, NUMBERS = "attention.html", "attention.png", "alignment.png", "attention.json"


@options.search_options("beam")
def attend(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="One sentence.")],
    output: options.NewFolder,
    target: str | None = typer.Option(
        None, help="Its translation. [dim]default: the model's own[/dim]", show_default=False
    ),
    model: options.OneModel = None,
    device: options.Device = "auto",
    without: list[str] | None = typer.Option(
        None,
        metavar="NAME",
        help="Switch off a part of the model: encoder.2.head.3 (layer 2, head 3), decoder.1, cross, mask, positions, "
        "or source.3, the keys of the third source word; may be given several times.",
    ),
    average: list[str] | None = typer.Option(
        None, metavar="NAME", help="Heads that attend equally to all visible positions; may be given several times."
    ),
    softmax_temperature: float = typer.Option(
        1.0, "--softmax-temperature", help="Divisor of all scores besides √c; above 1, attention is more even."
    ),
    rank_heads: bool = typer.Option(
        False, "--rank-heads", help="Also measure how much the loss grows without each head."
    ),
    over: Path | None = options.files(
        None, metavar="RUN", help="Show how the alignment emerges: cross-attention at each checkpoint of a run."
    ),
    *,
    changes: options.Changes,
) -> None:
    """Show what attention does with a sentence: every head of every layer, as a page, a picture, and numbers.

    [bold]seq2seq attend "The black cat drank the milk." --output attention[/bold]   the model's own translation

    [bold]seq2seq attend "The ball is blue." --target "La bola es azul." --output attention[/bold]   a given
    translation

    [bold]… --without encoder.2.head.3[/bold]   the model without this head, compared with the unchanged model

    [bold]… --over runs/NAME[/bold]   how the alignment emerged: over.html with a slider over checkpoints, and over.gif

    The --output folder gets attention.html (opens without network), attention.png, alignment.png and
    attention.json. docs/attention.md explains these files.
    """
    if over is not None:
        if model or without or average or rank_heads or softmax_temperature != 1:
            raise UserError("--over shows a run's checkpoints as they are: leave out --model and what changes a model")
        attend_over(text, output, target, over, device, changes)
        return
    folders = shared.choose_models([model] if model else None)
    settings = shared.search_settings(folders[0], changes)
    import torch

    from seq2seq.apps.explain.interventions import Interventions
    from seq2seq.apps.explain.interventions import rank_heads as rank
    from seq2seq.apps.explain.page import assemble, write_page
    from seq2seq.apps.explain.picture import draw
    from seq2seq.translate.translator import Translator

    translator = Translator.load(folders, device, torch.float32)  # exact on every device
    interventions = Interventions(without or [], average or [], softmax_temperature)
    assembly = assemble(translator, text, target, interventions, settings, with_beams=target is None)
    explanation, plain = assembly.explanation, assembly.data["explanation"]
    if not any(plain["attention"].values()):
        raise UserError("this model has no attention to show: train one with it (model.attention=additive)")
    lines = summary_lines(plain)
    if rank_heads:
        ranking = rank(assembly.translator, [(text, explanation.subject.target)])
        plain["ranking"] = [dataclasses.asdict(worth) for worth in ranking]
        lines += ["Growth of the loss without each head (nats per token):"]
        lines += [*(f"  {worth.loss:+.3f}  {worth.name}" for worth in ranking), ""]
    written = [(PAGE, "to look around in"), (PICTURE, "all heads"), (NUMBERS, "for programs")]
    with output_folder(output):
        with open_output(output / NUMBERS) as numbers, open_output(output / PAGE) as page:
            numbers(json.dumps(plain, ensure_ascii=False))
            page(write_page(assembly.data).removesuffix("\n"))
        draw(explanation, output / PICTURE)
        if explanation.aligning() is not None:
            draw(explanation, output / LARGE, ["alignment"])
            written.insert(2, (LARGE, "cross-attention and the alignment"))
    print("\n".join(lines))
    for name, content in written:
        print(f"{output / name}  {content}")


def attend_over(
    text: str, output: Path, target: str | None, run: Path, device: str, changes: Mapping[str, int | float | None]
) -> None:
    """Write the page and the picture of a sentence's cross-attention at each checkpoint of a run.

    Without a target, the finished model's translation is the target.
    """
    folder = find_model(run, option="--over ")
    settings = shared.search_settings(folder, changes)
    import torch

    from seq2seq.apps.explain.explanation import explain, explain_subject
    from seq2seq.apps.explain.picture import animate, make_moment, write_over_page
    from seq2seq.device import choose_device
    from seq2seq.training.averaging import checkpoints_by_update, read_weights
    from seq2seq.training.run_files import losses_by_update
    from seq2seq.translate.bundle import load_bundle
    from seq2seq.translate.translator import Translator

    run_folder = folder.parent
    paths, losses, bundle = checkpoints_by_update(run_folder), losses_by_update(run_folder), load_bundle(folder)
    if len(paths) < 2:
        message = f"--over {run}: the run has kept {len(paths)} checkpoint{'s' * (len(paths) != 1)}, and at least 2"
        raise UserError(f"{message} are needed: train with trainer.keep_last=100 and a small trainer.checkpoint_every")
    chosen = choose_device(device)
    model = bundle.model.to(chosen).eval()

    def present() -> Translator:  # a translator's search copies the weights, so it is made anew when they change
        return Translator(model, bundle.tokenizer, search=settings, device=chosen, dtype=torch.float32)

    final = explain(present(), text, target)
    moments = []
    for update, path in sorted(paths.items()):
        model.load_state_dict(read_weights(path, run_folder, bundle))
        translator = present()
        (translation,) = translator.translate([text])
        known = [loss for step, loss in losses.items() if step <= update]
        explanation = explain_subject(translator, final.subject)
        moments.append(make_moment(explanation, update, known[-1] if known else None, translation))
    with output_folder(output):
        with open_output(output / OVER_PAGE) as page:
            page(write_over_page(final, moments).removesuffix("\n"))
        animate(final, moments, output / OVER_PICTURE)
    print(f"{final.subject.source}\n→ {final.subject.target}\n")
    width = max(len(f"{moment.updates:,}") for moment in moments)
    for moment in moments:
        print(f"  {moment.updates:>{width},}  {moment.log_prob:8.2f} nats  {moment.translation}")
    print(f"\n{output / OVER_PAGE}  with a slider over the updates\n{output / OVER_PICTURE}  the same as a picture")


def summary_lines(plain: dict[str, Any]) -> list[str]:
    """Return lines that describe the translation: each word with the source word that it attends to most."""
    source, target = ([word["text"] for word in plain["words"][side]] for side in ("source", "target"))
    width = max((len(target[j]) for _, j in plain["alignment"]), default=0)
    lines = [f"  {target[j]:<{width}} ← {source[i]}" for i, j in plain["alignment"]]
    if (usual := plain.get("unchanged")) is None:
        return [plain["source"], f"→ {plain['target']}", *lines, ""]
    scores = (
        f"  {usual['log_prob']:.2f} nats  unchanged: {usual['target']}",
        f"  {sum(plain['log_probs']):.2f} nats  changed: {plain['target']}",
    )
    return [plain["source"], f"→ {plain['target']}", *lines, "", *scores, ""]
