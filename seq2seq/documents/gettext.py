"""PO catalogues of gettext, through polib: entries without a translation, or with a fuzzy one, get one."""

import re

import polib

from seq2seq.documents.keeping import TranslateMarked
from seq2seq.documents.marked import Marked
from seq2seq.errors import UserError


def translate_document(text: str, translate: TranslateMarked, src_lang: str, tgt_lang: str) -> str:
    """Translate what is not translated yet; singular and plural each, the plural standing for all further forms.

    Raises:
        UserError: it is no PO catalogue, not in UTF-8, or has plurals but does not tell how many forms they have.
    """
    try:
        catalogue = polib.pofile(f"{text}\n")  # polib would open a text that is the path of a file
    except (OSError, ValueError) as error:
        raise UserError(f"it is no PO catalogue: {error}") from error
    charset = re.search(
        r"charset=(?!CHARSET|utf-?8)([\w-]+)", catalogue.metadata.get("Content-Type", ""), re.IGNORECASE
    )
    if charset:
        raise UserError(f"it declares charset={charset[1]}, expected UTF-8: convert it with msgconv -t UTF-8")
    entries = [entry for entry in catalogue if not (entry.obsolete or entry.translated())]
    found = iter(translate([Marked(text) for entry in entries for text in _sources(entry)]))
    for entry in entries:
        forms = [next(found).text for _ in _sources(entry)]
        if entry.msgid_plural:
            count = _num_forms(catalogue)
            entry.msgstr_plural = {form: forms[0] if form == 0 and count > 1 else forms[1] for form in range(count)}
        else:
            entry.msgstr = forms[0]
        entry.flags = [flag for flag in entry.flags if flag != "fuzzy"]
        entry.previous_msgctxt = entry.previous_msgid = entry.previous_msgid_plural = None
    catalogue.metadata["Language"] = tgt_lang
    return f"{catalogue}"


def _sources(entry: polib.POEntry) -> list[str]:
    return [entry.msgid, entry.msgid_plural] if entry.msgid_plural else [entry.msgid]


def _num_forms(catalogue: polib.POFile) -> int:
    count = re.match(r"\s*nplurals\s*=\s*([1-9])\b", catalogue.metadata.get("Plural-Forms", ""))
    if count is None:
        raise UserError("it has plurals, but its header no Plural-Forms: add it, such as nplurals=2; plural=(n != 1);")
    return int(count[1])
