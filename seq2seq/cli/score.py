"""`seq2seq evaluate` and `seq2seq score`: scores of finished translations, by references and by a model."""

import typer

from seq2seq.cli import inputs, jobs, options
from seq2seq.files import open_output, read_lines


def evaluate(
    hypotheses: options.Hypotheses,
    reference: options.Reference = None,
    testset: options.TestSet = None,
    src_lang: options.SrcLang = "en",
    tgt_lang: options.TgtLang = "es",
    as_json: options.AsJson = False,
    debug: options.Debug = False,
) -> None:
    """Score a finished translation: BLEU, chrF++ and TER, with sacreBLEU's signatures.

    [bold]seq2seq evaluate --hypotheses out.es --reference ref.es[/bold]

    [bold]seq2seq evaluate --hypotheses out.es --testset wmt13 --json[/bold]
    """
    if (reference is None) == (testset is None):
        raise typer.BadParameter("give --reference FILE or --testset NAME")
    found = list(read_lines(hypotheses))
    references = inputs.read_testset(testset, src_lang, tgt_lang).references if testset else list(read_lines(reference))
    jobs.report(found, references or [], as_json, to_stderr=False)


@options.search_options("length_penalty", "batch_tokens")
def score(
    input_: options.Sources,
    translations: options.Translations,
    model: options.Models = None,
    output: options.Output = None,
    as_json: options.AsJson = False,
    per_token: options.PerToken = False,
    device: options.Device = "auto",
    debug: options.Debug = False,
    *,
    changes: options.Changes,
) -> None:
    """Let a model score given translations: sum of log-probabilities (nats), and the same / length^α.

    [bold]seq2seq score --input in.en --translations out.es[/bold]   for each a line, score TAB normalised score

    [bold]seq2seq score --input in.en --translations out.es --json --per-token[/bold]   and tokens, and alignment

    A pair is read whole; one with a side of more than 2,048 tokens is refused.
    """
    from seq2seq.evaluation.metrics import require_same_length

    sources, targets = list(read_lines(input_)), list(read_lines(translations))
    require_same_length(len(targets), len(sources), against="input")
    folders = jobs.choose_models(model)
    jobs.search_settings(folders[0], changes)  # refuses a value out of range before the model is loaded
    with open_output(output) as out:
        translator = jobs.load_exact(folders, device)
        jobs.require_readable(translator, sources, targets)
        for number, reading in enumerate(translator.score(sources, targets, align=as_json, **changes), start=1):
            out(jobs.show_reading(number, reading, as_json=as_json, per_token=per_token))
