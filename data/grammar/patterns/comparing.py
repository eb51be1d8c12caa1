"""Patterns of comparison: bigger than, as tall as, the most famous in the city; and what is true of a whole kind."""

from dataclasses import replace

from grammar.agreement import IT, Tense, Text
from grammar.circumstances import BEING, often
from grammar.clauses import Clause
from grammar.draw import Draw
from grammar.lexicon import Adjective, Noun
from grammar.pair import Pair
from grammar.patterns.common import SER, describe, finish, fitting
from grammar.phrases import Phrase

IRREGULAR = {"good": "mejor", "bad": "peor"}
BEINGS = (
    "pet",
    "wild",
    "person",
    "profession",
)  # two of these are compared only within one word: this dog and that one
SIGHTS = "building street bridge river mountain park garden square museum"
PEOPLE = ("boy", "girl", "man", "woman", "student")
MANY_PEOPLE = "child student tourist farmer cook writer artist"


def comparable(draw: Draw) -> Adjective:
    """Choose an adjective that has a comparative."""
    return draw.pick([
        adjective for adjective in draw.lexicon.adjectives
        if adjective.be == "ser" and adjective.kind in ("", "before") and adjective.en not in ("round", "wide", "old")
    ])  # fmt: skip


def comparison(draw: Draw) -> Pair:
    """My car is bigger than your house. This horse is as fast as that one. The book is less famous than the poem."""
    adjective = comparable(draw)
    nouns = fitting(draw, adjective)
    noun = draw.pick(nouns)
    near = [other for other in nouns if other.kind == noun.kind and not other.is_kin]
    same = noun.kind in BEINGS or len(near) < 2 or draw.chance(0.3)
    if noun.is_kin:
        first, second, other = draw.phrase(noun, {"own": 1}), draw.name(), noun
        comparand = second.text
    elif same:
        first, other = draw.phrase(noun, {"this": 1}), noun
        that = ("ese", "esa", "esos", "esas")[first.who.described]
        comparand = Text("those" if first.who.plural else "that one", that)
    else:
        other = draw.pick([candidate for candidate in near if candidate is not noun])
        first = draw.phrase(noun, {"the": 2, "own": 1, "this": 1})
        comparand = draw.phrase(other, {"the": 2, "own": 1}).text
    degree = compare(draw, adjective, first)
    negative, contracted = draw.chance(0.12), draw.chance(0.7)
    clause = Clause(first, SER, draw.weighted(BEING), degree + comparand, negative=negative, contracted=contracted)
    return finish(draw, clause, (noun.en, adjective.en), (noun.en, adjective.en, other.en), question=0.1)


def compare(draw: Draw, adjective: Adjective, subject: Phrase) -> Text:
    """Say bigger than, as big as or less interesting than."""
    es = draw.lexicon.spanish.adjective(adjective.es, subject.who)
    english = draw.lexicon.english.comparative(adjective.en)
    kind = draw.weighted({"more": 5, "as": 2, "less": 1})
    if kind == "as":
        return Text(f"as {adjective.en} as", f"tan {es} como")
    if kind == "less" and english.startswith("more "):
        return Text(f"less {adjective.en} than", f"menos {es} que")
    if adjective.en in IRREGULAR:
        es = IRREGULAR[adjective.en]
        return Text(f"{english} than", f"{draw.lexicon.spanish.plural(es) if subject.who.plural else es} que")
    return Text(f"{english} than", f"más {es} que")


def superlative(draw: Draw) -> Pair:
    """Ana is the tallest girl in the city. This is the oldest bridge in the village."""
    sights = draw.find(SIGHTS)
    while True:
        adjective = comparable(draw)
        nouns = [noun for noun in fitting(draw, adjective) if noun.en in PEOPLE or noun in sights]
        if nouns and adjective.kind == "":
            break
    noun = draw.pick(nouns)
    who = noun.agreement(plural=False)
    where = draw.pick(
        (Text("in the city", "de la ciudad"), Text("in the village", "del pueblo"), Text("in the country", "del país"))
    )
    english = f"the {draw.lexicon.english.superlative(adjective.en)} {noun.en}"
    spanish = f"{'la' if who.gender == 'f' else 'el'} {noun.es} más {draw.lexicon.spanish.adjective(adjective.es, who)}"
    if noun.en in PEOPLE:
        subject = draw.name()
        while subject.who.gender != who.gender:
            subject = draw.name()
    else:
        subject = Phrase(Text("this", "esta" if who.gender == "f" else "este"), IT, "this")
    return finish(
        draw, Clause(subject, SER, Tense.PRESENT, Text(english, spanish) + where), (noun.en, adjective.en, where.en)
    )


def trait_of_all(draw: Draw) -> Pair:
    """Lions are strong. Are snakes dangerous?"""
    noun = draw.noun("animal fruit elephant lion vehicle")
    adjectives = [adjective for adjective in draw.lexicon.adjectives if noun in adjective.nouns and lasting(adjective)]
    if not adjectives:
        return trait_of_all(draw)
    adjective = draw.pick(adjectives)
    clause = replace(describe(draw, in_general(draw, noun), adjective), tense=Tense.PRESENT)
    return finish(draw, clause, (noun.en, adjective.en), question=0.2)


def lasting(adjective: Adjective) -> bool:
    """Tell whether an adjective can be true of a whole kind."""
    return (
        adjective.be == "ser"
        and adjective.kind == ""
        and adjective.en not in ("new", "old", "modern", "brave", "lazy", "big", "small")
    )


def habit_of_all(draw: Draw) -> Pair:
    """Cats drink milk. Students always read books."""
    verbs = draw.lexicon.verb_lists["habit"]
    verb, frame = draw.pick([(verb, frame) for verb, frame in draw.transitive if verb.en in verbs and not verb.mode])
    noun = draw.pick(draw.find(MANY_PEOPLE) if frame.people else frame.subjects)
    thing = draw.pick(frame.things)
    what = draw.nominals.build(thing, "bare", plural=not thing.mass)
    negative, contracted = frame.people and draw.chance(0.2), draw.chance(0.7)
    clause = Clause(in_general(draw, noun), verb, Tense.PRESENT, what.text, negative=negative, contracted=contracted)
    return finish(draw, often(draw, clause, 0.3), (noun.en, verb.en, thing.en))


def in_general(draw: Draw, noun: Noun) -> Phrase:
    """Speak of all of a kind: cats = los gatos."""
    bare = draw.nominals.build(noun, "bare", plural=True)
    return replace(bare, text=Text(bare.text.en, draw.nominals.build(noun, "the", plural=True).text.es))


PATTERNS = ((comparison, 4), (superlative, 2), (trait_of_all, 2), (habit_of_all, 3))
