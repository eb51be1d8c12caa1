"""Compare updates on a streamed corpus and on a prepared part of it; measure a long stream's rate and memory."""

import itertools
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.ours import Updates
from benchmarks.race import Spread
from benchmarks.tables import Table
from seq2seq.errors import UserError
from seq2seq.model.build import build_model
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.batching import Batch, BatchLoader
from seq2seq.text.loading import training_feed
from seq2seq.text.prepare import prepare
from seq2seq.text.tokenizer import PAD

_WORDS = 3_000  # made-up words of each language
_WRITTEN = 100_000  # pairs per write
_BYTES_A_PAIR = 170  # approximately
_FILES = 4


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of the measurement."""

    pairs: int = 20_000_000
    streamed: int = 4_000_000  # first pairs that are streamed to measure rate and memory
    part: int = 200_000  # pairs prepared for the loader in memory
    rounds: int = 5
    batches: int = 12  # updates of each loader in one turn
    max_tokens: int = 2048
    block: int = 50_000  # pairs
    seed: int = 1


def run(plan: Plan, model: ModelConfig, vocab_size: int, device: torch.device, folder: Path | None) -> dict[str, Any]:
    """Write the corpus, measure updates with both loaders in turns, then stream the first pairs.

    Raises:
        UserError: the disk has no room for the corpus.
    """
    with _room(plan, folder) as place:
        write_corpus(place, plan)
        prepared = stream_feed(place, plan, vocab_size, streaming=False)
        streamed = stream_feed(place, plan, vocab_size, streaming=True)
        raced = race_updates(streamed, prepared, plan, model, vocab_size, device)
        whole = stream_all(stream_feed(place, plan, vocab_size, streaming=True), plan)
    tables = [raced.pop("table"), whole.pop("table")]
    return {"plan": asdict(plan), "updates": raced, "stream": whole, "tables": tables}


@contextmanager
def _room(plan: Plan, folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="streaming-", dir=folder))
    try:
        free, needed = shutil.disk_usage(place).free, plan.pairs * _BYTES_A_PAIR
        if free < 1.2 * needed:
            raise UserError(
                f"{place.parent} has {free / 1e9:.1f} GB left, {needed / 1e9:.1f} GB are needed: "
                "choose another --folder or fewer --pairs"
            )
        yield place
    finally:
        shutil.rmtree(place)


def write_corpus(folder: Path, plan: Plan) -> None:
    """Write made-up sentences of everyday length: several files for streaming, one to prepare, one for validation.

    The words repeat every _WRITTEN pairs, but with other numbers at the end, so that no two pairs are equal.
    """
    pattern, first = _make_sentences(plan.seed), 0
    each = -(-plan.pairs // _FILES)
    sizes = {f"train{number}": min(each, plan.pairs - number * each) for number in range(_FILES)}
    for name, size in {"validation": 500, "part": plan.part, **sizes}.items():
        with (folder / f"{name}.tsv").open("w", encoding="utf-8") as file:
            for start in range(0, size, _WRITTEN):
                count = min(_WRITTEN, size - start)
                numbers = np.repeat(np.arange(first + start, first + start + count), 2).tolist()
                file.write("".join(pattern[:count]) % tuple(numbers))
        first += size


def _make_sentences(seed: int) -> list[str]:
    """Return lines with two placeholders for a number; the frequencies of words follow Zipf's law."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnñopqrstuvwxyzáéíóú"))
    words = [["".join(rng.choice(letters, rng.integers(1, 10))) for _ in range(_WORDS)] for _ in range(2)]
    chances = 1 / np.arange(10, _WORDS + 10)
    lengths = np.clip(rng.gamma(4.0, 2.0, _WRITTEN), 2, 40).astype(int)
    drawn = [rng.choice(_WORDS, int(lengths.sum()), p=chances / chances.sum()) for _ in range(2)]
    ends = [0, *np.cumsum(lengths).tolist()]
    texts = (
        [" ".join(map(of_side.__getitem__, chosen[begin:end])) for begin, end in itertools.pairwise(ends)]
        for of_side, chosen in zip(words, drawn, strict=True)
    )
    return [f"{src} %d.\t{tgt} %d.\n" for src, tgt in zip(*texts, strict=True)]


def stream_feed(folder: Path, plan: Plan, vocab_size: int, *, streaming: bool) -> Any:
    """Return the training's feed of batches: of the streamed corpus, or of its prepared part in memory."""
    train = [f"train{number}.tsv" for number in range(_FILES)] if streaming else ["part.tsv"]
    data = DataConfig(
        root=str(folder), train=train, validation=["validation.tsv"], test=["validation.tsv"],
        streaming=streaming, block=plan.block, cache=str(folder / "cache"),
    )  # fmt: skip
    vocabulary = TokenizerConfig(vocab_size=vocab_size, input_sentence_size=100_000)
    config = Config(
        seed=plan.seed, data=data, tokenizer=vocabulary, training=TrainingConfig(max_tokens=plan.max_tokens)
    )
    prepared = prepare(data, vocabulary, plan.seed)
    return training_feed(config, prepared, rank=0, world_size=1, pin=False)


