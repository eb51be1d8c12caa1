"""What subject and verb share: person, number, gender and tense; knows no words of either language."""

from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True)
class Agreement:
    """Who does it: person 1 to 3, number, and the gender of adjectives that describe them ("m" or "f")."""

    person: int
    plural: bool = False
    gender: str = "m"

    @property
    def form(self) -> int:
        """Index of the Spanish verb form: yo, tú, él, nosotros, ellos (English you is always tú)."""
        return {1: 3, 2: 1, 3: 4}[self.person] if self.plural else self.person - 1

    @property
    def described(self) -> int:
        """Index of a Spanish adjective's or article's form: rojo, roja, rojos, rojas."""
        return 2 * self.plural + (self.gender == "f")


IT = Agreement(3)
THEM = Agreement(3, plural=True)
YOU = Agreement(2)


class Tense(Enum):
    """Tenses, and verbs that take another verb, by their English; english.py and conjugation.py render them."""

    PRESENT = auto()  # eats
    PAST = auto()  # ate: comió
    BACKGROUND = auto()  # was, had, knew: era, tenía, conocía
    USED_TO = auto()
    FUTURE = auto()  # will eat
    PROGRESSIVE = auto()  # is eating
    WAS_DOING = auto()  # was eating
    PERFECT = auto()  # has eaten
    GOING_TO = auto()
    CAN = auto()
    MUST = auto()
    SHOULD = auto()
    WOULD = auto()
    HAVE_TO = auto()
    WANT_TO = auto()


@dataclass(frozen=True)
class Text:
    """The same thing said in both languages."""

    en: str = ""
    es: str = ""

    def __add__(self, other: "Text") -> "Text":
        """Say one after the other, in both languages."""
        return Text(join(self.en, other.en), join(self.es, other.es))


def join(*parts: str) -> str:
    """Set words in a row with single spaces, leaving out what is empty."""
    return " ".join(part for part in parts if part)
