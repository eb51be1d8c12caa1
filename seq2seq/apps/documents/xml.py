"""XLIFF 1 and 2 and TMX: copies of the sources, with their inline markup, become targets; all else stays as it is.

expat parses a document into a tree of elements that know where they are in the text.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.parsers import expat

from seq2seq.apps.documents.in_place import Passage, lift, put_back, splice
from seq2seq.apps.documents.marked_text import Document, Kind, Marked, MarkedSegment, with_space
from seq2seq.data.languages import base_language
from seq2seq.errors import UserError
from seq2seq.text.masks import any_of

_WRAPPING = ("g", "mrk", "pc", "hi")  # inline elements that hold text; all others hold code
_OPENING, _CLOSING = ("bpt", "bx", "sc"), ("ept", "ex", "ec")  # pairs of code that begin and end a span
_OPEN_STATE = re.compile("new|initial|needs-.*")  # of a target that is not translated yet, or no longer right
_TAG = re.compile(r"""<(?:[^>"']|"[^"]*"|'[^']*')*>""")
_LINE_END = re.compile(rf"(?P<path>{any_of(['file'])})|(?:\\[nrt])+")  # of a program's text
_MAX_DEPTH = 100  # elements in elements

Replacement = tuple[int, int, str]  # where a part of the document begins and ends, and its new text


@dataclass(eq=False)
class Element:
    """An element; or a comment, processing instruction or reference to an entity, which have no name and no content."""

    prefix: str = ""  # of its name, with the colon
    name: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    is_preserved: bool = False  # white space is text, by xml:space here or around it
    is_translated: bool = True  # by translate here or around it
    start: int = 0
    tag: str = ""  # the opening tag as it is written; that of an element without content ends in />
    content: list["str | Element"] = field(default_factory=list)
    content_end: int = 0
    end: int = 0

    @property
    def children(self) -> list["Element"]:
        """The elements directly in this element."""
        return [node for node in self.content if isinstance(node, Element)]

    def child(self, name: str) -> "Element | None":
        """Return the first element of the name directly in this element."""
        return next((child for child in self.children if child.name == name), None)

    def find(self, *names: str) -> list["Element"]:
        """Return the elements of the names in this element, but none that lies in another of them."""
        if self.name in names:
            return [self]
        return [element for child in self.children for element in child.find(*names)]

    def has_text(self) -> bool:
        """Return whether there is more than white space and tags in this element."""
        return any(node.strip() if isinstance(node, str) else node.has_text() for node in self.content)

    def tags(self, name: str) -> tuple[str, str]:
        """Return this element's opening and closing tag, but with another name."""
        name = self.prefix + name
        return re.sub(r"^<[^\s/>]+", f"<{name}", self.tag.rstrip("/>")) + ">", f"</{name}>"


@dataclass(frozen=True)
class Target(Passage):
    """A target, and the part of the document that it replaces, which may be empty."""

    before: str  # its text: the opening tag, and what comes before it
    after: str


def read_xliff(text: str, src_lang: str, tgt_lang: str) -> Document:
    """Read the units without a target; units marked translate="no" do not change."""
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
    return _document(text, targets, changes)


def read_tmx(text: str, src_lang: str, tgt_lang: str) -> Document:
    """Read the units of a translation memory that have the source language but no text in the target language."""
    targets = []
    for unit in _parse(text, "tmx").find("tu"):
        variants = {_language(child): child for child in reversed(unit.children) if child.name == "tuv"}
        source, target = (variants.get(base_language(language)) for language in (src_lang, tgt_lang))
        segment = source and source.child("seg")
        if source is None or segment is None or (target is not None and target.has_text()):
            continue
        start, end = with_space(text, segment.start, segment.end, 0, len(text), str.isspace)
        opening, closing = segment.tags("seg")
        opening = f'<tuv xml:lang="{tgt_lang}">{text[start : segment.start]}{opening}'
        closing = f"{closing}{text[segment.end : end]}</tuv>"
        targets.append(_target(text, source, segment, target, (opening, closing)))
    return _document(text, targets, [])


def _parse(text: str, root_name: str) -> Element:
    """Return the outermost element. Entities that the document declares are not replaced by their text."""
    try:
        root = _Parser(text).root.children[0]
    except expat.ExpatError as error:
        raise UserError(f"it is damaged or no XML: {error}") from error
    if root.name != root_name:
        raise UserError(f"its outermost element is {root.name:.60}, expected {root_name}: check the name's ending")
    return root


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._data = text, text.encode()
        self._num_bytes = self._position = 0  # up to the last event, in bytes and in characters
        self.root = Element()  # around the outermost element
        self._open = [self.root]
        self._expat = expat.ParserCreate("utf-8")
        self._expat.buffer_text = True
        self._expat.StartElementHandler, self._expat.EndElementHandler = self._start, self._end
        self._expat.CharacterDataHandler = lambda text: self._open[-1].content.append(text)
        self._expat.StartCdataSectionHandler = self._expat.EndCdataSectionHandler = lambda: None
        self._expat.DefaultHandler = self._add_other  # with this handler, expat does not expand entities
        self._expat.Parse(self._data, True)

    def _advance(self) -> int:
        """Return the event's position in the text."""
        index = self._expat.CurrentByteIndex
        self._position += len(self._data[self._num_bytes : index].decode())
        self._num_bytes = index
        return self._position

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        parent, start = self._open[-1], self._advance()
        prefix, colon, local_name = name.rpartition(":")
        element = Element(prefix + colon, local_name, attributes, parent.is_preserved, parent.is_translated, start)
        if "xml:space" in attributes:
            element.is_preserved = attributes["xml:space"] == "preserve"
        if "translate" in attributes or attributes.get("mtype") == "protected":
            element.is_translated = attributes.get("translate") != "no" and attributes.get("mtype") != "protected"
        tag = _TAG.match(self._text, start)
        assert tag is not None
        element.tag = tag[0]
        parent.content.append(element)
        self._open.append(element)
        if len(self._open) > _MAX_DEPTH:
            raise UserError(f"its elements are nested more than {_MAX_DEPTH} deep: take some out")

    def _end(self, _: str) -> None:
        element = self._open.pop()
        element.content_end = element.end = element.start + len(element.tag)
        if not element.tag.endswith("/>"):
            element.content_end = self._advance()
            element.end = self._text.index(">", element.content_end) + 1

    def _add_other(self, markup: str) -> None:
        if len(self._open) > 1:
            start = self._advance()
            self._open[-1].content.append(Element(start=start, end=start + len(markup)))


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
            words, at = lift(node if element.is_preserved else re.sub(r"[ \t\r]*\n[ \t\r\n]*", " ", node)), 0
            for line_end in _LINE_END.finditer(words):
                if not line_end["path"]:
                    segment.add_text(words[at : line_end.start()])
                    segment.add_break(line_end[0], "\n")
                    at = line_end.end()
            segment.add_text(words[at:])
        elif node.name in _WRAPPING and node.is_translated and node.content_end < node.end:
            segment.add_mark(Kind.OPEN, node.tag)
            _read(text, node, segment)
            segment.add_mark(Kind.CLOSE, text[node.content_end : node.end])
        elif node.name in _OPENING + _CLOSING:
            segment.add_mark(Kind.OPEN if node.name in _OPENING else Kind.CLOSE, text[node.start : node.end])
        else:
            segment.add_object(text[node.start : node.end])


def _document(text: str, targets: list[Target], changes: list[Replacement]) -> Document:
    """Return a document that gets targets and, if there are any, the other changes."""
    line_end = "\r\n" if "\r\n" in text else "\n"

    def escape(text: str) -> str:
        return html.escape(put_back(text), quote=False).replace("\r", "&#13;").replace("\n", line_end)

    def write(translations: Sequence[Marked]) -> str:
        pairs = zip(targets, translations, strict=True)
        new = [(old.start, old.end, old.before + old.write(marked, escape) + old.after) for old, marked in pairs]
        return splice(text, sorted(new + changes * bool(targets)))

    return Document([target.segment.marked for target in targets], write)


def _language(variant: Element) -> str:
    return base_language(variant.attributes.get("xml:lang") or variant.attributes.get("lang") or "")
