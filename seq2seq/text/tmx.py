"""Sentence pairs of a TMX translation memory, plain, .gz or .xz, read as a stream: memory does not grow with it."""

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from seq2seq.errors import UserError
from seq2seq.text.lines import DAMAGED, explain_os_error, open_bytes

_CHUNK = 1 << 16  # bytes
_CODE = frozenset(("bpt", "ept", "it", "ph", "ut"))  # inline elements that hold markup of the original document


def read_tmx(path: Path, src_lang: str, tgt_lang: str) -> Iterator[tuple[str, str]]:
    """Yield every unit's source and target text, inline markup left out; en stands for en-US and all its kind.

    Units that lack one of the languages are passed over; of several variants in one language the first counts.

    Raises:
        UserError: the file cannot be read, is no TMX or damaged, or declares entities.
    """
    units = _Units()
    try:
        with open_bytes(path) as file:
            while chunk := file.read(_CHUNK):
                units.parser.Parse(chunk)
                yield from units.take(src_lang, tgt_lang)
            units.parser.Parse(b"", True)
            yield from units.take(src_lang, tgt_lang)
    except UserError as error:
        raise UserError(f"{path}:{units.parser.CurrentLineNumber} {error}") from error
    except expat.ExpatError as error:
        raise UserError(f"{path}:{error.lineno} is damaged or no XML: {expat.ErrorString(error.code)}") from error
    except (LookupError, ValueError) as error:
        raise UserError(f"{path} declares an encoding that cannot be read ({error}): convert it to UTF-8") from error
    except DAMAGED as error:
        kind = path.suffix.removeprefix(".")
        raise UserError(f"{path} is damaged or no {kind} data ({error}): fetch it again or rename it") from error
    except OSError as error:
        raise explain_os_error(path, error) from error


class _Units:
    """Collects the units of a TMX file while its bytes are parsed."""

    def __init__(self) -> None:
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.EntityDeclHandler = self._refuse_entity
        self._units: list[dict[str, str]] = []  # complete ones: text by language
        self._open: list[str] = []  # names of the elements around the parser's place
        self._language = ""
        self._parts: list[str] = []  # of the segment

    def take(self, src_lang: str, tgt_lang: str) -> Iterator[tuple[str, str]]:
        """Give the pairs of the units that are complete, once."""
        units, self._units = self._units, []
        for unit in units:
            src, tgt = unit.get(_base(src_lang)), unit.get(_base(tgt_lang))
            if src is not None and tgt is not None:
                yield src, tgt

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and name != "tmx":
            raise UserError(f"begins with <{name}>, expected <tmx>: it is no TMX")
        self._open.append(name)
        if name == "tu":
            self._unit: dict[str, str] = {}
        elif name == "tuv":
            self._language = _base(attributes.get("xml:lang") or attributes.get("lang") or "")
        elif name == "seg":
            self._parts = []

    def _end(self, name: str) -> None:
        self._open.pop()
        if name == "seg" and "tu" in self._open:
            self._unit.setdefault(self._language, " ".join("".join(self._parts).split()))
        elif name == "tu":
            self._units.append(self._unit)

    def _text(self, text: str) -> None:
        if "seg" in self._open and not _CODE.intersection(self._open):
            self._parts.append(text)

    def _refuse_entity(self, name: str, *_: object) -> NoReturn:
        raise UserError(f"declares the entity {name}, which could make a small file huge: take it out")


def _base(language: str) -> str:
    return language.lower().replace("_", "-").split("-")[0]
