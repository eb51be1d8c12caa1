"""One sentence, one spelling: Unicode NFC, single spaces, no invisible characters; knows no files."""

import re
import unicodedata

# C0 and C1 controls that are not white space, soft hyphen, zero-width space, direction marks, word joiner and byte
# order mark. The zero-width joiners stay: emoji, Persian and Indic scripts are spelt with them.
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: what undecodable bytes become in Python
_SPACE_MARK = "\u2581"  # SentencePiece writes a space like this, so text must not


def normalise(text: str) -> str:
    """Bring text to the one spelling that tokenizer, filters and overlap check see.

    NFC; every run of white space (no-break space, tab and line ends too) becomes one space and none is left at the
    ends; invisible characters go; half surrogates become U+FFFD and U+2581 becomes an underscore.
    """
    if not text.isascii():
        text = _SURROGATE.sub("\ufffd", text).replace(_SPACE_MARK, "_")
    return unicodedata.normalize("NFC", one_line(_INVISIBLE.sub("", text)))


def one_line(text: str) -> str:
    """Replace every run of white space by one space; change nothing else."""
    return " ".join(text.split())
