"""From subword pieces to words, as far as alignment needs them; knows no model."""

from collections.abc import Sequence

SPACE = "▁"  # begins every piece that begins a word


def word_of_pieces(pieces: Sequence[str]) -> list[int]:
    """Number of the word (from 0, as in `text.split()`) that each piece belongs to."""
    words, number = [], -1
    for piece in pieces:
        number += piece.startswith(SPACE) or number < 0
        words.append(number)
    return words


def align_words(
    source: Sequence[str], target: Sequence[str], attention: Sequence[Sequence[float]]
) -> list[tuple[int, int]]:
    """For every target word, the source word that its pieces attend to most, as (source, target) from 0.

    One whose pieces attend to nothing (a model without cross-attention) has none.

    Args:
        source: the source's pieces, without EOS.
        target: the translation's pieces, without EOS.
        attention: of each target piece to each source piece; rows and columns may go on beyond them (EOS).
    """
    source_words, target_words = word_of_pieces(source), word_of_pieces(target)
    if not source_words or not target_words:
        return []
    sums = [[0.0] * (source_words[-1] + 1) for _ in range(target_words[-1] + 1)]
    for row, target_word in zip(attention, target_words, strict=False):
        for share, source_word in zip(row, source_words, strict=False):
            sums[target_word][source_word] += share
    return [(max(range(len(row)), key=row.__getitem__), word) for word, row in enumerate(sums) if any(row)]
