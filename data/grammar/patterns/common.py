"""What the patterns share: saying what something is like, and telling or asking it."""

from grammar.agreement import IT, Text
from grammar.circumstances import BEING
from grammar.clauses import Clause
from grammar.draw import Draw
from grammar.lexicon import Adjective, Noun, Verb
from grammar.pair import Pair, asked, said
from grammar.phrases import Combination, Phrase

SER, ESTAR, TENER = Verb("be", "ser"), Verb("be", "estar"), Verb("be", "tener")
NOBODY = Phrase(Text("it"), IT, "it", clitic="lo")  # it rains, it is cold: Spanish has no subject


def fitting(draw: Draw, adjective: Adjective) -> list[Noun]:
    """List an adjective's nouns in the lexicon's order."""
    return [noun for noun in draw.lexicon.nouns.values() if noun in adjective.nouns]


def describe(draw: Draw, subject: Phrase, adjective: Adjective, *, negative: float = 0.15) -> Clause:
    """Say what somebody or something is or was like."""
    es = draw.lexicon.spanish.adjective(adjective.es, subject.who)
    return Clause(
        subject,
        Verb("be", adjective.be),
        draw.weighted(BEING),
        Text(adjective.en, es),
        negative=draw.chance(negative),
        contracted=draw.chance(0.7),
        subject_last=True,
    )


def finish(
    draw: Draw, clause: Clause, *combinations: Combination, question: float = 0.12, phrases: tuple[Phrase, ...] = ()
) -> Pair:
    """Say a clause or, with the probability `question`, ask it if it makes a natural question."""
    phrases = (clause.subject, *phrases)
    if draw.chance(question) and not clause.negative and not clause.often.en and askable(draw, clause.subject):
        return asked(draw.clauses.question(clause), *combinations, phrases=phrases)
    return said(draw.clauses.statement(clause), *combinations, phrases=phrases)


def askable(draw: Draw, subject: Phrase) -> bool:
    """Tell whether one asks about this subject: it has one or two words, and is seldom I or we."""
    if subject.who.person == 1 and not draw.chance(0.3):
        return False
    return len(subject.text.en.split()) <= 2
