"""Patterns of place, hay, weather and the time."""

from grammar.agreement import Tense, Text
from grammar.circumstances import BEING, place
from grammar.clauses import NOTHING, Clause
from grammar.draw import DESCRIBED, Draw
from grammar.lexicon import Noun, Verb
from grammar.pair import Pair, asked, said
from grammar.patterns.common import ESTAR, NOBODY, finish
from grammar.phrases import Phrase

THINGS = "small_things accessory hat scarf cap"
THERE = {
    "person": "boy girl man woman child tourist student",
    "pet": "pet bird mouse snake fox",
    "thing": THINGS,
    "building": "building",
}
HOUSE_PETS = ("cat", "dog", "rabbit")
WEATHER_PLACES = "city village mountain park farm forest"
WEATHER_TIMES = {
    Tense.PRESENT: "weather_present",
    Tense.PROGRESSIVE: "weather_present",
    Tense.PAST: "weather_past",
    Tense.FUTURE: "weather_future",
    Tense.GOING_TO: "weather_future",
}
SNOWING = {Tense.PROGRESSIVE: 3, Tense.PAST: 3, Tense.FUTURE: 3, Tense.GOING_TO: 2}
BEING_COLD = {Tense.PRESENT: 5, Tense.PAST: 2, Tense.FUTURE: 2}


def sort_of(subject: Phrase) -> str:
    """Tell what haunts and anchors somebody or something has: person, house_pet, beast, building or thing."""
    if subject.noun is None or subject.is_person:
        return "person"
    if subject.noun.kind in ("pet", "wild"):
        return "house_pet" if subject.noun.en in HOUSE_PETS else "beast"
    return "building" if subject.noun.kind == "building" else "thing"


def related(draw: Draw, sort: str) -> tuple[Text, str]:
    """Say under the table, near the door; with the noun for the combination."""
    anchors = draw.lexicon.anchors[sort]
    barred = {"building": "under", "thing": "far from"}.get(sort)
    relation = draw.pick([text for text in draw.lexicon.texts["relations"] if text.en != barred])
    noun = draw.noun(anchors.get(relation.en, anchors["other"]))
    return relation + draw.nominals.build(noun).text, noun.en


def spot(draw: Draw, sort: str) -> tuple[Text, str]:
    """Choose where somebody or something is, with the noun for the combination."""
    if sort == "building":
        return related(draw, sort)
    if sort != "thing":
        return place(draw, draw.lexicon.haunts[sort]) if draw.chance(0.6) else related(draw, sort)
    luck = draw.rng.random()
    if luck < 0.45:
        noun = draw.noun("table chair bed desk sofa shelf")
        return Text("on", "sobre") + draw.nominals.build(noun).text, noun.en
    if luck < 0.6:
        noun = draw.noun("box drawer basket bag suitcase backpack")
        return Text("in", "en") + draw.phrase(noun, {"the": 3, "own": 1}).text, noun.en
    return place(draw, draw.lexicon.haunts[sort]) if luck < 0.75 else related(draw, sort)


def location(draw: Draw) -> Pair:
    """The keys are on the table. Where is the cat? The school is next to the park."""
    kind = draw.weighted({"person": 4, "thing": 4, "pet": 2, "building": 2})
    if kind == "person":
        subject = draw.person()
    else:
        noun = draw.noun({"thing": THINGS, "pet": "pet"}.get(kind, "building"))
        subject = draw.phrase(noun, DESCRIBED, adjectives=draw.looks(noun, 0.5))
    tense = Tense.PRESENT if kind == "building" else draw.weighted(BEING)
    if draw.chance(0.18):
        question = draw.clauses.question(Clause(subject, ESTAR, tense), Text("where", "dónde"))
        return asked(question, (subject.word, "where"), phrases=(subject,))
    where, anchor = spot(draw, sort_of(subject))
    if anchor == subject.word:
        return location(draw)
    clause = Clause(subject, ESTAR, tense, where, negative=draw.chance(0.12), contracted=draw.chance(0.7))
    return finish(draw, clause, (subject.word, "be", anchor))


