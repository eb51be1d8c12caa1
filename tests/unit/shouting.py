"""A model that puts words into capitals and keeps strings as `seq2seq.translate.kept` does."""

from collections.abc import Sequence

from seq2seq.apps.documents.kept_strings import Translate, translate_marked
from seq2seq.apps.documents.marked_text import Marked
from seq2seq.text.masks import Masker

FIND = Masker(0, is_spelt=True).mask


def shout(text: str) -> str:
    parts = list[str]()
    for string in FIND(text).strings:
        before, _, text = text.partition(string)
        parts += [before.upper(), string]
    return "".join([*parts, text.upper()])


def translate_texts(texts: Sequence[str], translate: Translate) -> list[str]:
    """Translate texts without marks."""
    return [translated.text for translated in translate_marked([Marked(text) for text in texts], translate)]


def shout_all(texts: Sequence[str], align: bool) -> list[tuple[str, None]]:
    return [(shout(text), None) for text in texts]
