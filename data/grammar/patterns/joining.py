"""Patterns of two clauses: because, but, that, who, and pronouns for what was named before."""

from dataclasses import replace

from grammar.agreement import Tense, Text
from grammar.circumstances import past_looks_present, past_of, place
from grammar.clauses import Clause
from grammar.draw import Draw
from grammar.lexicon import Adjective, Frame, Noun, Verb
from grammar.pair import Pair, asked, said
from grammar.patterns.common import ESTAR, SER, TENER, describe, finish, fitting
from grammar.phrases import Phrase, accusative

MISSED = ("find", "see", "need", "want")  # where is the book? I don't see it
FOLLOWING = {Tense.PAST: 5, Tense.FUTURE: 2, Tense.GOING_TO: 2, Tense.WANT_TO: 2, Tense.CAN: 1, Tense.HAVE_TO: 1}
RELATED = {Tense.PAST: 4, Tense.PROGRESSIVE: 3, Tense.GOING_TO: 1}
BELIEFS = (Verb("think", "creer"), Verb("say", "decir"), Verb("know", "saber"))


def accusative_clause(
    draw: Draw, subject: Phrase, verb: Verb, tense: Tense, thing: Phrase, *, negative: bool
) -> Clause:
    """Say that somebody does something to a thing named before: Ana bought it = Ana la compró."""
    it = Text("them" if thing.who.plural else "it")
    return Clause(
        subject, verb, tense, it, clitic=accusative(thing.who), negative=negative, contracted=draw.chance(0.8)
    )


def where_is_it(draw: Draw) -> Pair:
    """Where is the book? I don't see it. Where are my keys? I need them."""
    verb, frame = draw.pick([(verb, frame) for verb, frame in draw.transitive if verb.en in MISSED])
    noun = draw.noun("small_things accessory hat scarf cap glove shoe towel basket toy")
    thing = draw.phrase(noun, {"the": 4, "own": 2}, own=draw.pronoun())
    subject = draw.pronoun() if draw.chance(0.7) else draw.name()
    wanted = verb.en in ("need", "want")
    tense = Tense.PRESENT if verb.mode == "state" or verb.en == "see" else Tense.CAN
    assert frame.people
    clause = accusative_clause(draw, subject, verb, tense, thing, negative=not wanted)
    first = asked(draw.clauses.question(Clause(thing, ESTAR, Tense.PRESENT), Text("where", "dónde")))
    rest = said(draw.clauses.statement(clause), (subject.word, verb.en, noun.en), phrases=(thing,))
    return replace(rest, text=first.text + rest.text)


def follow_up(draw: Draw) -> Pair:
    """The shirt is expensive, but Ana bought it. The cup is dirty and he didn't wash it."""
    noun, adjective, verb = consequence(draw)
    thing = draw.phrase(noun, {"the": 4, "own": 1, "this": 1, "that": 1})
    subject = draw.person(pronouns=0.7, names=0.3)
    tense = Tense.PRESENT if verb.mode == "state" else draw.weighted(FOLLOWING)
    tense = past_of(verb) if tense is Tense.PAST else tense
    if tense is Tense.PAST and past_looks_present(draw, verb, subject):
        tense = Tense.WANT_TO
    negative = draw.chance(0.4)
    surprising = negative != (adjective.en in draw.lexicon.drawbacks)
    first = draw.clauses.statement(replace(describe(draw, thing, adjective, negative=0.0), tense=Tense.PRESENT))
    second = draw.clauses.statement(accusative_clause(draw, subject, verb, tense, thing, negative=negative))
    joint = Text(", but", ", pero") if surprising else Text(" and", " y")
    text = Text(f"{first.en}{joint.en} {second.en}", f"{first.es}{joint.es} {second.es}")
    return said(text, (noun.en, adjective.en), (subject.word, verb.en, noun.en), phrases=(thing,))


def consequence(draw: Draw) -> tuple[Noun, Adjective, Verb]:
    """Choose a thing, what it is like, and what one does with a thing that is so."""
    while True:
        adjective = draw.pick(draw.lexicon.adjectives)
        verbs = [
            (verb, frame) for verb, frame in draw.transitive if frame.people and draw.goes_with(adjective, verb.en)
        ]
        if not verbs:
            continue
        verb, frame = draw.pick(verbs)
        nouns = [noun for noun in frame.things if noun in adjective.nouns]
        if nouns:
            return draw.pick(nouns), adjective, verb


