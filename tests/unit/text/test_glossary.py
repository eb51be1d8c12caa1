import pytest

from seq2seq.text.glossary import Glossary
from seq2seq.text.masks import Masked
from tests.refusing import refuses


def test_terms_are_found_as_whole_words_whatever_their_case():
    glossary = Glossary([("ball", "pelota"), ("Blue Ball", "esfera azul"), ("C++", "C más más")])
    assert glossary.translations("The BALL is a blue ball, not a football.") == ["pelota", "esfera azul"]
    assert glossary.translations("He writes c++ code with a ball.") == ["C más más", "pelota"]
    glossary = Glossary({"ice cream": "helado", "ñandú 2": "rhea 2", "कम": "less"})
    assert glossary.translations("Ice  cream, ICE\u00a0CREAM.") == ["helado", "helado"]
    assert glossary.translations("ice creams, nice cream, ice-cream, ñandú 22, कमी") == []
    assert glossary.translations("Ñandú 2: कम.") == ["rhea 2", "less"]
    glossary = Glossary({"cat": "gato", "black cat": "gato negro"})
    assert glossary.translations("The cat, the black cat.") == ["gato", "gato", "gato negro"]
    assert Glossary({"i": "y", "1": "x"}).mask(Masked("ı I⟨1⟩ 1", ("a",))) == Masked("ı ⟨2⟩⟨1⟩ ⟨3⟩", ("⟨1⟩", "y", "x"))


def test_a_term_within_a_word_is_not_found_but_one_beside_marks_is():
    glossary = Glossary([("cat", "minino")])
    for text in ("cats", "2cat", "cat_food", "ñcat", "Cat\u0327", "cat\u200dx"):
        assert glossary.translations(f"A {text} here, {text}.") == []
    for text in ("(Cat)", "cat's", "cat-like", "¿cat?", "«CAT»", "cats or a cat"):
        assert glossary.translations(text) == ["minino"]


@pytest.mark.parametrize("terms", [[("", "x")], [("a", " ")], {"\u200b": "x"}])
def test_a_blank_term_is_refused_in_python_too(terms):
    refuses(r"the glossary has the term .*: give \(term, translation\), both with words", Glossary, terms)
    refuses(r"the glossary has no terms: give \(term, translation\) pairs", Glossary, [])


def test_lines_are_read_without_comments():
    glossary = Glossary.parse(["# terms", "", "cat\tminino", "dog \t can"], "terms.tsv")
    assert glossary.translations("Cat, dog") == ["minino", "can"]


@pytest.mark.parametrize("line", ["cat", "cat\t"])
def test_a_line_that_is_no_term_is_named(line):
    refuses(r"terms.tsv:2: expected term, tab, translation, found", Glossary.parse, ["cat\tgato", line], "terms.tsv")
    refuses(r"terms.tsv has no terms", Glossary.parse, ["# nothing"], "terms.tsv")
