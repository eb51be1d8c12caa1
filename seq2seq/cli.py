"""The command line `seq2seq`: reads options, assembles, reports. What is slow to import is imported where needed."""

import itertools
import logging
import sys
import traceback
from typing import Any

import typer

from seq2seq import (
    cli_bulk,
    cli_cache,
    cli_explain,
    cli_lab,
    cli_prepare,
    cli_runs,
    cli_serve,
    cli_training,
    inputs,
    jobs,
    options,
)
from seq2seq.errors import UserError
from seq2seq.extras import needing
from seq2seq.files import open_output, read_lines

TRANSLATE_HELP = "\n\n".join(
    (
        "Translate sentences, a file, or standard input: one line out for every line in, in order.",
        '[bold]seq2seq translate "The ball is blue."[/bold]   each argument is a sentence',
        "[bold]seq2seq translate < in.en > out.es[/bold]   a filter; empty lines stay empty",
        "[bold]seq2seq translate --input in.en --reference ref.es[/bold]   and scores, on stderr",
        '[bold]seq2seq translate -- "-No, I won\'t."[/bold]   what starts with a dash comes after --',
        'With --n-best N every input gives up to N lines "number ||| translation ||| normalised score", best first; '
        "the first input is number 1.",
        "With --json every input gives one object: line, source, translation, score (sum of log-probabilities, nats), "
        "normalised_score (score / length^α), alignment (\\[source word, target word] from 0) "
        "and n_best; scores against references are then one object on stderr.",
        "--model given several times is an ensemble. An --input that ends in .srt .po .xliff .tmx .html or .md is "
        "translated as a document, its markup kept, into --output.",
        "An --output that was broken off goes on with --resume, and comes out as if nothing had happened.",
        "A line longer than 99 of 100 lines that the model was trained on is translated sentence by sentence; a "
        "sentence of more than 200 tokens in pieces, with a warning. What goes wrong is told in one line on "
        "stderr, and the exit status is not 0.",
    )
)
EVALUATE_HELP = """Score a finished translation: BLEU, chrF++ and TER, with sacreBLEU's signatures.

[bold]seq2seq evaluate --hypotheses out.es --reference ref.es[/bold]

[bold]seq2seq evaluate --hypotheses out.es --testset wmt13 --json[/bold]
"""
SCORE_HELP = """Let a model score given translations: sum of log-probabilities (nats), and the same / length^α.

[bold]seq2seq score --input in.en --translations out.es[/bold]   for each a line, score TAB normalised score

[bold]seq2seq score --input in.en --translations out.es --json --per-token[/bold]   and tokens, and alignment

A pair is read whole; one with a side of more than 2,048 tokens is refused.
"""
TRAIN_HELP = """Train a model: the same program as train.py. seq2seq train --help lists groups and values.

[bold]seq2seq train data=files 'data.train=[mine.tsv]'[/bold]   leaves its model in runs/NAME/model
"""
EXPORT_HELP = """Write a model as a folder that another program translates with by itself.

[bold]seq2seq export ctranslate2 --quantization int8 --output FOLDER[/bold]   float32, int8 or float16

[bold]seq2seq export huggingface --output FOLDER[/bold]   a MarianMTModel with its tokenizer
"""
INTERRUPTED = 130  # exit status after Ctrl-C, by which Typer replaces the exception
SEARCH_OPTIONS = (  # those that are settings of the search under the same name
    *("beam", "length_penalty", "max_length", "max_length_ratio", "min_length", "min_length_ratio"),
    *("no_repeat_ngram", "repetition_penalty", "coverage_penalty", "early_stopping", "groups", "diversity"),
    *("batch_tokens", "sampling", "temperature", "top_k", "top_p", "seed", "mbr"),
)

