"""XLIFF 1 and 2 and TMX: copies of the sources, with their inline markup, become targets; all else stays as it is."""

import codecs
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from seq2seq.apps.documents.in_place import Passage, lift, put_back, splice
from seq2seq.apps.documents.marked_text import Document, Kind, Marked, MarkedSegment, with_space
from seq2seq.apps.documents.xml_tree import Element, parse
from seq2seq.data.languages import base_language
from seq2seq.errors import UserError

_WRAPPING = ("g", "mrk", "pc", "hi")  # inline elements that hold text; all others hold code
_OPENING, _CLOSING = ("bpt", "bx", "sc"), ("ept", "ex", "ec")  # pairs of code that begin and end a span
_OPEN_STATE = re.compile("new|initial|needs-.*")  # of a target that is not translated yet, or no longer right
_ENCODING = re.compile(rb"""<\?xml\s[^>]*?\bencoding\s*=\s*["']([\w.-]+)""")

Replacement = tuple[int, int, str]  # where a part of the document begins and ends, and its new text


@dataclass(frozen=True)
class Target(Passage):
    """A target, and the part of the document that it replaces, which may be empty."""

    before: str  # its text: the opening tag, and what comes before it
    after: str


def read_xliff(data: bytes, src_lang: str, tgt_lang: str) -> Document[bytes]:
    """Read the units without a target; units marked translate="no" do not change."""
    text, encoding = _decode(data)
    root = _parse(text, "xliff")
    is_version_2 = root.attributes.get("version", "").startswith("2")
    names = ("srcLang", "trgLang") if is_version_2 else ("source-language", "target-language")
    changes: list[Replacement] = []
    for holder in [root] if is_version_2 else root.find("file"):
        for name, language in zip(names, (src_lang, tgt_lang), strict=True):
            value = holder.attributes.get(name, language)
            if base_language(value) != base_language(language):
                raise UserError(f"it has {name}={value}, but the model translates {src_lang} to {tgt_lang}")
        if names[1] not in holder.attributes:
            changes.append(_new_tag(holder, r"\s*/?>$", rf' {names[1]}="{tgt_lang}"\g<0>'))
    targets = []
    for unit in root.find("trans-unit", "segment"):
        source, target = unit.child("source"), unit.child("target")
        state = (unit if is_version_2 or target is None else target).attributes.get("state", "")
        is_finished = target is not None and target.has_text() and not _OPEN_STATE.fullmatch(state)
        if source is None or is_finished or not unit.is_translated:
            continue
        if is_version_2 and _OPEN_STATE.fullmatch(state):
            changes.append(_new_tag(unit, r"""(\sstate\s*=\s*["'])[^"']*""", r"\1translated"))
        template = unit.child("seg-source") or source
        opening, closing = template.tags("target")
        opening = re.sub(r"""(\sxml:lang\s*=\s*["'])[^"']*""", rf"\g<1>{tgt_lang}", opening)
        targets.append(_target(text, template, template, target, (opening, closing)))
    return _document(text, encoding, targets, changes)


def read_tmx(data: bytes, src_lang: str, tgt_lang: str) -> Document[bytes]:
    """Read the units of a translation memory that have the source language but no text in the target language."""
    text, encoding = _decode(data)
    targets = []
    for unit in _parse(text, "tmx").find("tu"):
        variants = [child for child in unit.children if child.name == "tuv"]
        source = next((variant for variant in variants if _language(variant) == base_language(src_lang)), None)
        target = next((variant for variant in variants if _language(variant) == base_language(tgt_lang)), None)
        segment = source and source.child("seg")
        if source is None or segment is None or (target is not None and target.has_text()):
            continue
        start, end = with_space(text, segment.start, segment.end, 0, len(text), str.isspace)
        opening, closing = segment.tags("seg")
        opening = f'<tuv xml:lang="{tgt_lang}">{text[start : segment.start]}{opening}'
        closing = f"{closing}{text[segment.end : end]}</tuv>"
        targets.append(_target(text, source, segment, target, (opening, closing)))
    return _document(text, encoding, targets, [])


def _decode(data: bytes) -> tuple[str, str]:
    """Return a document as text, and its encoding; a byte order mark is part of the text."""
    declared = _ENCODING.match(data.removeprefix(codecs.BOM_UTF8))
    encoding = declared[1].decode() if declared else "utf-8"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16-le" if data.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    try:
        text = data.decode(encoding)
        is_same = text.encode(encoding) == data
    except (LookupError, ValueError):
        text, is_same = "", False
    if not is_same:
        raise UserError(f"it cannot be read and written in its encoding, {encoding}: convert it to UTF-8")
    return text, encoding


def _parse(text: str, root_name: str) -> Element:
    root = parse(text)
    if root.name != root_name:
        raise UserError(f"its outermost element is {root.name:.60}, expected {root_name}: check the name's ending")
    return root


def _new_tag(element: Element, pattern: str, new: str) -> Replacement:
    return element.start, element.start + len(element.tag), re.sub(pattern, new, element.tag)


def _target(text: str, source: Element, template: Element, old: Element | None, tags: tuple[str, str]) -> Target:
    """Return a target with the text of the template, in place of the old target or, indented, after the source."""
    segment: MarkedSegment[str] = MarkedSegment()
    _read(text, template, segment)
    if old is not None:
        return Target(old.start, old.end, segment, *tags)
    indent = text[with_space(text, source.start, source.start, 0, source.start, str.isspace)[0] : source.start]
    return Target(source.end, source.end, segment, indent + tags[0], tags[1])


def _read(text: str, element: Element, segment: MarkedSegment[str]) -> None:
    """Add an element's content to a segment; line ends stay only if the document preserves white space."""
    for node in element.content:
        if isinstance(node, str):
            segment.add_text(lift(node if element.is_preserved else re.sub(r"[ \t\r]*\n[ \t\r\n]*", " ", node)))
        elif node.name in _WRAPPING and node.is_translated and node.content_end < node.end:
            segment.add_mark(Kind.OPEN, node.tag)
            _read(text, node, segment)
            segment.add_mark(Kind.CLOSE, text[node.content_end : node.end])
        elif node.name in _OPENING + _CLOSING:
            segment.add_mark(Kind.OPEN if node.name in _OPENING else Kind.CLOSE, text[node.start : node.end])
        else:
            segment.add_object(text[node.start : node.end])


def _document(text: str, encoding: str, targets: list[Target], changes: list[Replacement]) -> Document[bytes]:
    """Return a document that gets targets and, if there are any, the other changes."""
    line_end = "\r\n" if "\r\n" in text else "\n"

    def escape(text: str) -> str:
        return html.escape(put_back(text), quote=False).replace("\r", "&#13;").replace("\n", line_end)

    def write(translations: Sequence[Marked]) -> bytes:
        replacements = list(changes) if targets else []
        for target, translation in zip(targets, translations, strict=True):
            replacements.append(
                (target.start, target.end, target.before + target.write(translation, escape) + target.after)
            )
        return splice(text, sorted(replacements)).encode(encoding, "xmlcharrefreplace")

    return Document([target.segment.marked for target in targets], write)


def _language(variant: Element) -> str:
    return base_language(variant.attributes.get("xml:lang") or variant.attributes.get("lang") or "")
