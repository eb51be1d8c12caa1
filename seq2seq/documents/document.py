"""Translates a document file into a file of the same format, by its name's ending; knows no model."""

import importlib
from collections.abc import Sequence
from pathlib import Path

from seq2seq.documents.keeping import Translate, TranslateMarked, translate_marked
from seq2seq.documents.marked import OBJECT, Marked
from seq2seq.drafts import replacing
from seq2seq.errors import UserError
from seq2seq.extras import needing

_TEXT_FORMATS = {  # ending: module and function, which takes and gives text
    ".srt": ("subtitles", "translate_document"),
    ".po": ("gettext", "translate_document"),
    ".html": ("html", "translate_document"),
    ".htm": ("html", "translate_document"),
    ".md": ("markdown", "translate_document"),
    ".markdown": ("markdown", "translate_document"),
}
_BYTE_FORMATS = {  # the same with bytes, since the file itself tells its encoding
    ".xliff": ("xml", "translate_xliff"),
    ".xlf": ("xml", "translate_xliff"),
    ".tmx": ("xml", "translate_tmx"),
}
_BOM = b"\xef\xbb\xbf"


def is_document(path: Path) -> bool:
    """Tell by its ending whether a file is translated as a document, not line by line."""
    return path.suffix.lower() in _TEXT_FORMATS | _BYTE_FORMATS


def translate_document(path_in: Path, path_out: Path, translate: Translate, src_lang: str, tgt_lang: str) -> int:
    """Translate the text of a document and leave all else as it is; the new file appears when it is whole.

    Every line keeps its line end. A new file gets the permissions of path_in, one that was there keeps its own.

    Args:
        path_in: an .srt, .po, .xliff, .xlf, .tmx, .html or .md file.
        path_out: the file to write, of the same format; may be path_in.
        translate: gives every text's translation and, if asked for, the alignment of their words.
        src_lang: language of the document, such as "en".
        tgt_lang: language of the translations.

    Returns:
        The number of texts that were translated.

    Raises:
        UserError: a file cannot be read or written, is malformed, has another format, or cannot be kept intact.
    """
    ending = path_in.suffix.lower()
    if not is_document(path_in) or ending != path_out.suffix.lower():
        known = ", ".join(_TEXT_FORMATS | _BYTE_FORMATS)
        raise UserError(f"{path_in} cannot become {path_out}: give two names with the same ending, one of {known}")
    try:
        data = path_in.read_bytes()
    except OSError as error:
        raise UserError(f"{path_in} cannot be read: {error.strerror}") from error
    num_texts = 0

    def keep(texts: Sequence[Marked]) -> list[Marked]:
        nonlocal num_texts
        num_texts += len(texts)
        return translate_marked(texts, translate)

    try:
        run = _translate_text if ending in _TEXT_FORMATS else _translate_bytes
        translated = run(data, ending, keep, src_lang, tgt_lang)
    except UserError as error:
        raise UserError(f"{path_in}: {error}") from error
    try:
        with replacing(path_out, like=path_in) as file:
            file.write_bytes(translated)
    except OSError as error:
        raise UserError(f"{path_out} cannot be written: {error.strerror}") from error
    return num_texts


def _translate_text(data: bytes, ending: str, translate: TranslateMarked, src_lang: str, tgt_lang: str) -> bytes:
    """Translate UTF-8 text; a byte order mark stays."""
    bom = _BOM if data.startswith(_BOM) else b""
    try:
        text = data.removeprefix(bom).decode("utf-8")
    except UnicodeDecodeError as error:
        place = f"byte {error.start + 1} (0x{data.removeprefix(bom)[error.start]:02x})"
        raise UserError(f"{place} is not UTF-8: convert the file first, for example with iconv") from error
    if "\0" in text or OBJECT in text:
        raise UserError("it is binary (it has bytes 0 or 1), expected text: check its name's ending")
    return bom + _function(*_TEXT_FORMATS[ending])(text, translate, src_lang, tgt_lang).encode()


def _translate_bytes(data: bytes, ending: str, translate: TranslateMarked, src_lang: str, tgt_lang: str) -> bytes:
    return _function(*_BYTE_FORMATS[ending])(data, translate, src_lang, tgt_lang)


def _function(module: str, name: str):  # noqa: ANN202
    """Import a format's function; the packages that read it are optional."""
    with needing("documents", "this format"):
        return getattr(importlib.import_module(f"seq2seq.documents.{module}"), name)
