"""`seq2seq average`, `import`, `export` and `shortlist`: average and exchange models, and limit their vocabulary."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from seq2seq.cli import options, shared
from seq2seq.errors import UserError
from seq2seq.settings.missing_packages import require_package
from seq2seq.storage.atomic import resolve
from seq2seq.storage.output import find_model, open_output, require_other, require_writable

_WEIGHTS = {  # formats with several precisions
    "bundle": ("float32", "float16"),
    "ctranslate2": get_args(options.Precision),
    "argos": get_args(options.Precision),
}
_MODULES = {  # of a format's exporter in seq2seq.apps
    "bundle": "exchange.export",
    "argos": "exchange.ctranslate2",
    "html": "explain.model_page",
}


def average(
    output: options.NewFolder,
    model: list[Path] | None = typer.Option(
        None, "--model", help="Run or bundle folder to average; give at least two."
    ),
    run: Path | None = typer.Option(
        None, "--run", help="Run whose checkpoints to average, instead of --model; with --last."
    ),
    last: int | None = typer.Option(None, min=2, help="Number of latest checkpoints to average; with --run."),
) -> None:
    """Make a model whose weights are the mean of several models' weights.

    [bold]seq2seq average --model runs/a --model runs/b --output runs/mean[/bold]   same sizes, same vocabulary

    [bold]seq2seq average --run runs/NAME --last 5 --output runs/NAME-mean[/bold]   the last checkpoints of a run

    trainer.keep_last and training.keep_best set how many checkpoints a run keeps, by default 1 of each: train with
    trainer.keep_last=5 to average the last 5.
    """
    if (run is None) == (not model) or (run is None) != (last is None):
        raise typer.BadParameter("give --model several times, or --run and --last")
    if output.exists():
        raise UserError(f"--output {output} is there already: choose another folder")
    folders = [find_model(path) for path in model or []]  # first, because it is fast
    from seq2seq.training.averaging import average_bundles, average_checkpoints

    if run is not None and last is not None:
        names = average_checkpoints(run, last, output)
    else:
        names = average_bundles(folders, output)
    print(f"{output}: the mean of {', '.join(names)}", file=sys.stderr)


def import_(
    format_: Annotated[Literal["huggingface"], typer.Argument(metavar="FORMAT", help="huggingface.")],
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Folder that save_pretrained wrote, or a name on the hub.")
    ],
    output: options.NewFolder,
    revision: str | None = typer.Option(None, help="Branch, tag or commit on the hub."),
) -> None:
    """Import a model that another program trained: a Marian model in Hugging Face's layout, such as OPUS-MT's.

    [bold]seq2seq import huggingface Helsinki-NLP/opus-mt-en-es --output opus[/bold]   then translate --model opus

    [bold]seq2seq import huggingface FOLDER --output opus[/bold]   from local files

    The imported model gives the same translations, and can be explained, fine-tuned (train.py init=opus) and
    exported again.
    """
    with require_package(format_):
        from seq2seq.apps.exchange.huggingface_import import import_huggingface

    bundle = import_huggingface(source, output, revision)
    size = sum(parameter.numel() for parameter in bundle.model.parameters())
    languages = f"{bundle.config.src_lang}→{bundle.config.tgt_lang}"
    print(f"{output}: {source}, {languages}, {size:,} parameters", file=sys.stderr)


def export(
    format_: Annotated[
        Literal["bundle", "ctranslate2", "huggingface", "argos", "html"],
        typer.Argument(metavar="FORMAT", help="bundle, ctranslate2, huggingface, argos or html."),
    ],
    output: Annotated[
        Path, typer.Option("--output", help="Folder to make; for argos or html, a file: NAME.argosmodel or NAME.html.")
    ],
    model: options.OneModel = None,
    quantization: options.Precision = options.search(
        "float32",
        help="Precision of the weights: float32; also float16 for bundle, float16 or int8 for ctranslate2 and argos.",
    ),
) -> None:
    """Write a model for another program, which then translates without this one, or in half the space.

    [bold]seq2seq export ctranslate2 --quantization int8 --output FOLDER[/bold]   float32, int8 or float16

    [bold]seq2seq export huggingface --output FOLDER[/bold]   a MarianMTModel with its tokenizer

    [bold]seq2seq export argos --output NAME.argosmodel[/bold]   for Argos Translate and LibreTranslate

    [bold]seq2seq export html --output model.html[/bold]   one page that translates in a browser, without a server

    [bold]seq2seq export bundle --quantization float16 --output FOLDER[/bold]   the same model in half the space
    """
    if format_ == "html" and quantization != "float32":
        raise UserError("export html always writes weights of 8 bits: leave out --quantization")
    weights = _WEIGHTS.get(format_, ("float32",))
    if quantization not in weights:
        message = f"export {format_} writes {' or '.join(weights)} weights, not {quantization}: leave out"
        raise UserError(f"{message} --quantization, or use `seq2seq export ctranslate2 --quantization {quantization}`")
    (folder,) = shared.choose_models([model] if model else None)
    with require_package(format_):
        module = import_module(f"seq2seq.apps.{_MODULES.get(format_, f'exchange.{format_}')}")
        getattr(module, f"export_{format_}")(folder, output, *([quantization] if format_ in _WEIGHTS else []))
    print(f"{output}: {folder} for {format_}", file=sys.stderr)


def shortlist(
    output: Annotated[Path, options.files("--output", help="Shortlist to write.")],
    model: options.OneModel = None,
    best: int = typer.Option(100, min=1, help="Most target subwords of each source subword."),
    frequent: int = typer.Option(
        300, min=0, help="Number of most frequent target subwords, which are allowed in every text."
    ),
    vmap: Path | None = options.files(
        None, "--vmap", help="Also write this file for CTranslate2: vmap.txt in the export's folder."
    ),
) -> None:
    """Learn which target subwords each source subword needs, so that translation is faster.

    [bold]seq2seq shortlist --model runs/NAME --output shortlist.bin[/bold]   then translate --shortlist shortlist.bin

    The shortlist is learnt from the run's training pairs (IBM Model 1) in the cache; pairs that the cache lacks are
    prepared again. A translation may then contain only the subwords that its batch's source subwords need, these source
    subwords themselves, and the frequent subwords. Smaller numbers are faster, but cost more quality. See
    docs/decoding.md.
    """
    (bundle,) = shared.choose_models([model] if model else None)
    run = bundle.resolve().parent
    if not (run / "config.yaml").is_file():
        raise UserError(
            f"{bundle} has no run beside it, whose training pairs the shortlist is learned from: give --model runs/NAME"
        )
    for file in (output, vmap):
        require_other(file, run / "config.yaml", *(bundle / name for name in ("config.json", "model.safetensors")))
    require_writable(output)
    if vmap is not None:
        require_writable(vmap)
        if resolve(vmap) == resolve(output):
            raise UserError(f"--output and --vmap are both {vmap}: name two files")
    from seq2seq.data.prepare import prepare
    from seq2seq.settings.loading import load_config
    from seq2seq.text.vocabulary import load_tokenizers
    from seq2seq.training.ibm_model1 import learn_shortlist

    config = load_config(str(run), [], option="--model ")
    prepared = prepare(config.data, config.tokenizer)
    tokenizer = load_tokenizers(bundle)
    if prepared.tokenizer.digest != tokenizer.digest:
        raise UserError(f"the texts of {run} have changed since its training: restore the files that data.train names")
    learnt = learn_shortlist(prepared.train, tokenizer, best=best, frequent=frequent)
    learnt.save(output)
    if vmap is not None:
        with open_output(vmap) as out:
            for line in learnt.vmap(tokenizer.target.tokens(range(tokenizer.target.vocab_size))):
                out(line)
    of_each = len(learnt.targets) / max(1, int((learnt.offsets[1:] > learnt.offsets[:-1]).sum()))
    size = len(learnt.by_frequency)
    print(
        f"{output}: {len(learnt.always):,} of {size:,} subwords for every text, and {of_each:.0f} for a "
        f"source subword; from {len(prepared.train):,} pairs",
        file=sys.stderr,
    )
