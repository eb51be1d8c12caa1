"""English inflection by rule, with the exceptions that the lexicon lists; knows no Spanish."""

import re
from collections.abc import Mapping

from grammar.agreement import Agreement, Tense, join

MODALS = {Tense.FUTURE: "will", Tense.CAN: "can", Tense.MUST: "must", Tense.SHOULD: "should", Tense.WOULD: "would"}
LEXICAL = {Tense.HAVE_TO: "have", Tense.WANT_TO: "want"}
NEGATIONS = {"can": "can't", "will": "won't", "am": "am not"}
ENCLITICS = {"am": "'m", "is": "'s", "are": "'re", "will": "'ll", "have": "'ve", "has": "'s", "would": "'d"}


class English:
    """Word forms and verb phrases of English."""

    def __init__(self, verbs: Mapping[str, str], plurals: Mapping[str, str], vowel_sound: Mapping[str, bool]) -> None:
        self.verbs, self.plurals, self.vowel_sound = verbs, plurals, vowel_sound

    def plural(self, noun: str) -> str:
        """Say cats, boxes, stories, children, living rooms."""
        return self.plurals.get(noun) or add_s(noun)

    def article(self, following: str) -> str:
        """Choose a or an by the sound of the next word."""
        word = following.split()[0]
        return "an" if self.vowel_sound.get(word, word[0] in "aeiou") else "a"

    def comparative(self, adjective: str) -> str:
        """Say bigger, nicer, easier, better; more expensive."""
        irregular = {"good": "better", "bad": "worse", "narrow": "narrower"}
        if adjective in irregular:
            return irregular[adjective]
        if adjective.endswith("y"):
            return adjective[:-1] + "ier"
        if len(re.findall(r"[aeiou]+", re.sub(r"e$", "", adjective))) > 1:
            return f"more {adjective}"
        return f"{adjective}r" if adjective.endswith("e") else double(adjective) + "er"

    def superlative(self, adjective: str) -> str:
        """Say biggest, best; most expensive."""
        comparative = self.comparative(adjective)
        if comparative.startswith("more "):
            return f"most {adjective}"
        return {"better": "best", "worse": "worst"}.get(comparative, comparative[:-2] + "est")

    def third(self, verb: str) -> str:
        """Say eats, goes, cries, has, looks for."""
        head, *particle = verb.split()
        return join({"have": "has", "be": "is"}.get(head) or add_s(head), *particle)

    def past(self, verb: str) -> str:
        """Say ate, walked, cried, looked for."""
        return self._listed(verb, 0)

    def participle(self, verb: str) -> str:
        """Say eaten, walked, looked for."""
        return self._listed(verb, 1)

    def gerund(self, verb: str) -> str:
        """Say eating, running, writing, looking for."""
        head, *particle = verb.split()
        stem = head[:-1] if head.endswith("e") and not head.endswith(("be", "ee")) else double(head)
        return join(stem + "ing", *particle)

    def predicate(self, verb: str, tense: Tense, who: Agreement, *, support: bool) -> tuple[str, str]:
        """Split a verb phrase into the auxiliary (which negation and questions need) and the rest.

        Args:
            verb: base form, perhaps with a particle.
            tense: the tense.
            who: the subject's agreement.
            support: whether an auxiliary is needed, so that do steps in where there is none.
        """
        if tense in MODALS:
            return MODALS[tense], verb
        if tense in (Tense.PROGRESSIVE, Tense.WAS_DOING):
            return be(who, past=tense is Tense.WAS_DOING), self.gerund(verb)
        if tense is Tense.GOING_TO:
            return be(who), f"going to {verb}"
        if tense is Tense.PERFECT:
            return ("has" if is_third(who) else "have"), self.participle(verb)
        if tense is Tense.USED_TO:
            return ("did", f"use to {verb}") if support else ("", f"used to {verb}")
        if tense in LEXICAL:
            auxiliary, finite = self._simple(LEXICAL[tense], Tense.PRESENT, who, support)
            return auxiliary, f"{finite} to {verb}"
        return self._simple(verb, tense, who, support)

    def _simple(self, verb: str, tense: Tense, who: Agreement, support: bool) -> tuple[str, str]:
        past = tense is not Tense.PRESENT
        if verb == "be":
            return be(who, past=past), ""
        if support:
            return ("did" if past else "does" if is_third(who) else "do"), verb
        return "", self.past(verb) if past else self.third(verb) if is_third(who) else verb

    def _listed(self, verb: str, form: int) -> str:
        head, *particle = verb.split()
        if head in self.verbs:
            return join(self.verbs[head].split()[form], *particle)
        if re.search(r"[^aeiou]y$", head):
            return join(head[:-1] + "ied", *particle)
        return join((head[:-1] if head.endswith("e") else double(head)) + "ed", *particle)


def is_third(who: Agreement) -> bool:
    """Tell whether the present tense takes -s."""
    return who.person == 3 and not who.plural


def be(who: Agreement, *, past: bool = False) -> str:
    """Say am, is, are, was or were."""
    many = who.plural or who.person == 2
    if past:
        return "were" if many else "was"
    return "are" if many else "am" if who.person == 1 else "is"


def negate(auxiliary: str, *, contracted: bool) -> str:
    """Say don't, won't, can't, or in full do not, will not, cannot."""
    if contracted:
        return NEGATIONS.get(auxiliary, f"{auxiliary}n't")
    return "cannot" if auxiliary == "can" else f"{auxiliary} not"


def add_s(word: str) -> str:
    """Add the -s of plurals and third persons: cats, boxes, goes, cries, plays."""
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(s|x|z|ch|sh|[^aeiou]o)$", word) and word not in ("piano", "photo") else "s")


def double(word: str) -> str:
    """Double the last consonant of a short word before a vowel: run-n, big-g, forget-t; not visit, open, rain."""
    one_syllable = re.fullmatch(r"[^aeiou]*(?:qu)?[aeiou][^aeiouwxy]", word)
    return word + word[-1] if one_syllable or word in ("forget", "begin") else word
