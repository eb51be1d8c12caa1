"""XLIFF 1 and 2 and TMX, with lxml: targets are made from copies of the sources, so that they keep inline markup."""

import copy
import logging
import re
from collections.abc import Iterator, Sequence

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]  # has no stubs

from seq2seq.documents.marked import Document, Kind, Marked, Segment
from seq2seq.errors import UserError

log = logging.getLogger(__name__)

_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_WRAPPING = ("g", "mrk", "pc", "hi")  # inline elements that hold text; all others hold code
_OPENING, _CLOSING = ("bpt", "bx", "sc"), ("ept", "ex", "ec")  # pairs of code that begin and end a span
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # by XML 1.0 (§2.2), even escaped
_PROLOGUE = re.compile(  # what may come before the outermost element
    r"\ufeff?(?:\s|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>)*", re.DOTALL
)
_OPEN_STATES = ("new", "initial", "needs-translation")  # of a target that is not translated yet

Markup = tuple[etree._Element, bool]  # an element, and whether its content begins here


def read_xliff(data: bytes, src_lang: str, tgt_lang: str) -> Document[bytes]:
    """Read the units without a target; units marked translate="no" do not change.

    Raises:
        UserError: the document is damaged, no XLIFF, or of other languages.
    """
    root = _parse(data, "xliff")
    return _document(data, root, _new_xliff_targets(root, src_lang, tgt_lang))


def read_tmx(data: bytes, src_lang: str, tgt_lang: str) -> Document[bytes]:
    """Read the units of a translation memory that have the source language but no text in the target language.

    Raises:
        UserError: the document is damaged or no TMX.
    """
    root = _parse(data, "tmx")
    return _document(data, root, _new_tmx_targets(root, src_lang, tgt_lang))


def _parse(data: bytes, root_name: str) -> etree._Element:
    try:
        root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True, strip_cdata=False))
    except etree.XMLSyntaxError as error:
        told = " ".join(str(error).split())
        raise UserError(f"it is damaged or no XML: {told:.200}") from error
    if _name(root) != root_name:
        raise UserError(f"its outermost element is {_name(root)}, expected {root_name}: check the name's ending")
    return root


def _outermost(root: etree._Element, *names: str) -> list[etree._Element]:
    """Return the units of these names that lie in no other: a copied source must not bring new ones."""
    units = list(root.iter(*names))
    known = set(units)
    return [unit for unit in units if known.isdisjoint(unit.iterancestors())]


def _document(data: bytes, root: etree._Element, new_targets: Iterator[etree._Element]) -> Document[bytes]:
    targets = list(new_targets)
    segments = [_read(target) for target in targets]

    def write(translations: Sequence[Marked]) -> bytes:
        num_forbidden = sum(map(_write, targets, segments, translations))
        if num_forbidden:
            told = "%d control characters were left out of translations: XML has no way to write them"
            log.warning(told, num_forbidden)
        try:
            written = _with_surroundings(data, root)
            is_whole = _names(_parse(written, _name(root))) == _names(root)
        except (UserError, LookupError, UnicodeError, ValueError):
            is_whole, written = False, b""
        if not is_whole:
            raise UserError("it cannot be written so that it is read back the same: convert it to UTF-8")
        return written

    return Document([segment.marked for segment in segments], write)


def _with_surroundings(data: bytes, root: etree._Element) -> bytes:
    """Return the element as bytes, with what comes before and after it in the document, its encoding and line ends."""
    encoding = root.getroottree().docinfo.encoding or "UTF-8"
    text = data.decode(encoding)
    before = _PROLOGUE.match(text)
    name = f"{root.prefix}:{_name(root)}" if root.prefix else _name(root)
    last = text.rfind(f"</{name}")
    if before is None or last < 0:  # an element without content
        return data
    end = text.index(">", last) + 1
    inner = etree.tostring(root, encoding="unicode", with_tail=False)
    if "\r\n" in text and not re.search(r"(?<!\r)\n", text):
        inner = inner.replace("\n", "\r\n")
    return f"{before[0]}{inner}{text[end:]}".encode(encoding, "xmlcharrefreplace")


def _names(root: etree._Element) -> list[object]:
    return [element.tag for element in root.iter()]


def _new_xliff_targets(root: etree._Element, src_lang: str, tgt_lang: str) -> Iterator[etree._Element]:
    """Add a copy of the source to every unit that needs a target, and yield the copies."""
    is_version_2 = root.get("version", "").startswith("2")
    names = ("srcLang", "trgLang") if is_version_2 else ("source-language", "target-language")
    for holder in [root] if is_version_2 else root.iterfind("{*}file"):
        for name, language in zip(names, (src_lang, tgt_lang), strict=True):
            if not _is_language(holder.get(name, language), language):
                raise UserError(f"it has {name}={holder.get(name)}, but the model translates {src_lang} to {tgt_lang}")
        holder.set(names[1], holder.get(names[1], tgt_lang))
    for unit in _outermost(root, "{*}trans-unit", "{*}segment"):
        source, target = unit.find("{*}source"), unit.find("{*}target")
        state = unit.get("state") if is_version_2 or target is None else target.get("state")
        if source is None or _is_untranslated(unit) or (_has_text(target) and state not in _OPEN_STATES):
            continue
        if is_version_2 and state in _OPEN_STATES:
            unit.set("state", "translated")
        segmented = unit.find("{*}seg-source")
        template = source if segmented is None else segmented
        new = copy.deepcopy(template)
        new.tag = etree.QName(etree.QName(source).namespace, "target")
        if _LANG in new.attrib:
            new.set(_LANG, tgt_lang)
        _replace(target, new) if target is not None else _insert_after(template, new)
        yield new


