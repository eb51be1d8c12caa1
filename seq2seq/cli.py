"""The command line `seq2seq`: reads options, assembles, reports. What is slow to import is imported where needed."""

import itertools
import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seq2seq import options
from seq2seq.errors import UserError
from seq2seq.files import count_lines, find_model, open_output, read_lines

if TYPE_CHECKING:
    from seq2seq.translator import Translation

TRANSLATE_HELP = "\n\n".join(
    (
        "Translate sentences, a file, or standard input: one line out for every line in, in order.",
        '[bold]python translate.py "The ball is blue."[/bold]   each argument is a sentence',
        "[bold]python translate.py < in.en > out.es[/bold]   a filter; empty lines stay empty",
        "[bold]python translate.py --input in.en --reference ref.es[/bold]   and scores, on stderr",
        '[bold]python translate.py -- "-No, I won\'t."[/bold]   what starts with a dash comes after --',
        'With --n-best N every input gives up to N lines "number ||| translation ||| normalised score", best first; '
        "the first input is number 1.",
        "With --json every input gives one object: line, source, translation, score (sum of log-probabilities, nats), "
        "normalised_score (score / length^α) and n_best; scores against references are then one object on stderr.",
        "A line too long for the model is translated in pieces, with a warning. What goes wrong is told in one line on "
        "stderr, and the exit status is not 0.",
    )
)
EVALUATE_HELP = """Score a finished translation: BLEU, chrF++ and TER, with sacreBLEU's signatures.

[bold]seq2seq evaluate --hypotheses out.es --reference ref.es[/bold]

[bold]seq2seq evaluate --hypotheses out.es --testset wmt13 --json[/bold]
"""
INTERRUPTED = 130  # exit status after Ctrl-C, by which Typer replaces the exception

