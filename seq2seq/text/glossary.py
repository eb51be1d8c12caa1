"""Terms and their required translations."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import cast

from seq2seq.errors import UserError
from seq2seq.text.masks import Masked, symbol
from seq2seq.text.normalise import normalise


class Glossary:
    """Finds terms in texts: whole words only, regardless of case; of several terms at one position, the longest.

    A term of several words also begins and ends with whole words: "ice cream" is not found in "ice creams".
    """

    def __init__(self, terms: Iterable[tuple[str, str]] | Mapping[str, str]) -> None:
        """Store (term, translation) pairs; if a term is given twice, the last translation counts.

        Raises:
            UserError: there is no pair, or a string is blank.
        """
        pairs = cast(Mapping[str, str], terms).items() if isinstance(terms, Mapping) else terms
        normal = [(normalise(term), normalise(translation)) for term, translation in pairs]
        if not normal:
            raise UserError("the glossary has no terms: give (term, translation) pairs")
        for pair in normal:
            if not all(pair):
                raise UserError(f"the glossary has the term {pair!r:.60}: give (term, translation), both with words")
        self._translations = {term.casefold(): translation for term, translation in normal}
        longest_first = sorted(self._translations, key=len, reverse=True)
        self._pattern = re.compile(rf"(?<![\w⟨])(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")

    @classmethod
    def parse(cls, lines: Iterable[str], name: str) -> "Glossary":
        """Read lines "term<TAB>translation" of the file `name`; skip empty lines and lines that begin with #.

        Raises:
            UserError: a line does not have two columns with text, or there is no term.
        """
        terms: list[tuple[str, str]] = []
        for number, line in enumerate(lines, start=1):
            columns = [column.strip() for column in line.split("\t")]
            if not line.strip() or line.startswith("#"):
                continue
            if len(columns) != 2 or not all(columns):
                raise UserError(f"{name}:{number}: expected term, tab, translation, found {line[:60]!r}")
            terms.append((columns[0], columns[1]))
        if not terms:
            raise UserError(f"{name} has no terms: give lines of term, tab, translation")
        return cls(terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Glossary) and self._translations == other._translations

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def digest(self) -> str:
        """Hash of the terms and their translations."""
        terms = json.dumps(sorted(self._translations.items()))
        return hashlib.blake2b(terms.encode(), digest_size=8).hexdigest()

    def translations(self, text: str) -> list[str]:
        """Return the phrases that the translation must contain, one for each term; one in another counts there too."""
        folded = normalise(text).casefold()
        matches = (match for match in self._pattern.finditer(folded) if not any(map(_is_joined, _beside(match))))
        phrases = [self._translations[match.group()] for match in matches]
        return [inner for phrase in phrases for inner in dict.fromkeys(phrases) if f" {inner} " in f" {phrase} "]

    def mask(self, masked: Masked) -> Masked:
        """Return a text with symbols in place of its terms as well.

        Restoring puts the terms' translations in their places, and keeps the symbols that the text had.
        """
        strings = [symbol(number + 1) for number in range(len(masked.strings))]

        def number(match: re.Match[str]) -> str:
            translation = self._translations.get(match[0].casefold())
            if translation is None or any(map(_is_joined, _beside(match))):  # None: a Turkish i
                return match[0]
            strings.append(translation)
            return symbol(len(strings))

        text = re.sub(self._pattern.pattern, number, masked.text, flags=re.IGNORECASE)
        return replace(masked, text=text, strings=tuple(strings))


def _beside(match: re.Match[str]) -> str:
    """Return the characters before and after a match."""
    return match.string[max(match.start() - 1, 0) : match.start()] + match.string[match.end() : match.end() + 1]


def _is_joined(character: str) -> bool:
    r"""Return whether a character that `\w` lacks is part of a word: a vowel sign, a combining accent, or a joiner."""
    return unicodedata.category(character) in ("Mn", "Mc") or character in "\u200c\u200d"