def race_updates(
    streamed: Any, prepared: Any, plan: Plan, model: ModelConfig, vocab_size: int, device: torch.device
) -> dict[str, Any]:
    """Measure target tokens per second of updates with each loader, in turns.

    The process that reads the stream is stopped during the other loader's turns. It reads far ahead, a block of pairs
    at a time, so its work may fall between the turns. The table of the stream reports this work as processor time per
    pair.
    """
    torch.manual_seed(plan.seed)
    precision = "32-true" if device.type == "cpu" else "bf16-mixed"  # the faster one, so that waiting for batches shows
    settings = TrainingConfig(max_tokens=plan.max_tokens, learning_rate=1e-4)
    updates = Updates(build_model(model, vocab_size).to(device), settings, precision)
    feeds = {"in memory": iter(prepared), "streamed": iter(streamed)}
    for feed in feeds.values():
        updates.update(_to(next(feed), device))
    rates: dict[str, list[float]] = {name: [] for name in feeds}
    for turn in range(plan.rounds):
        for name in sorted(feeds, reverse=bool(turn % 2)):
            _signal_readers(signal.SIGCONT if name == "streamed" else signal.SIGSTOP)
            start, tokens = time.perf_counter(), 0
            for batch in itertools.islice(feeds[name], plan.batches):
                tokens += int((batch.tgt_out != PAD).sum())
                float(updates.update(_to(batch, device)))
            rates[name].append(tokens / (time.perf_counter() - start))
    _signal_readers(signal.SIGCONT)
    for feed in feeds.values():
        feed.close()
    ratio = Spread.of([a / b for a, b in zip(rates["streamed"], rates["in memory"], strict=True)])
    rows = [[name, Spread.of(values).show(0)] for name, values in rates.items()]
    rows.append(["streamed ÷ in memory", ratio.show(3)])
    table = Table("Updates fed by each loader", ["loader", "target tokens/s (range)"], rows)
    return {"rates": rates, "ratio": asdict(ratio), "table": asdict(table)}


def _signal_readers(number: int) -> None:
    for child in multiprocessing.active_children():
        assert child.pid is not None
        os.kill(child.pid, number)


def _to(batch: Batch, device: torch.device) -> Batch:
    return Batch(*(side.to(device) for side in batch))


def stream_all(feed: BatchLoader, plan: Plan) -> dict[str, Any]:
    """Stream the first pairs as fast as possible; return pairs/s, tokens/s and memory at ten points."""
    loader = BatchLoader(feed.source, max_tokens=plan.max_tokens)
    streamed = min(plan.streamed, plan.pairs)
    points: list[dict[str, float]] = []
    start, seen, tokens, since = time.perf_counter(), 0, 0, (0.0, 0, 0)
    begun = time.process_time()
    for batch in loader:
        seen += len(batch.src)
        tokens += int((batch.tgt_out != PAD).sum())
        if seen >= streamed * (len(points) + 1) / 10:
            now = time.perf_counter() - start
            seconds, pairs, words = now - since[0], seen - since[1], tokens - since[2]
            reader = max((child.pid or 0 for child in multiprocessing.active_children()), default=0)
            costs = {
                "training_mb": _resident("self"),
                "reading_mb": _resident(reader),
                "batches_us": (time.process_time() - begun) / seen * 1e6,
                "reading_us": _cpu_seconds(reader) / seen * 1e6,
            }
            points.append({"pairs": seen, "pairs_s": pairs / seconds, "tokens_s": words / seconds, **costs})
            since = (now, seen, tokens)
        if len(points) == 10 or loader.state_dict()["place"].get("epoch", 0) > 0:
            break
    columns = {
        "pairs": "pairs streamed",
        "pairs_s": "pairs/s",
        "tokens_s": "target tokens/s",
        "training_mb": "training's memory, MB",
        "reading_mb": "reading's memory, MB",
        "reading_us": "reading, CPU µs a pair",
        "batches_us": "batches, CPU µs a pair",
    }
    rows = [[f"{point[key]:,.0f}" for key in columns] for point in points]
    return {
        "points": points,
        "table": asdict(Table("A stream, nothing trained", list(columns.values()), rows)),
    }


def _resident(pid: int | str) -> float:
    """Return the resident memory of a process (MB)."""
    lines = _proc(pid, "status").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def _cpu_seconds(pid: int | str) -> float:
    """Return the processor time of a process (seconds)."""
    ticks = _proc(pid, "stat").rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _proc(pid: int | str, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8")
    except OSError as error:  # not Linux
        raise UserError("memory is read from /proc, which only Linux has: run this benchmark there") from error
