"""The commands that make models and corpora out of models: average, distill, backtranslate; `cli` registers them."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from seq2seq.cli import inputs, jobs, options
from seq2seq.errors import UserError
from seq2seq.files import find_model, open_output

TAG = "<bt>"  # before synthetic sources

Corpora = Annotated[
    list[str],
    typer.Option(
        "--input", help="Corpus, or file with a text a line; may be given several times.", rich_help_panel=options.FILES
    ),
]
Languages = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="Languages of a .tsv's two columns, as en,es. "
        "[dim]default for a model en→es: the first is translated; all others need it[/dim]",
        rich_help_panel=options.FILES,
    ),
]
NewCorpus = Annotated[Path, typer.Option("--output", help="Corpus to write, .tsv.", rich_help_panel=options.FILES)]
Tag = Annotated[
    bool, typer.Option("--tag", help=f"Begin every synthetic source with {TAG}.", rich_help_panel=options.FILES)
]
Averaged = Annotated[
    list[Path] | None, typer.Option("--model", help="Run or bundle folder to average; given at least twice.")
]
Run = Annotated[
    Path | None, typer.Option("--run", help="Run whose checkpoints to average, instead of --model; with --last.")
]
Last = Annotated[int | None, typer.Option(min=2, help="How many of its checkpoints, the latest ones; with --run.")]


def average(
    output: options.NewFolder,
    model: Averaged = None,
    run: Run = None,
    last: Last = None,
    debug: options.Debug = False,
) -> None:
    """Make a model whose weights are the mean of several models' weights.

    [bold]seq2seq average --model runs/a --model runs/b --output runs/mean[/bold]   same sizes, same vocabulary

    [bold]seq2seq average --run runs/NAME --last 5 --output runs/NAME-mean[/bold]   the last checkpoints of a run

    A run keeps as many checkpoints as trainer.keep_last and training.keep_best say, 1 of each unless told
    otherwise: train with trainer.keep_last=5 to average the last 5.
    """
    if (run is None) == (not model) or (run is None) != (last is None):
        raise typer.BadParameter("give --model several times, or --run and --last")
    if output.exists():
        raise UserError(f"--output {output} is there already: choose another folder")
    folders = [find_model(one) for one in model or []]  # before anything slow
    from seq2seq.training.averaging import average_bundles, average_checkpoints

    if run is not None and last is not None:
        names = average_checkpoints(run, last, output)
    else:
        names = average_bundles(folders, output)
    print(f"{output}: the mean of {', '.join(names)}", file=sys.stderr)


@options.search_options(*options.BEAM_SEARCH)
def distill(
    input_: Corpora,
    output: NewCorpus,
    model: options.Models = None,
    languages: Languages = None,
    resume: options.Resume = False,
    device: options.Device = "auto",
    engine: options.Engine = options.EngineName.pytorch,
    quantization: options.Quantization = options.Precision.int8,
    debug: options.Debug = False,
    *,
    changes: options.Changes,
) -> None:
    """Translate the sources of a corpus into a corpus to train a student on (Kim & Rush 2016).

    [bold]seq2seq distill --model runs/teacher --input train.tsv --output distilled.tsv[/bold]

    An --input is a corpus (.tsv .csv .jsonl .parquet .tmx, a.en+a.es), whose targets are not looked at, or a file
    with a text a line. The --output has a line for each pair: source TAB translation. It goes on with --resume
    after a kill.
    """
    make_corpus(
        *(input_, output, model, languages, changes),
        form="{source}\t{translation}",
        hint="give the sources of a corpus (--languages tells the order of a .tsv's columns)",
        resume=resume,
        device=device,
        engine=engine,
        quantization=quantization,
    )


@options.search_options(*options.BEAM_SEARCH, *options.SAMPLING)
def backtranslate(
    input_: Corpora,
    output: NewCorpus,
    model: options.Models = None,
    tag: Tag = False,
    languages: Languages = None,
    resume: options.Resume = False,
    device: options.Device = "auto",
    engine: options.Engine = options.EngineName.pytorch,
    quantization: options.Quantization = options.Precision.int8,
    debug: options.Debug = False,
    *,
    changes: options.Changes,
) -> None:
    """Translate text of the target language into synthetic sources for it (Sennrich et al. 2016).

    [bold]seq2seq backtranslate --model runs/reverse --input mono.es --output synthetic.tsv --tag[/bold]

    The model translates the other way round (data.src_lang=es data.tgt_lang=en); other text gives a warning. The
    --output has a line for each text: synthetic source TAB text. With --tag the source begins with <bt> (Caswell et
    al. 2019); train with [bold]'tokenizer.user_symbols=["<bt>"]'[/bold], so that it is one piece. It goes on with
    --resume after a kill.
    """
    make_corpus(
        *(input_, output, model, languages, changes),
        form=f"{TAG} {{translation}}\t{{source}}" if tag else "{translation}\t{source}",
        hint="back-translation takes a model of the other direction, --model runs/REVERSE, that reads such text",
        resume=resume,
        device=device,
        engine=engine,
        quantization=quantization,
    )


def make_corpus(
    specs: list[str],
    output: Path,
    models: list[Path] | None,
    languages: str | None,
    changes: options.Changes,
    *,
    form: str,
    hint: str,
    resume: bool,
    device: str,
    engine: options.EngineName,
    quantization: options.Precision,
) -> None:
    """Translate the inputs into a TSV, each line in the given form.

    A warning with the hint follows if the texts are in the language that the model writes. A text without words gives
    a line with two empty fields, which training drops and counts.

    Raises:
        UserError: an input or the model cannot be read, or the output cannot be written.
    """
    from seq2seq.translation import SearchRequest

    folders = jobs.choose_models(models)
    if output.suffix != ".tsv":
        raise UserError(f"--output {output} is a corpus of two columns: let its name end in .tsv")
    request = SearchRequest(settings=jobs.search_settings(folders[0], changes))
    translator = jobs.load(folders, device, engine, quantization)
    src, tgt = translator.src_lang, translator.tgt_lang
    lines = inputs.warn_of_language(inputs.read_corpora(specs, src, tgt, languages), src, tgt, hint)
    if resume:
        inputs.require_regular(output, *lines.files)
    values = {"form": form, "languages": languages, "engine": engine, "quantization": quantization, **changes}
    with open_output(output, jobs.made_of(folders, lines, values), resume=resume) as out:

        def render(job: jobs.Job, number: int, source: str, best: Any) -> list[str]:
            translation = best[0].text
            return [form.format(source=source, translation=translation) if translation else "\t"]

        jobs.translate(jobs.Job(translator, request), lines, out, shown=True, render=render)
    print(f"{output}: {src}→{tgt} of {', '.join(specs)}", file=sys.stderr)
