"""Find the language of a text with the model of py3langid; this module does not know HTTP."""

import re
from collections.abc import Callable

from seq2seq.data.languages import load_identifier
from seq2seq.settings.languages import NAMES, base_language

Detect = Callable[[str], tuple[str, float]]  # the likeliest language of a text, and its probability (percent)

_THIRD = 0.8  # least probability of a language that the model neither reads nor writes
_TARGET = 0.7  # least probability of the target language: a text in it is not translated


def detector(src_lang: str, tgt_lang: str) -> Detect:
    """Return the function that finds a text's language; without letters, the source language with probability 0.

    A short text looks like many of the 140 languages that py3langid knows. So a text is in the model's source or target
    language, whichever is likelier, unless a third language that has a name in `seq2seq.settings` is certain.
    """
    src, tgt = base_language(src_lang), base_language(tgt_lang)

    def detect(text: str) -> tuple[str, float]:
        words = re.findall(r"[^\W\d_]+", text.lower())
        ranked = load_identifier().rank(f" {' '.join(words)} ")  # likeliest first
        shares = {code: float(share) for code, share in ranked if code in {*NAMES, src, tgt}}
        third, total = next(iter(shares)), sum(shares.values())
        pair = shares.get(src, 0.0), shares.get(tgt, 0.0)
        if third not in (src, tgt) and shares[third] > _THIRD * total:
            return third, float(round(100 * shares[third] / total))
        if not words or not any(pair):
            return src_lang, 0.0
        share = pair[1] / sum(pair)
        return (tgt_lang, float(round(100 * share))) if share > _TARGET else (src_lang, float(round(100 - 100 * share)))

    return detect
