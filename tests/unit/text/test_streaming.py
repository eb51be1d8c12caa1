"""Streamed text is what preparation would keep, in batches that go on from any place, for any number of ranks."""

import gzip
import itertools
import json
import random
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.settings.training import NoiseConfig, SubwordSamplingConfig, TrainingConfig
from seq2seq.text.augment import Encoder
from seq2seq.text.batching import Batch, BatchLoader
from seq2seq.text.corpus import open_splits
from seq2seq.text.dataset import PreparedData
from seq2seq.text.epochs import Block
from seq2seq.text.filters import OverlapIndex
from seq2seq.text.loading import training_feed
from seq2seq.text.prepare import prepare
from seq2seq.text.streaming import StreamBlocks
from seq2seq.text.tokenizer import SPECIAL_IDS, Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.workers import read_ahead

Pair = tuple[str, str]


def make_pairs(count: int, name: str) -> list[Pair]:
    rng = random.Random(name)

    def words() -> str:
        return " ".join(rng.choice(["the", "cat", "saw", "a", "ball", "so", "blue"]) for _ in range(rng.randint(5, 9)))

    return [(f"{words()} {name}{i}.", f"¿{words()} {name}{i}?") for i in range(count)]


A, B, C = make_pairs(230, "a"), make_pairs(90, "b"), make_pairs(40, "c")
HELD_OUT = make_pairs(10, "v")
DIRTY = [("", "x"), ("same", "same"), A[0], A[0], (HELD_OUT[3][0].upper(), "otra"), ("word " * 150, "palabra " * 150)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    def table(pairs: list[Pair]) -> str:
        return "".join(f"{src}\t{tgt}\n" for src, tgt in pairs)

    (tmp_path / "a.tsv").write_text(table(A), encoding="utf-8")
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(table(B).encode()))
    rows = "".join(json.dumps({"en": src, "es": tgt}) + "\n" for src, tgt in C)
    (tmp_path / "c.jsonl").write_text(rows, encoding="utf-8")
    (tmp_path / "dirty.tsv").write_text(table(DIRTY), encoding="utf-8")
    (tmp_path / "v.tsv").write_text(table(HELD_OUT), encoding="utf-8")
    return tmp_path


def config(root: Path, **changes: Any) -> Config:
    files = {"train": ["a.tsv", "b.tsv.gz", "c.jsonl"], "validation": ["v.tsv"], "test": ["v.tsv"]}
    given: dict[str, Any] = {**files, "block": 64, "max_length": 80, "streaming": True, **changes}
    data = DataConfig(root=str(root), **given)
    training = TrainingConfig(max_tokens=200)
    return Config(seed=3, data=data, tokenizer=TokenizerConfig(vocab_size=300), training=training)


def prepared(settings: Config) -> PreparedData:
    return prepare(settings.data, settings.tokenizer, settings.seed)


def stream(settings: Config, tokenizer: Tokenizers) -> StreamBlocks:
    encoder = Encoder(tokenizer, settings.data.max_length, settings.training.subword_sampling, settings.training.noise)
    overlap = OverlapIndex({"validation": HELD_OUT})
    return StreamBlocks(open_splits(settings.data)["train"], settings.data, encoder, overlap, settings.seed)


@pytest.fixture
def streamed(root: Path, tokenizer: Tokenizer) -> StreamBlocks:
    return stream(config(root), tokenizer)


def texts(tokenizer: Tokenizer, batches: list[Batch]) -> Counter[Pair]:
    rows = [(batch.src.tolist(), batch.tgt_in.tolist()) for batch in batches]
    src, tgt = (
        tokenizer.decode([[i for i in row if i not in SPECIAL_IDS] for both in rows for row in both[side]])
        for side in (0, 1)
    )
    return Counter(zip(src, tgt, strict=True))


def epoch_of(loader: BatchLoader, epoch: int = 0) -> list[Batch]:
    return list(itertools.takewhile(lambda _: loader.state_dict()["place"].get("epoch", 0) == epoch, loader))


def test_every_pair_comes_once_an_epoch_in_another_order_each_time(streamed: StreamBlocks, tokenizer: Tokenizer):
    loader = BatchLoader(streamed, max_tokens=200)
    first = epoch_of(loader)
    assert texts(tokenizer, first) == Counter(A + B + C)
    loader.load_state_dict({"place": {**streamed._start(), "epoch": 1}, "batches": 0})
    second = epoch_of(loader, 1)
    assert texts(tokenizer, second) == Counter(A + B + C)
    assert [batch.src.tolist() for batch in first] != [batch.src.tolist() for batch in second]


