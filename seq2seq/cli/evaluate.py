"""`seq2seq evaluate` and `score`: score finished translations, a model on unusual texts, or translations by a model."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seq2seq.cli import inputs, options, shared
from seq2seq.errors import UserError
from seq2seq.settings.search import change_search
from seq2seq.storage.output import open_output, read_lines, require_other

if TYPE_CHECKING:
    from seq2seq.translate.types import ScoredTranslation

log = logging.getLogger(__name__)
MAX_TER_WORDS = 500  # TER takes more than about ten seconds for a longer line that differs much from its reference
MetricName = StrEnum("MetricName", ["bleu", "chrf", "ter"])  # keys of `METRICS`, which is slow to import
MAX_SCORED_TOKENS = 2048  # per side; all logits of a pair are in memory at once


@options.search_options("repair")
def evaluate(
    hypotheses: list[Path] | None = options.files(
        None,
        metavar="FILE...",
        help="Translations to score, one per line; of several files, the first is the baseline.",
    ),
    reference: list[Path] | None = options.scoring(
        None, "--reference", metavar="FILE...", help="Reference translations, one per line."
    ),
    testset: options.TestSet = None,
    src_lang: str = options.scoring("en", help="Source language of --testset."),
    tgt_lang: str = options.scoring(
        "es", help="Target language: of --testset; it decides how BLEU splits lines into words."
    ),
    metric: list[MetricName] | None = options.scoring(
        None, "--metric", metavar="NAME...", help="bleu, chrf (chrF++), ter. [dim]default: all[/dim]"
    ),
    samples: int | None = options.scoring(
        None, min=1, max=10**7, help="Samples of the paired bootstrap. [dim]default: 1000[/dim]"
    ),
    trials: int | None = options.scoring(
        None, min=1, max=10**7, help="Trials of approximate randomisation. [dim]default: 10000[/dim]"
    ),
    input_: Path | None = options.files(
        None, "--input", help="Sources, one per line; for --robustness and --confidence."
    ),
    robustness: bool = options.scoring(
        False, "--robustness", help="Let --model translate 2,000 unusual forms of --input's sentences."
    ),
    confidence: bool = options.scoring(
        False, "--confidence", help="Compare --model's confidences with what the references say."
    ),
    model: options.OneModel = None,
    device: options.Device = "auto",
    as_json: options.AsJson = False,
    *,
    changes: options.Changes,
) -> None:
    """Score finished translations: BLEU, chrF++ and TER, with sacreBLEU's signatures.

    [bold]seq2seq evaluate --hypotheses out.es --reference ref.es[/bold]

    [bold]seq2seq evaluate --hypotheses out.es --testset wmt13 --json[/bold]

    [bold]seq2seq evaluate --hypotheses old.es new.es --reference ref.es[/bold]   is new.es better than old.es?

    Several files are compared with the first one, the baseline, by paired bootstrap resampling and by paired
    approximate randomisation. --metric, --samples and --trials also show the 95 % interval of a single file.

    [bold]seq2seq evaluate --robustness --model runs/NAME --input in.en --reference ref.es[/bold]   unusual texts

    [bold]seq2seq evaluate --confidence --model runs/NAME --input in.en --reference ref.es[/bold]   are they right?
    """
    if robustness and confidence:
        raise typer.BadParameter("--robustness and --confidence exclude each other: give one")
    if robustness or confidence:
        name = "--robustness" if robustness else "--confidence"
        if hypotheses or testset or metric or samples or trials:
            raise typer.BadParameter(f"{name} takes --model, --input, --reference, --json and --repair only")
        report_model(name, input_, reference, model, device, changes, as_json=as_json)
        return
    if not hypotheses:
        raise typer.BadParameter("give --hypotheses FILE, or --robustness or --confidence with --input and --reference")
    if model or changes or input_:
        raise typer.BadParameter(
            "--model, --input and --repair are for --robustness and --confidence: add one, or leave them out"
        )
    if (not reference) == (testset is None):
        raise typer.BadParameter("give --reference FILE or --testset NAME")
    from seq2seq.evaluation.metrics import METRICS, score
    from seq2seq.evaluation.significance import SAMPLES, TRIALS, compare

    systems = [(str(path), list(read_lines(path))) for path in hypotheses]
    if testset:
        texts = [(f"--testset {testset}", inputs.read_testset(testset, src_lang, tgt_lang).references or [])]
    else:
        texts = [(str(path), list(read_lines(path))) for path in reference or []]
    inputs.require_parallel([*systems, *texts])
    if not metric or "ter" in metric:
        warn_of_slow_ter([*systems, *texts])
    references = [lines for _, lines in texts]
    if len(systems) > 1 or metric or samples or trials:
        scores = compare(systems, references, metric or METRICS, samples or SAMPLES, trials or TRIALS, tgt_lang)
    else:
        scores = score(systems[0][1], *references, language=tgt_lang)
    shared.report(scores.to_dict(), scores.report(), as_json)


def report_model(
    option: str,
    sources: Path | None,
    references: Sequence[Path] | None,
    model: Path | None,
    device: str,
    changes: Mapping[str, int | float | None],
    *,
    as_json: bool,
) -> None:
    """Translate a test set (--confidence) or unusual forms of it (--robustness), and print what became of it."""
    if sources is None or not references or len(references) > 1:
        raise typer.BadParameter(f"{option} needs --input FILE and one --reference FILE")
    files = [(str(path), list(read_lines(path))) for path in (sources, *references)]
    inputs.require_parallel(files)
    (_, source), (_, reference) = files
    (folder,) = shared.choose_models([model] if model else None)
    from seq2seq.evaluation.robustness import make_probes, measure, table, to_plain
    from seq2seq.training.calibration import measure_reliability
    from seq2seq.training.final_scores import words_of_run
    from seq2seq.translate.translator import Translator

    translator = Translator.load(folder, device)
    translator.search = change_search(translator.search, changes)
    if option == "--robustness":
        families = measure(
            make_probes(list(zip(source, reference, strict=True))),
            translator.translate,
            translator.tgt_lang,
            words_of_run(folder.parent),
        )
        shared.report(to_plain(families), [table(families)], as_json)
    elif translator.calibration is None:
        message = f"{folder} is not calibrated, so it gives no confidence"
        raise UserError(f"{message}: models that this version trains with 200 validation pairs or more are")
    else:
        best = [of_text[0] for of_text in translator.translate_nbest(source, 1)]
        reliability = measure_reliability(best, reference)
        shared.report(reliability.to_dict(), reliability.report(), as_json)


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


@options.search_options("length_penalty", "batch_tokens")
def score(
    input_: Annotated[Path, options.files("--input", help="Sources, one per line.")],
    translations: Annotated[Path, options.files(help="Translations of the sources, one per line.")],
    model: options.Models = None,
    output: options.Output = None,
    as_json: options.AsJson = False,
    per_token: bool = options.files(False, "--per-token", help="Also write every token's score."),
    device: options.Device = "auto",
    *,
    changes: options.Changes,
) -> None:
    """Let a model score given translations: sum of log-probabilities (nats), and this sum / length^α.

    [bold]seq2seq score --input in.en --translations out.es[/bold]   one line per pair: score TAB normalised score

    [bold]seq2seq score --input in.en --translations out.es --json --per-token[/bold]   also tokens and alignment

    A long source is cut as `translate` cuts it; a pair with a side of more than 2,048 tokens is refused.
    """
    require_other(output, input_, translations)
    sources, targets = list(read_lines(input_)), list(read_lines(translations))
    inputs.require_parallel([(str(input_), sources), (str(translations), targets)])
    folders = shared.choose_models(model)
    shared.search_settings(folders[0], changes)  # refuses a value out of range before the model is loaded
    with open_output(output) as out:
        import torch

        from seq2seq.translate.translator import Translator

        translator = Translator.load(folders, device, torch.float32)  # exact on every device
        require_short("input", translator.tokenizer.source.encode(sources))
        require_short("translations", translator.tokenizer.target.encode(targets))
        for number, reading in enumerate(translator.score(sources, targets, align=as_json, **changes), start=1):
            out(show(number, reading, as_json=as_json, per_token=per_token))


def require_short(side: str, encoded: Iterable[Sequence[int]]) -> None:
    """Refuse a text that is too long for any model and for the memory: scoring reads each pair as a whole."""
    for number, ids in enumerate(encoded, start=1):
        if len(ids) > MAX_SCORED_TOKENS:
            message = f"--{side}, line {number} has {len(ids):,} tokens, and a side of a pair may have at most"
            raise UserError(f"{message} {MAX_SCORED_TOKENS:,}: split both sides into sentences, or leave the pair out")


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