def _new_tmx_targets(root: etree._Element, src_lang: str, tgt_lang: str) -> Iterator[etree._Element]:
    """Add a copy of the source to every unit that lacks the target language, and yield the copies."""
    for unit in _outermost(root, "tu"):
        variants = [(variant.get(_LANG) or variant.get("lang") or "", variant) for variant in unit.iterfind("tuv")]
        source = next((variant for language, variant in variants if _is_language(language, src_lang)), None)
        target = next((variant for language, variant in variants if _is_language(language, tgt_lang)), None)
        segment = None if source is None else source.find("seg")
        if source is None or segment is None or _has_text(target):
            continue
        new = etree.Element("tuv", {_LANG: tgt_lang})
        new.append(copy.deepcopy(segment))
        new.text, new[0].tail = source.text, segment.tail
        _replace(target, new) if target is not None else _insert_after(source, new)
        yield new[0]


def _read(target: etree._Element) -> Segment[Markup]:
    """Read an element's text and inline elements, and remove them from the element."""
    segment: Segment[Markup] = Segment()
    marks = (at.get(_SPACE) for at in (target, *target.iterancestors()))
    _take(target, segment, is_preserved=next((mark for mark in marks if mark), "default") == "preserve")
    return segment


def _take(element: etree._Element, segment: Segment[Markup], *, is_preserved: bool) -> None:
    """Move an element's content to a segment; line ends stay only if the document preserves space."""
    is_preserved = element.get(_SPACE, "preserve" if is_preserved else "default") == "preserve"

    def add_text(text: str | None) -> None:
        segment.add_text(text or "" if is_preserved else re.sub(r"\s*\n\s*", " ", text or ""))

    add_text(element.text)
    for child in list(element):
        name = _name(child) if isinstance(child.tag, str) else ""
        if name in _WRAPPING and not _is_untranslated(child):
            segment.add_mark(Kind.OPEN, (child, True))
            _take(child, segment, is_preserved=is_preserved)
            segment.add_mark(Kind.CLOSE, (child, False))
        elif name in _OPENING + _CLOSING:
            segment.add_mark(Kind.OPEN if name in _OPENING else Kind.CLOSE, (child, False))
        else:
            segment.add_object((child, False))
        add_text(child.tail)
        child.tail = None
        element.remove(child)
    element.text = None


def _write(target: etree._Element, segment: Segment[Markup], translated: Marked) -> int:
    """Put a translation and its inline elements into an empty element.

    Returns:
        The number of characters left out because XML forbids them.
    """
    num_forbidden = 0
    path, last = [target], None  # last: the element that the next text follows; None: the text is first in path[-1]
    for part, markup in segment.fill(translated):
        text, count = _FORBIDDEN.subn("", part)
        num_forbidden += count
        if text and last is None:
            path[-1].text = text
        elif text and last is not None:
            last.tail = text
        if markup is None:
            break
        element, is_beginning = markup
        if element is path[-1]:
            last = path.pop()
            continue
        path[-1].append(element)
        last = element
        if is_beginning:
            path.append(element)
            last = None
    return num_forbidden


def _is_untranslated(element: etree._Element) -> bool:
    """Return whether the element, or an element around it, is marked as not to be translated."""
    if element.get("mtype") == "protected":
        return True
    marks = (at.get("translate") for at in (element, *element.iterancestors()))
    return next((mark for mark in marks if mark), "yes") == "no"


def _has_text(element: etree._Element | None) -> bool:
    return element is not None and any(text.strip() for text in element.itertext())


def _is_language(code: str, language: str) -> bool:
    """Return whether two language codes are equal without their regions: en-US is en."""
    return re.split("[-_]", code.lower())[0] == re.split("[-_]", language.lower())[0]


def _name(element: etree._Element) -> str:
    return etree.QName(element).localname


def _replace(old: etree._Element, new: etree._Element) -> None:
    new.tail = old.tail
    parent = old.getparent()
    assert parent is not None
    parent.replace(old, new)


def _insert_after(element: etree._Element, new: etree._Element) -> None:
    """Insert `new` after `element`, with the same indentation."""
    parent, previous = element.getparent(), element.getprevious()
    assert parent is not None
    new.tail, element.tail = element.tail, parent.text if previous is None else previous.tail
    parent.insert(parent.index(element) + 1, new)
