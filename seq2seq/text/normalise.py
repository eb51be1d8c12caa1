"""Normalisation of text: Unicode NFC, single spaces, no invisible characters. Reads no files."""

import re
import unicodedata

# C0 and C1 controls that are not white space, soft hyphen, zero-width space, direction marks, word joiner and byte
# order mark. The zero-width joiners stay: emoji, Persian and Indic scripts are spelt with them.
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
CONTROLS = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")  # of these, those that a terminal would obey
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: Python turns undecodable bytes into surrogates
_SPACE_MARK = "\u2581"  # SentencePiece writes a space as this character, so text must not contain it


def normalise(text: str) -> str:
    """Return text in the normal form that tokenizer, filters and overlap check use.

    The form is NFC. Every run of white space (including no-break spaces, tabs and line ends) becomes one space, and
    white space at the ends is removed. Invisible characters are removed. A surrogate becomes U+FFFD, and U+2581
    becomes an underscore.
    """
    if not text.isascii():
        text = replace_surrogates(text).replace(_SPACE_MARK, "_")
    return unicodedata.normalize("NFC", one_line(_INVISIBLE.sub("", text)))


def replace_surrogates(text: str) -> str:
    """Replace every surrogate, which UTF-8 cannot hold, by U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Replace every run of white space by one space, and remove white space at the ends; change nothing else."""
    return " ".join(text.split())