def because(draw: Draw) -> Pair:
    """The girl is crying because she is sad. We didn't work because we were sick."""
    reason = draw.pick(draw.lexicon.reasons)
    verb, frame = draw.pick(
        [(verb, frame) for verb, frame in draw.intransitive if verb.en == reason.verb] or drinking(draw)
    )
    subject = draw.somebody(frame.subjects)
    if subject.noun is not None and not subject.is_person:
        return because(draw)
    tense = draw.pick(
        (Tense.PAST, Tense.PROGRESSIVE) if not reason.negative else (Tense.PAST, Tense.PRESENT, Tense.CAN)
    )
    drinks = verb.en == "drink"
    after = Text("water", "agua") if drinks else Text()
    first = draw.clauses.statement(
        Clause(subject, verb, tense, after, negative=reason.negative, contracted=draw.chance(0.8))
    )
    state = draw.pick(reason.states)
    second = draw.clauses.statement(cause(draw, subject, state, past=tense is Tense.PAST))
    text = Text(f"{first.en} because {second.en}", f"{first.es} porque {second.es}")
    return said(text, (subject.word, verb.en, state), phrases=(subject,))


def drinking(draw: Draw) -> list[tuple[Verb, Frame]]:
    """List the verb drink, which needs an object, with its human frame."""
    return [(verb, frame) for verb, frame in draw.transitive if verb.en == "drink" and frame.people]


def cause(draw: Draw, subject: Phrase, state: str, *, past: bool) -> Clause:
    """Say what state somebody is in, whom Spanish need not name again: because she is tired = porque está cansada."""
    who = subject.who
    english = subject.text.en if subject.is_pronoun else "they" if who.plural else "she" if who.gender == "f" else "he"
    again = Phrase(Text(english), who, subject.word, clitic="lo")
    tense = Tense.BACKGROUND if past else Tense.PRESENT
    contracted = draw.chance(0.5)
    for feeling in draw.lexicon.texts["feelings"]:
        if feeling.en == state:
            return Clause(again, TENER, tense, feeling, contracted=contracted)
    adjective = draw.lexicon.adjective(state)
    return Clause(
        again, ESTAR, tense, Text(state, draw.lexicon.spanish.adjective(adjective.es, who)), contracted=contracted
    )


def opinion(draw: Draw) -> Pair:
    """I think that the soup is cold. Ana says the exam is easy."""
    subject = draw.person(pronouns=0.6, names=0.3)
    adjective = draw.pick(draw.lexicon.adjectives)
    noun = draw.pick(fitting(draw, adjective))
    thing = draw.phrase(noun, {"the": 5, "own": 2, "this": 2})
    inner = draw.clauses.statement(replace(describe(draw, thing, adjective), tense=Tense.PRESENT))
    verb = draw.pick(BELIEFS)
    after = Text("that" if draw.chance(0.7) else "") + Text(inner.en, f"que {inner.es}")
    clause = Clause(subject, verb, Tense.PRESENT, after)
    return finish(draw, clause, (noun.en, adjective.en), (subject.word, verb.en, noun.en), question=0.0)


def that_i_bought(draw: Draw) -> Pair:
    """The book that I bought is interesting. The house that they are painting is old."""
    noun, adjective, verb = consequence(draw)
    subject = draw.person(pronouns=0.7, names=0.3)
    tense = Tense.PRESENT if verb.mode == "state" else draw.weighted(RELATED)
    tense = past_of(verb) if tense is Tense.PAST else tense
    if tense is Tense.PAST and past_looks_present(draw, verb, subject):
        tense = Tense.PROGRESSIVE
    if verb.en in ("wash", "close", "repair", "open", "clean"):
        tense = Tense.GOING_TO
    thing = draw.phrase(noun, {"the": 1})
    inner = draw.clauses.statement(Clause(subject, verb, tense, contracted=draw.chance(0.5)))
    longer = replace(thing, text=Text(f"{thing.text.en} that {inner.en}", f"{thing.text.es} que {inner.es}"))
    clause = replace(describe(draw, longer, adjective), tense=Tense.PRESENT)
    return said(draw.clauses.statement(clause), (noun.en, adjective.en), (subject.word, verb.en, noun.en))


def who_is_eating(draw: Draw) -> Pair:
    """The boy who is eating in the kitchen is my cousin."""
    places = draw.lexicon.where
    verb = draw.pick([verb for verb, frame in draw.intransitive if frame.people and verb.en in places])
    kin = draw.phrase(draw.noun("relative"), {"own": 1})
    man = draw.noun("man boy" if kin.who.gender == "m" else "woman girl")
    person = draw.nominals.build(man, plural=kin.who.plural)
    where, anchor = place(draw, places[verb.en])
    who = Phrase(Text("who", "que"), person.who, "who")
    inner = draw.clauses.statement(Clause(who, verb, Tense.PROGRESSIVE, where))
    clause = Clause(replace(person, text=person.text + inner), SER, Tense.PRESENT, kin.text)
    return said(draw.clauses.statement(clause), (man.en, verb.en, anchor), (man.en, "be", kin.word))


PATTERNS = ((where_is_it, 3), (follow_up, 5), (because, 3), (opinion, 4), (that_i_bought, 3), (who_is_eating, 2))
