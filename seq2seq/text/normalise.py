"""Normalisation of text: Unicode NFC, one form of each letter, single spaces, no invisible characters.

Reads no files.
"""

import re
import unicodedata

# C0 and C1 controls that are not white space, soft hyphen, zero-width space, direction marks, word joiner, byte order
# mark, and letters without ink (fillers of Hangul, blank Braille). The zero-width joiners stay: emoji, Persian and
# Indic scripts are spelt with them.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069"
    "\u2800\u3164\ufeff\uffa0]"
)
CONTROLS = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")  # of these, those that a terminal would obey
# Selectors of an emoji's or a text's look, after a character that has no such looks.
_STRAY_SELECTOR = re.compile(
    "(?<![#*0-9\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff])[\ufe0e\ufe0f]+"
    "|(?<=[#*0-9])[\ufe0e\ufe0f]+(?!\u20e3)"
)
# Characters that only look different from the characters of their form NFKC: ligatures and digraphs (ﬁ, ĳ), a long s,
# mathematical alphabets (𝐚, ℎ), letters and signs of full and of half width (Ａ, ｱ). Characters whose form NFKC means
# something else, such as ² ½ ™ …, stay.
_VARIANTS = re.compile(
    "[\u0132\u0133\u013f\u0140\u0149\u017f\u01c4-\u01cc\u01f1-\u01f3\u2102\u210a-\u2113\u2115\u2119-\u211d\u2124\u2128"
    "\u212c\u212d\u212f-\u2131\u2133\u2134\u213c-\u213f\u2145-\u2149\ufb00-\ufb06\ufb13-\ufb17\ufb20-\ufb28"
    "\uff01-\uff9f\uffa1-\uffdc\uffe0-\uffe2\uffe4-\uffee\U0001d400-\U0001d7ff\U0001ee00-\U0001eebb\U0001fbf0-\U0001fbf9]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: Python turns undecodable bytes into surrogates
_SPACE_MARK = "\u2581"  # SentencePiece writes a space as this character, so text must not contain it


def normalise(text: str) -> str:
    """Return text in the normal form that tokenizer, filters and overlap check use.

    The form is NFC. Every run of white space (including no-break spaces, tabs and line ends) becomes one space, and
    white space at the ends is removed. Invisible characters are removed. Ligatures, letters of full width and their
    kin become plain letters. A surrogate becomes U+FFFD, and U+2581 becomes an underscore.
    """
    text = _INVISIBLE.sub("", text)
    if not text.isascii():
        text = replace_surrogates(text).replace(_SPACE_MARK, "_")
        text = _VARIANTS.sub(lambda match: unicodedata.normalize("NFKC", match[0]), _STRAY_SELECTOR.sub("", text))
    return unicodedata.normalize("NFC", one_line(text))


def replace_surrogates(text: str) -> str:
    """Replace every surrogate, which UTF-8 cannot hold, by U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Replace every run of white space by one space, and remove white space at the ends; change nothing else."""
    return " ".join(text.split())
