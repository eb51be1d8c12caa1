"""The page of an analysis of translations: pictures of scores, faults, and the lines with the lowest scores."""

from collections.abc import Sequence
from html import escape

from seq2seq.apps.explain.page import fill
from seq2seq.evaluation.error_analysis import GROUPS, Analysis, Group, Line
from seq2seq.evaluation.faults import FAULTS

FEW = 20  # sentences; smaller groups are grey on the page, since their scores are mostly chance
_STYLES = ("viewer.css", "page.css", "analysis.css")
_TITLES = {"length": "By length of the source", "rarity": "By rarity of the source's words", "file": "By file"}


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
