"""`seq2seq translate`, `translate.py`, `bulk-translate`: translate sentences, standard input, or one or many files."""

import contextlib
import dataclasses
import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from seq2seq.apps.documents.document import is_document, require_plain, translate_document
from seq2seq.cli import inputs, options, shared
from seq2seq.errors import UserError
from seq2seq.storage.output import open_output, output_folder, read_lines, require_other
from seq2seq.text.glossary import Glossary

HINT = "check the text, or give --model a model of the other direction"


@options.engine_options
@options.search_options(*options.ALL_SEARCH)
def translate(
    texts: list[str] | None = typer.Argument(
        None, metavar="TEXT", help="Sentences; without any, --input or stdin is read."
    ),
    model: options.Models = None,
    input_: Path | None = options.files(
        None, "--input", help="File to translate, one text per line; or .srt .vtt .po .xliff .tmx .html .md."
    ),
    output: options.Output = None,
    format_: Literal["auto", "lines"] = options.files(
        "auto", "--format", help="auto: what the ending of --input says; lines: one text per line, whatever the ending."
    ),
    resume: options.Resume = False,
    shard: str | None = options.files(
        None, metavar="I/N", help="Translate part I of N of --input; all parts in order are the whole."
    ),
    workers: options.Workers = 1,
    interactive: bool = options.files(False, "--interactive", help="Ask for sentences one by one."),
    n_best: int = options.files(
        1, min=1, help="Translations of each input: at most --beam; with --sampling, the number of samples."
    ),
    as_json: options.AsJson = False,
    prefix: str = options.wanted("", help="Text that every translation begins with."),
    phrase: list[str] | None = options.wanted(
        None, help="Phrase that every translation contains; may be given several times."
    ),
    ban: list[str] | None = options.wanted(
        None, help="Phrase that no translation contains; may be given several times."
    ),
    glossary: Path | None = options.wanted(
        None, help="File of terms and their translations, term TAB translation on each line."
    ),
    reference: Path | None = options.scoring(
        None, help="Reference translations, one per line: score with BLEU, chrF++, TER."
    ),
    testset: options.TestSet = None,
    *,
    engine: options.EngineChoice,
    changes: options.Changes,
) -> None:
    r"""Translate sentences, a file, or standard input: one line out for every line in, in order.

    [bold]seq2seq translate "The ball is blue."[/bold]   each argument is a sentence

    [bold]seq2seq translate < in.en > out.es[/bold]   a filter; empty lines stay empty

    [bold]seq2seq translate --input in.en --reference ref.es[/bold]   also prints scores to stderr

    [bold]seq2seq translate -- "-No, I won't."[/bold]   a sentence that starts with a dash comes after --

    With --n-best N every input gives up to N lines "number ||| translation ||| normalised score", best first; the
    first input is number 1.

    With --json every input gives one object: line, source, translation, score (sum of log-probabilities, nats),
    normalised_score (score / length^α), confidence (probability that it is acceptable; null if the model is not
    calibrated), alignment (\[source word, target word] from 0) and n_best; scores against
    references are then one object on stderr.

    --model given several times is an ensemble. An --input that ends in .srt .vtt .po .xliff .tmx .html or .md is
    translated as a document into --output; its markup is kept.

    --resume begins --output, continues an interrupted one, which then is the same as without the interruption, or
    says that it is complete.

    Every sentence of a line is translated on its own. A sentence longer than the model's training sentences is cut at
    clauses; a warning names each line of more than 200 tokens. An error is one line on stderr, and the exit status is
    then not 0.
    """
    if sum(bool(source) for source in (texts, input_, testset, interactive)) > 1:
        raise typer.BadParameter("sentences, --input, --testset and --interactive exclude each other: give one")
    if reference and (testset or interactive):
        raise typer.BadParameter("--testset brings its own references, --interactive has none: leave out --reference")
    if resume:
        if input_ is None or output is None:
            raise typer.BadParameter("--resume goes on with a file: give --input and --output")
        inputs.require_regular(input_, output)
    piped = None if texts or input_ or testset or interactive else Path("/dev/stdin")
    require_other(output, piped, input_, reference, glossary, engine.shortlist)
    document = input_ if input_ is not None and format_ == "auto" and is_document(input_) else None
    if input_ is not None and document is None and format_ == "auto":
        require_plain(input_)
    if document is not None and (output is None or reference or resume):
        raise typer.BadParameter(f"{input_} is a document: give --output, and neither --reference nor --resume")
    if workers > 1 and (texts or interactive or document is not None):
        raise typer.BadParameter("--workers is for the lines of a file or of stdin: leave it out")
    if not (texts or input_ or testset or interactive) and sys.stdin.isatty():
        raise typer.BadParameter("nothing to translate: give a sentence, --input FILE, or text on stdin")
    lines = inputs.Input([], None) if document else inputs.read(texts, input_, reference)
    lines = lines.part(shard) if shard else lines
    terms = Glossary.parse(read_lines(glossary), str(glossary)) if glossary else None
    is_scored_as_json = as_json and (reference is not None or testset is not None)  # stderr is one JSON object
    folders = shared.choose_models(model, shown=not is_scored_as_json)
    from seq2seq.translate.types import SearchRequest

    settings = shared.search_settings(folders[0], changes)
    request = SearchRequest(settings=settings, n_best=n_best, banned=ban or [], glossary=terms)
    values = {"n_best": n_best, "as_json": as_json, "shard": shard, **shared.output_settings(engine), **changes}
    values |= {"prefix": prefix, "phrase": phrase, "ban": ban, "glossary_digest": terms.digest if terms else None}
    provenance = shared.provenance(folders, lines, values)
    with open_output(None if document else output, provenance, resume=resume) as out:
        if out.is_complete:
            print(f"{output} is already complete", file=sys.stderr)
            return
        translator = shared.load(folders, engine)  # slow: only after the checks of the input
        request = dataclasses.replace(request, align=as_json and translator.can_align)
        job = shared.Job(translator, request, prefix, phrase or [], as_json)
        if interactive:
            converse(job)
        elif document is not None and output is not None:
            translate_file(job, document, output)
        else:
            if testset is not None:
                lines = inputs.read_testset(testset, translator.src_lang, translator.tgt_lang)
            lines = inputs.warn_of_language(lines, translator.src_lang, translator.tgt_lang, HINT)
            shown = not texts and (output is not None or not sys.stdout.isatty())
            kept = shared.translate(job, lines, out, workers=workers, shown=shown)
            if lines.references or (not shard and lines.references is not None):  # a part may be empty
                from seq2seq.evaluation.metrics import score

                scores = score(kept, lines.references, language=translator.tgt_lang)
                shared.report(scores.to_dict(), scores.report(), as_json, to_stderr=True)


