"""PO catalogues of gettext, parsed by polib: translations are spliced in place, all other lines stay."""

import logging
import operator
import re
from collections.abc import Iterator, Sequence

import polib

from seq2seq.apps.documents.in_place import lift, put_back, splice
from seq2seq.apps.documents.marked_text import Document, Marked
from seq2seq.errors import UserError

log = logging.getLogger(__name__)

_STRING = r'\s*".*"'
_MSGSTR = re.compile(rf"^[ \t]*msgstr(?:\[\d+\])?{_STRING}(?:(?:\s*msgstr\[\d+\])?{_STRING})*", re.MULTILINE)
_HEADER = re.compile(r'^[ \t]*msgid\s*""\s*^(?=[ \t]*msgstr)', re.MULTILINE)
_FIELD = r'((?:"|\\n){}:)[^"\\]*'  # of the header
_NUM_FORMS = re.compile(r"Plural-Forms:\s*nplurals\s*=\s*([1-9])\b")
_TWO_FORMS = "nplurals=2; plural=(n != 1);"  # of Spanish, and of most languages of Western Europe
_FUZZY_LINE = re.compile(r"^[ \t]*#(?:\||,[ \t]*fuzzy[ \t]*\r?$).*\n", re.MULTILINE)  # with the previous source
_FUZZY = re.compile(r"^([ \t]*#(?:,.*)?),[ \t]*fuzzy(?![\w-])", re.MULTILINE)  # among other flags
_CHARSET = re.compile(r"charset=(?!CHARSET|utf-?8)([\w-]+)", re.IGNORECASE)
_contents = operator.attrgetter("msgctxt", "msgid", "msgid_plural", "msgstr", "msgstr_plural", "fuzzy", "obsolete")


class _Text(str):
    """Text whose lines end at line feeds alone, as in gettext; polib would also end them at form feeds and others."""

    def splitlines(self, keepends: bool = False) -> list[str]:
        return re.findall(r"[^\n]*\n|[^\n]+", self)


def read(text: str, src_lang: str, tgt_lang: str) -> Document:
    """Read entries without a translation or with a fuzzy one.

    The translation of the singular becomes the first of several plural forms; the translation of the plural becomes
    all other forms. If there is something to translate, the header gets the language and, if it has none, plural forms.
    """
    catalogue = _parse(text)
    charset = _CHARSET.search(catalogue.metadata.get("Content-Type", ""))
    if charset:
        raise UserError(f"it declares charset={charset[1]}, expected UTF-8: convert it with msgconv -t UTF-8")
    entries = [entry for entry in catalogue if not (entry.obsolete or entry.translated())]
    forms = _NUM_FORMS.search(f"Plural-Forms:{catalogue.metadata.get('Plural-Forms')}")
    num_forms = int(forms[1]) if forms else 2
    if not forms and any(entry.msgid_plural for entry in entries):
        log.warning("its header has no plural forms: %s is written, as for English and Spanish", _TWO_FORMS)

    def write(translations: Sequence[Marked]) -> str:
        remaining, changed = (_Text(put_back(translation.text)) for translation in translations), []
        for entry in entries:
            new = [next(remaining) for _ in _sources(entry)]
            if not all(_is_format_kept(entry, *texts) for texts in zip(_sources(entry), new, strict=True)):
                log.warning("not translated, since %r has other directives than %r", new, entry.msgid)
                continue
            if entry.msgid_plural:
                entry.msgstr_plural = dict.fromkeys(range(num_forms), new[1])
                entry.msgstr_plural[0] = new[0] if num_forms > 1 else entry.msgstr_plural[0]
            else:
                entry.msgstr = new[0]
            entry.flags = [flag for flag in entry.flags if flag != "fuzzy"]
            changed.append(entry)
        written = splice(text, sorted(_replacements(text, changed, tgt_lang))) if entries else text
        if list(map(_contents, _parse(written))) != list(map(_contents, catalogue)):
            raise UserError("it cannot be written so that it is read back the same: clean it with msgcat")
        return written

    return Document([Marked(lift(source)) for entry in entries for source in _sources(entry)], write)


def _parse(text: str) -> polib.POFile:
    try:  # with a line end, since polib would open a text that is the path of a file
        return polib.pofile(_Text(text.replace("\r\n", "\n") + "\n"))
    except (OSError, ValueError) as error:
        raise UserError(f"it is no PO catalogue: {error}") from error


def _replacements(text: str, entries: list[polib.POEntry], language: str) -> Iterator[tuple[int, int, str]]:
    """Yield where entries, from their comments on, begin and end, and their new text; first the header's language."""
    header = _HEADER.search(text)
    if header:
        strings = _msgstr(text, header.end())
        fields, new = {"Language": language}, strings[0].replace("charset=CHARSET", "charset=UTF-8")
        if not _NUM_FORMS.search(new) and ("Plural-Forms:" in new or any(entry.msgid_plural for entry in entries)):
            fields["Plural-Forms"] = _TWO_FORMS
        for name, value in fields.items():
            new, count = re.subn(_FIELD.format(name), rf"\1 {value}", new)
            new += "" if count else f'{_line_end(strings[0])}"{name}: {value}\\n"'
        yield *strings.span(), new
    line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
    for entry in entries:
        start = line_starts[max(0, (entry.linenum or 0) - 1)]  # polib counts from 1, but says 0 for line 1
        strings = _msgstr(text, start)
        kept = _FUZZY.sub(r"\1", _FUZZY_LINE.sub("", text[start : strings.start()]))
        new = _msgstr(f"{entry}", 0)[0].replace("\n", _line_end(text[start : strings.end() + 2]))
        yield start, strings.end(), kept + new


def _msgstr(text: str, start: int) -> re.Match[str]:
    match = _MSGSTR.search(text, start)
    if match is None:
        raise UserError("it has an entry without msgstr: clean it with msgcat")
    return match


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _sources(entry: polib.POEntry) -> list[str]:
    return [entry.msgid, entry.msgid_plural] if entry.msgid_plural else [entry.msgid]


def _is_format_kept(entry: polib.POEntry, source: str, translation: str) -> bool:
    """Return whether a translation has the percent signs and braces of its source, if a program formats the text."""
    is_format = any(flag.endswith("-format") and not flag.startswith("no-") for flag in entry.flags)
    return not is_format or sorted(re.findall("[%{}]", source)) == sorted(re.findall("[%{}]", translation))
