"""Marks of keys in the names of menus and buttons, `_File`, `E&xit` and `~Edit`, as tags that the translation keeps."""

import re

from seq2seq.text.masks import any_of

_KEPT = re.compile(rf"\t.*|{any_of(['symbol', 'code', 'tag', 'placeholder', 'address', 'mail', 'file', 'keys'])}")
_LABEL = re.compile(  # up to the mark: at the start of a word, or in a capitalised one; not in snake_case, R&D or &amp;
    r"(?<![\w&/])[_&~](?=[^\W\d_])(?!\w*[_;])|(?<![\w&/])[A-Z][a-z]*+[_&~](?=[a-z]++(?![\w&;]))"
)
_TAG = re.compile(r"<key([_&~])(\w)/>")


def lift(text: str) -> str:
    """Return a text with a tag in place of its mark; if it has several, they are no marks of keys."""
    if {"_", "&", "~"}.isdisjoint(text):
        return text
    hidden = _KEPT.sub(lambda kept: (" " if kept[0][0] in "<\t" else "0") * len(kept[0]), text)
    ends = [label.end() for label in _LABEL.finditer(hidden)]
    return f"{text[: ends[0] - 1]}<key{text[ends[0] - 1 : ends[0] + 1]}/>{text[ends[0] :]}" if len(ends) == 1 else text


def put_back(text: str) -> str:
    """Return a text with a mark in place of its tag: before the same letter if there is one, at best a word's first."""
    tag = _TAG.search(text)
    if tag is None:
        return text
    text, mark, letter, at = text[: tag.start()] + text[tag.end() :], tag[1], tag[2].casefold(), tag.start()
    hidden = _KEPT.sub(lambda kept: "0" * len(kept[0]), text)
    letters = (i for i, character in enumerate(hidden) if character.isalpha())
    best = min(
        letters, key=lambda i: (hidden[i].casefold() != letter, i != at, hidden[i - 1 : i].isalpha()), default=at
    )
    return text[:best] + mark + text[best:]