app = typer.Typer(
    name="seq2seq",
    help="Translate with the models that train.py makes, and score translations.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
translate_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")


@app.command(help=TRANSLATE_HELP)
@translate_app.command(help=TRANSLATE_HELP)
def translate(
    texts: options.Texts = None,
    model: options.Model = None,
    input_: options.Input = None,
    output: options.Output = None,
    n_best: options.NBest = 1,
    as_json: options.AsJson = False,
    beam: options.Beam = None,
    length_penalty: options.LengthPenalty = None,
    max_length: options.MaxLength = None,
    batch_tokens: options.BatchTokens = None,
    device: options.Device = "auto",
    reference: options.Reference = None,
    testset: options.TestSet = None,
    debug: options.Debug = False,
) -> None:
    """Translate what the options name and score it if there are references."""
    _check_sources(texts, input_, reference, testset)
    sources, total, references = _read(texts, input_, reference)
    folder = find_model(model)
    with open_output(output) as write:
        from seq2seq.translator import Translator  # takes seconds to import: not before the input is known to be good

        translator = Translator.load(folder, device)
        settings = translator.settings(beam, length_penalty, max_length, batch_tokens)
        if testset is not None:
            sources, references = _load_testset(testset, translator.src_lang, translator.tgt_lang)
            total = len(sources)
        to_translate, to_show = itertools.tee(sources)
        with _progress(total, shown=not texts and (output is not None or not sys.stdout.isatty())) as advance:
            found = translator.stream(to_translate, settings, n_best=n_best, on_progress=advance)
            kept = _write(write, zip(to_show, found, strict=True), n_best, as_json, keep=references is not None)
    if references is not None:
        _report(kept, references, as_json, to_stderr=True)


@app.command(help=EVALUATE_HELP)
def evaluate(
    hypotheses: options.Hypotheses,
    reference: options.Reference = None,
    testset: options.TestSet = None,
    src_lang: options.SrcLang = "en",
    tgt_lang: options.TgtLang = "es",
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Score a file of translations."""
    if (reference is None) == (testset is None):
        raise typer.BadParameter("give --reference FILE or --testset NAME")
    found = list(read_lines(hypotheses))
    references = _load_testset(testset, src_lang, tgt_lang)[1] if testset else list(read_lines(reference))
    _report(found, references, as_json, to_stderr=False)


def main(application: typer.Typer = app) -> None:
    """Run a command; what a user did wrong is one line on stderr (a traceback with --debug), and exit status 1."""
    warnings = _OneLine(logging.WARNING)
    logging.getLogger().addHandler(warnings)
    try:
        application()
    except UserError as error:
        if "--debug" in itertools.takewhile(lambda argument: argument != "--", sys.argv[1:]):
            raise
        sys.exit("error: " + " ".join(str(error).split()))
    except SystemExit as error:
        if error.code == INTERRUPTED:
            print("error: interrupted", file=sys.stderr)
        raise
    finally:
        logging.getLogger().removeHandler(warnings)


class _OneLine(logging.Handler):
    """Warnings as one line each on whatever stderr is now (a progress bar replaces it while it is shown)."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"{record.levelname.lower()}: {record.getMessage()}", file=sys.stderr)


def _check_sources(texts: list[str] | None, input_: Path | None, reference: Path | None, testset: str | None) -> None:
    given = sum(bool(source) for source in (texts, input_, testset))
    if given > 1:
        raise typer.BadParameter("sentences, --input and --testset exclude each other: give one of them")
    if reference and testset:
        raise typer.BadParameter("--testset brings its own references: leave out --reference")
    if not given and sys.stdin.isatty():
        raise typer.BadParameter("nothing to translate: give a sentence, --input FILE, or text on stdin")


def _read(
    texts: list[str] | None, input_: Path | None, reference: Path | None
) -> tuple[Iterable[str], int | None, list[str] | None]:
    """Give the sources, their number if known, and the references; a regular file is checked here, read later."""
    references = None if reference is None else list(read_lines(reference))
    if texts:
        for number, text in enumerate(texts, start=1):
            if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
                raise UserError(f"sentence {number} is not UTF-8: set a UTF-8 locale, or use --input")
        sources, total = texts, len(texts)
    elif input_ is not None and input_.is_file():
        sources, total = read_lines(input_), count_lines(input_)
    elif references is not None or input_ is not None:
        sources = list(read_lines(input_))
        total = len(sources)
    else:
        sources, total = read_lines(None), None
    if references is not None and total is not None:
        from seq2seq.evaluation.metrics import require_same_length

        require_same_length(total, len(references), "input")
    return sources, total, references


def _load_testset(name: str, src_lang: str, tgt_lang: str) -> tuple[list[str], list[str]]:
    from seq2seq.evaluation.testsets import load_testset

    return load_testset(name, src_lang, tgt_lang)


def _write(
    write: Callable[[str], object],
    translated: "Iterable[tuple[str, Sequence[Translation]]]",
    n_best: int,
    as_json: bool,
    *,
    keep: bool,
) -> list[str]:
    """Write every source's translations in the format asked for; gives the best of each, if they are to be kept."""
    kept = []
    for number, (source, best) in enumerate(translated, start=1):
        if as_json:
            plain = [
                {"translation": one.text, "score": one.score, "normalised_score": one.normalised_score} for one in best
            ]
            write(json.dumps({"line": number, "source": source, **plain[0], "n_best": plain}, ensure_ascii=False))
        elif n_best > 1:
            for one in best:
                write(f"{number} ||| {one.text} ||| {one.normalised_score:.4f}")
        else:
            write(best[0].text)
        if keep:
            kept.append(best[0].text)
    return kept


def _report(translations: list[str], references: list[str], as_json: bool, *, to_stderr: bool) -> None:
    from rich.console import Console

    from seq2seq.evaluation.metrics import score

    scores = score(translations, references)
    if as_json:
        print(json.dumps(scores.to_dict(), ensure_ascii=False), file=sys.stderr if to_stderr else sys.stdout)
    else:
        Console(stderr=to_stderr).print(scores.table())


@contextmanager
def _progress(total: int | None, *, shown: bool) -> "Iterator[Callable[[int], object] | None]":
    """Show a bar on stderr if that is a terminal; gives the function that advances it by a number of lines."""
    if not (shown and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("translating"), BarColumn(), MofNCompleteColumn(), TextColumn("lines"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("translating", total=total)
        yield lambda count: progress.advance(task, count)
