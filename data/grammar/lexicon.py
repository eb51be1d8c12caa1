"""What words there are and what is known of each; knows neither their file (reading.py) nor sentences."""

from dataclasses import dataclass, field

from grammar.agreement import Agreement, Text
from grammar.english import English
from grammar.spanish import Spanish

KIN = ("relative", "parent", "spouse")
PEOPLE = ("person", "infant", "profession", *KIN)


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun; `feminine` is its Spanish form for a woman where English has one word for both (la maestra)."""

    en: str
    es: str
    gender: str
    kind: str
    feminine: str = ""
    mass: bool = False
    paired: bool = False
    ownable: bool = True

    @property
    def is_person(self) -> bool:
        """Whether Spanish puts a before it when it is an object."""
        return self.kind in PEOPLE

    @property
    def is_kin(self) -> bool:
        """Whether it is somebody's: a sister, a boss."""
        return self.kind in KIN

    def agreement(self, *, plural: bool) -> Agreement:
        """Agree with it, or with several."""
        return Agreement(3, plural, self.gender)


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective, the Spanish verb for to be that it takes, and the nouns that it makes sense with."""

    en: str
    es: str
    be: str
    nouns: frozenset[Noun]
    kind: str = ""  # color, mood (of people and pets) or before (stands before its noun)
    beside_noun: bool = True


@dataclass(frozen=True, eq=False)
class Frame:
    """Who can do something, to what (nothing: intransitive)."""

    subjects: tuple[Noun, ...]
    objects: tuple[Noun, ...] = ()

    @property
    def people(self) -> bool:
        """Whether pronouns and names can do it too."""
        return any(noun.kind == "relative" for noun in self.subjects)

    @property
    def things(self) -> tuple[Noun, ...]:
        """The objects that are no people."""
        return tuple(noun for noun in self.objects if not noun.is_person)


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb and its frames.

    Attributes:
        en: English base form, perhaps with a particle.
        es: Spanish infinitive; one in -se is reflexive.
        frames: who does it to what.
        mode: which tenses make sense: state, done, plain or any (see lexicon.yaml).
        determiners: those that its objects take, where not the usual ones.
        bare: whether it also takes apples and some apples.
        simple: whether Spanish says the simple tense for the English progressive.
    """

    en: str
    es: str
    frames: tuple[Frame, ...] = ()
    mode: str = ""
    determiners: tuple[str, ...] = ()
    bare: bool = False
    simple: bool = False


@dataclass(frozen=True, eq=False)
class Activity:
    """A fixed phrase: do {own} homework = hacer los deberes."""

    verb: Verb
    rest: Text

    @property
    def reflexive(self) -> bool:
        """Whether Spanish says it with a reflexive pronoun."""
        return self.verb.es.endswith("se")


@dataclass(frozen=True, eq=False)
class Giving:
    """Something done to somebody, and the things that can change hands."""

    verb: Verb
    things: tuple[Noun, ...]


@dataclass(frozen=True)
class Reason:
    """What one does, or does not do, because of states like hungry."""

    verb: str
    states: tuple[str, ...]
    negative: bool


@dataclass(frozen=True)
class Lexicon:
    """All words, and the two languages' inflection."""

    english: English
    spanish: Spanish
    nouns: dict[str, Noun]
    classes: dict[str, tuple[Noun, ...]]
    names: tuple[tuple[str, Agreement], ...]
    adjectives: tuple[Adjective, ...] = ()
    verbs: tuple[Verb, ...] = ()
    activities: tuple[Activity, ...] = ()
    pastimes: tuple[Activity, ...] = ()
    giving: tuple[Giving, ...] = ()
    texts: dict[str, tuple[Text, ...]] = field(default_factory=dict)
    times: dict[str, tuple[Text, ...]] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    follow_ups: dict[str, frozenset[str]] = field(default_factory=dict)  # adjective (or color) -> verbs for such things
    lists: dict[str, frozenset[str]] = field(default_factory=dict)  # name -> nouns
    once_a_day: tuple[str, ...] = ()
    liked: dict[str, str] = field(default_factory=dict)
    drawbacks: frozenset[str] = frozenset()  # adjectives that speak against a thing
    where: dict[str, str] = field(default_factory=dict)  # verb -> places
    haunts: dict[str, str] = field(default_factory=dict)  # sort of being or thing -> places
    anchors: dict[str, dict[str, str]] = field(default_factory=dict)  # sort -> relation -> nouns
    crowds: tuple[tuple[str, str], ...] = ()  # nouns and the places that have many of them
    verb_lists: dict[str, frozenset[str]] = field(default_factory=dict)

    def find(self, spec: str) -> tuple[Noun, ...]:
        """List the nouns that groups, classes or single nouns (living_room) stand for, each once."""
        found: dict[str, Noun] = {}
        for word in spec.split():
            for noun in self.classes[word] if word in self.classes else (self.nouns[word.replace("_", " ")],):
                found[noun.en] = noun
        return tuple(found.values())

    def adjective(self, en: str) -> Adjective:
        """Find an adjective by its English."""
        return next(adjective for adjective in self.adjectives if adjective.en == en)

    def written(self, noun: Noun, *, plural: bool) -> Text:
        """Write a noun in both languages."""
        if not plural:
            return Text(noun.en, noun.es)
        return Text(self.english.plural(noun.en), self.spanish.plural(noun.es))
