"""`seq2seq evaluate` and `seq2seq score`: score finished translations against references and by a model."""

import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2seq.cli import inputs, options, shared
from seq2seq.errors import UserError
from seq2seq.files import open_output, read_lines
from seq2seq.settings.search import change_search

if TYPE_CHECKING:
    from seq2seq.evaluation.comet import Comet
    from seq2seq.interface import ScoredTranslation

MAX_SCORED_TOKENS = 2048  # per side, in `seq2seq score`; all logits of a pair are in memory at once

MAX_TER_WORDS = 500  # TER takes more than about ten seconds for a longer line that differs much from its reference
log = logging.getLogger(__name__)

MetricName = StrEnum("MetricName", ["bleu", "chrf", "ter", "comet"])  # keys of `TITLES`, which is slow to import
Hypotheses = Annotated[
    list[Path] | None,
    options.files(
        metavar="FILE...", help="Translations to score, one per line; of several files, the first is the baseline."
    ),
]
References = Annotated[
    list[Path] | None, options.scoring("--reference", metavar="FILE...", help="Reference translations, one per line.")
]
Metrics = Annotated[
    list[MetricName] | None,
    options.scoring(
        "--metric", metavar="NAME...", help="bleu, chrf (chrF++), ter, comet. [dim]default: the first three[/dim]"
    ),
]
EvaluatedSources = Annotated[
    Path | None, options.files("--input", help="Sources, one per line; for comet and --robustness.")
]
Robustness = Annotated[
    bool, options.scoring("--robustness", help="Let --model translate 2,000 unusual forms of --input's sentences.")
]
CometModel = Annotated[
    str | None,
    options.scoring(
        help="COMET checkpoint, or name on the Hugging Face hub. [dim]default: Unbabel/wmt22-comet-da[/dim]"
    ),
]
CometPython = Annotated[
    str | None, options.scoring(metavar="PATH", help="Python that has unbabel-comet. [dim]default: this one[/dim]")
]
Samples = Annotated[
    int | None, options.scoring(min=1, max=10**7, help="Samples of the paired bootstrap. [dim]default: 1000[/dim]")
]
Trials = Annotated[
    int | None, options.scoring(min=1, max=10**7, help="Trials of approximate randomisation. [dim]default: 10000[/dim]")
]
SrcLang = Annotated[str, options.scoring(help="Source language of --testset.")]
TgtLang = Annotated[
    str, options.scoring(help="Target language: of --testset; it decides how BLEU splits lines into words.")
]
Sources = Annotated[Path, options.files("--input", help="Sources, one per line.")]
Translations = Annotated[Path, options.files(help="Translations of the sources, one per line.")]
PerToken = Annotated[bool, options.files("--per-token", help="Also write every token's score.")]


@options.search_options("repair")
def evaluate(
    hypotheses: Hypotheses = None,
    reference: References = None,
    testset: options.TestSet = None,
    src_lang: SrcLang = "en",
    tgt_lang: TgtLang = "es",
    metric: Metrics = None,
    samples: Samples = None,
    trials: Trials = None,
    input_: EvaluatedSources = None,
    comet_model: CometModel = None,
    comet_python: CometPython = None,
    robustness: Robustness = False,
    model: options.OneModel = None,
    device: options.Device = "auto",
    as_json: options.AsJson = False,
    *,
    changes: options.Changes,
) -> None:
    """Score finished translations: BLEU, chrF++ and TER, with sacreBLEU's signatures; COMET, if it is installed.

    [bold]seq2seq evaluate --hypotheses out.es --reference ref.es[/bold]

    [bold]seq2seq evaluate --hypotheses out.es --testset wmt13 --json[/bold]

    [bold]seq2seq evaluate --hypotheses old.es new.es --reference ref.es[/bold]   is new.es better than old.es?

    Several files are compared with the first one, the baseline, by paired bootstrap resampling and by paired
    approximate randomisation. --metric, --samples and --trials also show the 95 % interval of a single file.

    [bold]… --metric bleu comet --input in.en --comet-python comet-env/bin/python[/bold]   see docs/evaluation.md

    [bold]seq2seq evaluate --robustness --model runs/NAME --input in.en --reference ref.es[/bold]   unusual texts
    """
    if robustness:
        if hypotheses or testset or metric or samples or trials or comet_model or comet_python:
            raise typer.BadParameter("--robustness takes --model, --input, --reference, --json and --repair only")
        report_robustness(input_, reference, model, device, changes, as_json=as_json)
        return
    if not hypotheses:
        raise typer.BadParameter("give --hypotheses FILE, or --robustness with --input and --reference")
    if model or changes:
        raise typer.BadParameter("--model and --repair are for --robustness: add it, or leave them out")
    if (not reference) == (testset is None):
        raise typer.BadParameter("give --reference FILE or --testset NAME")
    if testset and input_:
        raise typer.BadParameter(f"--testset {testset} has its own sources: leave out --input")
    from seq2seq.evaluation.metrics import METRICS, score
    from seq2seq.evaluation.significance import SAMPLES, TRIALS, compare

    systems = [(str(path), list(read_lines(path))) for path in hypotheses]
    sources = None
    if testset:
        given = inputs.read_testset(testset, src_lang, tgt_lang)
        sources, texts = list(given.sources), [(f"--testset {testset}", given.references or [])]
    else:
        texts = [(str(path), list(read_lines(path))) for path in reference or []]
    files = [*systems, *texts]
    if input_:
        sources = list(read_lines(input_))
        files.append((str(input_), sources))
    inputs.require_parallel(files)
    if not metric or "ter" in metric:
        warn_of_slow_ter([*systems, *texts])
    references = [lines for _, lines in texts]
    comet = None
    if metric and "comet" in metric:
        translations = [lines for _, lines in systems]
        comet = comet_metric(sources, translations, references, comet_model, comet_python)
    elif input_ or comet_model or comet_python:
        raise UserError("--input, --comet-model and --comet-python are for --metric comet: add it, or leave them out")
    if len(systems) > 1 or metric or samples or trials:
        scores = compare(systems, references, metric or METRICS, samples or SAMPLES, trials or TRIALS, comet, tgt_lang)
    else:
        scores = score(systems[0][1], *references, language=tgt_lang)
    shared.report(scores, as_json, to_stderr=False)


