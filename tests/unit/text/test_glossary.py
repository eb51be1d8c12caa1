import pytest

from seq2seq.errors import UserError
from seq2seq.text.glossary import Glossary


def test_terms_are_found_as_whole_words_whatever_their_case():
    glossary = Glossary([("ball", "pelota"), ("Blue Ball", "esfera azul"), ("C++", "C más más")])
    assert glossary.translations("The BALL is a blue ball, not a football.") == ["pelota", "esfera azul"]
    assert glossary.translations("He writes c++ code with a ball.") == ["C más más", "pelota"]
    assert glossary.translations("ballroom footballs") == []


def test_lines_are_read_without_comments():
    glossary = Glossary.parse(["# terms", "", "cat\tminino", "dog \t can"], "terms.tsv")
    assert glossary.translations("Cat, dog") == ["minino", "can"]


@pytest.mark.parametrize("line", ["cat", "cat\t", "\tgato", "a\tb\tc"])
def test_a_line_that_is_no_term_is_named(line):
    with pytest.raises(UserError, match=r"terms.tsv:2: expected term, tab, translation, found"):
        Glossary.parse(["cat\tgato", line], "terms.tsv")


def test_an_empty_glossary_is_refused():
    with pytest.raises(UserError, match=r"terms.tsv has no terms"):
        Glossary.parse(["# nothing"], "terms.tsv")
