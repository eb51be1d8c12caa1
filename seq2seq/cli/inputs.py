"""Standard streams, and texts to translate: sentences, files, corpora, test sets; knows no model."""

import contextlib
import dataclasses
import errno
import io
import itertools
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from seq2seq.data.corpus import has_two_sides, open_corpora
from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from seq2seq.storage.output import count_lines, read_lines
from seq2seq.text.normalise import normalise

log = logging.getLogger(__name__)
_SAMPLE = 300  # number of texts whose language is checked


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Read and write UTF-8 during the block, whatever the locale; write all of stdout before its end."""
    for name, mode in (("stdin", "r"), ("stdout", "r"), ("stderr", "w")):  # in the order of their numbers
        if getattr(sys, name) is None:  # closed; else the next file that is opened would get its number
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 (as sys opens it)
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # a caller of `main` has read some of stdin, or moved the stream
                stream.reconfigure(encoding="utf-8", errors="replace" if name == "stdin" else "backslashreplace")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError):  # or the interpreter would try again to write the rest, and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.filename is not None:
            raise
        if error.errno == errno.EPIPE:
            sys.exit(1)
        reason = error.strerror or "it is closed"
        raise UserError(f"stdout cannot be written ({reason}): free the disk, or send the output elsewhere") from error


@dataclasses.dataclass
class Input:
    """Texts to translate."""

    sources: Iterable[str]
    total: int | None  # number of sources; None: unknown before they are read
    references: list[str] | None = None
    files: Sequence[Path] = ()  # files that the sources are read from
    begin: int = 0  # number of lines before the first source, which belong to other parts

    def part(self, shard: str) -> "Input":
        """Return part I of N, as I/N, whose translations are those of the whole: parts are cut where `stream` cuts."""
        from seq2seq.translate.translator import CHUNK_LINES

        match = re.fullmatch(r"0*([1-9]\d{0,8})/0*([1-9]\d{0,8})", shard)
        if match is None or int(match[1]) > int(match[2]):
            raise UserError(f"--shard {shard} is no part: give I/N with I from 1 to N, as 3/50")
        if self.total is None or not self.files:
            raise UserError("--shard is for the lines of a regular file: give --input")
        number, count = map(int, match.groups())
        chunks = -(-self.total // CHUNK_LINES)
        begin, end = (min(chunks * k // count * CHUNK_LINES, self.total) for k in (number - 1, number))
        references = None if self.references is None else self.references[begin:end]
        return Input(itertools.islice(self.sources, begin, end), end - begin, references, self.files, begin)


def require_regular(*paths: Path) -> None:
    """Refuse to resume with files that cannot be read or written a second time; a file need not exist."""
    for path in paths:
        if path.exists() and not path.is_file():
            raise UserError(f"--resume needs regular files, and {path} is none: leave out --resume to begin anew")


def read(texts: list[str] | None, input_: Path | None, reference: Path | None) -> Input:
    """Return the sources, their number if known, and the references; a regular file is checked now and read later."""
    references = None if reference is None else list(read_lines(reference))
    if texts:
        for number, text in enumerate(texts, start=1):
            if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
                raise UserError(f"sentence {number} is not UTF-8: set a UTF-8 locale, or use --input")
        lines = Input(texts, len(texts), references)
    elif input_ is not None and input_.is_file():
        lines = Input(read_lines(input_), count_lines(input_), references, [input_])
    elif references is not None or input_ is not None:
        sources = list(read_lines(input_))
        lines = Input(sources, len(sources), references)
    else:
        lines = Input(read_lines(None), None)
    if references is not None and lines.total is not None:
        from seq2seq.evaluation.metrics import require_same_length

        require_same_length(lines.total, len(references), "input")
    return lines


def read_corpora(
    specs: Sequence[str], src_lang: str, tgt_lang: str, languages: str | None, option: str = "--input"
) -> Input:
    """Read the source sides of corpora, and the lines of other files, one after the other, each normalised.

    languages names the languages of a TSV's two columns, with a comma between; option is the option by which the user
    gave the specs, for errors.
    """
    columns = languages.split(",") if languages else []
    if columns and sorted(columns) != sorted([src_lang, tgt_lang]):
        message = f"--languages {languages} has to name {src_lang} and {tgt_lang}, in the order of the columns"
        raise UserError(f"{message}: give {src_lang},{tgt_lang} or {tgt_lang},{src_lang}")
    data = DataConfig(src_lang=src_lang, tgt_lang=tgt_lang, languages=columns)
    parts: list[Iterable[str]] = []
    files: list[Path] = []
    for spec in specs:
        if Path(spec).is_file() and not has_two_sides(Path(spec)):
            parts.append(read_lines(Path(spec)))
            files.append(Path(spec))
        else:
            corpora = open_corpora(spec, None, data)
            parts += [(src for src, _ in corpus.pairs()) for corpus in corpora]
            files += [path for corpus in corpora for path in corpus.paths]
    texts = itertools.chain.from_iterable(parts)
    first = list(itertools.islice(texts, 1))
    if not first:
        raise UserError(f"{option} {' '.join(specs)} is empty: there is no text in it")
    return Input(map(normalise, itertools.chain(first, texts)), None, files=files)


def warn_of_language(lines: Input, src_lang: str, tgt_lang: str, hint: str) -> Input:
    """Warn, with a hint, if the first texts are in the model's target language; return the same lines.

    A warning also says that the references are in the source language.
    """
    from seq2seq.data.languages import seem_to_be, warn_of_target

    sources = iter(lines.sources)
    sample = list(itertools.islice(sources, _SAMPLE))
    warn_of_target(sample, src_lang, tgt_lang, hint)
    if lines.references and seem_to_be(lines.references[:_SAMPLE], src_lang, tgt_lang):
        log.warning(
            "the references look like %s (the first is %.60r): give %s", src_lang, lines.references[0], tgt_lang
        )
    return dataclasses.replace(lines, sources=itertools.chain(sample, sources))


def read_testset(name: str, src_lang: str, tgt_lang: str) -> Input:
    """Return the sources and references of one of sacreBLEU's test sets."""
    from seq2seq.evaluation.metrics import load_testset

    sources, references = load_testset(name, src_lang, tgt_lang)
    return Input(sources, len(sources), references)


def require_parallel(files: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Refuse files, given by name and lines, that differ in their numbers of lines."""
    if len({len(lines) for _, lines in files}) > 1:
        counts = ", ".join(f"{name} {len(lines):,}" for name, lines in files)
        raise UserError(f"the files have different numbers of lines: {counts}; line i of each must be of the same text")
