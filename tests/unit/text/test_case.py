"""Texts in capitals and in title case get the case of a sentence."""

from pathlib import Path

import pytest

from seq2seq.text.vocabulary import load_tokenizers
from seq2seq.text.words import in_usual_case

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
