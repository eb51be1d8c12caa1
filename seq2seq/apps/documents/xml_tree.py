"""XML as a tree of elements that know where they are in the text, parsed by expat. Independent of document formats."""

import re
from dataclasses import dataclass, field
from xml.parsers import expat

from seq2seq.errors import UserError

_TAG = re.compile(r"""<(?:[^>"']|"[^"]*"|'[^']*')*>""")
_MAX_DEPTH = 100  # elements in elements


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


def parse(text: str) -> Element:
    """Return the outermost element. Entities that the document declares are not replaced by their text."""
    try:
        return _Parser(text).root.children[0]
    except expat.ExpatError as error:
        raise UserError(f"it is damaged or no XML: {error}") from error


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
