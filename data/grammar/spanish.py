"""Spanish nouns, adjectives and articles; verbs are in conjugation.py. Knows no English."""

import re
from collections.abc import Mapping, Sequence

from grammar.agreement import Agreement
from grammar.conjugation import Conjugation

ACCENTS = str.maketrans("áéíóú", "aeiou")
SHORTENED = {"bueno": "buen", "malo": "mal"}  # before a masculine singular noun


class Spanish(Conjugation):
    """Word forms of Spanish."""

    def __init__(
        self, verbs: Mapping[str, Mapping[str, str]], plurals: Mapping[str, str], stressed_a: Sequence[str]
    ) -> None:
        super().__init__(verbs)
        self.plurals, self.stressed_a = plurals, stressed_a

    def plural(self, word: str) -> str:
        """Say gatos, flores, lápices, camiones, paraguas."""
        if word in self.plurals:
            return self.plurals[word]
        if re.search(r"[aeiouáéó]$", word):
            return word + "s"
        if word.endswith("z"):
            return word[:-1] + "ces"
        if re.search(r"[aeiou].*[aeiou]s$", word):  # lunes, paraguas; but gris, which is stressed, gives grises
            return word
        return re.sub(r"[áéíóú](?=[ns]$)", lambda vowel: vowel[0].translate(ACCENTS), word) + "es"

    def adjective(self, word: str, who: Agreement) -> str:
        """Make an adjective agree: rojo, roja, rojos, rojas; azul, azules; trabajadora."""
        if who.gender == "f":
            word = re.sub(r"o$", "a", word)
            word = word + "a" if word.endswith("dor") else word
        return self.plural(word) if who.plural else word

    def before_noun(self, word: str, who: Agreement) -> str:
        """Make an adjective agree that stands before its noun: buen, buena, buenos, buenas."""
        if who.gender == "m" and not who.plural:
            return SHORTENED.get(word, word)
        return self.adjective(word, who)

    def determine(self, forms: Sequence[str], who: Agreement, following: str) -> str:
        """Choose among four forms (m, f, m plural, f plural); el agua, un águila but la otra águila."""
        word = forms[who.described]
        if following.split()[0] in self.stressed_a and word in ("la", "una"):
            return {"la": "el", "una": "un"}[word]
        return word

    def number(self, numeral: str, who: Agreement) -> str:
        """Make a numeral agree: veintiuna casas, doscientas casas."""
        if who.gender == "f":
            return re.sub(r"cientos$", "cientas", re.sub(r"ún$|\bun$", "una", numeral))
        return numeral


def contract(text: str) -> str:
    """Say al and del; él, the pronoun, is left alone."""
    return re.sub(r"\b([Dd])e el\b", r"\1el", re.sub(r"\b([Aa]) el\b", r"\1l", text))
