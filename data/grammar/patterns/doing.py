"""Patterns of doing: who does what, where and when; daily life, going and putting."""

from dataclasses import replace

from grammar.agreement import Tense, Text, join
from grammar.circumstances import hour, often, place, tense, weekday, when
from grammar.clauses import NOTHING, Clause
from grammar.draw import Draw
from grammar.lexicon import Activity, Frame, Verb
from grammar.pair import Pair, asked, said
from grammar.patterns.common import finish
from grammar.phrases import Phrase, as_object, possessive

GO, COME, RETURN = (Verb("go", "ir", simple=True), Verb("come", "venir", simple=True), Verb("return", "volver"))
ARRIVE, LEAVE, RUN = Verb("arrive", "llegar"), Verb("leave", "salir", simple=True), Verb("run", "correr")
MOTIONS = (
    (GO, "to", "a"),
    (GO, "to", "a"),
    (COME, "to", "a"),
    (RETURN, "to", "a"),
    (RUN, "to", "a"),
    (ARRIVE, "at", "a"),
    (LEAVE, "", "de"),
)
PLACED = (Verb("put", "poner"), Verb("leave", "dejar"), Verb("find", "encontrar"), Verb("see", "ver"))
ONCE = ("this", "that", "these", "those", "a", "an")  # no habit has such an object
WHOLE_DAYS = {
    Tense.PRESENT: Text("every day", "todos los días"),
    Tense.PAST: Text("yesterday", "ayer"),
    Tense.FUTURE: Text("tomorrow", "mañana"),
}


def event(draw: Draw, verb: Verb, frame: Frame) -> tuple[Clause, Phrase | None]:
    """Let somebody do something: the clause, and its object if it has one."""
    subject, negative = draw.actor(frame), draw.chance(0.16)
    thing = draw.thing(verb, frame.objects, subject, negative=negative) if frame.objects else None
    after = as_object(thing) if thing else NOTHING
    return Clause(
        subject, verb, tense(draw, verb, subject), after, negative=negative, contracted=draw.chance(0.7)
    ), thing


def transitive(draw: Draw) -> Pair:
    """The boy ate the apple. Ana is not reading my book. Yesterday we washed the car."""
    verb, frame = draw.pick(draw.transitive)
    clause, thing = event(draw, verb, frame)
    assert thing is not None
    lasting = verb.mode == "state"
    if verb.mode == "" and clause.tense is Tense.PRESENT and thing.text.en.split()[0] in ONCE:
        clause = replace(clause, tense=Tense.PROGRESSIVE)
    clause = clause if lasting else often(draw, clause, 0.12)
    moment = NOTHING if clause.often.en or lasting else when(draw, clause.tense, 0.3, verb.en)
    combination = (clause.subject.word, verb.en, thing.word)
    if moment.en and not clause.negative and draw.chance(0.25):
        return said(moment + draw.clauses.statement(clause), combination, phrases=(clause.subject, thing))
    return finish(draw, replace(clause, after=clause.after + moment), combination, phrases=(thing,))


def intransitive(draw: Draw) -> Pair:
    """The baby is sleeping in the bedroom. We worked at the hospital yesterday. My father used to sing."""
    verb, frame = draw.pick(draw.intransitive)
    clause, _ = event(draw, verb, frame)
    clause = often(draw, clause, 0.12)
    where, anchor = (
        place(draw, draw.lexicon.where[verb.en])
        if verb.en in draw.lexicon.where and draw.chance(0.6)
        else (NOTHING, "")
    )
    combination = (clause.subject.word, verb.en, anchor)
    if clause.tense is Tense.PRESENT and not clause.negative and draw.chance(0.3):
        past = replace(clause, tense=Tense.USED_TO, often=NOTHING, after=where)
        return said(draw.clauses.statement(past), combination, phrases=(clause.subject,))
    moment = NOTHING if clause.often.en else when(draw, clause.tense, 0.4 if where.en else 0.7, verb.en)
    return finish(draw, replace(clause, after=where + moment), combination)


