"""Noun phrases in both languages: determiner, noun, adjective, owner, and the pronouns."""

from dataclasses import dataclass, replace

from grammar.agreement import Agreement, Text, join
from grammar.lexicon import Adjective, Lexicon, Noun

Combination = tuple[str, ...]

# name -> English singular, English plural, Spanish m, f, m plural, f plural; "" = not used in that number
DETERMINERS: dict[str, tuple[str, str, tuple[str, str, str, str]]] = {
    "the": ("the", "the", ("el", "la", "los", "las")),
    "a": ("a", "", ("un", "una", "", "")),
    "this": ("this", "these", ("este", "esta", "estos", "estas")),
    "that": ("that", "those", ("ese", "esa", "esos", "esas")),
    "some": ("", "some", ("", "", "algunos", "algunas")),
    "many": ("", "many", ("", "", "muchos", "muchas")),
    "bare": ("", "", ("", "", "", "")),
    "all": ("", "all the", ("", "", "todos los", "todas las")),
}
# English; Spanish for one thing and for several
POSSESSIVES = {
    (1, False): ("my", ("mi", "mi", "mis", "mis")),
    (2, False): ("your", ("tu", "tu", "tus", "tus")),
    (3, False): ("", ("su", "su", "sus", "sus")),
    (1, True): ("our", ("nuestro", "nuestra", "nuestros", "nuestras")),
    (3, True): ("their", ("su", "su", "sus", "sus")),
}


@dataclass(frozen=True)
class Phrase:
    """Somebody or something, said in both languages.

    `text.es` is what a subject says: nothing for I, you, we and they, which Spanish leaves to its verb.
    """

    text: Text
    who: Agreement
    word: str  # stands for it in combinations: the English noun, name or pronoun
    noun: Noun | None = None
    object_en: str = ""  # him, for he
    clitic: str = ""  # lo
    stressed: str = ""  # a él
    combinations: frozenset[Combination] = frozenset()

    @property
    def is_pronoun(self) -> bool:
        """Whether it is I, you, he, she, we or they."""
        return bool(self.clitic)

    @property
    def is_person(self) -> bool:
        """Whether Spanish marks it as an object with a."""
        return self.noun is None or self.noun.is_person


def pronoun(en: str, es: str, who: Agreement, object_en: str, clitic: str, stressed: str) -> Phrase:
    """Make a pronoun."""
    return Phrase(Text(en, es), who, en, object_en=object_en, clitic=clitic, stressed=stressed)


I = pronoun("I", "", Agreement(1), "me", "me", "mí")  # noqa: E741 (it is the word itself)
YOU = pronoun("you", "", Agreement(2), "you", "te", "ti")
HE = pronoun("he", "él", Agreement(3), "him", "lo", "él")
SHE = pronoun("she", "ella", Agreement(3, gender="f"), "her", "la", "ella")
WE = pronoun("we", "", Agreement(1, plural=True), "us", "nos", "nosotros")
THEY = pronoun("they", "", Agreement(3, plural=True), "them", "los", "ellos")
PRONOUNS = (I, YOU, HE, SHE, WE, THEY)
DATIVES = {"lo": "le", "la": "le", "los": "les"}


def dative(phrase: Phrase) -> str:
    """Give the pronoun of the one who gets something: me, te, le, nos, les."""
    if phrase.is_pronoun:
        return DATIVES.get(phrase.clitic, phrase.clitic)
    return "les" if phrase.who.plural else "le"


def accusative(who: Agreement) -> str:
    """Give the pronoun for something spoken of before: lo, la, los, las."""
    return ("lo", "la", "los", "las")[who.described]


def name(word: str, who: Agreement) -> Phrase:
    """Make somebody's name, the same in both languages."""
    return Phrase(Text(word, word), who, word)


def possessive(owner: Phrase) -> tuple[str, str, tuple[str, str, str, str]]:
    """Make the determiner my, your, his … of a pronoun, name or noun."""
    en, forms = POSSESSIVES[owner.who.person, owner.who.plural and owner.who.person != 2]
    if owner.noun is not None and not owner.is_person and not owner.who.plural:
        en = "its"
    en = en or ("her" if owner.who.gender == "f" else "his")
    return en, en, forms


class Nominals:
    """Builds noun phrases."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon, self.english, self.spanish = lexicon, lexicon.english, lexicon.spanish

    def build(
        self,
        noun: Noun,
        determiner: str | tuple[str, str, tuple[str, str, str, str]] = "the",
        *,
        plural: bool = False,
        adjective: Adjective | None = None,
        owner: Phrase | None = None,
    ) -> Phrase:
        """Put a phrase together: the red house = la casa roja; Ana's house = la casa de Ana (with `owner`)."""
        plural = plural or noun.paired
        who = noun.agreement(plural=plural)
        en_one, en_many, forms = DETERMINERS[determiner] if isinstance(determiner, str) else determiner
        inside = self._inside(noun, plural, adjective)
        en_determiner = en_many if plural else en_one
        if en_determiner == "a":
            en_determiner = self.english.article(inside.en)
        if owner is not None:
            en_determiner = owner.text.en + ("'" if owner.who.plural and owner.text.en.endswith("s") else "'s")
        en = join(en_determiner, inside.en)
        es = join(self.spanish.determine(forms, who, inside.es), inside.es)
        if owner is not None:
            es = join(es, "de", owner.text.es)
        pairs = {(noun.en, adjective.en)} if adjective else set()
        return Phrase(Text(en, es), who, noun.en, noun, combinations=frozenset(pairs))

    def counted(self, noun: Noun, number: Text, adjective: Adjective | None = None) -> Phrase:
        """Say two cats, twenty-one houses = veintiuna casas."""
        who = noun.agreement(plural=True)
        phrase = self.build(noun, "bare", plural=True, adjective=adjective)
        counted = Text(number.en, self.spanish.number(number.es, who)) + phrase.text
        return replace(phrase, text=counted)

    def profession(self, noun: Noun, who: Agreement, adjective: Adjective | None = None) -> Text:
        """Say what somebody is: a teacher = maestra; a good teacher = una buena maestra."""
        female = noun.feminine and who.gender == "f"
        noun = replace(noun, es=noun.feminine, gender="f") if female else noun
        if adjective is None:
            bare = self.build(noun, "bare", plural=who.plural).text
            return bare if who.plural else Text(join(self.english.article(bare.en), bare.en), bare.es)
        return self.build(noun, "bare" if who.plural else "a", plural=who.plural, adjective=adjective).text

    def _inside(self, noun: Noun, plural: bool, adjective: Adjective | None) -> Text:
        """Write noun and adjective without a determiner."""
        bare, who = self.lexicon.written(noun, plural=plural), noun.agreement(plural=plural)
        if adjective is None:
            return bare
        if adjective.kind == "before":
            return Text(join(adjective.en, bare.en), join(self.spanish.before_noun(adjective.es, who), bare.es))
        return Text(join(adjective.en, bare.en), join(bare.es, self.spanish.adjective(adjective.es, who)))


def as_object(phrase: Phrase) -> Text:
    """Write it as the object of a verb, with the a that Spanish puts before people."""
    return Text(phrase.text.en, join("a", phrase.text.es)) if phrase.is_person else phrase.text
