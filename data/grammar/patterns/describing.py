"""Patterns of ser, estar and tener: what people and things are like, what they are, how they feel."""

from dataclasses import replace

from grammar.agreement import THEM, Tense, Text
from grammar.circumstances import BEING
from grammar.clauses import Clause
from grammar.draw import DESCRIBED, Draw
from grammar.pair import Pair, asked
from grammar.patterns.common import SER, TENER, describe, finish, fitting
from grammar.phrases import Phrase

DEGREES = (Text("very", "muy"), Text("too", "demasiado"), Text("a little", "un poco"))
UNGRADED = ("ready", "alone", "asleep", "asleep", "hardworking")


def colored_thing(draw: Draw) -> Pair:
    """The ball is red. Is the ball red?"""
    adjective = draw.pick([adjective for adjective in draw.lexicon.adjectives if adjective.kind == "color"])
    noun = draw.pick(fitting(draw, adjective))
    subject = draw.phrase(noun, {"the": 1} if draw.chance(0.75) else DESCRIBED)
    return finish(draw, describe(draw, subject, adjective, negative=0.1), (noun.en, adjective.en))


def described_thing(draw: Draw) -> Pair:
    """The soup is cold. My sister isn't tall."""
    adjective = draw.pick([adjective for adjective in draw.lexicon.adjectives if adjective.kind != "color"])
    noun = draw.pick(fitting(draw, adjective))
    return finish(draw, describe(draw, draw.phrase(noun, DESCRIBED), adjective), (noun.en, adjective.en))


def described_person(draw: Draw) -> Pair:
    """I am tired. She was very happy."""
    brother = draw.lexicon.nouns["brother"]
    adjective = draw.pick([adjective for adjective in draw.lexicon.adjectives if brother in adjective.nouns])
    subject = draw.person(pronouns=0.75, names=0.25)
    clause = describe(draw, subject, adjective)
    if draw.chance(0.25) and adjective.en not in UNGRADED:
        degree = draw.pick(DEGREES if adjective.be == "estar" else DEGREES[:2])
        clause = replace(clause, after=degree + clause.after, negative=False)
    return finish(draw, clause, (subject.word, adjective.en), question=0.2)


def possession(draw: Draw) -> Pair:
    """This is my brother. Those are Ana's books. Whose car is this?"""
    noun = draw.noun("relative parent pet clothes accessory vehicle house stationery book phone guitar bedroom")
    thing = draw.phrase(noun, {"own": 3, "of": 2}, adjectives=draw.looks(noun, 0.2))
    en, es = (
        (("this", "these"), "este esta estos estas") if draw.chance(0.7) else (("that", "those"), "ese esa esos esas")
    )
    subject = Phrase(Text(en[thing.who.plural], es.split()[thing.who.described]), thing.who, "this")
    if draw.chance(0.15) and not noun.is_kin:
        bare = draw.lexicon.written(noun, plural=thing.who.plural)
        be = Text("are", "son") if thing.who.plural else Text("is", "es")
        whose = Text(f"whose {bare.en} {be.en} {subject.text.en}", f"de quién {be.es} {subject.text.es} {bare.es}")
        return asked(whose, (en[0], "whose", noun.en))
    return finish(draw, Clause(subject, SER, Tense.PRESENT, thing.text), (en[0], *thing.text.en.split()[:-1], noun.en))


def profession(draw: Draw) -> Pair:
    """She is a teacher. My brother is a good doctor. We are students."""
    noun = draw.noun("profession student")
    kin = draw.chance(0.4)
    subject = (
        draw.phrase(draw.noun("relative parent spouse"), DESCRIBED) if kin else draw.person(pronouns=0.6, names=0.4)
    )
    word = draw.pick(("good", "bad", "famous", "young", "hardworking"))
    adjective = draw.lexicon.adjective(word) if draw.chance(0.3) else None
    if adjective and adjective.kind != "before" and noun not in adjective.nouns:
        adjective = None
    what = draw.nominals.profession(noun, subject.who, adjective)
    negative, contracted = draw.chance(0.15), draw.chance(0.7)
    clause = Clause(subject, SER, draw.weighted(BEING), what, negative=negative, contracted=contracted)
    return finish(draw, clause, (subject.word, "be", noun.en), question=0.15)


def feeling(draw: Draw) -> Pair:
    """I am hungry. The boy is afraid of dogs. Are you in a hurry?"""
    subject = draw.person()
    what = draw.pick(draw.lexicon.texts["feelings"])
    word = what.en
    if word == "afraid" and draw.chance(0.6):
        beast = draw.noun("dog horse cow wild")
        feared = draw.nominals.build(beast, "the", plural=True).text.es
        what, word = (
            Text(f"afraid of {draw.lexicon.english.plural(beast.en)}", f"miedo a {feared}"),
            f"afraid {beast.en}",
        )
    elif word in ("hungry", "thirsty", "sleepy", "cold", "hot") and draw.chance(0.15):
        what = Text(f"very {word}", f"{'mucha' if word in ('hungry', 'thirsty') else 'mucho'} {what.es}")
    negative, contracted = draw.chance(0.12), draw.chance(0.7)
    clause = Clause(
        subject, TENER, draw.weighted(BEING), what, negative=negative, contracted=contracted, subject_last=True
    )
    return finish(draw, clause, (subject.word, "be", word), question=0.18)


def age(draw: Draw) -> Pair:
    """Ana is ten years old. How old is your sister?"""
    subject = draw.person(pronouns=0.4, names=0.35)
    if draw.chance(0.15):
        clause = Clause(subject, TENER, Tense.PRESENT)
        question = draw.clauses.question(clause, Text("how old", "cuántos años"))
        return asked(question, (subject.word, "how old"), phrases=(subject,))
    grown_up = subject.noun is not None and subject.noun in draw.find("man woman king queen profession parent spouse")
    number = draw.pick(draw.lexicon.texts["numbers"][12 if grown_up else 0 : 18])
    what = Text(f"{number.en} years old", f"{draw.lexicon.spanish.number(number.es, THEM)} años")
    clause = Clause(subject, TENER, Tense.PRESENT, what, contracted=draw.chance(0.7))
    return finish(draw, clause, (subject.word, "be", number.en), question=0.1)


PATTERNS = (
    (colored_thing, 16),
    (described_thing, 14),
    (described_person, 5),
    (possession, 3),
    (profession, 4),
    (feeling, 3),
    (age, 2),
)
