"""Patterns that ask with a question word, and commands."""

from grammar.agreement import Tense, Text
from grammar.circumstances import tense, when
from grammar.clauses import NOTHING, Clause
from grammar.draw import Draw
from grammar.lexicon import Frame, Verb
from grammar.pair import Pair, asked, said
from grammar.phrases import HE, SHE, THEY, YOU, Phrase, as_object

DATED_TENSES = (Tense.PAST, Tense.FUTURE, Tense.GOING_TO)
REASONED_TENSES = (Tense.PRESENT, Tense.PAST, Tense.PROGRESSIVE, Tense.WANT_TO, Tense.HAVE_TO, Tense.BACKGROUND)


def command(draw: Draw) -> Pair:
    """Open the door, please. Don't eat the cake."""
    negative = draw.chance(0.35)
    verb, frame = draw.pick(draw.listed("order"))
    noun = draw.pick([noun for noun in frame.objects if not noun.is_kin] or frame.objects)
    thing = draw.phrase(noun, {"the": 6, "own": 2, "this": 1}, own=YOU)
    es = draw.lexicon.spanish.command(verb.es, negative=negative)
    start = Text("don't", "no") if negative else NOTHING
    text = start + Text(verb.en, es) + as_object(thing)
    if draw.chance(0.35):
        text = Text(f"{text.en}, please", f"{text.es}, por favor")
    return said(text, ("command", verb.en, thing.word), phrases=(thing,))


def asked_subject(draw: Draw, frame: Frame) -> Phrase:
    """Choose somebody that one asks about: a short phrase, not I and not we."""
    if not frame.people:
        return draw.phrase(draw.pick(frame.subjects), {"the": 3, "own": 1})
    luck = draw.rng.random()
    if luck < 0.45:
        return draw.pick((YOU, YOU, HE, SHE, THEY))
    if luck < 0.7:
        return draw.name()
    return draw.phrase(draw.pick(frame.subjects), {"the": 3, "own": 1})


def what(draw: Draw) -> Pair:
    """What is the boy eating? What did you buy yesterday?"""
    verb, frame = draw.pick(draw.listed("what"))
    subject = asked_subject(draw, frame)
    chosen = tense(draw, verb, subject)
    moment = NOTHING if verb.mode == "state" else when(draw, chosen, 0.5)
    question = draw.clauses.question(Clause(subject, verb, chosen, moment), Text("what", "qué"))
    return asked(question, (subject.word, "what", verb.en), phrases=(subject,))


def who(draw: Draw) -> Pair:
    """Who broke the lamp? Who is reading my book?"""
    verb, frame = draw.pick([(verb, frame) for verb, frame in draw.transitive if frame.people])
    anyone = Phrase(Text("who", "quién"), HE.who, "who")
    thing = draw.thing(verb, frame.objects, draw.pick((HE, YOU)))
    clause = Clause(anyone, verb, tense(draw, verb, anyone), as_object(thing))
    return asked(draw.clauses.statement(clause), ("who", verb.en, thing.word), phrases=(thing,))


def whom(draw: Draw) -> Pair:
    """Who do you see? = ¿A quién ves?"""
    verb, frame = draw.pick(draw.listed("whom"))
    subject = asked_subject(draw, frame)
    chosen = tense(draw, verb, subject)
    moment = NOTHING if verb.mode == "state" else when(draw, chosen, 0.4)
    question = draw.clauses.question(Clause(subject, verb, chosen, moment), Text("who", "a quién"))
    return asked(question, (subject.word, "whom", verb.en), phrases=(subject,))


def when_or_where(draw: Draw) -> Pair:
    """When did you buy the car? Where does Ana wash her clothes?"""
    word = draw.pick((Text("when", "cuándo"), Text("where", "dónde")))
    verb, frame = draw.pick(draw.listed(word.en))
    subject = asked_subject(draw, frame)
    chosen = draw.pick(DATED_TENSES[:1] if verb.en in ("lose", "find", "break", "receive", "see") else DATED_TENSES)
    thing = draw.phrase(draw.pick(frame.objects), {"the": 5, "own": 3, "this": 1}, own=subject)
    question = draw.clauses.question(Clause(subject, verb, chosen, as_object(thing)), word)
    return asked(question, (subject.word, verb.en, thing.word), phrases=(subject, thing))


def why(draw: Draw) -> Pair:
    """Why is the girl crying? Why don't you want the soup?"""
    verb, frame = draw.pick(draw.transitive if draw.chance(0.6) else draw.intransitive)
    subject = asked_subject(draw, frame)
    chosen = tense(draw, verb, subject)
    if chosen not in REASONED_TENSES:
        return why(draw)
    thing = draw.thing(verb, frame.objects, subject, negative=True) if frame.objects else None
    after = as_object(thing) if thing else NOTHING
    clause = Clause(subject, verb, chosen, after, negative=draw.chance(0.25))
    question = draw.clauses.question(clause, Text("why", "por qué"))
    phrases = (subject, thing) if thing else (subject,)
    return asked(question, (subject.word, verb.en, thing.word if thing else "why"), phrases=phrases)


def which(draw: Draw) -> Pair:
    """How many apples do you want? Which dress did Ana buy? How much milk do you want?"""
    verb, frame = draw.pick([(verb, frame) for verb, frame in draw.listed("what") if frame.things])
    subject, noun = asked_subject(draw, frame), draw.pick(frame.things)
    count = draw.chance(0.6)
    bare = draw.nominals.build(noun, "bare", plural=not noun.mass and (count or noun.paired))
    much = Text("how much" if noun.mass else "how many", draw.lexicon.spanish.adjective("cuánto", bare.who))
    asks = (much if count else Text("which", "qué")) + bare.text
    question = draw.clauses.question(Clause(subject, verb, tense(draw, verb, subject)), asks)
    return asked(question, (subject.word, verb.en, noun.en), phrases=(subject,))


def how(draw: Draw) -> Pair:
    """How is your mother? How much does the bicycle cost? What color is the ball?"""
    kind = draw.pick(("how", "cost", "color"))
    if kind == "how":
        subject = (
            draw.phrase(draw.noun("relative parent spouse"), {"own": 1}, own=YOU)
            if draw.chance(0.5)
            else draw.pick((YOU, HE, SHE, THEY))
        )
        subject = draw.name() if draw.chance(0.3) else subject
        return asked(
            draw.clauses.question(Clause(subject, Verb("be", "estar"), Tense.PRESENT), Text("how", "cómo")),
            ("how", subject.word),
        )
    if kind == "cost":
        thing = draw.phrase(
            draw.noun("clothes accessory vehicle reading furniture device ticket"), {"the": 3, "this": 3, "that": 1}
        )
        question = draw.clauses.question(
            Clause(thing, Verb("cost", "costar"), Tense.PRESENT), Text("how much", "cuánto")
        )
        return asked(question, ("cost", thing.word))
    thing = draw.phrase(draw.noun("colored flower"), {"the": 4, "own": 2, "of": 1})
    question = draw.clauses.question(
        Clause(thing, Verb("be", "ser"), Tense.PRESENT), Text("what color", "de qué color")
    )
    return asked(question, ("color", thing.word))


PATTERNS = ((command, 4), (what, 2), (who, 2), (whom, 1), (when_or_where, 2), (why, 2), (which, 2), (how, 2))