def converse(job: shared.Job) -> None:
    """Ask for sentences and answer with translations, until the end of the input."""
    for number in itertools.count(1):
        try:
            source = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return
        try:
            (best,) = job.translator.stream(job.texts([source]), job.request, first_line=number)
            for line in shared.show(job, number, source, best):
                print(line, flush=True)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)


def translate_file(job: shared.Job, source: Path, target: Path) -> None:
    """Translate a document into one of the same format."""
    src, tgt = job.translator.src_lang, job.translator.tgt_lang

    def words(texts: Sequence[str], align: bool) -> list[tuple[str, list[tuple[int, int]] | None]]:
        inputs.warn_of_language(inputs.Input(texts, None), src, tgt, HINT)
        request = dataclasses.replace(job.request, align=align and job.translator.can_align)
        return [(best[0].text, best[0].alignment) for best in job.translator.stream(job.texts(texts), request)]

    count = translate_document(source, target, words, src, tgt)
    print(f"{target}: {count} texts translated", file=sys.stderr)


@options.search_options("beam", "length_penalty", "batch_tokens", *options.SAMPLING)
def bulk_translate(
    input_: Annotated[
        list[str], typer.Option("--input", help="Files or a quoted pattern; may be given several times.")
    ],
    output: Annotated[Path, typer.Option("--output", help="Folder for the translations, compressed as the inputs.")],
    model: options.Models = None,
    ray: str | None = typer.Option(
        None, "--ray", metavar="ADDRESS", help="Ray cluster to work on: its address, auto, or local to start one here."
    ),
    workers: int = typer.Option(1, "--workers", min=1, help="Translators that work at the same time, with --ray."),
    threads: int | None = typer.Option(
        None,
        min=1,
        max=4096,
        help="CPU threads of each translator. [dim]default: all; with --ray 1[/dim]",
        show_default=False,
    ),
    device: options.Device = "auto",
    *,
    changes: options.Changes,
) -> None:
    """Translate files of any size: OUTPUT/NAME for each file, one line for every line, complete or not at all.

    [bold]seq2seq bulk-translate --model runs/reverse --input 'mono/*.es' --output mono.en[/bold]

    [bold]seq2seq bulk-translate --ray auto --workers 8 --device cpu --input 'mono/*.es' --output mono.en[/bold]
    on a Ray cluster

    The same command resumes a killed job after the last finished shards of some thousand lines. With --ray, model,
    inputs and output must be in folders that every node sees; --device says what the workers have: with cuda, every
    worker has a GPU of its own. A job is resumed only by the same version of the program, on the same kind of device.
    """
    if ray is None and workers > 1:
        raise UserError(f"--workers {workers} needs --ray: auto, local, or a cluster's address")
    if ray is not None and device == "auto":
        raise UserError(f"--ray {ray} needs --device cpu or --device cuda: this machine does not know the workers'")
    from seq2seq.apps.distributed import bulk
    from seq2seq.device import choose_device, default_dtype

    folders = tuple(folder.resolve() for folder in shared.choose_models(model))
    shared.search_settings(folders[0], changes)  # refuses a value out of range before anything begins
    threads = threads if ray is None else threads or 1
    dtype = None
    if ray is None:
        chosen = choose_device(device)
        device, dtype = str(chosen), default_dtype(chosen)
    job = bulk.BulkJob(folders, shared.fingerprint(folders), changes, device, threads, dtype)
    with output_folder(output):
        sources, files, finished = bulk.find_files(input_), 0, 0
        start, total = time.perf_counter(), 0
        with shared.ray_workers(ray) or contextlib.nullcontext() as opened:
            for file, count in bulk.bulk_translate(job, sources, output, opened, workers):
                files, finished, total = files + 1, finished + file.output.is_complete, total + count
                if not file.output.is_complete:
                    name, rate = file.source.name, total / (time.perf_counter() - start)
                    print(f"{output / name}: {count:,} lines ({rate:,.0f} a second in all)", file=sys.stderr)
        if finished:
            print(f"{finished} of {files} files are finished since an earlier job", file=sys.stderr)