def motion(draw: Draw) -> Pair:
    """I am going to the park. The bus arrived at the station. He left the house. Where did you go?"""
    verb, preposition, to = draw.pick(MOTIONS)
    where = draw.nominals.build(
        draw.noun("building" if verb in (ARRIVE, LEAVE) else "building park beach city village farm lake river square")
    )
    subject = draw.person()
    if verb in (ARRIVE, LEAVE) and draw.chance(0.35):
        subject = draw.nominals.build(draw.noun("bus train taxi"))
        where = draw.nominals.build(draw.noun("station hotel airport hospital"))
    chosen = tense(draw, verb, subject)
    if verb is GO and chosen is Tense.GOING_TO:
        chosen = Tense.PROGRESSIVE
    after, negative, contracted = Text(preposition, to) + where.text, draw.chance(0.12), draw.chance(0.7)
    clause = often(draw, Clause(subject, verb, chosen, after, negative=negative, contracted=contracted), 0.2)
    moment = NOTHING if clause.often.en else when(draw, chosen, 0.4, verb.en)
    if draw.chance(0.15) and verb is GO and chosen is not Tense.PERFECT:
        question = draw.clauses.question(
            replace(clause, after=moment, negative=False, often=NOTHING), Text("where", "adónde")
        )
        return asked(question, (subject.word, "go where", moment.en), phrases=(subject,))
    return finish(draw, replace(clause, after=after + moment), (subject.word, verb.en, where.word))


def daily(draw: Draw, activities: list[Activity]) -> Pair:
    """Let somebody do one of these fixed things at some time."""
    activity = draw.pick(activities)
    subject, verb = draw.person(), activity.verb
    verb = replace(verb, simple=True) if verb.es in ("ir", "venir") else verb
    chosen = tense(draw, verb, subject)
    if verb.en == "go" and chosen is Tense.GOING_TO:
        chosen = Tense.FUTURE
    whole = join(verb.en, activity.rest.en)
    after = Text(activity.rest.en.format(own=possessive(subject)[0], s="s" * subject.who.plural), activity.rest.es)
    clause = Clause(subject, verb, chosen, after, negative=draw.chance(0.14), contracted=draw.chance(0.7))
    clause = often(draw, clause, 0.25)
    moment = timed(draw, chosen) if whole in draw.lexicon.once_a_day else when(draw, chosen, 0.5, verb.en)
    if clause.often.en and not moment.en.startswith("at "):
        moment = NOTHING
    return finish(draw, replace(clause, after=after + moment), (subject.word, whole, moment.en))


def timed(draw: Draw, chosen: Tense) -> Text:
    """Choose an hour or a day for what is done once a day."""
    luck = draw.rng.random()
    if luck < 0.4 and chosen not in (Tense.PROGRESSIVE, Tense.WAS_DOING, Tense.PERFECT):
        return hour(draw)
    if luck < 0.6 and chosen in WHOLE_DAYS:
        return weekday(draw, habit=chosen is Tense.PRESENT) if draw.chance(0.4) else WHOLE_DAYS[chosen]
    return NOTHING


def reflexive(draw: Draw) -> Pair:
    """She gets up at seven. I am washing my hands. He wants to go to bed."""
    return daily(draw, [activity for activity in draw.lexicon.activities if activity.reflexive])


def activity(draw: Draw) -> Pair:
    """We had breakfast at eight. Do you play soccer on Mondays?"""
    return daily(draw, [activity for activity in draw.lexicon.activities if not activity.reflexive])


def placing(draw: Draw) -> Pair:
    """She left the keys on the table. I put the book in the box."""
    verb, subject = draw.pick(PLACED), draw.person()
    noun = draw.noun("small_things bag hat scarf")
    thing = draw.phrase(noun, {"the": 5, "own": 3, "this": 1}, adjectives=draw.looks(noun, 0.5), own=subject)
    tenses = {Tense.PAST: 4, Tense.PERFECT: 1}
    if verb.en in ("put", "leave"):
        tenses |= {Tense.FUTURE: 1, Tense.GOING_TO: 1, Tense.CAN: 1, Tense.SHOULD: 1}
    surface = draw.noun("table chair bed desk sofa shelf drawer box basket kitchen garage")
    on = surface.en in draw.lexicon.lists["surfaces"]
    where = Text("on", "sobre") if on else Text("in", "en")
    after = thing.text + where + draw.nominals.build(surface).text
    clause = Clause(subject, verb, draw.weighted(tenses), after, negative=draw.chance(0.1), contracted=draw.chance(0.7))
    if thing.word == surface.en:
        return placing(draw)
    return finish(
        draw, clause, (subject.word, verb.en, thing.word), (verb.en, thing.word, surface.en), phrases=(thing,)
    )


PATTERNS = ((transitive, 30), (intransitive, 8), (motion, 5), (reflexive, 6), (activity, 6), (placing, 3))
