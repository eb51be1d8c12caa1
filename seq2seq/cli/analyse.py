"""`seq2seq analyse`: where finished translations score low, and what is wrong with them."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seq2seq.cli import inputs, options, shared
from seq2seq.errors import UserError
from seq2seq.storage.output import find_model, read_lines

if TYPE_CHECKING:
    from seq2seq.evaluation.error_analysis import Translated


def analyse(
    hypotheses: list[Path] | None = options.files(
        None,
        metavar="FILE...",
        help="Translations, one per line. [dim]default: the test translations of --model's run[/dim]",
    ),
    reference: list[Path] | None = options.files(
        None, "--reference", metavar="FILE...", help="Reference translations, one file per test set."
    ),
    input_: list[Path] | None = options.files(
        None, "--input", metavar="FILE...", help="Sources, one file per test set."
    ),
    output: Path | None = typer.Option(
        None, "--output", help="Folder to make. [dim]default without --hypotheses: analysis/ in the run's folder[/dim]"
    ),
    training: list[str] | None = options.scoring(
        None, metavar="CORPUS...", help="Training text. [dim]default: the training text of --model's run[/dim]"
    ),
    languages: str | None = options.scoring(
        None, metavar="A,B", help="Languages of the columns of a --training .tsv, such as en,es."
    ),
    model: Path | None = options.scoring(None, "--model", help="Run or bundle folder; its attention is analysed, too."),
    device: options.Device = "auto",
    src_lang: str | None = options.scoring(None, help="Source language. [dim]default: --model's, or en[/dim]"),
    tgt_lang: str | None = options.scoring(None, help="Target language. [dim]default: --model's, or es[/dim]"),
    worst: int = options.scoring(10, min=1, help="Number of worst lines shown for each fault, and for all sentences."),
    as_json: options.AsJson = False,
) -> None:
    """Show where finished translations score low, and what is wrong with them, as tables, a page, and JSON.

    [bold]seq2seq analyse --model runs/NAME[/bold]   the run's test translations; writes to analysis/ in the run

    [bold]seq2seq analyse --hypotheses out.es --reference ref.es --input in.en --output analysis[/bold]

    [bold]… --training train.tsv[/bold]   also scores by how rare the source's words are in the training text

    [bold]… --model runs/NAME[/bold]   also finds little attention to the source, and words that the run never saw

    The --output folder gets analysis.html (opens without network) and analysis.json. With several files, the first
    --reference and --input belong to the first --hypotheses, and so on. docs/evaluation.md describes the findings.
    """
    is_run = not (hypotheses or reference or input_)
    if is_run and model is None:
        raise UserError("nothing to analyse: give --hypotheses, --reference and --input, or the --model of a run")
    if output is None and not is_run:
        raise UserError("give --output: the folder of the analysis")
    folder = None if model is None else find_model(model)
    if is_run:
        assert folder is not None
        from seq2seq.training.finish_run import read_translations

        files, output = read_translations(folder.parent), output or folder.parent / "analysis"
    else:
        files = read_files(hypotheses or [], reference or [], input_ or [])
    assert output is not None
    from seq2seq.apps.explain.analysis import PAGE, training_sources, write_analysis
    from seq2seq.training.final_scores import words_of_run

    translator = None
    if folder is not None:
        import torch

        from seq2seq.translate.translator import Translator

        translator = Translator.load(folder, device, torch.float32)
        src_lang, tgt_lang = src_lang or translator.src_lang, tgt_lang or translator.tgt_lang
        if is_run and not translator.can_align:
            translator = None
    between = src_lang or "en", tgt_lang or "es"
    texts: Iterable[str] | None = None
    if training:
        texts = inputs.read_corpora(training, *between, languages, option="--training").sources
    elif folder is not None and (folder.parent / "config.yaml").is_file():
        texts = training_sources(folder.parent)
    known = None if folder is None else words_of_run(folder.parent)
    analysis = write_analysis(output, files, between, texts, translator, worst, known)
    if is_run:
        print(f"page: {output / PAGE}", file=sys.stderr)
    shared.report(analysis.to_dict(), analysis.report(), as_json)


def read_files(hypotheses: Sequence[Path], references: Sequence[Path], sources: Sequence[Path]) -> "list[Translated]":
    """Read the test sets."""
    from seq2seq.evaluation.error_analysis import Translated

    if not len(hypotheses) == len(references) == len(sources):
        message = f"{len(hypotheses)} --hypotheses, {len(references)} --reference and {len(sources)} --input files"
        raise UserError(f"{message}: give one of each for every test set")
    files = []
    for paths in zip(sources, hypotheses, references, strict=True):
        texts = [list(read_lines(path)) for path in paths]
        inputs.require_parallel([(str(path), lines) for path, lines in zip(paths, texts, strict=True)])
        files.append(Translated(str(paths[1]), *texts))
    return files
