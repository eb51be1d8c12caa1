import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.text.sentences import number_words, split_text

ANY_TEXT = st.text(alphabet="abAB .,;:?!…\n\t。é😀\0¿“\"'”)—1", max_size=200)

# Each list holds sentences. Joined by spaces, they must come back.
HARD_SENTENCES = [
    # English
    ["Mr. Smith met Mrs. Jones at 5 p.m. on Friday.", "They left."],
    ["Use a unit, e.g. metres, i.e. not feet.", "It works."],
    ["See Fig. 3 and No. 5 of vol. II for details.", "Then read p. 12."],
    ["No.", "No means no."],
    ["The U.S. Government said no.", "Nobody in the U.K. listened."],
    ["On Jan. 5 the shop is shut.", "Come in Dec.", "I shall be there."],
    ["World War II.", "Tom saw it."],
    ["J. R. R. Tolkien and C. S. Lewis met.", "J.R.R. Tolkien left."],
    ["It was Plan B.", "Nobody liked it."],
    ["Acme Inc. of St. Louis was sold.", "She works for Bolt Ltd.", "He does not."],
    ["He bought apples, pears, etc. and went home.", "She bought pears, etc.", "Then she slept."],
    ["It cost $3.50 in 1999.", "Python 3.11 is out.", "I am 6.", "She is 7."],
    ["See https://example.com/a.b?c=d.e for more.", "Or write to a.b@example.co.uk today.", "Bye."],
    ['"Did you see?" he asked.', '"No!" she said.', "“I came.”", "“I left.”"],
    ["It is late (see p. 4).", "(I hope so.)", "[Laughs.]"],
    ["I thought... maybe you could help.", "I waited...", "Nobody came.", "What?!"],
    ["It goes on . . . and on.", "It ends."],
    ["1. Open the door.", "2. Close the door."],
    ["hello there.", "how are you?", "i am fine."],
    # Spanish
    ["El Tte. Ruiz y el Cte. Gil esperaban.", "Nadie vino."],
    ["El Sr. Pérez y la Sra. Gómez llegaron a las 5 p. m. del viernes.", "Se fueron."],
    ["Usa una unidad, p. ej. Metros.", "Funciona."],
    ["Vive en EE. UU. desde 1990.", "Nació en EE. UU.", "Le gusta."],
    ["D.ª María y D. José viven en el n.º 5, 2.º izq. de la Av. Libertad.", "Es caro."],
    ["Nació en el s. I a. C. en Roma.", "Murió en el año 44 a. C.", "Era joven."],
    ["¿Vienes?", "¡Sí!", "¿Cuándo?", "Mañana.", "¿¡Qué!?"],
    ["«¿Vienes?», preguntó.", "«Vete.»", "—¿Vienes? —preguntó Juan.", "—No —dijo ella."],
    ["Trabaja en Acme S. A. de Madrid.", "SS. MM. saludaron."],
    ["Le dije que no.", "5 minutos después se fue."],
    ["hola.", "¿qué tal?", "bien, gracias.", "nos vemos."],
    # Other languages
    ["А. С. Пушкин родился в Москве.", "Почему?"],
]


def count_words(texts):
    return [len(text.split()) for text in texts]


def count_characters(texts):
    return [len(text) for text in texts]


def sentences_of(text):
    return split_text(text, len(text) + 1, count_characters)


def test_text_is_cut_at_sentence_ends():
    text = "I came. “Did you see?” Yes! It cost 3.50 euros… Good."
    assert split_text(text, 8, count_words) == ["I came.", "“Did you see?”", "Yes!", "It cost 3.50 euros…", "Good."]


@pytest.mark.parametrize("sentences", HARD_SENTENCES, ids=lambda sentences: sentences[0])
def test_only_sentence_ends_are_cut_in_hard_cases(sentences):
    assert sentences_of(" ".join(sentences)) == sentences


def test_sentences_without_spaces_between_them_are_cut():
    sentences = ["我来了。", "他说：“走吧！”", "「本当？」", "はい。"]
    assert sentences_of("".join(sentences)) == sentences


@pytest.mark.slow
@pytest.mark.parametrize("repeated", ["a", "word ", ".", '"', ",", " ", ".)", "(.", "a. ", "A. ", ". (", "。（"])
def test_a_long_text_is_read_once_and_cut_without_loss(repeated):
    text = "Yes. " + repeated * (60_000 // len(repeated))  # in quadratic time, dots or commas would take minutes
    segments = split_text(text, 50_000, count_characters)
    assert re.sub(r"\s", "", "".join(segments)) == re.sub(r"\s", "", text)


def test_a_long_sentence_is_cut_at_clauses_that_are_joined_while_they_fit():
    text = "one two, three four; five six: seven, eight nine ten."
    assert split_text(text, 5, count_words) == ["one two, three four;", "five six: seven,", "eight nine ten."]


def test_a_long_clause_is_cut_at_spaces_and_a_long_word_anywhere():
    assert split_text("one two three four five", 3, count_words) == ["one two three", "four five"]
    assert split_text("ab " + "x" * 10, 4, count_characters) == ["ab", "xx", "xxx", "xx", "xxx"]


@given(ANY_TEXT, st.integers(1, 30))
def test_every_segment_fits_and_no_letter_is_lost(text, limit):
    segments = split_text(text, limit, count_characters)
    assert all(0 < len(segment) <= limit for segment in segments)
    assert "".join(re.sub(r"\s", "", segment) for segment in segments) == re.sub(r"\s", "", text)


@given(ANY_TEXT, st.integers(1, 30))
def test_the_segments_of_a_text_know_which_words_they_are_made_of(text, limit):
    text = " ".join(text.split())
    segments = split_text(text, limit, count_characters)
    rebuilt = [""] * len(text.split())
    for first, segment in zip(number_words(text, segments), segments, strict=True):
        for number, word in enumerate(segment.split(), start=first):
            rebuilt[number] += word
    assert rebuilt == text.split()


def test_segments_that_are_left_out_still_count_as_words():
    assert number_words("a. b! c.", ["a.", "c."]) == [0, 2]
    assert number_words("abcd ef gh", ["cd", "gh"]) == [0, 2]
    assert number_words("abcdef gh", ["ab", "ef", "gh"]) == [0, 0, 1]
