"""Random choices that make sense: words, and phrases built from them. When and where is chosen in circumstances.py."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from grammar.clauses import Clauses
from grammar.lexicon import Adjective, Frame, Lexicon, Noun, Verb
from grammar.phrases import HE, PRONOUNS, SHE, YOU, I, Nominals, Phrase, name, possessive

T = TypeVar("T")

# Weights of determiners; own = my, your, his …; of = somebody's.
SUBJECT = {"the": 14, "own": 4, "this": 2, "that": 1, "a": 1, "of": 1}
DESCRIBED = {"the": 12, "own": 4, "this": 2, "that": 2, "of": 2}
OBJECT = {"the": 7, "a": 7, "own": 5, "this": 2, "that": 1, "number": 2, "of": 1}
BARE = {"bare": 4, "some": 2, "many": 1, "all": 1}
PERSONAL = {"the": 5, "this": 1, "that": 1, "own": 5, "of": 1}
LOOKS = ("big", "small", "old", "new", "pretty")
COUNTED = ("number", "some", "many", "bare", "all")


class Draw:
    """Chooses words and builds phrases from them, the rarer of two at random so that all words get their turn."""

    def __init__(self, lexicon: Lexicon, seed: int) -> None:
        self.lexicon, self.rng = lexicon, random.Random(seed)
        self.nominals, self.clauses = Nominals(lexicon), Clauses(lexicon)
        self.used: Counter[Any] = Counter()
        self.found: dict[str, tuple[Noun, ...]] = {}
        every = [(verb, frame) for verb in lexicon.verbs for frame in verb.frames]
        self.transitive = [(verb, frame) for verb, frame in every if frame.objects]
        self.intransitive = [(verb, frame) for verb, frame in every if not frame.objects]

    def listed(self, name: str) -> list[tuple[Verb, Frame]]:
        """List the verbs, with frames for people and objects, that are in one of the lexicon's lists of verbs."""
        verbs = self.lexicon.verb_lists[name]
        return [(verb, frame) for verb, frame in self.transitive if verb.en in verbs and frame.people]

    def chance(self, probability: float) -> bool:
        """Decide with this probability."""
        return self.rng.random() < probability

    def pick(self, items: Sequence[T]) -> T:
        """Choose an item: of two drawn at random, the one used less so far."""
        first, second = (items[self.rng.randrange(len(items))] for _ in range(2))
        item = second if self.used[second] < self.used[first] else first
        self.used[item] += 1
        return item

    def weighted(self, weights: Mapping[T, int]) -> T:
        """Choose a key in proportion to its weight."""
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def find(self, spec: str) -> tuple[Noun, ...]:
        """List the nouns of these groups, classes and words."""
        if spec not in self.found:
            self.found[spec] = self.lexicon.find(spec)
        return self.found[spec]

    def noun(self, spec: str) -> Noun:
        """Choose a noun of these groups, classes and words."""
        return self.pick(self.find(spec))

    def name(self) -> Phrase:
        """Choose somebody's name."""
        return name(*self.pick(self.lexicon.names))

    def pronoun(self) -> Phrase:
        """Choose a subject pronoun."""
        return self.pick(PRONOUNS)

    def owner(self, noun: Noun) -> Phrase:
        """Choose whose something is: Ana's, my sister's, the teacher's; but nobody's sister's sister."""
        if self.chance(0.4):
            return self.name()
        if self.chance(0.6) and not noun.is_kin:
            return self.nominals.build(self.noun("relative parent"), possessive(self.pronoun()))
        return self.nominals.build(self.noun("boy girl man woman child king queen profession"))

    def person(self, *, pronouns: float = 0.4, names: float = 0.25) -> Phrase:
        """Choose somebody; `pronouns` and `names` are probabilities, else a noun is chosen."""
        return self.somebody(self.find("human"), pronouns=pronouns, names=names, determiners=DESCRIBED)

    def somebody(
        self,
        nouns: Sequence[Noun],
        *,
        pronouns: float = 0.45,
        names: float = 0.2,
        determiners: Mapping[str, int] = SUBJECT,
    ) -> Phrase:
        """Choose a subject among these nouns, pronouns and names."""
        luck = self.rng.random()
        if luck < pronouns:
            return self.pronoun()
        if luck < pronouns + names:
            return self.name()
        return self.described(self.pick(nouns), determiners, 0.12)

    def actor(self, frame: Frame) -> Phrase:
        """Choose a subject for a verb."""
        if frame.people:
            return self.somebody(frame.subjects)
        return self.described(self.pick(frame.subjects), SUBJECT, 0.5)

    def described(self, noun: Noun, determiners: Mapping[str, int], probability: float) -> Phrase:
        """Build a phrase that has, with this probability, an adjective."""
        return self.phrase(noun, determiners, adjectives=self.beside(noun, probability))

    def phrase(
        self,
        noun: Noun,
        determiners: Mapping[str, int],
        *,
        adjectives: Sequence[Adjective] = (),
        own: Phrase | None = None,
        loyalty: float = 0.8,
    ) -> Phrase:
        """Build a phrase around a noun with one of the determiners that suit it.

        Args:
            noun: the noun.
            determiners: their weights.
            adjectives: those of which one stands beside the noun; none if empty.
            own: whose it is, with the probability `loyalty`, if it is somebody's; mostly the subject of the sentence.
            loyalty: else it is anybody's.
        """
        allowed = {key: weight for key, weight in determiners.items() if suits(noun, key)}
        determiner = self.weighted(allowed or {"the": 1})
        adjective = self.pick(adjectives) if adjectives else None
        if determiner == "number":
            return self.nominals.counted(noun, self.pick(self.lexicon.texts["numbers"][:7]), adjective)
        if determiner == "of":
            many = self.many(noun, 0.2)
            return self.nominals.build(noun, "the", plural=many, adjective=adjective, owner=self.owner(noun))
        if determiner == "own":
            whose = self.spouse_owner(noun, own) or (own if own and self.chance(loyalty) else self.pronoun())
            return self.nominals.build(noun, possessive(whose), plural=self.many(noun, 0.2), adjective=adjective)
        plural = determiner != "a" and (self.many(noun, 0.25) or (determiner in COUNTED and not noun.mass))
        return self.nominals.build(noun, determiner, plural=plural, adjective=adjective)

    def spouse_owner(self, noun: Noun, own: Phrase | None) -> Phrase | None:
        """Choose whose wife or husband it is: `own`'s if that can be."""
        if noun.kind != "spouse":
            return None
        if own and can_marry(own, noun):
            return own
        return self.pick((I, YOU, SHE if noun.gender == "m" else HE))

    def many(self, noun: Noun, probability: float) -> bool:
        """Decide whether to speak of several."""
        return noun.paired or (not noun.mass and noun.kind not in ("parent", "spouse") and self.chance(probability))

    def beside(self, noun: Noun, probability: float, verb: str = "") -> list[Adjective]:
        """List the adjectives that may stand beside a noun, with this probability.

        An object has only adjectives that go with what is done to it: one reads a good book and washes a dirty cup.
        """
        if noun.is_kin or not self.chance(probability):
            return []
        fitting = [
            adjective
            for adjective in self.lexicon.adjectives
            if noun in adjective.nouns and adjective.beside_noun and adjective.kind != "mood"
        ]
        return [adjective for adjective in fitting if not verb or self.goes_with(adjective, verb)]

    def looks(self, noun: Noun, probability: float) -> list[Adjective]:
        """List, with this probability, adjectives of looks: mostly colors, else big, new and the like."""
        fitting = self.beside(noun, probability)
        colors = [adjective for adjective in fitting if adjective.kind == "color"]
        return colors if colors and self.chance(0.7) else [adjective for adjective in fitting if adjective.en in LOOKS]

    def goes_with(self, adjective: Adjective, verb: str) -> bool:
        """Tell whether one does this with things that are so."""
        key = "color" if adjective.kind == "color" else adjective.en
        return verb in self.lexicon.follow_ups.get(key, ())

    def thing(self, verb: Verb, nouns: Sequence[Noun], subject: Phrase, *, negative: bool = False) -> Phrase:
        """Choose the object of a verb; some and all are not used under negation, where English would say any."""
        noun = self.pick(nouns)
        loyal = verb.en in self.lexicon.verb_lists["loyal"]
        if loyal and noun.kind == "spouse" and not can_marry(subject, noun):
            return self.thing(verb, nouns, subject, negative=negative)
        if noun.kind == "relative" and verb.en == "have":
            return self.family(noun)
        determiners = dict.fromkeys(verb.determiners, 1) or OBJECT | (BARE if verb.bare else {})
        if noun.is_person:
            determiners = {"own": 1} if loyal and noun.is_kin else PERSONAL
        if negative:
            determiners = {key: weight for key, weight in determiners.items() if key not in ("some", "all", "many")}
        adjectives = self.beside(noun, 0.4, verb.en) if subject.is_person else ()
        return self.phrase(noun, determiners, adjectives=adjectives, own=subject, loyalty=1.0 if loyal else 0.8)

    def family(self, noun: Noun) -> Phrase:
        """Say a sister, two sisters: what one has."""
        if self.chance(0.4):
            return self.nominals.build(noun, "a")
        return self.nominals.counted(noun, self.pick(self.lexicon.texts["numbers"][:6]))


def can_marry(person: Phrase, spouse: Noun) -> bool:
    """Tell whether the corpus speaks of this person's husband or wife."""
    return not person.who.plural and (person.who.person != 3 or person.who.gender != spouse.gender)


def suits(noun: Noun, determiner: str) -> bool:
    """Tell whether a determiner can stand before a noun: no a rice, no two pants, no my lion, no the sister."""
    if determiner in ("own", "of"):
        return noun.ownable and (determiner == "own" or noun.kind != "spouse")
    if noun.is_kin:
        return False
    if noun.mass:
        return determiner not in ("a", "number", "some", "many", "all")
    return not (noun.paired and determiner in ("a", "number"))
