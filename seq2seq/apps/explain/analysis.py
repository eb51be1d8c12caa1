"""Analyse finished translations, with a model's attention to their sources, and write the page and the numbers."""

import json
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from seq2seq.apps.explain.page import fill
from seq2seq.data.corpus import open_splits
from seq2seq.errors import UserError
from seq2seq.evaluation.error_analysis import GROUPS, Analysis, Focus, Group, Line, Translated, analyse, count_words
from seq2seq.evaluation.faults import FAULTS, IGNORED
from seq2seq.search.types import TokenScores
from seq2seq.settings.loading import load_config
from seq2seq.storage.output import open_output, output_folder
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import ScoringEngine

PAGE, NUMBERS = "analysis.html", "analysis.json"
MAX_TOKENS = 2048  # per side; longer pairs are not read, since all attention of a pair is in memory at once
FEW = 20  # sentences; smaller groups are grey on the page, since their scores are mostly chance
_STYLES = ("viewer.css", "page.css", "analysis.css")
_TITLES = {"length": "By length of the source", "rarity": "By rarity of the source's words", "file": "By file"}


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


def find_focus(translator: Translator, sources: Sequence[str], hypotheses: Sequence[str]) -> list[Focus | None]:
    """Return measures of the aligning layer's attention while a model reads given translations.

    The result is None for a pair with a side that is empty or longer than MAX_TOKENS.
    """
    engine = translator.engine
    if not (isinstance(engine, ScoringEngine) and engine.can_align):
        raise UserError("this model shows no attention to the source: leave out --model, or give another one")
    tokenizer = translator.tokenizer
    src, tgt = tokenizer.encode_given(sources, hypotheses)
    read = [i for i, pair in enumerate(zip(src, tgt, strict=True)) if all(0 < len(ids) <= MAX_TOKENS for ids in pair)]
    measures: list[Focus | None] = [None] * len(sources)
    batch_tokens = translator.search.batch_tokens
    for batch in engine.score([src[i] for i in read], [tgt[i] for i in read], batch_tokens, align=True):
        for index, scores in batch:
            measures[read[index]] = _measure(scores, len(src[read[index]]))
    return measures


def _measure(scores: TokenScores, num_source: int) -> Focus:
    """Return the measures over the translation's tokens without EOS; the source's EOS counts only in the entropy."""
    assert scores.attention is not None
    rows = scores.attention[:-1]
    received = [sum(row[i] for row in rows) for i in range(num_source)]
    entropies = [-math.fsum(share * math.log(share) for share in row if share > 0) for row in rows]
    return Focus(sum(share < IGNORED for share in received) / num_source, math.fsum(entropies) / len(rows))


def write_analysis_page(analysis: Analysis, files: Sequence[str]) -> str:
    """Return an analysis as an HTML document without scripts, which a browser can open from a file, without network.

    files are the names of the translations.
    """
    names = escape(", ".join(files))
    scores = f"{analysis.num_sentences:,} sentences: BLEU {analysis.bleu:.1f}, chrF++ {analysis.chrf:.1f}"
    shares = {"invented_words": f'<p class="left-out">{escape(analysis.invented_text())}</p>'}
    return fill(
        "analysis.html",
        _STYLES,
        f"Analysis: {names}",
        files=names,
        scores=scores,
        signatures=escape("; ".join(analysis.signatures.values())),
        groups="".join(_section(by, groups) for by, groups in analysis.groups.items()),
        faults="".join(
            f"<details><summary><b>{_words(fault.name)}</b><span>{fault.count:,}</span><span>{fault.share:.1%}</span>"
            f"<small>{escape(FAULTS[fault.name])}</small></summary>"
            f"{shares.get(fault.name, '')}{_lines(analysis, fault.worst, fault.name)}</details>"
            for fault in analysis.faults
        ),
        left_out="".join(f'<p class="left-out">{escape(reason)}</p>' for reason in analysis.left_out),
        worst=_lines(analysis, analysis.worst),
    )


def _section(by: str, groups: Sequence[Group]) -> str:
    rows = "".join(
        f'<tr{" class=few" * (group.num_sentences < FEW)}><th scope="row">{escape(group.name)}</th>'
        f"<td>{group.num_sentences:,}</td><td>{_bar(group.bleu)}</td><td>{_bar(group.chrf)}</td></tr>"
        for group in groups
    )
    heads = "".join(f'<th scope="col">{name}</th>' for name in (GROUPS[by], "sentences", "BLEU", "chrF++"))
    note = f"Scores of 0 to 100; those of fewer than {FEW} sentences are grey: chance decides them."
    table = f'<table class="groups"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return f"<section><h2>{_TITLES[by]}</h2><p>{note}</p>{table}</section>"


def _bar(score: float) -> str:
    """Return HTML of a score from 0 to 100: its digits, and a bar below them."""
    return (
        f'{score:.1f}<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="all" width="100" height="8"/><rect class="part" width="{score:.1f}" height="8"/></svg>'
    )


def _lines(analysis: Analysis, lines: Sequence[Line], fault: str | None = None) -> str:
    """Return an HTML list of lines with their findings for one fault, or for every fault if `fault` is None."""
    if not lines:
        return '<p class="left-out">None was found.</p>'
    items = []
    for line in lines:
        findings = [line.faults[fault]] if fault else [f"{_words(name)}: {text}" for name, text in line.faults.items()]
        summary = " · ".join([f"line {analysis.place(line)}", f"chrF++ {line.chrf:.1f}", *findings])
        texts = {"source": line.source, "translation": line.hypothesis, "reference": line.reference}
        rows = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in texts.items())
        items.append(f"<li><p>{escape(summary)}</p><dl>{rows}</dl></li>")
    return f'<ul class="lines">{"".join(items)}</ul>'


def _words(fault: str) -> str:
    return fault.replace("_", " ")
