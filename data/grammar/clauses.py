"""Clauses: a subject, a verb in some tense and what follows, said, denied or asked in both languages."""

from dataclasses import dataclass

from grammar.agreement import Agreement, Tense, Text, join
from grammar.english import ENCLITICS, negate
from grammar.lexicon import Lexicon, Verb
from grammar.phrases import Phrase

NOTHING = Text()
SIMPLER = {Tense.PROGRESSIVE: Tense.PRESENT, Tense.WAS_DOING: Tense.BACKGROUND}


@dataclass(frozen=True)
class Clause:
    """One clause.

    Attributes:
        subject: the English subject.
        verb: the verb; in English be is its own auxiliary.
        tense: its tense.
        after: what follows the verb, in both languages.
        negative: whether it is denied.
        often: an adverb like always = siempre.
        clitic: the Spanish object pronoun.
        contracted: whether English says don't and I'm.
        agrees: whom the Spanish verb agrees with, where that is not the subject (me gustan los gatos).
        subject_es: the Spanish for the subject where it is not the subject's own.
        subject_last: whether a Spanish question puts the subject at its end (¿Es alto el niño?).
    """

    subject: Phrase
    verb: Verb
    tense: Tense
    after: Text = NOTHING
    negative: bool = False
    often: Text = NOTHING
    clitic: str = ""
    contracted: bool = True
    agrees: Agreement | None = None
    subject_es: str | None = None
    subject_last: bool = False


class Clauses:
    """Renders clauses."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.english, self.spanish = lexicon.english, lexicon.spanish

    def statement(self, clause: Clause) -> Text:
        """Say it: the boy doesn't eat bread = el niño no come pan."""
        subject = clause.subject.text.en
        auxiliary, main = self.english.predicate(
            clause.verb.en, clause.tense, clause.subject.who, support=clause.negative
        )
        if (
            clause.contracted
            and clause.subject.is_pronoun
            and auxiliary in ENCLITICS
            and self._joins(auxiliary, clause)
        ):
            subject, auxiliary = subject + ENCLITICS[auxiliary], "not" if clause.negative else ""
        elif clause.negative:
            auxiliary = negate(auxiliary, contracted=clause.contracted)
        en = join(subject, auxiliary, clause.often.en, main, clause.after.en)
        return Text(en, join(self._subject_es(clause), *self._predicate_es(clause), clause.after.es))

    def question(self, clause: Clause, asked: Text = NOTHING) -> Text:
        """Ask it, perhaps with a question word: where is the boy sleeping = dónde está durmiendo el niño."""
        auxiliary, main = self.english.predicate(clause.verb.en, clause.tense, clause.subject.who, support=True)
        en_subject = clause.subject.text.en
        if clause.negative and clause.contracted and auxiliary != "am":
            auxiliary = negate(auxiliary, contracted=True)
        elif clause.negative:
            en_subject = join(en_subject, "not")
        en = join(asked.en, auxiliary, en_subject, clause.often.en, main, clause.after.en)
        (finite, rest), subject = self._predicate_es(clause), self._subject_es(clause)
        if clause.subject_es is not None:
            return Text(en, join(asked.es, subject, finite, rest, clause.after.es))
        if clause.subject_last:
            return Text(en, join(asked.es, finite, rest, clause.after.es, subject))
        if not clause.after.es:
            finite, rest = join(finite, rest), ""
        return Text(en, join(asked.es, finite, subject, rest, clause.after.es))

    def _joins(self, auxiliary: str, clause: Clause) -> bool:
        """Tell whether I'm, he'll are said: isn't, won't and haven't are, not he'sn't, but I'm not."""
        return not clause.negative or auxiliary == "am"

    def _subject_es(self, clause: Clause) -> str:
        return clause.subject.text.es if clause.subject_es is None else clause.subject_es

    def _predicate_es(self, clause: Clause) -> tuple[str, str]:
        who = clause.agrees or clause.subject.who
        tense = SIMPLER.get(clause.tense, clause.tense) if clause.verb.simple else clause.tense
        return self.spanish.predicate(
            clause.verb.es,
            tense,
            who,
            clitic=clause.clitic,
            negative=clause.negative,
            adverb=clause.often.es,
        )
