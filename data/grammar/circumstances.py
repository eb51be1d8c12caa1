"""Random choices of when, how often and where; what is chosen suits the tense."""

from collections.abc import Mapping
from dataclasses import replace

from grammar.agreement import Tense, Text
from grammar.clauses import NOTHING, Clause
from grammar.draw import Draw
from grammar.english import is_third
from grammar.lexicon import Verb
from grammar.phrases import Phrase

PLAIN = {
    Tense.PRESENT: 4,
    Tense.PAST: 7,
    Tense.PROGRESSIVE: 4,
    Tense.WAS_DOING: 1,
    Tense.FUTURE: 3,
    Tense.GOING_TO: 3,
    Tense.PERFECT: 2,
}
WILLING = {**PLAIN, Tense.CAN: 2, Tense.MUST: 1, Tense.SHOULD: 1, Tense.HAVE_TO: 2, Tense.WANT_TO: 2}
BEING = {Tense.PRESENT: 3, Tense.BACKGROUND: 1}
MODES = {
    "state": BEING,
    "done": {Tense.PAST: 6, Tense.PERFECT: 2, Tense.FUTURE: 2, Tense.GOING_TO: 2},
    "plain": PLAIN,
    "worn": {Tense.PROGRESSIVE: 4, Tense.BACKGROUND: 4, Tense.PRESENT: 2, Tense.FUTURE: 1, Tense.GOING_TO: 1},
    "timely": {Tense.PRESENT: 3, Tense.PAST: 4, Tense.FUTURE: 2, Tense.GOING_TO: 2, Tense.HAVE_TO: 2, Tense.WANT_TO: 2},
    "sense": {Tense.PRESENT: 4, Tense.PAST: 5, Tense.CAN: 3, Tense.PERFECT: 1, Tense.WANT_TO: 1, Tense.FUTURE: 1},
}
WHEN = {
    Tense.PRESENT: "present",
    Tense.PROGRESSIVE: "progressive",
    **dict.fromkeys((Tense.PAST, Tense.BACKGROUND), "past"),
    **dict.fromkeys((Tense.FUTURE, Tense.GOING_TO, Tense.HAVE_TO, Tense.MUST, Tense.WANT_TO), "future"),
}


def tense(draw: Draw, verb: Verb, subject: Phrase) -> Tense:
    """Choose a tense that suits verb and subject; I read, you put and they cut are always the present."""
    if verb.en in draw.lexicon.verb_lists["unwanted"]:
        return draw.weighted({Tense.PAST: 3, Tense.PERFECT: 1})
    weights: Mapping[Tense, int] = MODES.get(verb.mode, WILLING if subject.is_person else PLAIN)
    chosen = draw.weighted(weights)
    return Tense.PROGRESSIVE if chosen is Tense.PAST and past_looks_present(draw, verb, subject) else chosen


def past_looks_present(draw: Draw, verb: Verb, subject: Phrase) -> bool:
    """Tell whether English writes past and present alike, as in they cut."""
    return draw.lexicon.english.past(verb.en) == verb.en and not is_third(subject.who)


def past_of(verb: Verb) -> Tense:
    """Choose how Spanish says the past of a verb: llevaba for what one wore, else the preterite."""
    return Tense.BACKGROUND if verb.mode == "worn" else Tense.PAST


def when(draw: Draw, chosen: Tense, probability: float, verb: str = "") -> Text:
    """Choose a time that suits a tense and a verb, or none: nobody gets dressed next year."""
    if chosen not in WHEN or not draw.chance(probability):
        return NOTHING
    if chosen in (Tense.PAST, Tense.FUTURE, Tense.PRESENT) and draw.chance(0.2):
        return weekday(draw, habit=chosen is Tense.PRESENT)
    times = draw.lexicon.times[WHEN[chosen]]
    if verb in draw.lexicon.verb_lists["long_term"]:
        times += draw.lexicon.times.get(f"{WHEN[chosen]}_far", ())
    if chosen in (Tense.HAVE_TO, Tense.MUST, Tense.WANT_TO):
        times = tuple(time for time in times if time.en != "soon")
    return draw.pick(times)


def weekday(draw: Draw, *, habit: bool) -> Text:
    """Say on Monday = el lunes; on Saturdays = los sábados."""
    day = draw.pick(draw.lexicon.texts["days"])
    if habit:
        return Text(f"on {day.en}s", f"los {draw.lexicon.spanish.plural(day.es)}")
    return Text(f"on {day.en}", f"el {day.es}")


def hour(draw: Draw) -> Text:
    """Say at seven = a las siete; at half past seven = a las siete y media."""
    spoken = draw.pick(draw.lexicon.texts["hours"])
    if draw.chance(0.3):
        return Text(f"at half past {spoken.en}", f"a las {spoken.es} y media")
    return Text(f"at {spoken.en}" + " o'clock" * draw.chance(0.4), f"a las {spoken.es}")


def often(draw: Draw, clause: Clause, probability: float) -> Clause:
    """Add always, never, sometimes … to a habit, already to what is done."""
    if clause.negative or not draw.chance(probability):
        return clause
    if clause.tense is Tense.PERFECT:
        return replace(clause, often=Text("already", "ya"))
    return replace(clause, often=draw.pick(draw.lexicon.texts["often"])) if clause.tense is Tense.PRESENT else clause


def place(draw: Draw, spec: str) -> tuple[Text, str]:
    """Choose where: in the kitchen = en la cocina; with the noun for the combination."""
    noun = draw.noun(spec)
    preposition = next((word for word in ("at", "on") if noun.en in draw.lexicon.lists[f"placed_{word}"]), "in")
    return Text(preposition, "en") + draw.nominals.build(noun).text, noun.en