def report_robustness(
    sources: Path | None,
    references: Sequence[Path] | None,
    model: Path | None,
    device: str,
    changes: Mapping[str, int | float | None],
    *,
    as_json: bool,
) -> None:
    """Translate unusual forms of a test set, and print what became of each family of them.

    Raises:
        UserError: the files are not parallel, no probe can be made of them, or the model is not available.
    """
    if sources is None or not references or len(references) > 1:
        raise typer.BadParameter("--robustness needs --input FILE and one --reference FILE")
    files = [(str(path), list(read_lines(path))) for path in (sources, *references)]
    inputs.require_parallel(files)
    folders = shared.choose_models([model] if model else None)
    from seq2seq.evaluation.robustness import make_probes, measure, table, to_plain
    from seq2seq.translator import Translator

    translator = Translator.load(folders, device)
    probes = make_probes(list(zip(files[0][1], files[1][1], strict=True)))
    translator.search = change_search(translator.search, changes)
    families = measure(probes, translator.translate, translator.tgt_lang)
    if as_json:
        print(json.dumps(to_plain(families), ensure_ascii=False))
    else:
        from rich.console import Console

        Console().print(table(families))


def warn_of_slow_ter(files: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Warn of the first line that is too long for TER: the time grows with the cube of the number of words."""
    for name, lines in files:
        for number, line in enumerate(lines, start=1):
            if (length := len(line.split())) > MAX_TER_WORDS:
                log.warning(
                    "%s:%d has %s words, and TER of such a line can take minutes or hours: split it, or leave TER out "
                    "by --metric bleu chrf",
                    *(name, number, f"{length:,}"),
                )
                return


def comet_metric(
    sources: Sequence[str] | None,
    translations: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    model: str | None,
    python: str | None,
) -> "Callable[[], Comet]":
    """Return the function that scores translations by COMET, for `compare`; the function names the model on stderr.

    Raises:
        UserError: there are no sources, or several references.
    """
    if sources is None:
        raise UserError("--metric comet compares translations with their sources, too: give --input FILE")
    if len(references) > 1:
        raise UserError(f"--metric comet reads one reference, and {len(references)} are given: give one --reference")
    from seq2seq.evaluation.comet import MODEL, run_comet

    def run() -> "Comet":
        print(f"comet: {model or MODEL}", file=sys.stderr)
        return run_comet(sources, translations, references[0], model or MODEL, python or sys.executable)

    return run


@options.search_options("length_penalty", "batch_tokens")
def score(
    input_: Sources,
    translations: Translations,
    model: options.Models = None,
    output: options.Output = None,
    as_json: options.AsJson = False,
    per_token: PerToken = False,
    device: options.Device = "auto",
    *,
    changes: options.Changes,
) -> None:
    """Let a model score given translations: sum of log-probabilities (nats), and this sum / length^α.

    [bold]seq2seq score --input in.en --translations out.es[/bold]   one line per pair: score TAB normalised score

    [bold]seq2seq score --input in.en --translations out.es --json --per-token[/bold]   also tokens and alignment

    Each pair is read as a whole; a pair with a side of more than 2,048 tokens is refused.
    """
    from seq2seq.evaluation.metrics import require_same_length

    sources, targets = list(read_lines(input_)), list(read_lines(translations))
    require_same_length(len(targets), len(sources), against="input")
    folders = shared.choose_models(model)
    shared.search_settings(folders[0], changes)  # refuses a value out of range before the model is loaded
    with open_output(output) as out:
        import torch

        from seq2seq.translator import Translator

        translator = Translator.load(folders, device, torch.float32)  # exact on every device
        require_short("input", translator.tokenizer.source.encode(sources))
        require_short("translations", translator.tokenizer.target.encode(targets))
        for number, reading in enumerate(translator.score(sources, targets, align=as_json, **changes), start=1):
            out(show(number, reading, as_json=as_json, per_token=per_token))


def require_short(side: str, encoded: Iterable[Sequence[int]]) -> None:
    """Refuse a text that is too long for any model and for the memory: scoring reads each pair as a whole.

    Raises:
        UserError: a text has more than MAX_SCORED_TOKENS tokens; the message names its line.
    """
    for number, ids in enumerate(encoded, start=1):
        if len(ids) > MAX_SCORED_TOKENS:
            raise UserError(
                f"--{side}, line {number} has {len(ids):,} tokens, and a pair is scored as a whole, of at most "
                f"{MAX_SCORED_TOKENS:,} a side: split it and the other side's into sentences, or leave it out"
            )


def show(number: int, reading: "ScoredTranslation", *, as_json: bool, per_token: bool) -> str:
    """Return the scores of a translation as a line."""
    if not as_json:
        tokens = zip(reading.tokens, reading.log_probs, strict=True)
        per_piece = "".join(f"\t{token} {log_prob:.4f}" for token, log_prob in tokens) if per_token else ""
        return f"{reading.score:.4f}\t{reading.normalised_score:.4f}{per_piece}"
    plain = {"line": number, **asdict(reading)}
    if not per_token:
        del plain["tokens"], plain["log_probs"]
    return json.dumps(plain, ensure_ascii=False)
