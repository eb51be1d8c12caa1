"""Spanish verbs: regular endings, spelling rules, stem changes, and the exceptions that the lexicon lists."""

import re
from collections.abc import Mapping

from grammar.agreement import Agreement, Tense, join

PRESENT = {"ar": "o as a amos an", "er": "o es e emos en", "ir": "o es e imos en"}
PRETERITE = {"ar": "é aste ó amos aron", "er": "í iste ió imos ieron", "ir": "í iste ió imos ieron"}
IMPERFECT = {"ar": "aba abas aba ábamos aban", "er": "ía ías ía íamos ían", "ir": "ía ías ía íamos ían"}
FUTURE = "é ás á emos án"
CONDITIONAL = "ía ías ía íamos ían"
STRONG_PRETERITE = "e iste o imos ieron"
REFLEXIVE = ("me", "te", "se", "nos", "se")
STRESSED = (0, 1, 2, 4)  # forms whose stem is stressed, and so changes: duermo but dormimos

# Tense -> helping verb, its tense, a word between, and what follows: the infinitive or another form.
PERIPHRASES = {
    Tense.PROGRESSIVE: ("estar", "present", "", "gerund"),
    Tense.WAS_DOING: ("estar", "imperfect", "", "gerund"),
    Tense.PERFECT: ("haber", "present", "", "participle"),
    Tense.GOING_TO: ("ir", "present", "a", "infinitive"),
    Tense.CAN: ("poder", "present", "", "infinitive"),
    Tense.MUST: ("deber", "present", "", "infinitive"),
    Tense.SHOULD: ("deber", "conditional", "", "infinitive"),
    Tense.HAVE_TO: ("tener", "present", "que", "infinitive"),
    Tense.WANT_TO: ("querer", "present", "", "infinitive"),
}
SIMPLE = {
    Tense.PRESENT: "present",
    Tense.PAST: "preterite",
    Tense.BACKGROUND: "imperfect",
    Tense.USED_TO: "imperfect",
    Tense.FUTURE: "future",
    Tense.WOULD: "conditional",
}


