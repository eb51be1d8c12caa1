"""The command that shows what attention does with one sentence."""

import contextlib
import json
from typing import Annotated, Any

import typer

from seq2seq.cli import jobs, options
from seq2seq.errors import UserError

Sentence = Annotated[str, typer.Argument(metavar="TEXT", help="One sentence.")]
Target = Annotated[
    str | None, typer.Option(help="Its translation. [dim]default: the model's own[/dim]", show_default=False)
]
PAGE, PICTURE, LARGE, NUMBERS = "attention.html", "attention.png", "alignment.png", "attention.json"


@options.search_options("beam")
def attend(
    text: Sentence,
    output: options.NewFolder,
    target: Target = None,
    model: options.OneModel = None,
    device: options.Device = "auto",
    *,
    changes: options.Changes,
) -> None:
    """Show what attention does with a sentence: every head of every layer, as a page, a picture, and numbers.

    [bold]seq2seq attend "The black cat drank the milk." --output attention[/bold]   what the model says itself

    [bold]seq2seq attend "The ball is blue." --target "La bola es azul." --output attention[/bold]   a given
    translation

    The --output folder gets attention.html (opens without network), attention.png, alignment.png and
    attention.json. What they tell: docs/attention.md.
    """
    folders = jobs.choose_models([model] if model else None)
    settings = jobs.search_settings(folders[0], changes)
    import torch

    from seq2seq.explain.explanation import explain
    from seq2seq.explain.page import write_page
    from seq2seq.explain.picture import draw, draw_alignment
    from seq2seq.explain.steps import chosen_walks, watch_beams
    from seq2seq.translator import Translator

    translator = Translator.load(folders, device, torch.float32)  # exact on every device
    explanation = explain(translator, text, target, settings=settings)
    plain = explanation.to_plain()
    if not any(plain["attention"].values()):
        raise UserError("this model has no attention to show: train one with it (model.attention=additive)")
    beams: dict[str, Any] = {}
    if explanation.subject.translated:
        with contextlib.suppress(UserError):  # the bundle's own search is of another kind
            beams = watch_beams(translator, text, settings)
    page = write_page(plain, chosen_walks(translator, explanation), beams)
    try:
        output.mkdir(parents=True, exist_ok=True)
        (output / NUMBERS).write_text(json.dumps(plain, ensure_ascii=False) + "\n", encoding="utf-8")
        (output / PAGE).write_text(page, encoding="utf-8")
    except FileExistsError as error:
        raise UserError(f"--output {output} is a file: name a folder") from error
    except OSError as error:
        raise UserError(f"cannot write to {output}: {error.strerror}") from error
    draw(explanation, output / PICTURE)
    written = [(PAGE, "to look around in"), (PICTURE, "all heads"), (NUMBERS, "for programs")]
    if explanation.aligning() is not None:
        draw_alignment(explanation, output / LARGE)
        written.insert(2, (LARGE, "cross-attention and the alignment"))
    print("\n".join(tell(plain)))
    for name, what in written:
        print(f"{output / name}  {what}")


def tell(plain: dict[str, Any]) -> list[str]:
    """Describe the translation: each word with the source word that it attends to most."""
    source, target = ([word["text"] for word in plain["words"][side]] for side in ("source", "target"))
    width = max((len(target[j]) for _, j in plain["alignment"]), default=0)
    lines = [f"  {target[j]:<{width}} ← {source[i]}" for i, j in plain["alignment"]]
    return [plain["source"], f"→ {plain['target']}", *lines, ""]
