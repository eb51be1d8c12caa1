"""Words of subwords, their alignment, and texts in capitals and in title case."""

from pathlib import Path

import pytest

from seq2seq.text.vocabulary import load_tokenizers
from seq2seq.text.words import align_words, in_usual_case, word_of_subwords


def test_subwords_belong_to_the_words_that_splitting_the_text_gives():
    assert word_of_subwords(["▁The", "▁ca", "t", ".", "▁", "¿", "Qué", "▁x"]) == [0, 1, 1, 1, 2, 2, 2, 3]
    assert word_of_subwords(["s", "▁a"]) == [0, 1]
    assert word_of_subwords([]) == []


def test_a_target_word_belongs_to_the_source_word_that_its_subwords_attend_to_most():
    attention = [
        [0.5, 0.2, 0.2, 0.1],  # El
        [0.4, 0.3, 0.3, 0.0],  # ga: less to cat's pieces one by one, more to both
        [0.2, 0.5, 0.2, 0.1],  # to
        [0.0, 0.0, 0.0, 1.0],  # EOS
    ]
    assert align_words(["▁The", "▁ca", "t"], ["▁El", "▁ga", "to"], attention) == [(0, 0), (1, 1)]
    assert align_words([], ["▁El"], [[1.0]]) == []
    assert align_words(["▁The"], [], [[1.0]]) == []


def test_a_target_word_that_attends_to_nothing_is_aligned_with_nothing():
    assert align_words(["▁The", "▁ball"], ["▁La", "▁bola"], [[0.0, 0.0], [0.2, 0.1]]) == [(0, 1)]


TOKENIZER = load_tokenizers(Path(__file__).parents[3] / "data" / "model").source


@pytest.mark.parametrize(
    ("text", "usual"),
    [
        ("THE CAT DRANK THE MILK.", "The cat drank the milk."),
        ("TOM AND I LIVE IN BOSTON. WHERE DO YOU LIVE?", "Tom and I live in Boston. Where do you live?"),
        ("The Cat Drank The Milk", "The cat drank the milk"),
        ("I Was Expecting Tom.", "I was expecting Tom."),
        ("“STOP IT!”", "“Stop it!”"),
        ("Tom Mary John Tom", "Tom Mary John Tom"),
        ("Happy New Year!", "Happy New Year!"),
        ("Mail John.Doe@Example.com Right Now", "Mail John.Doe@Example.com right now"),
        ("TV", "TV"),
        ("A TV?", "A TV?"),
        ("I have a TV.", "I have a TV."),
        ("Yes, Tom.", "Yes, Tom."),
        ("", ""),
        ("1999", "1999"),
    ],
)
def test_capitals_become_a_sentence_with_its_names(text: str, usual: str):
    assert in_usual_case(text, TOKENIZER) == usual