def there_is(draw: Draw) -> Pair:
    """There is a cat in the kitchen. There are no apples on the table. How many books are there on the table?"""
    kind = draw.weighted({"person": 2, "pet": 2, "thing": 3, "food": 3, "building": 1})
    if kind == "food":
        noun, anchor = draw.noun("food drink"), draw.pick(("table", "kitchen"))
        on_or_in = Text("on", "sobre") if anchor == "table" else Text("in", "en")
        where = on_or_in + draw.nominals.build(draw.lexicon.nouns[anchor]).text
    else:
        noun = draw.noun(THERE[kind])
        where, anchor = spot(draw, sort_of(draw.nominals.build(noun)))
    if noun.en == anchor:
        return there_is(draw)
    return exists(draw, noun, where, (noun.en, "there", anchor))


def exists(draw: Draw, noun: Noun, where: Text, combination: tuple[str, ...]) -> Pair:
    """Say, deny or ask that something is there."""
    past = draw.chance(0.2)
    several = not noun.mass
    kind = draw.weighted({"said": 6, "no": 2, "any": 1, "many": 1})
    if kind == "said":
        several = several and draw.chance(0.5)
        determiners = {"number": 6, "many": 2, "some": 2} if several else {"bare": 1} if noun.mass else {"a": 1}
        adjectives = draw.looks(noun, 0.5)
        phrase = draw.phrase(noun, determiners, adjectives=adjectives)
        return said(hay("there {}", several, past) + phrase.text + where, combination, phrases=(phrase,))
    bare = draw.nominals.build(noun, "bare", plural=several)
    if kind == "no":
        there = hay("there {} no", several, past)
        return said(Text(there.en, f"no {there.es}") + bare.text + where, combination)
    if kind == "any":
        return asked(hay("{} there any", several, past) + bare.text + where, combination)
    how_many = Text("how many" if several else "how much", draw.lexicon.spanish.adjective("cuánto", bare.who))
    return asked(how_many + bare.text + hay("{} there", several, past) + where, combination)


def crowd(draw: Draw) -> Pair:
    """There are twenty-one houses in the village. = Hay veintiuna casas en el pueblo."""
    many, places = draw.pick(draw.lexicon.crowds)
    noun, (where, anchor) = draw.noun(many), place(draw, places)
    counted = draw.nominals.counted(noun, draw.pick(draw.lexicon.texts["numbers"]))
    there = hay("there {}", several=True, past=draw.chance(0.2))
    return said(there + counted.text + where, (noun.en, "there", anchor))


def hay(english: str, several: bool, past: bool) -> Text:
    """Put is, are, was or were in the English; Spanish has one form for one and many."""
    be = ("were" if several else "was") if past else ("are" if several else "is")
    return Text(english.format(be), "había" if past else "hay")


def weather(draw: Draw) -> Pair:
    """It is cold today. It is raining in the village. It will snow tomorrow."""
    if draw.chance(0.4):
        word = draw.pick(draw.lexicon.texts["falling"])
        verb, what, tenses = Verb(word.en, word.es), NOTHING, SNOWING
    else:
        word = draw.pick(draw.lexicon.texts["weather"])
        verb_es, es = word.es.split(" | ")
        verb, what, tenses = (
            Verb("be", verb_es),
            Text(word.en, es),
            BEING_COLD if verb_es == "hacer" else {Tense.PRESENT: 1},
        )
    tense = draw.weighted(tenses)
    where, anchor = place(draw, WEATHER_PLACES) if draw.chance(0.5) else (NOTHING, "")
    times = draw.lexicon.times[WEATHER_TIMES[tense]]
    when = draw.pick(times if tense is Tense.PAST else (*times, NOTHING))
    negative, contracted = draw.chance(0.15), draw.chance(0.6)
    clause = Clause(NOBODY, verb, tense, what + where + when, negative=negative, contracted=contracted)
    return finish(draw, clause, ("weather", word.en, anchor, when.en), question=0.2)


def clock(draw: Draw) -> Pair:
    """It is half past three. = Son las tres y media."""
    hour, minutes = draw.pick(draw.lexicon.texts["hours"]), draw.pick(draw.lexicon.times["minutes"])
    start = draw.pick(("it is", "it's"))
    spoken = Text(f"{start} {minutes.en.format(hour.en)}", f"son {minutes.es.format(hour.es)}")
    return said(spoken, ("clock", hour.en, minutes.en))


PATTERNS = ((location, 8), (there_is, 7), (crowd, 2), (weather, 3), (clock, 1))