class Conjugation:
    """All forms of Spanish verbs but vosotros and the subjunctive."""

    def __init__(self, irregular: Mapping[str, Mapping[str, str]]) -> None:
        self.irregular = irregular

    def predicate(
        self, verb: str, tense: Tense, who: Agreement, *, clitic: str = "", negative: bool = False, adverb: str = ""
    ) -> tuple[str, str]:
        """Say a verb phrase, split where a question puts its subject: no lo come; quiere, comerlo; se está lavando.

        A pronoun is joined to an infinitive and otherwise stands before the conjugated verb.

        Args:
            verb: infinitive; one in -se brings its own pronoun.
            tense: the tense.
            who: whom the verb agrees with.
            clitic: object pronoun.
            negative: whether to say no.
            adverb: an adverb that stands before all of this, as siempre does.
        """
        if verb.endswith("se"):
            verb, clitic = verb[:-2], REFLEXIVE[who.form]
        before = join(adverb, "no" if negative else "")
        if tense not in PERIPHRASES:
            return join(before, clitic, self.finite(verb, SIMPLE[tense], who.form)), ""
        helper, helper_tense, between, form = PERIPHRASES[tense]
        finite = self.finite(helper, helper_tense, who.form)
        if form == "infinitive":
            return join(before, finite), join(between, verb + clitic)
        return join(before, clitic, finite, self.gerund(verb) if form == "gerund" else self.participle(verb)), ""

    def finite(self, verb: str, tense: str, form: int) -> str:
        """Conjugate.

        Args:
            verb: infinitive without se.
            tense: present, preterite, imperfect, future or conditional.
            form: 0 to 4 for yo, tú, él, nosotros, ellos.
        """
        listed = self.irregular.get(verb, {})
        if tense in ("future", "conditional"):
            endings = FUTURE if tense == "future" else CONDITIONAL
            return listed.get("future", plain(verb)) + endings.split()[form]
        if " " in listed.get(tense, ""):
            return listed[tense].split()[form]
        if tense == "present":
            return self._present(verb, form)
        if tense == "preterite":
            return self._preterite(verb, form)
        return verb[:-2] + IMPERFECT[ending(verb)].split()[form]

    def gerund(self, verb: str) -> str:
        """Say comiendo, cantando, leyendo, durmiendo."""
        listed = self.irregular.get(verb, {}).get("gerund")
        if listed:
            return listed
        stem = self._raised(verb)
        if ending(verb) == "ar":
            return stem + "ando"
        return stem + ("yendo" if is_vowel_stem(stem) else "iendo")

    def participle(self, verb: str) -> str:
        """Say comido, cantado, leído, visto."""
        listed = self.irregular.get(verb, {}).get("participle")
        if listed:
            return listed
        if ending(verb) == "ar":
            return verb[:-2] + "ado"
        return verb[:-2] + ("ído" if re.search(r"[aeoí]$", verb[:-2]) else "ido")

    def command(self, verb: str, *, negative: bool) -> str:
        """Tell one person (tú) to do it or not to: abre, haz; no abras, no hagas."""
        listed = self.irregular.get(verb, {})
        if not negative:
            return listed.get("command") or self.finite(verb, "present", 2)
        stem = self.finite(verb, "present", 0)[:-1]
        if ending(verb) != "ar":
            return listed.get("forbid", stem + "as")
        return listed.get("forbid", before_e(stem) + "es")

    def _present(self, verb: str, form: int) -> str:
        listed, stem = self.irregular.get(verb, {}), verb[:-2]
        if form == 0 and "first" in listed:
            return listed["first"]
        if form in STRESSED and "change" in listed:
            stem = change(stem, listed["change"])
        if form == 0 and ending(verb) != "ar":
            stem = re.sub(r"([aeiou])c$", r"\1zc", stem) if verb.endswith(("cer", "cir")) else stem
            stem = re.sub(r"gu$", "g", re.sub(r"g$", "j", stem))
        return stem + PRESENT[ending(verb)].split()[form]

    def _preterite(self, verb: str, form: int) -> str:
        strong = self.irregular.get(verb, {}).get("preterite")
        if strong:
            end = STRONG_PRETERITE.split()[form]
            end = "eron" if strong.endswith("j") and end == "ieron" else end
            return (strong[:-1] + "z" if strong.endswith("c") and end == "o" else strong) + end
        stem, end = verb[:-2], PRETERITE[ending(verb)].split()[form]
        if form == 0 and ending(verb) == "ar":
            stem = before_e(stem)
        if form in (2, 4):
            stem = self._raised(verb)
        if is_vowel_stem(stem) and ending(verb) != "ar":
            end = {"ió": "yó", "ieron": "yeron"}.get(end, end if stem.endswith("u") else re.sub(r"^i(?=.)", "í", end))
        return stem + end

    def _raised(self, verb: str) -> str:
        """Give the stem of pidió, durmió, sintió: -ir verbs that change their stem raise its vowel."""
        listed = self.irregular.get(verb, {}).get("change", "")
        if ending(verb) != "ir" or listed[:1] not in ("e", "o"):
            return verb[:-2]
        return change(verb[:-2], {"e": "e>i", "o": "o>u"}[listed[0]])


def plain(verb: str) -> str:
    """Take the accent off oír and sonreír, as their future does."""
    return re.sub(r"ír$", "ir", verb)


def ending(verb: str) -> str:
    """Name the conjugation: ar, er or ir."""
    return verb[-2:].replace("í", "i")


def is_vowel_stem(stem: str) -> bool:
    """Tell stems like le-er, o-ír, constru-ir, whose i becomes y between vowels; gu and qu sound as consonants."""
    return bool(re.search(r"([aeo]|[^gq]u)$", stem))


def change(stem: str, rule: str) -> str:
    """Apply a stem change like o>ue to the last such vowel."""
    old, new = rule.split(">")
    head, _, tail = stem.rpartition(old)
    return head + new + tail


def before_e(stem: str) -> str:
    """Keep a consonant's sound before e: busqu-é, llegu-é, empec-é."""
    for old, new in (("c", "qu"), ("g", "gu"), ("z", "c")):
        if stem.endswith(old):
            return stem[: -len(old)] + new
    return stem
