import re

from hypothesis import given
from hypothesis import strategies as st

from seq2seq.text.segments import number_words, split_text


def count_words(texts):
    return [len(text.split()) for text in texts]


def count_characters(texts):
    return [len(text) for text in texts]


def test_text_is_cut_at_sentence_ends():
    text = 'I came. "Did you see?" he asked. Yes! It cost 3.50 euros… Good.'
    assert split_text(text, 8, count_words) == [
        "I came.",
        '"Did you see?"',
        "he asked.",
        "Yes!",
        "It cost 3.50 euros…",
        "Good.",
    ]


def test_titles_and_initials_end_no_sentence():
    assert split_text("Dr. J. Smith met Mrs. Jones. They left.", 9, count_words) == [
        "Dr. J. Smith met Mrs. Jones.",
        "They left.",
    ]


def test_a_long_sentence_is_cut_at_clauses_that_are_joined_while_they_fit():
    text = "one two, three four; five six: seven, eight nine ten."
    assert split_text(text, 5, count_words) == ["one two, three four;", "five six: seven,", "eight nine ten."]


def test_a_long_clause_is_cut_at_spaces():
    assert split_text("one two three four five six seven", 3, count_words) == [
        "one two three",
        "four five six",
        "seven",
    ]


def test_a_long_word_is_cut_anywhere():
    assert split_text("ab " + "x" * 10, 4, count_characters) == ["ab", "xx", "xxx", "xx", "xxx"]


@given(st.text(alphabet="ab .,;?!…\n\t。é😀", max_size=200), st.integers(1, 30))
def test_every_piece_fits_and_no_letter_is_lost(text, limit):
    pieces = split_text(text, limit, count_characters)
    assert all(0 < len(piece) <= limit for piece in pieces)
    assert "".join(re.sub(r"\s", "", piece) for piece in pieces) == re.sub(r"\s", "", text)


@given(st.text(alphabet="ab .,;?!…\n\t。é😀", max_size=200), st.integers(1, 30))
def test_the_parts_of_a_text_know_which_words_they_are_made_of(text, limit):
    whole = " ".join(text.split())
    parts = split_text(whole, limit, count_characters)
    rebuilt = [""] * len(whole.split())
    for first, part in zip(number_words(whole, parts), parts, strict=True):
        for number, word in enumerate(part.split(), start=first):
            rebuilt[number] += word
    assert rebuilt == whole.split()
