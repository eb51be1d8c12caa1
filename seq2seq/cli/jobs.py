"""What the commands do with lines: translate and write them in a format, score, report; knows no options."""

import hashlib
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2seq.cli.inputs import Input, digest
from seq2seq.errors import UserError
from seq2seq.extras import needing
from seq2seq.files import Output, find_model

if TYPE_CHECKING:
    from seq2seq.settings.search import SearchConfig
    from seq2seq.translation import Reading, SearchRequest, Text, Translation
    from seq2seq.translator import Translator

MAX_SCORED_TOKENS = 2048  # a side, in `seq2seq score`; all of a pair's logits exist at once


@dataclass(frozen=True)
class Job:
    """What to translate texts with, what every translation must have, and the format of the output."""

    translator: "Translator"
    request: "SearchRequest"
    prefix: str = ""
    phrases: Sequence[str] = ()
    as_json: bool = False

    def texts(self, sources: Iterable[str]) -> "Iterator[Text]":
        """Add the prefix and the phrases to every source."""
        from seq2seq.translation import Text

        return (Text(source, self.prefix, self.phrases) for source in sources)


def search_settings(folder: Path, changes: Mapping[str, int | float | None]) -> "SearchConfig":
    """Return the search settings of a bundle or an export with changes, without reading its weights.

    Raises:
        UserError: the configuration is missing or damaged, or a value is out of range.
    """
    from seq2seq.bundle import CONFIG, read_config
    from seq2seq.exchange.folder import SETTINGS, is_export
    from seq2seq.settings.search import change_search

    _, config = read_config(folder / (SETTINGS if is_export(folder) else CONFIG))
    return change_search(config.search, changes)


def choose_models(given: Sequence[Path] | None, *, shown: bool = True) -> list[Path]:
    """Find the bundles that a user named; if none, take the newest, and say on stderr which that is.

    Raises:
        UserError: one is not there, or there is none.
    """
    if given:
        return [find_model(one) for one in given]
    newest = find_model(None)
    path = newest.resolve()  # runs/latest is a link to a run
    if shown:
        print(f"model: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}", file=sys.stderr)
    return [newest]


def load(folders: list[Path], device: str, engine: str, quantization: str) -> "Translator":
    """Read the model or models for an engine, pytorch or ctranslate2 (with weights of the precision given).

    Raises:
        UserError: one is missing or damaged, or the engine cannot use it.
    """
    from seq2seq.translator import Translator

    if engine == "pytorch":
        return Translator.load(folders, device)
    if len(folders) > 1:
        raise UserError(f"{len(folders)} models: only the pytorch engine translates with an ensemble")
    with needing("ctranslate2"):
        from seq2seq.device import choose_device
        from seq2seq.exchange.ctranslate2 import cached_export
        from seq2seq.exchange.ctranslate2_engine import load_export
        from seq2seq.exchange.folder import is_export
        from seq2seq.settings.data import DataConfig

        (folder,) = folders
        if not is_export(folder):
            folder = cached_export(folder, quantization, DataConfig().cache)
        found = load_export(folder, choose_device(device))
    config = found.config
    return Translator(
        found.engine,
        found.tokenizer,
        search=config.search,
        src_lang=config.src_lang,
        tgt_lang=config.tgt_lang,
        trained_length=config.trained_length,
    )


def load_exact(folders: list[Path], device: str) -> "Translator":
    """Read the model or models to look at what they compute: with PyTorch, in float32 on every device.

    Raises:
        UserError: one is missing or damaged.
    """
    import torch

    from seq2seq.translator import Translator

    return Translator.load(folders, device, torch.float32)


