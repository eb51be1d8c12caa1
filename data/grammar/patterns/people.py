"""Patterns in which Spanish uses unstressed pronouns: seeing somebody, giving, gustar, doler."""

from dataclasses import replace

from grammar.agreement import IT, Agreement, Tense, Text
from grammar.circumstances import often, tense, when
from grammar.clauses import NOTHING, Clause
from grammar.draw import Draw
from grammar.lexicon import Noun, Verb
from grammar.pair import Pair
from grammar.patterns.common import finish
from grammar.phrases import PRONOUNS, Phrase, dative, possessive

LIKE, LOVE, HURT = Verb("like", "gustar"), Verb("love", "encantar"), Verb("hurt", "doler")
PAIRS = ("eye", "foot", "leg", "arm", "tooth", "knee", "hand", "finger")
RECEIVERS = "boy girl child man woman profession relative parent"


def others(subject: Phrase) -> list[Phrase]:
    """List the pronouns that can be somebody else: not I see me, not we see me."""
    first_or_second = [pronoun for pronoun in PRONOUNS if pronoun.who.person != subject.who.person]
    third = [pronoun for pronoun in PRONOUNS if pronoun.who.person == 3 and pronoun.word != subject.word]
    return first_or_second if subject.who.person != 3 else [*first_or_second, *third]


def pronoun_object(draw: Draw) -> Pair:
    """I see her. She can't help us. They were looking for him."""
    verb = draw.pick([verb for verb in draw.lexicon.verbs if verb.en in draw.lexicon.verb_lists["whom"]])
    subject = draw.somebody(verb.frames[0].subjects, pronouns=0.55, names=0.2)
    whom = draw.pick(others(subject))
    chosen = tense(draw, verb, subject)
    moment = NOTHING if verb.mode == "state" else when(draw, chosen, 0.3, verb.en)
    after, negative, contracted = Text(whom.object_en) + moment, draw.chance(0.2), draw.chance(0.7)
    clause = Clause(subject, verb, chosen, after, clitic=whom.clitic, negative=negative, contracted=contracted)
    clause = clause if moment.en or verb.mode else often(draw, clause, 0.15)
    return finish(draw, clause, (subject.word, verb.en, whom.word), question=0.15)


def giving(draw: Draw) -> Pair:
    """He gives me the book. I will show the photo to my sister. Ana told us a story."""
    act, subject = draw.pick(draw.lexicon.giving), draw.person(pronouns=0.5, names=0.25)
    noun = draw.pick(act.things)
    determiners = {"the": 5, "a": 4, "own": 3, "this": 1}
    thing = draw.phrase(noun, determiners, adjectives=draw.looks(noun, 0.5), own=subject)
    chosen, negative, contracted = tense(draw, act.verb, subject), draw.chance(0.12), draw.chance(0.7)
    moment = when(draw, chosen, 0.2)
    if draw.chance(0.5):
        whom = draw.pick(others(subject))
        after = Text(whom.object_en) + thing.text + moment
    else:
        whom = draw.phrase(draw.noun(RECEIVERS), {"the": 3, "own": 2}, own=subject)
        after = thing.text + Text(f"to {whom.text.en}", f"a {whom.text.es}") + moment
    clause = Clause(subject, act.verb, chosen, after, clitic=dative(whom), negative=negative, contracted=contracted)
    return finish(draw, clause, (subject.word, act.verb.en, thing.word), phrases=(thing, whom))


def experiencer(phrase: Phrase) -> str:
    """Say a la niña, a Ana, a él; me, te, nos and les speak for themselves."""
    if phrase.is_pronoun:
        return f"a {phrase.stressed}" if phrase.word in ("he", "she") else ""
    return f"a {phrase.text.es}"


def felt(
    draw: Draw, verb: Verb, subject: Phrase, chosen: Tense, after: Text, agrees: Agreement, *, negative: bool = False
) -> Clause:
    """Make a clause whose English subject is the Spanish indirect object: me gustan los gatos."""
    return Clause(
        subject,
        verb,
        chosen,
        after,
        negative=negative,
        clitic=dative(subject),
        contracted=draw.chance(0.7),
        agrees=agrees,
        subject_es=experiencer(subject),
    )


def liking(draw: Draw) -> Pair:
    """I like the soup. They don't like cats. Ana loves this song."""
    subject = draw.person(pronouns=0.6, names=0.2)
    chosen = draw.weighted({Tense.PRESENT: 8, Tense.PAST: 1})
    if chosen is Tense.PRESENT and draw.chance(0.5):
        noun = draw.noun(draw.lexicon.liked["general"])
        thing = draw.nominals.build(noun, "bare", plural=not noun.mass)
        es = draw.nominals.build(noun, "the", plural=not noun.mass).text.es
        thing = replace(thing, text=Text(thing.text.en, es))
    else:
        noun = draw.noun(draw.lexicon.liked["particular"])
        looks, own = draw.looks(noun, 0.5), draw.pick(PRONOUNS)
        thing = draw.phrase(noun, {"the": 5, "own": 3, "this": 3, "that": 1, "of": 1}, adjectives=looks, own=own)
    loves = chosen is Tense.PRESENT and draw.chance(0.2)
    negative = not loves and draw.chance(0.2)
    clause = felt(draw, LOVE if loves else LIKE, subject, chosen, thing.text, thing.who, negative=negative)
    return finish(draw, clause, (subject.word, "like", noun.en), question=0.2, phrases=(thing,))


def liking_to_do(draw: Draw) -> Pair:
    """Ana likes to swim. Do you like to play soccer?"""
    subject = draw.person(pronouns=0.6, names=0.2)
    action = draw.pick(draw.lexicon.pastimes)
    after = Text(f"to {action.verb.en}", action.verb.es) + action.rest
    chosen = Tense.WOULD if draw.chance(0.3) else Tense.PRESENT
    clause = felt(draw, LIKE, subject, chosen, after, IT, negative=draw.chance(0.2))
    return finish(draw, clause, (subject.word, "like", after.en), question=0.2)


def hurting(draw: Draw) -> Pair:
    """My head hurts. Ana's feet don't hurt."""
    noun = draw.pick([noun for noun in draw.find("body") if noun.en in draw.lexicon.lists["hurting"]])
    subject = draw.person(pronouns=0.6, names=0.4)
    several = noun.en in PAIRS and (draw.chance(0.6) or subject.who.plural)
    part = body_part(draw, noun, subject, several)
    es = draw.nominals.build(noun, "the", plural=several).text.es
    when_es = draw.pick((NOTHING, Text("today", "hoy"), Text("now", "ahora"), Text("a lot", "mucho")))
    clause = felt(draw, HURT, subject, Tense.PRESENT, NOTHING, part.who, negative=draw.chance(0.12))
    after = Text("", es) + when_es if when_es.en != "a lot" else Text("a lot", f"mucho {es}")
    return finish(draw, replace(clause, subject=part, after=after), (subject.word, "hurt", noun.en), question=0.15)


def body_part(draw: Draw, noun: Noun, owner: Phrase, several: bool) -> Phrase:
    """Say my head, Ana's feet; Spanish says whose they are by a pronoun at the verb."""
    if owner.is_pronoun:
        whose = possessive(owner)[0]
        several = several or (owner.who.plural and noun.en in PAIRS)
    else:
        whose = f"{owner.text.en}'s"
    english = draw.lexicon.written(noun, plural=several).en
    return Phrase(Text(f"{whose} {english}"), Agreement(3, several, noun.gender), noun.en)


PATTERNS = ((pronoun_object, 7), (giving, 5), (liking, 7), (liking_to_do, 2), (hurting, 2))