def test_every_block_holds_of_each_corpus_what_its_size_says(root: Path, tokenizer: Tokenizer):
    (root / "b.tsv").write_bytes(gzip.decompress((root / "b.tsv.gz").read_bytes()))
    source = stream(config(root, train=["a.tsv", "b.tsv", "c.jsonl"], block=120), tokenizer)

    def corpora_of(block: Block) -> Counter[str]:
        rows = [block.pairs[i][0].tolist() for i in range(len(block.pairs))]
        return Counter(text.split()[-1][0] for text in tokenizer.decode(rows))

    blocks = list(itertools.takewhile(lambda block: block.seed[1] == 0, source({})))
    assert [len(block.pairs) for block in blocks] == [120, 120, 120]
    for block in blocks:
        expected = {name: pytest.approx(len(pairs) / 3, abs=12) for name, pairs in (("a", A), ("b", B), ("c", C))}
        assert corpora_of(block) == expected
    unknown = replace(source, corpora=[replace(corpus, paths=()) for corpus in source.corpora])  # as from the hub
    assert corpora_of(next(unknown({}))) == {"a": 40, "b": 40, "c": 40}


def test_a_place_of_a_version_that_read_in_another_order_is_refused(streamed: StreamBlocks):
    place = {key: value for key, value in streamed._start().items() if key != "ended"} | {"turn": 1}
    with pytest.raises(UserError, match="streamed one corpus after the other, so this one cannot go on"):
        next(streamed(place))


def test_batches_keep_the_budget_and_waste_little(streamed: StreamBlocks):
    batches = epoch_of(BatchLoader(streamed, max_tokens=200))
    assert all(max(batch.src.numel(), batch.tgt_in.numel()) <= 200 for batch in batches)
    assert sum(int((batch.tgt_out != 0).sum()) for batch in batches) > 0.7 * sum(b.tgt_out.numel() for b in batches)


def equal(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a, b) for one, two in zip(first, second, strict=True) for a, b in zip(one, two, strict=True)
    )


@pytest.mark.parametrize(
    ("changes", "training"),
    [
        ({}, TrainingConfig(max_tokens=200)),
        ({"weights": {"a": 1.0, "b": 2.0, "c": 0.5}}, TrainingConfig(max_tokens=200)),
        (
            {},
            TrainingConfig(
                max_tokens=200,
                subword_sampling=SubwordSamplingConfig(alpha=0.2),
                noise=NoiseConfig(typos=0.5, case=0.3),
            ),
        ),
    ],
    ids=["in turns", "mixed", "sampled and spoilt"],
)
def test_a_stream_goes_on_exactly_where_its_state_was_taken(
    root: Path, tokenizer: Tokenizer, changes: dict[str, Any], training: TrainingConfig
):
    settings = config(root, **changes)
    settings.training = training

    def fresh() -> BatchLoader:
        return BatchLoader(stream(settings, tokenizer), max_tokens=400, accumulate=2)

    expected = list(itertools.islice(fresh(), 150))  # more than two epochs, or passes through the smallest corpus
    result: list[Batch] = []
    state = fresh().state_dict()
    for steps in (1, 13, 20, 30, 31, 55):
        loader = fresh()
        loader.load_state_dict(json.loads(json.dumps(state)))
        result += itertools.islice(loader, steps)
        state = loader.state_dict()
    assert equal(result, expected)
    place = state["place"]
    assert place["epoch"] >= 2 or (changes and place["passes"][1] >= 2)


def test_two_ranks_share_out_the_batches_of_one(streamed: StreamBlocks):
    one = list(itertools.islice(BatchLoader(streamed, max_tokens=200, accumulate=2), 100))
    ranks = [BatchLoader(streamed, max_tokens=200, rank=rank, world_size=2) for rank in (0, 1)]
    two = [list(itertools.islice(loader, 50)) for loader in ranks]
    assert equal([batch for step in zip(*two, strict=True) for batch in step], one)
    assert ranks[0].state_dict() == ranks[1].state_dict()


def test_what_is_dropped_is_what_preparation_drops(root: Path, tokenizer: Tokenizer):
    changes = {"train": ["a.tsv", "dirty.tsv"], "block": 10_000}
    report = prepared(config(root, **changes, streaming=False)).report
    settings = config(root, **changes)
    blocks = stream(settings, prepared(config(root, **changes, streaming=False)).tokenizer)({})
    told = " | ".join(next(blocks).told)
    for file in report["files"]:
        reasons = "".join(
            f", {reason} {file[reason]}"
            for reason in ("empty", "characters", "ratio", "identical", "duplicate", "overlap", "tokens")
            if file.get(reason)
        )
        if file["name"] == "a.tsv":
            continue  # which of two duplicates in different files is dropped depends on the order of files
        assert f"read {file['read']}{reasons}".split(", duplicate")[0] in told
    kept = sum(file["kept"] for file in report["files"])
    assert sum(int(part.split("kept ")[1].split(" ")[0]) for part in told.split(" | ")) == kept


def test_weights_decide_the_shares_of_every_block_and_of_all(root: Path, tokenizer: Tokenizer):
    source = stream(config(root, weights={"a": 1.0, "b": 3.0, "c": 0.0}), tokenizer)
    seen: Counter[str] = Counter()
    for block in itertools.islice(source({}), 7):
        rows = [block.pairs[i][0].tolist() for i in range(len(block.pairs))]
        names = Counter(text.split()[-1][0] for text in tokenizer.decode(rows))
        assert names == {"a": 16, "b": 48}
        seen += names
    assert seen["b"] == 3 * seen["a"] == 7 * 48  # of 90 pairs: begun again four times