def fingerprint(folders: Sequence[Path]) -> str:
    """What changes when a model changes."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(path for path in folder.iterdir() if path.is_file()):
            digest.update(f"{file.name} {file.stat().st_size} ".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def made_of(folders: Sequence[Path], lines: Input, values: Mapping[str, object]) -> dict[str, str] | None:
    """Describe what an output depends on, by which `--resume` recognises it; None if an input is no regular file."""
    if not lines.files or not all(path.is_file() for path in lines.files):
        return None
    plain = {name: str(value) for name, value in values.items() if value is not None}
    return {"model": fingerprint(folders), "input_digest": digest(lines), **plain}


Render = Callable[[Job, int, str, "Sequence[Translation]"], Iterable[str]]


def translate(job: Job, lines: Input, out: Output, *, shown: bool, render: Render | None = None) -> list[str]:
    """Translate and write all lines after those that the output has; the best of each, if there are references.

    render makes lines of a source and its translations; by default in the format that the job asks for.
    """
    from seq2seq.translator import CHUNK_LINES

    start = out.inputs
    if start and lines.references is not None:
        raise UserError("--resume has only the rest of the translations: score the whole with `seq2seq evaluate`")
    to_translate, to_show = itertools.tee(itertools.islice(lines.sources, start, None))
    kept = []
    with progress(lines.total, start, shown=shown) as advance:
        texts = job.texts(to_translate)
        found = job.translator.stream(texts, job.request, chunk=CHUNK_LINES, first_line=start + 1, on_progress=advance)
        for number, (source, best) in enumerate(zip(to_show, found, strict=True), start=start + 1):
            for line in (render or show)(job, number, source, best):
                out(line)
            if lines.references is not None:
                kept.append(best[0].text)
            if number % CHUNK_LINES == 0:  # where a resumed run makes the same batches
                out.commit(number)
    return kept


def show(job: Job, number: int, source: str, best: "Sequence[Translation]") -> Iterator[str]:
    """A source's translations in the format asked for, as lines."""
    if job.as_json:
        plain: list[dict[str, Any]] = [
            {"translation": one.text, "score": one.score, "normalised_score": one.normalised_score} for one in best
        ]
        for one, translation in zip(plain, best, strict=True):
            if translation.alignment is not None:
                one["alignment"] = translation.alignment
        yield json.dumps({"line": number, "source": source, **plain[0], "n_best": plain}, ensure_ascii=False)
    elif job.request.n_best > 1:
        yield from (f"{number} ||| {one.text} ||| {one.normalised_score:.4f}" for one in best)
    else:
        yield best[0].text


def show_reading(number: int, reading: "Reading", *, as_json: bool, per_token: bool) -> str:
    """What the model thinks of a translation, as a line."""
    if not as_json:
        tokens = zip(reading.tokens, reading.log_probs, strict=True)
        per_piece = "".join(f"\t{token} {log_prob:.4f}" for token, log_prob in tokens) if per_token else ""
        return f"{reading.score:.4f}\t{reading.normalised_score:.4f}{per_piece}"
    plain = {"line": number, **asdict(reading)}
    if not per_token:
        del plain["tokens"], plain["log_probs"]
    return json.dumps(plain, ensure_ascii=False)


def converse(job: Job) -> None:
    """Ask for sentences and answer with translations, until the end of the input."""
    for number in itertools.count(1):
        try:
            source = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return
        try:
            (best,) = job.translator.stream(job.texts([source]), job.request, first_line=number)
            for line in show(job, number, source, best):
                print(line, flush=True)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)


def translate_document(job: Job, source: Path, target: Path | None) -> int:
    """Translate a document into one of the same format; the number of its texts."""
    from seq2seq.documents.document import translate_document

    def words(texts: Sequence[str], align: bool) -> "list[tuple[str, list[tuple[int, int]] | None]]":
        request = replace(job.request, align=align and job.translator.can_align)
        found = job.translator.stream(job.texts(texts), request)
        return [(best[0].text, best[0].alignment) for best in found]

    assert target is not None
    return translate_document(source, target, words, job.translator.src_lang, job.translator.tgt_lang)


def require_readable(translator: "Translator", sources: Sequence[str], translations: Sequence[str]) -> None:
    """Refuse pairs that no model was trained for and no memory holds: scoring reads each as a whole.

    Raises:
        UserError: a side has more than MAX_SCORED_TOKENS tokens; its line is named.
    """
    for texts, side in ((sources, "input"), (translations, "translations")):
        for number, ids in enumerate(translator.tokenizer.encode(texts), start=1):
            if len(ids) > MAX_SCORED_TOKENS:
                raise UserError(
                    f"--{side}, line {number} has {len(ids):,} tokens, and a pair is scored as a whole, of at most "
                    f"{MAX_SCORED_TOKENS:,} a side: split it and the other side's into sentences, or leave it out"
                )


def report(translations: list[str], references: list[str], as_json: bool, *, to_stderr: bool) -> None:
    """Score translations and print the table, or one JSON object."""
    from rich.console import Console

    from seq2seq.evaluation.metrics import score

    scores = score(translations, references)
    if as_json:
        print(json.dumps(scores.to_dict(), ensure_ascii=False), file=sys.stderr if to_stderr else sys.stdout)
    else:
        Console(stderr=to_stderr).print(scores.table())


@contextmanager
def progress(total: int | None, done: int, *, shown: bool) -> "Iterator[Callable[[int], object] | None]":
    """Show a bar on stderr if that is a terminal; gives the function that advances it by a number of lines."""
    if not (shown and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("translating"), BarColumn(), MofNCompleteColumn(), TextColumn("lines"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("translating", total=total, completed=done)
        yield lambda count: count and bar.advance(task, count)
