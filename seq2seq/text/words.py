"""Words and their subwords: numbers words and aligns them. Knows no model."""

from collections.abc import Sequence

SPACE = "▁"  # begins every subword that begins a word


def word_of_subwords(subwords: Sequence[str]) -> list[int]:
    """Return the number of each subword's word (from 0, as in `text.split()`)."""
    words: list[int] = []
    number = -1
    for subword in subwords:
        number += subword.startswith(SPACE) or number < 0
        words.append(number)
    return words


def align_words(
    source: Sequence[str], target: Sequence[str], attention: Sequence[Sequence[float]]
) -> list[tuple[int, int]]:
    """Align every target word with the source word that its subwords attend to most, as (source, target) from 0.

    A word whose subwords attend to nothing (a model without cross-attention) is left out.

    Args:
        source: the source's subwords, without EOS.
        target: the translation's subwords, without EOS.
        attention: weight of each source subword (column) for each target subword (row); further rows and columns, such
            as EOS, are ignored.
    """
    source_words, target_words = word_of_subwords(source), word_of_subwords(target)
    if not source_words or not target_words:
        return []
    sums = [[0.0] * (source_words[-1] + 1) for _ in range(target_words[-1] + 1)]
    for row, target_word in zip(attention, target_words, strict=False):
        for share, source_word in zip(row, source_words, strict=False):
            sums[target_word][source_word] += share
    return [(max(range(len(row)), key=row.__getitem__), word) for word, row in enumerate(sums) if any(row)]