app = typer.Typer(
    name="seq2seq",
    help="Translate with the models that train.py makes, score translations, and take models elsewhere.",
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
    model: options.Models = None,
    input_: options.Input = None,
    output: options.Output = None,
    resume: options.Resume = False,
    interactive: options.Interactive = False,
    n_best: options.NBest = 1,
    as_json: options.AsJson = False,
    beam: options.Beam = None,
    length_penalty: options.LengthPenalty = None,
    max_length: options.MaxLength = None,
    max_length_ratio: options.MaxLengthRatio = None,
    min_length: options.MinLength = None,
    min_length_ratio: options.MinLengthRatio = None,
    no_repeat_ngram: options.NoRepeatNgram = None,
    repetition_penalty: options.RepetitionPenalty = None,
    coverage_penalty: options.CoveragePenalty = None,
    early_stopping: options.EarlyStopping = None,
    groups: options.Groups = None,
    diversity: options.Diversity = None,
    batch_tokens: options.BatchTokens = None,
    device: options.Device = "auto",
    engine: options.Engine = options.EngineName.pytorch,
    quantization: options.Quantization = options.Precision.int8,
    sampling: options.Sampling = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: options.Seed = None,
    mbr: options.Mbr = None,
    prefix: options.Prefix = "",
    phrase: options.Phrase = None,
    ban: options.Ban = None,
    glossary: options.Glossary = None,
    reference: options.Reference = None,
    testset: options.TestSet = None,
    debug: options.Debug = False,
) -> None:
    """Translate what the options name and score it if there are references."""
    given = {name: value for name, value in locals().items() if value is not None}
    inputs.check_sources(texts, input_, output, reference, testset, resume=resume, interactive=interactive)
    changes: dict[str, Any] = {name: given[name] for name in SEARCH_OPTIONS if name in given}
    lines = inputs.read(texts, input_, reference)
    terms = inputs.read_glossary(glossary)
    told_as_json = as_json and (reference is not None or testset is not None)  # then stderr is one JSON object
    folders = jobs.choose_models(model, shown=not told_as_json)
    made_of = None
    if lines.files:
        kept_out = ("input_", "glossary", "output", "resume", "reference", "device", "debug", "model")
        plain = {name: str(value) for name, value in given.items() if name not in kept_out}
        digests = {"input_digest": inputs.digest(lines), "glossary_digest": terms.digest if terms else None}
        made_of = {"model": jobs.fingerprint(folders), **digests, **plain}
    with open_output(None if input_ and inputs.is_document(input_) else output, made_of, resume=resume) as out:
        translator = jobs.load(folders, device, engine, quantization)  # slow: not before the input is known to be good
        settings = translator.settings(**changes)
        job = jobs.Job(translator, settings, n_best, as_json, prefix, phrase or [], ban or [], terms)
        if interactive:
            jobs.converse(job)
        elif input_ is not None and inputs.is_document(input_):
            count = jobs.translate_document(job, input_, output)
            print(f"{output}: {count} texts translated", file=sys.stderr)
        else:
            if testset is not None:
                lines = inputs.read_testset(testset, translator.src_lang, translator.tgt_lang)
            shown = not texts and (output is not None or not sys.stdout.isatty())
            kept = jobs.translate(job, lines, out, shown=shown)
            if lines.references is not None:
                jobs.report(kept, lines.references, as_json, to_stderr=True)


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
    references = inputs.read_testset(testset, src_lang, tgt_lang).references if testset else list(read_lines(reference))
    jobs.report(found, references or [], as_json, to_stderr=False)


@app.command(help=SCORE_HELP)
def score(
    input_: options.Sources,
    translations: options.Translations,
    model: options.Models = None,
    output: options.Output = None,
    as_json: options.AsJson = False,
    per_token: options.PerToken = False,
    length_penalty: options.LengthPenalty = None,
    batch_tokens: options.BatchTokens = None,
    device: options.Device = "auto",
    debug: options.Debug = False,
) -> None:
    """Let a model read translations."""
    from seq2seq.evaluation.metrics import require_same_length

    sources, targets = list(read_lines(input_)), list(read_lines(translations))
    require_same_length(len(targets), len(sources), against="input")
    folders = jobs.choose_models(model)
    with open_output(output) as out:
        translator = jobs.load_exact(folders, device)
        jobs.require_readable(translator, sources, targets)
        changes = {"length_penalty": length_penalty, "batch_tokens": batch_tokens}
        for number, reading in enumerate(translator.score(sources, targets, align=as_json, **changes), start=1):
            out(jobs.show_reading(number, reading, as_json=as_json, per_token=per_token))


@app.command(help=EXPORT_HELP)
def export(
    format_: options.ExportFormat,
    output: options.NewFolder,
    model: options.OneModel = None,
    quantization: options.Quantization = options.Precision.float32,
    debug: options.Debug = False,
) -> None:
    """Write a model for another program."""
    if format_ is options.ExportName.huggingface and quantization is not options.Precision.float32:
        raise UserError(
            f"export huggingface writes float32 weights, so --quantization {quantization.value} would do nothing: "
            f"leave it out, or use `seq2seq export ctranslate2 --quantization {quantization.value}`"
        )
    (folder,) = jobs.choose_models([model] if model else None)
    with needing("ctranslate2" if format_ is options.ExportName.ctranslate2 else "huggingface"):
        if format_ is options.ExportName.ctranslate2:
            from seq2seq.export.ctranslate2 import export_ctranslate2

            export_ctranslate2(folder, output, quantization.value)
        else:
            from seq2seq.export.huggingface import export_huggingface

            export_huggingface(folder, output)
    print(f"{output}: {folder} for {format_.value}", file=sys.stderr)


@app.command(help=TRAIN_HELP, context_settings={"ignore_unknown_options": True, "help_option_names": []})
def train(overrides: options.Overrides = None) -> None:
    """Train as Hydra reads the arguments."""
    from seq2seq.cli_train import main as train_as_told

    train_as_told(overrides or [])


# here, since help lists commands as they were added
for module in (cli_runs, cli_cache, cli_explain, cli_training, cli_prepare, cli_bulk, cli_lab, cli_serve):
    module.register(app)


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
    """Warnings as one line each on whatever stderr is now (a progress bar replaces it while it is shown).

    What a log tells of an exception follows: a server goes on after one, and nothing else says where it was.
    """

    def emit(self, record: logging.LogRecord) -> None:
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        print(f"{record.levelname.lower()}: {record.getMessage().rstrip()}\n{trace}", end="", file=sys.stderr)
