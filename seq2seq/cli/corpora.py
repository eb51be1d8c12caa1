"""The commands that make text to train on: prepare, and with a model distill and backtranslate."""

import logging
import sys
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2seq.cli import inputs, options, shared
from seq2seq.errors import UserError
from seq2seq.progress import log_handler
from seq2seq.settings.rules import AUTO
from seq2seq.storage.output import open_output, require_other

if TYPE_CHECKING:
    from seq2seq.translate.types import Translation

TAG = "<bt>"  # begins a synthetic source

Corpora = Annotated[
    list[str], options.files("--input", help="Corpus, or file with one text per line; may be given several times.")
]
Languages = Annotated[
    str | None,
    options.files(
        metavar="A,B",
        help="Languages of a .tsv's two columns, such as en,es. "
        "[dim]default for a model en→es: the first column is the source; other models need this option[/dim]",
    ),
]
NewCorpus = Annotated[Path, options.files("--output", help="Corpus to write, .tsv.")]


def prepare(
    overrides: options.Overrides = None,
    show: int = typer.Option(0, min=0, metavar="N", help="Training pairs to show as the model gets them."),
) -> None:
    """Prepare text before training: clean, find duplicates and overlap, learn the vocabulary, tokenise.

    [bold]seq2seq prepare experiment=tatoeba_cpu data.root=FOLDER data.num_proc=4[/bold]   then train.py with the
    same settings

    The settings are train.py's, group=option and key=value; only data, tokenizer and init matter. train.py
    with the same settings finds the result in data.cache.
    """
    from rich.console import Console
    from rich.filesize import decimal

    from seq2seq.data.clean import drop_table
    from seq2seq.data.loading import training_feed
    from seq2seq.data.prepare import prepare as prepare_text
    from seq2seq.settings.compose import compose
    from seq2seq.text.tokenizer import PAD

    config = compose(overrides or [])
    if config.init is not None:  # the initial model's tokenizer is used
        from seq2seq.apps.exchange.cached import imported
        from seq2seq.training.finetune import start_from_bundle

        config.init = imported(config.init, config.data.cache, f"init={config.init}")
        config = start_from_bundle(config, overrides or [])
    logger, handler = logging.getLogger("seq2seq"), log_handler()
    handler.addFilter(lambda record: record.levelno < logging.WARNING)  # `cli.main` prints warnings
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        prepared = prepare_text(config.data, config.tokenizer)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    sizes = prepared.report["sizes"]
    tests = "".join(f", {name} {size:,}" for name, size in sizes["tests"].items())
    Console().print(drop_table(prepared.report))
    print(f"pairs: train {sizes['train']:,}, validation {sizes['validation']:,}{tests}")
    bytes_ = sum(path.stat().st_size for path in prepared.folder.iterdir())
    print(f"vocabulary: {prepared.tokenizer.target.vocab_size:,}; size: {decimal(bytes_)}")
    print(f"folder: {prepared.folder}")
    if show:
        if config.training.max_tokens == AUTO:
            config.training.max_tokens = 1024
        with closing(training_feed(config, prepared, rank=0, world_size=1, pin=False)) as batches:
            pairs = (pair for batch in batches for pair in zip(batch.src, batch.tgt_out, strict=True))
            for pair in islice(pairs, show):
                for side, ids in zip((prepared.tokenizer.source, prepared.tokenizer.target), pair, strict=True):
                    tokens = [token for token in ids.tolist() if token != PAD]
                    print(*(f"{subword}:{token}" for subword, token in zip(side.tokens(tokens), tokens, strict=True)))
                print()


