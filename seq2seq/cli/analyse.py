"""`seq2seq analyse`: where finished translations score low, and what is wrong with them."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seq2seq.cli import inputs, jobs, options
from seq2seq.errors import UserError
from seq2seq.files import Output, find_model, open_output, read_lines

if TYPE_CHECKING:
    from seq2seq.evaluation.analysis import Translated

PAGE, NUMBERS = "analysis.html", "analysis.json"

Hypotheses = Annotated[list[Path], options.files(metavar="FILE...", help="Translations, a line each.")]
References = Annotated[
    list[Path], options.files("--reference", metavar="FILE...", help="Reference translations, a file for each.")
]
Sources = Annotated[list[Path], options.files("--input", metavar="FILE...", help="Sources, a file for each.")]
Training = Annotated[
    list[str] | None,
    options.scoring(metavar="CORPUS...", help="Training text. [dim]default: that of --model's run[/dim]"),
]
Languages = Annotated[
    str | None, options.scoring(metavar="A,B", help="Languages of the columns of a --training .tsv, as en,es.")
]
Model = Annotated[Path | None, options.scoring("--model", help="Run or bundle folder: looks at its attention, too.")]
SrcLang = Annotated[str | None, options.scoring(help="Source language. [dim]default: --model's, or en[/dim]")]
TgtLang = Annotated[str | None, options.scoring(help="Target language. [dim]default: --model's, or es[/dim]")]
Worst = Annotated[int, options.scoring(min=1, help="Lines shown of each fault, and of all.")]


def analyse(
    hypotheses: Hypotheses,
    reference: References,
    input_: Sources,
    output: options.NewFolder,
    training: Training = None,
    languages: Languages = None,
    model: Model = None,
    device: options.Device = "auto",
    src_lang: SrcLang = None,
    tgt_lang: TgtLang = None,
    worst: Worst = 10,
    as_json: options.AsJson = False,
) -> None:
    """Show where finished translations score low, and what is wrong with them, as tables, a page, and JSON.

    [bold]seq2seq analyse --hypotheses out.es --reference ref.es --input in.en --output analysis[/bold]

    [bold]… --training train.tsv[/bold]   also scores by how rare the source's words are in the training text

    [bold]… --model runs/NAME[/bold]   also finds translations with little attention to the source

    The --output folder gets analysis.html (opens without network) and analysis.json. Of several files, the first
    --reference and --input belong to the first --hypotheses, and so on. What is found: docs/evaluation.md.
    """
    files = read_files(hypotheses, reference, input_)
    folder = None if model is None else find_model(model)
    from seq2seq.evaluation.analysis import analyse as analyse_texts
    from seq2seq.evaluation.analysis import count_words
    from seq2seq.explain.analysis_page import write_analysis_page

    sources = [text for one in files for text in one.sources]
    translator = None
    if folder is not None:
        import torch

        from seq2seq.translator import Translator

        translator = Translator.load(folder, device, torch.float32)
        src_lang, tgt_lang = src_lang or translator.src_lang, tgt_lang or translator.tgt_lang
    src_lang, tgt_lang = src_lang or "en", tgt_lang or "es"
    texts: Iterable[str] | None = None
    if training:
        texts = inputs.read_corpora(training, src_lang, tgt_lang, languages, option="--training").sources
    elif folder is not None and (folder.parent / "config.yaml").is_file():
        texts = training_sources(folder.parent)
    frequencies = None if texts is None else count_words(texts, sources)
    with opened(output) as (numbers, page):  # all is read and can be written before the model's work
        focus = None
        if translator is not None:
            from seq2seq.explain.focus import find_focus

            focus = find_focus(translator, sources, [text for one in files for text in one.hypotheses])
        found = analyse_texts(files, src_lang, tgt_lang, frequencies, focus, worst)
        numbers(json.dumps(found.to_dict(), ensure_ascii=False))
        page(write_analysis_page(found, [one.name for one in files]).removesuffix("\n"))
    jobs.report(found, as_json, to_stderr=False)


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Output, Output]]:
    """Open the numbers' and the page's file; both appear when the block ends, an error leaves those of before.

    Raises:
        UserError: the folder cannot be made, or nothing can be written there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise UserError(f"--output {folder} is a file: name a folder") from error
    except OSError as error:
        raise UserError(f"--output {folder} cannot be made: {error.strerror}") from error
    with open_output(folder / NUMBERS) as numbers, open_output(folder / PAGE) as page:
        yield numbers, page


def read_files(hypotheses: Sequence[Path], references: Sequence[Path], sources: Sequence[Path]) -> "list[Translated]":
    """Read the test sets.

    Raises:
        UserError: a file cannot be read, the numbers of files or lines differ, or a test set has no lines.
    """
    from seq2seq.evaluation.analysis import Translated
    from seq2seq.evaluation.metrics import require_same_length

    if not len(hypotheses) == len(references) == len(sources):
        raise UserError(
            f"{len(hypotheses)} --hypotheses, {len(references)} --reference and {len(sources)} --input files: "
            "give one of each for every test set"
        )
    files = []
    for paths in zip(sources, hypotheses, references, strict=True):
        texts = [list(read_lines(path)) for path in paths]
        inputs.require_parallel([(str(path), lines) for path, lines in zip(paths, texts, strict=True)])
        require_same_length(len(texts[1]), len(texts[2]))  # and not 0
        files.append(Translated(str(paths[1]), *texts))
    return files


def training_sources(run: Path) -> Iterator[str]:
    """Yield the sources of a run's training text.

    Raises:
        UserError: the run's config.yaml is damaged, or the text is no longer where the run found it.
    """
    from seq2seq.settings.loading import load_config
    from seq2seq.text.corpus import open_splits

    data = load_config(str(run), [], "--model ").data
    try:
        for corpus in open_splits(data)["train"]:
            yield from (source for source, _ in corpus.pairs())
    except UserError as error:
        raise UserError(f"the training text of {run}: {error}; or give --training FILE") from error