def test_a_short_end_joins_the_block_before(root: Path, tokenizer: Tokenizer):
    for size, sizes in ((350, [360]), (240, [240, 120]), (250, [360]), (1000, [360])):
        source = stream(config(root, block=size), tokenizer)
        blocks = itertools.takewhile(lambda block: block.seed[1] == 0, source({}))
        assert [len(block.pairs) for block in blocks] == sizes


def test_nothing_left_is_refused_instead_of_reading_for_ever(root: Path, tokenizer: Tokenizer):
    (root / "none.tsv").write_text("same\tsame\n" * 5)
    for changes in ({"train": ["none.tsv"]}, {"train": ["none.tsv", "a.tsv"], "weights": {"a": 2.0}}):
        source = stream(config(root, **changes), tokenizer)
        with pytest.raises(UserError, match=r"left after cleaning: .*(identical.* 5|5.*identical)"):
            next(source({}))
    source = stream(config(root, max_length=1, weights={"a": 2.0}), tokenizer)
    with pytest.raises(UserError, match=r"none of 64 pairs has at most data.max_length=1 tokens"):
        next(source({}))


def test_a_corpus_of_which_another_has_all_pairs_is_drawn_all_the_same(root: Path, tokenizer: Tokenizer):
    """Repeats within a chunk are dropped, but a corpus of nothing else would end a run in its midst."""
    (root / "part.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in A[:8]))
    source = stream(config(root, train=["a.tsv", "part.tsv"], block=64), tokenizer)
    source = replace(source, data=replace(source.data, weights={"part": 1.0}))
    blocks = itertools.islice(source({}), 4)
    assert [len(block.pairs) for block in blocks] == [64] * 4


def test_drawn_validation_pairs_are_never_trained_on(root: Path):
    settings = config(root, validation=[], held_out=20, remove_overlap=False)
    with pytest.raises(UserError, match=r"data.remove_overlap=false would train on the pairs .*: give data.validation"):
        prepared(settings)


def test_the_vocabulary_is_learnt_from_a_sample_of_every_corpus(root: Path):
    settings = config(root)
    settings.tokenizer.input_sentence_size = 200
    data = prepared(settings)
    (file,) = data.report["files"]
    assert file["name"] == "sample of a.tsv, b.tsv.gz, c.jsonl"
    assert file["read"] == 100
    assert data.validation_pairs == HELD_OUT
    assert data.tokenizer.target.vocab_size == 300


def test_a_stream_read_ahead_by_a_process_is_the_same(root: Path):
    settings = config(root)
    data = prepared(settings)
    feed = training_feed(settings, data, rank=0, world_size=1, pin=False)
    assert isinstance(feed.source, partial)
    assert feed.source.func is read_ahead
    ahead = iter(feed)
    result = list(itertools.islice(ahead, 40))
    ahead.close()  # type: ignore[attr-defined]  # it is a generator
    here = BatchLoader(feed.source.args[0], max_tokens=200)
    assert equal(result, list(itertools.islice(here, 40)))
    assert feed.state_dict() == here.state_dict()


@pytest.mark.parametrize("changes", [{}, {"streaming": False}], ids=["streamed", "prepared and sampled"])
def test_a_budget_that_a_later_pair_could_exceed_is_refused_at_once(root: Path, changes: dict[str, Any]):
    """The pair might come after days of training, when neither setting can be changed any more."""
    settings = config(root, **changes)
    settings.training = TrainingConfig(max_tokens=80, subword_sampling=SubwordSamplingConfig(alpha=0.2))
    data = prepared(settings)
    with pytest.raises(UserError, match=r"max_tokens=80 .*data.max_length=80 tokens and an end mark.*: raise it, or"):
        training_feed(settings, data, rank=0, world_size=1, pin=False)
    settings.training.max_tokens = 81
    training_feed(settings, data, rank=0, world_size=1, pin=False)


def test_an_error_of_the_reading_process_reaches_the_user(root: Path, tokenizer: Tokenizer):
    source = stream(config(root), tokenizer)
    with (root / "c.jsonl").open("a") as file:
        file.write("{")
    with pytest.raises(UserError, match=r"c.jsonl:41 is not JSON"):
        list(itertools.islice(BatchLoader(partial(read_ahead, source), max_tokens=200), 100))


def test_temperature_is_refused_where_sizes_are_not_known():
    with pytest.raises(UserError, match=r"data.temperature=5.0 needs every corpus's size"):
        DataConfig(streaming=True, temperature=5.0)
    with pytest.raises(UserError, match=r"data.weights and data.temperature both"):
        DataConfig(weights={"a": 1.0}, temperature=5.0)
    with pytest.raises(UserError, match=r"data.weights has a=-1.0"):
        DataConfig(weights={"a": -1.0})
