"""PO catalogues of gettext, read by polib: entries without a translation, or with a fuzzy one, are translated."""

import re
from collections.abc import Sequence

import polib

from seq2seq.documents.marked import Document, Marked
from seq2seq.errors import UserError

_SPLITTING = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # polib would end lines at them, gettext does not
_PRIVATE = "".join(chr(0x10FF00 + number) for number in range(len(_SPLITTING)))
_HIDDEN, _SHOWN = str.maketrans(_SPLITTING, _PRIVATE), str.maketrans(_PRIVATE, _SPLITTING)
_FAR = 50  # lines of the original that are searched for a line of the translated catalogue


def read(text: str, src_lang: str, tgt_lang: str) -> Document[str]:
    """Read entries without a translation or with a fuzzy one.

    The translation of the singular becomes the first of several plural forms; the translation of the plural becomes
    all other forms.

    Raises:
        UserError: text is no PO catalogue, is not in UTF-8, or has plurals but no number of plural forms.
    """
    try:
        # With a line end, since polib would open a text that is the path of a file.
        catalogue = polib.pofile(text.replace("\r\n", "\n").translate(_HIDDEN) + "\n")
    except (OSError, ValueError) as error:
        raise UserError(f"it is no PO catalogue: {error}") from error
    charset = re.search(
        r"charset=(?!CHARSET|utf-?8)([\w-]+)", catalogue.metadata.get("Content-Type", ""), re.IGNORECASE
    )
    if charset:
        raise UserError(f"it declares charset={charset[1]}, expected UTF-8: convert it with msgconv -t UTF-8")
    entries = [entry for entry in catalogue if not (entry.obsolete or entry.translated())]
    count = _num_forms(catalogue) if any(entry.msgid_plural for entry in entries) else 0

    def write(translations: Sequence[Marked]) -> str:
        found = iter(translations)
        for entry in entries:
            forms = [next(found).text.translate(_HIDDEN) for _ in _sources(entry)]
            if entry.msgid_plural:
                entry.msgstr_plural = {form: forms[0] if form == 0 and count > 1 else forms[1] for form in range(count)}
            else:
                entry.msgstr = forms[0]
            entry.flags = [flag for flag in entry.flags if flag != "fuzzy"]
            entry.previous_msgctxt = entry.previous_msgid = entry.previous_msgid_plural = None
        catalogue.metadata["Language"] = tgt_lang
        return _with_line_ends(f"{catalogue}".translate(_SHOWN), text)

    sources = [source.translate(_SHOWN) for entry in entries for source in _sources(entry)]
    return Document([Marked(source) for source in sources], write)


def _with_line_ends(translated: str, text: str) -> str:
    """Return the translated text with the line ends of `text`; a new line gets the line end of the line before."""
    lines = text.split("\n")[:-1]
    ends = [(line.removesuffix("\r"), "\r\n" if line.endswith("\r") else "\n") for line in lines]
    parts, at, end = [], 0, ends[0][1] if ends else "\n"
    for line in translated.split("\n")[:-1]:
        for number in range(at, min(at + _FAR, len(ends))):
            if ends[number][0] == line:
                at, end = number + 1, ends[number][1]
                break
        parts += [line, end]
    return "".join(parts) + translated.split("\n")[-1]


def _sources(entry: polib.POEntry) -> list[str]:
    return [entry.msgid, entry.msgid_plural] if entry.msgid_plural else [entry.msgid]


def _num_forms(catalogue: polib.POFile) -> int:
    count = re.match(r"\s*nplurals\s*=\s*([1-9])\b", catalogue.metadata.get("Plural-Forms", ""))
    if count is None:
        raise UserError("it has plurals, but its header no Plural-Forms: add it, such as nplurals=2; plural=(n != 1);")
    return int(count[1])
