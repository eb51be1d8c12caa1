"""Translates a document file into a file of the same format, by the ending of its name. Independent of the model."""

import codecs
import importlib
import re
from pathlib import Path

from seq2seq.apps.documents.kept_strings import Translate, translate_marked
from seq2seq.apps.documents.marked_text import OBJECT, Document
from seq2seq.errors import UserError
from seq2seq.settings.missing_packages import require_package
from seq2seq.storage.atomic import replacing
from seq2seq.storage.lines import COMPRESSED

_READERS = {  # ending → module and function
    ending: reader.split(".")
    for reader, endings in {
        **{"subtitles.read": ".srt", "subtitles.read_vtt": ".vtt", "gettext.read": ".po .pot"},
        **{"html.read": ".html .htm .xhtml", "markdown.read": ".md .markdown", "markdown.read_mdx": ".mdx"},
        **{"xml.read_xliff": ".xliff .xlf", "xml.read_tmx": ".tmx"},
    }.items()
    for ending in endings.split()
}
_OTHERS = re.compile(  # endings of files with markup, which a translation line by line would damage
    r"\.(?:ass|ssa|jsonl?|csv|tsv|xml|ya?ml|toml|ini|properties|strings|resx|ts|tex|rst|adoc|rtf|pdf|docx?|odt|epub|"
    r"pptx?|xlsx?|zip|parquet|ipynb)"
)
_ENCODING = re.compile(rb"""<\?xml\s[^>]*?\bencoding\s*=\s*["']([\w.-]+)""")
_MARK = "\ufeff"  # of byte order


def is_document(path: Path) -> bool:
    """Return whether a file, by its ending, is translated as a document instead of line by line."""
    return path.suffix.lower() in _READERS


def require_plain(path: Path) -> None:
    """Refuse to translate line by line a file that has markup by its ending."""
    plain = path.with_suffix("") if path.suffix in COMPRESSED else path
    if is_document(plain) or _OTHERS.fullmatch(plain.suffix.lower()):
        raise UserError(
            f"{path}: {path.name[len(plain.stem) :]} files are not translated, only lines and {' '.join(_READERS)}: "
            "convert it, or let --format lines translate every line with all its markup"
        )


def translate_document(path_in: Path, path_out: Path, translate: Translate, src_lang: str, tgt_lang: str) -> int:
    """Translate the text of a document and leave all else unchanged; the new file appears when it is complete.

    Every line keeps its line end. A new file gets the permissions of path_in, a replaced file keeps its own.

    Args:
        path_in: an .srt, .vtt, .po, .xliff, .xlf, .tmx, .html or .md file.
        path_out: the file to write, of the same format; may be path_in.
        translate: returns every text's translation and, if its flag is set, the alignment of their words.
        src_lang: language of the document, such as "en".
        tgt_lang: language of the translations.

    Returns:
        The number of texts that were translated.
    """
    if not is_document(path_in) or path_in.suffix.lower() != path_out.suffix.lower():
        raise UserError(f"{path_in} cannot become {path_out}: both need the same ending, one of {', '.join(_READERS)}")
    if path_in.exists() and not path_in.is_file():
        raise UserError(f"{path_in} is no regular file: a document is read as a whole")
    data = path_in.read_bytes()
    try:
        with replacing(path_out, like=path_in) as file:
            translated, num_texts = _translate(path_in, data, translate, src_lang, tgt_lang)
            file.write_bytes(translated)
    except OSError as error:
        raise UserError(f"{path_out} cannot be written: {error.strerror}") from error
    return num_texts


def _translate(path: Path, data: bytes, translate: Translate, src_lang: str, tgt_lang: str) -> tuple[bytes, int]:
    """Return the translated document and the number of its texts."""
    try:
        with require_package("documents", "this format"):
            module, name = _READERS[path.suffix.lower()]
            read = getattr(importlib.import_module(f"seq2seq.apps.documents.{module}"), name)
        text, encoding = _decode(data)
        document: Document = read(text.removeprefix(_MARK), src_lang, tgt_lang)
        written = _MARK * text.startswith(_MARK) + document.write(translate_marked(document.segments, translate))
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    return written.encode(encoding, "xmlcharrefreplace"), len(document.segments)


def _decode(data: bytes) -> tuple[str, str]:
    """Return a document as text, and its encoding: that of its byte order mark or its XML declaration, or UTF-8."""
    declared = _ENCODING.match(data.removeprefix(codecs.BOM_UTF8))
    encoding = declared[1].decode() if declared else "utf-8"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16-le" if data.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    try:
        text = data.decode(encoding)
    except (LookupError, ValueError) as error:
        raise UserError(f"{error}: convert the file to UTF-8 first, for example with iconv") from error
    if "\0" in text or OBJECT in text:
        raise UserError("it is binary (it has bytes 0 or 1), expected text: check its name's ending")
    return text, encoding
