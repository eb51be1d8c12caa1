"""Terms and the translations they must have; knows texts only."""

import re
from collections.abc import Iterable

from seq2seq.errors import UserError
from seq2seq.text.normalise import normalise


class Glossary:
    """Finds a glossary's terms in texts, whole words only, the longest where several begin; case does not matter."""

    def __init__(self, terms: Iterable[tuple[str, str]]) -> None:
        """Take (term, translation) pairs; of a term given twice the last counts."""
        self._translations = {normalise(term).casefold(): normalise(translation) for term, translation in terms}
        longest_first = sorted(self._translations, key=len, reverse=True)
        self._pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")

    @classmethod
    def parse(cls, lines: Iterable[str], name: str) -> "Glossary":
        """Read lines "term<TAB>translation"; empty ones and those that begin with # are left out.

        Raises:
            UserError: a line has not two filled columns, or there is none; name is what messages call the file.
        """
        terms = []
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

    def translations(self, text: str) -> list[str]:
        """The phrases that the text's translation must contain, in the order of the terms, each once."""
        found = self._pattern.findall(normalise(text).casefold())
        return list(dict.fromkeys(self._translations[term] for term in found))
