"""`seq2seq translate` and `translate.py`: translates sentences, a file, or standard input."""

import dataclasses
import sys

from seq2seq.cli import inputs, jobs, options
from seq2seq.files import open_output


@options.search_options(*options.ALL_SEARCH)
def translate(
    texts: options.Texts = None,
    model: options.Models = None,
    input_: options.Input = None,
    output: options.Output = None,
    resume: options.Resume = False,
    interactive: options.Interactive = False,
    n_best: options.NBest = 1,
    as_json: options.AsJson = False,
    device: options.Device = "auto",
    engine: options.Engine = options.EngineName.pytorch,
    quantization: options.Quantization = options.Precision.int8,
    prefix: options.Prefix = "",
    phrase: options.Phrase = None,
    ban: options.Ban = None,
    glossary: options.Glossary = None,
    reference: options.Reference = None,
    testset: options.TestSet = None,
    debug: options.Debug = False,
    *,
    changes: options.Changes,
) -> None:
    r"""Translate sentences, a file, or standard input: one line out for every line in, in order.

    [bold]seq2seq translate "The ball is blue."[/bold]   each argument is a sentence

    [bold]seq2seq translate < in.en > out.es[/bold]   a filter; empty lines stay empty

    [bold]seq2seq translate --input in.en --reference ref.es[/bold]   and scores, on stderr

    [bold]seq2seq translate -- "-No, I won't."[/bold]   what starts with a dash comes after --

    With --n-best N every input gives up to N lines "number ||| translation ||| normalised score", best first; the
    first input is number 1.

    With --json every input gives one object: line, source, translation, score (sum of log-probabilities, nats),
    normalised_score (score / length^α), alignment (\[source word, target word] from 0) and n_best; scores against
    references are then one object on stderr.

    --model given several times is an ensemble. An --input that ends in .srt .po .xliff .tmx .html or .md is
    translated as a document, its markup kept, into --output.

    An --output that was broken off goes on with --resume, and comes out as if nothing had happened.

    A line longer than 99 of 100 lines that the model was trained on is translated sentence by sentence; a sentence
    of more than 200 tokens in pieces, with a warning. What goes wrong is told in one line on stderr, and the exit
    status is not 0.
    """
    from seq2seq.translation import SearchRequest

    inputs.check_sources(texts, input_, output, reference, testset, resume=resume, interactive=interactive)
    lines = inputs.read(texts, input_, reference)
    terms = inputs.read_glossary(glossary)
    told_as_json = as_json and (reference is not None or testset is not None)  # then stderr is one JSON object
    folders = jobs.choose_models(model, shown=not told_as_json)
    settings = jobs.search_settings(folders[0], changes)
    request = SearchRequest(settings=settings, n_best=n_best, banned=ban or [], glossary=terms)
    values = {"n_best": n_best, "as_json": as_json, "engine": engine, "quantization": quantization, **changes}
    values |= {"prefix": prefix, "phrase": phrase, "ban": ban, "glossary_digest": terms.digest if terms else None}
    made_of = jobs.made_of(folders, lines, values)
    with open_output(None if input_ and inputs.is_document(input_) else output, made_of, resume=resume) as out:
        translator = jobs.load(folders, device, engine, quantization)  # slow: not before the input is known to be good
        request = dataclasses.replace(request, align=as_json and translator.can_align)
        job = jobs.Job(translator, request, prefix, phrase or [], as_json)
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
