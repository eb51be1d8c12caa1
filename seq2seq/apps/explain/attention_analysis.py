"""Analyse finished translations, and write the analysis into a folder."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from seq2seq.apps.explain.analysis_page import write_analysis_page
from seq2seq.apps.explain.source_attention import find_focus
from seq2seq.data.corpus import open_splits
from seq2seq.errors import UserError
from seq2seq.evaluation.error_analysis import Analysis, Translated, analyse, count_words
from seq2seq.settings.loading import load_config
from seq2seq.storage.output import open_output, output_folder
from seq2seq.translate.translator import Translator

PAGE, NUMBERS = "analysis.html", "analysis.json"


def write_analysis(
    output: Path,
    files: Sequence[Translated],
    languages: tuple[str, str],
    texts: Iterable[str] | None = None,
    translator: Translator | None = None,
    worst: int = 10,
    known: Collection[str] | None = None,
) -> Analysis:
    """Analyse translations of test sets, and write the page and the numbers into the folder `output`.

    The input is read and the output files are opened before the model runs. An error leaves the previous files.

    Args:
        output: the folder; created if missing.
        files: sources, translations and references of each test set.
        languages: of sources and translations, as ISO 639-1 codes.
        texts: sources of the training text, for scores by rarity; None: no scores by rarity.
        translator: the model whose attention to the source is measured; None: attention is left out.
        worst: number of lines to show for each fault, and number of lines with the lowest scores.
        known: the words of the training text's targets in lower case; None: invented words are left out.
    """
    sources = [source for test_set in files for source in test_set.sources]
    hypotheses = [hypothesis for test_set in files for hypothesis in test_set.hypotheses]
    frequencies = None if texts is None else count_words(texts, sources)
    with output_folder(output), open_output(output / NUMBERS) as numbers, open_output(output / PAGE) as page:
        focus = None if translator is None else find_focus(translator, sources, hypotheses)
        analysis = analyse(files, *languages, frequencies, focus, worst, known)
        numbers(json.dumps(analysis.to_dict(), ensure_ascii=False))
        page(write_analysis_page(analysis, [test_set.name for test_set in files]).removesuffix("\n"))
    return analysis


def training_sources(run: Path) -> Iterator[str]:
    """Yield the sources of a run's training text."""
    data = load_config(str(run), [], "--model ").data
    try:
        for corpus in open_splits(data)["train"]:
            yield from (source for source, _ in corpus.pairs())
    except UserError as error:
        raise UserError(f"the training text of {run}: {error}; or give --training FILE") from error