@options.engine_options
@options.search_options(*options.BEAM_SEARCH)
def distill(
    input_: Corpora,
    output: NewCorpus,
    model: options.Models = None,
    languages: Languages = None,
    resume: options.Resume = False,
    workers: options.Workers = 1,
    *,
    engine: options.EngineChoice,
    changes: options.Changes,
) -> None:
    """Translate the sources of a corpus into a corpus to train a student on (Kim & Rush 2016).

    [bold]seq2seq distill --model runs/teacher --input train.tsv --output distilled.tsv[/bold]

    An --input is a corpus (.tsv .csv .jsonl .parquet .tmx, a.en+a.es), whose targets are ignored, or a file with
    one text per line. The --output has a line for each pair: source TAB translation. --resume continues after a
    kill.
    """
    form = "{source}\t{translation}"
    hint = "give the sources of a corpus (--languages tells the order of a .tsv's columns)"
    where = (input_, output, model, languages)
    make_corpus(*where, engine, changes, resume=resume, workers=workers, form=form, hint=hint)


@options.engine_options
@options.search_options(*options.BEAM_SEARCH, *options.SAMPLING)
def backtranslate(
    input_: Corpora,
    output: NewCorpus,
    model: options.Models = None,
    tag: bool = options.files(False, "--tag", help=f"Begin every synthetic source with {TAG}."),
    languages: Languages = None,
    resume: options.Resume = False,
    workers: options.Workers = 1,
    *,
    engine: options.EngineChoice,
    changes: options.Changes,
) -> None:
    """Translate text of the target language into synthetic sources for it (Sennrich et al. 2016).

    [bold]seq2seq backtranslate --model runs/reverse --input mono.es --output synthetic.tsv --tag[/bold]

    The model must translate in the other direction (data.src_lang=es data.tgt_lang=en); text in the wrong language
    gives a warning. The --output has a line for each text: synthetic source TAB text. With --tag the source begins
    with <bt> (Caswell et al. 2019); train with [bold]'tokenizer.user_symbols=["<bt>"]'[/bold], so that <bt> is one
    subword. --resume continues after a kill.
    """
    form = f"{TAG} {{translation}}\t{{source}}" if tag else "{translation}\t{source}"
    hint = "back-translation takes a model of the other direction, --model runs/REVERSE, that reads such text"
    where = (input_, output, model, languages)
    make_corpus(*where, engine, changes, resume=resume, workers=workers, form=form, hint=hint)


def make_corpus(
    specs: list[str],
    output: Path,
    models: list[Path] | None,
    languages: str | None,
    engine: options.EngineChoice,
    changes: options.Changes,
    *,
    resume: bool,
    workers: int,
    form: str,
    hint: str,
) -> None:
    """Translate the inputs into a TSV, each line in the given form.

    A warning gives the hint if the texts are in the language that the model writes. A text without words gives a line
    with two empty fields, which training drops and counts.
    """
    from seq2seq.translate.types import SearchRequest

    folders = shared.choose_models(models)
    if output.suffix != ".tsv":
        raise UserError(f"--output {output} is a corpus of two columns: let its name end in .tsv")
    request = SearchRequest(settings=shared.search_settings(folders[0], changes))
    translator = shared.load(folders, engine)
    src, tgt = translator.src_lang, translator.tgt_lang
    lines = inputs.warn_of_language(inputs.read_corpora(specs, src, tgt, languages), src, tgt, hint)
    require_other(output, *lines.files, engine.shortlist)
    if resume:
        inputs.require_regular(output, *lines.files)
    values = {"form": form, "languages": languages, **shared.output_settings(engine), **changes}
    with open_output(output, shared.provenance(folders, lines, values), resume=resume) as out:
        if out.is_complete:
            print(f"{output} is already complete", file=sys.stderr)
            return

        def render(job: shared.Job, number: int, source: str, best: "Sequence[Translation]") -> list[str]:
            translation = best[0].text
            return [form.format(source=source, translation=translation) if translation else "\t"]

        shared.translate(shared.Job(translator, request), lines, out, workers=workers, shown=True, render=render)
    print(f"{output}: {src}→{tgt} of {', '.join(specs)}", file=sys.stderr)
