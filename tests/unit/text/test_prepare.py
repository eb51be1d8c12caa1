"""Preparation gives training what the settings say, once, and counts what became of every pair."""

import json
import lzma
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seq2seq.config import DataConfig, TokenizerConfig
from seq2seq.errors import UserError
from seq2seq.evaluation.overlap import OverlapIndex
from seq2seq.text import pipeline, tokenizer
from seq2seq.text.prepare import PreparedData, prepare
from seq2seq.text.vocab import SPECIAL_IDS

Pair = tuple[str, str]
SMALL = TokenizerConfig(vocab_size=320)


def make_pairs(count: int, seed: int) -> list[Pair]:
    """Distinct sentences of made-up words, no two alike."""
    rng = random.Random(seed)

    def sentence(number: int) -> str:
        words = ("".join(rng.choices("bcdfg", k=1) + rng.choices("aeiouñ", k=1)) * 2 for _ in range(rng.randint(2, 6)))
        return f"{' '.join(words)} {seed}x{number}."

    return [(sentence(i), "¿" + sentence(i)) for i in range(count)]


def write(path: Path, pairs: list[Pair]) -> None:
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")


TRAIN, VALIDATION, TEST = make_pairs(300, 1), make_pairs(20, 2), make_pairs(30, 3)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "train.tsv", TRAIN)
    write(folder / "validation.tsv", VALIDATION)
    write(folder / "test.tsv", TEST)
    return folder


def config(root: Path, **changes: Any) -> DataConfig:
    given = {"train": ["train.tsv"], "validation": ["validation.tsv"], "test": ["test.tsv"], "held_out": 10}
    return DataConfig(root=str(root), **(given | changes))


def run(root: Path, vocabulary: TokenizerConfig = SMALL, seed: int = 7, **changes: Any) -> PreparedData:
    return prepare(config(root, **changes), vocabulary, seed, OverlapIndex)


def texts(prepared: PreparedData) -> list[Pair]:
    rows = [prepared.train[i] for i in range(len(prepared.train))]
    src, tgt = (prepared.tokenizer.decode([row[side].tolist() for row in rows]) for side in (0, 1))
    return list(zip(src, tgt, strict=True))


def test_clean_text_comes_through_whole_in_order_and_without_special_ids(root: Path):
    prepared = run(root)
    assert texts(prepared) == TRAIN
    assert not {int(i) for row in range(300) for side in prepared.train[row] for i in side} & set(SPECIAL_IDS)
    assert prepared.validation_pairs == VALIDATION
    assert prepared.tests == {"test": TEST}
    assert prepared.report["sizes"] == {"train": 300, "validation": 20, "tests": {"test": 30}}


def test_validation_tokens_are_those_of_the_validation_pairs(root: Path):
    prepared = run(root)
    for row, pair in enumerate(prepared.validation_pairs):
        src, tgt = prepared.validation[row]
        assert [src.tolist(), tgt.tolist()] == prepared.tokenizer.encode(pair)
    assert len(prepared.validation) == 20


def test_each_drop_is_counted_for_its_own_file(root: Path):
    write(root / "b.tsv", [("", "x"), ("same", "same"), TRAIN[5], TEST[3], ("long " * 99, "largo " * 99), ("a", "b")])
    report = run(root, train=["train.tsv", "b.tsv"], max_length=60).report
    assert report["files"] == [
        {"name": "train.tsv", "read": 300, "kept": 300},
        {"name": "b.tsv", "read": 6, "kept": 1, "empty": 1, "identical": 1, "duplicate": 1, "overlap": 1, "tokens": 1},
    ]


def test_no_side_is_longer_than_max_length_tokens(root: Path):
    prepared = run(root, max_length=20)
    lengths = [*prepared.train.src_lengths, *prepared.train.tgt_lengths]
    assert max(lengths) == 20
    everything = run(root)
    fitting = sum(map(max, everything.train.src_lengths <= 20, everything.train.tgt_lengths <= 20))
    assert 0 < len(prepared.train) <= fitting
    assert prepared.report["files"][0]["tokens"] == 300 - len(prepared.train)


def test_overlap_is_removed_from_training_only_and_reported(root: Path):
    shared = [(VALIDATION[0][0].upper(), "otra"), (TRAIN[0][0] + " and more", TEST[0][1].replace(" ", "  "))]
    write(root / "train.tsv", TRAIN + shared)
    prepared = run(root)
    assert texts(prepared) == TRAIN
    overlap = prepared.report["overlap"]
    assert overlap["removed"] is True
    assert overlap["sets"]["validation"] == {"pairs": 1, "source": 1, "target": 0, "examples": [list(shared[0])]}
    assert overlap["sets"]["test"]["target"] == 1
    assert (len(prepared.validation_pairs), len(prepared.tests["test"])) == (20, 30)


def test_overlap_is_only_reported_when_asked(root: Path, caplog: pytest.LogCaptureFixture):
    write(root / "train.tsv", [*TRAIN, TEST[0]])
    prepared = run(root, remove_overlap=False)
    assert "1 training pairs share a side with test (1 the source, 1 the target), such as" in caplog.text
    assert [record.levelname for record in caplog.records if "share a side" in record.message] == ["WARNING"]
    assert len(prepared.train) == 301
    assert prepared.report["overlap"]["removed"] is False
    assert prepared.report["overlap"]["sets"]["test"]["pairs"] == 1


def test_test_text_stays_as_written_and_validation_is_normalised(root: Path):
    raw = [(" nin\u0303o  \u200b", "x" * 5000), ("", "vacío"), ("same", "same"), ("same", "same")]
    (root / "test.jsonl").write_text("".join(json.dumps({"en": s, "es": t + "\n"}) + "\n" for s, t in raw))
    write(root / "validation.tsv", raw)
    prepared = run(root, test=["test.jsonl"])
    assert prepared.tests["test"] == [("nin\u0303o \u200b", "x" * 5000), *raw[1:]]
    assert prepared.validation_pairs == [("niño", "x" * 5000), ("same", "same"), ("same", "same")]
    assert len(prepared.validation) == 3


def test_splits_not_given_are_taken_out_of_train(root: Path):
    prepared = run(root, validation=[], test=[])
    held_out = prepared.tests["held_out"]
    assert (len(prepared.validation_pairs), len(held_out), len(prepared.train)) == (10, 10, 280)
    assert sorted([*texts(prepared), *prepared.validation_pairs, *held_out]) == sorted(TRAIN)
    assert prepared.report["files"] == [{"name": "train.tsv", "read": 300, "kept": 280, "held out": 20}]


def test_a_held_out_split_shares_no_side_with_training(root: Path):
    write(
        root / "train.tsv",
        [pair for src, tgt in TRAIN[:100] for pair in ((src, tgt), (src, tgt + "!?"), (src, "z" + tgt))],
    )
    prepared = run(root, validation=[], held_out=20)
    held_sources = {src for src, _ in prepared.validation_pairs}
    assert len(prepared.validation_pairs) == 20
    assert not held_sources & {src for src, _ in texts(prepared)}


def test_what_is_held_out_depends_on_the_seed_alone(root: Path, monkeypatch: pytest.MonkeyPatch):
    first = run(root, test=[]).tests["held_out"]
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(root / "another"))
    assert run(root, test=[]).tests["held_out"] == first
    assert run(root, test=[], seed=8).tests["held_out"] != first


def test_holding_out_more_than_half_is_refused(root: Path):
    with pytest.raises(
        UserError, match=r"data.held_out=76 for validation and test takes more than half of 300 training"
    ):
        run(root, validation=[], test=[], held_out=76)


def test_test_sets_of_one_name_are_told_apart_by_their_folders(root: Path):
    for name in ("a", "b"):
        (root / name).mkdir()
        write(root / name / "test.tsv", TEST)
    assert list(run(root, test=["a/test.tsv", "b/test.tsv"]).tests) == ["a-test", "b-test"]
    with pytest.raises(UserError, match=r"data.test has two sets called a-test: rename one"):
        run(root, test=["a/test.tsv", "a/test.tsv"])


@pytest.fixture
def count_trainings(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    calls: list[TokenizerConfig] = []

    def counting(sentences: Any, settings: TokenizerConfig) -> tokenizer.Tokenizer:
        calls.append(settings)
        return tokenizer.train_tokenizer(sentences, settings)

    monkeypatch.setattr(pipeline, "make_tokenizer", counting)
    return lambda: len(calls)


def test_the_second_run_takes_everything_from_the_cache(root: Path, count_trainings: Callable[[], int]):
    first = run(root)
    start = time.process_time()
    second = run(root)
    assert time.process_time() - start < 1  # seconds
    assert count_trainings() == 1
    assert texts(second) == texts(first)
    assert second.tokenizer.model_bytes == first.tokenizer.model_bytes
    assert (second.report, second.tests, second.validation_pairs) == (first.report, first.tests, first.validation_pairs)


def test_the_cache_follows_contents_and_not_places_or_times(root: Path, count_trainings: Callable[[], int]):
    run(root)
    moved = root.rename(root.with_name("moved"))
    write(moved / "train.tsv", TRAIN)
    run(moved, seed=99)  # nothing is drawn by seed when all splits are given
    assert count_trainings() == 1


CHANGES: dict[str, dict[str, Any]] = {
    "longer pairs": {"max_length": 99},
    "another ratio": {"max_ratio": 2.5},
    "overlap kept": {"remove_overlap": False},
    "another vocabulary": {"vocabulary": TokenizerConfig(vocab_size=310)},
    "another test": {"test": ["validation.tsv"]},
    "no test": {"test": []},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_setting_is_prepared_anew(root: Path, count_trainings: Callable[[], int], change: str):
    run(root)
    run(root, **CHANGES[change])
    assert count_trainings() == 2


@pytest.mark.parametrize("name", ["train.tsv", "validation.tsv", "test.tsv"])
def test_a_changed_file_is_prepared_anew(root: Path, count_trainings: Callable[[], int], name: str):
    run(root)
    with (root / name).open("a", encoding="utf-8") as file:
        file.write("one more\tuno más\n")
    sizes = run(root).report["sizes"]
    assert count_trainings() == 2
    assert sizes["train"] + sizes["validation"] + sizes["tests"]["test"] == 351


def test_the_same_input_gives_the_same_files(root: Path, monkeypatch: pytest.MonkeyPatch):
    def files(cache: str) -> dict[str, bytes]:
        monkeypatch.setenv("SEQ2SEQ_CACHE", str(root / cache))
        run(root, validation=[])
        return {
            path.name: path.read_bytes()
            for folder in (root / cache).iterdir()
            if folder.is_dir()
            for path in folder.iterdir()
        }

    assert files("one") == files("two")


def test_a_damaged_cache_is_prepared_anew_with_a_warning(root: Path, caplog: pytest.LogCaptureFixture):
    first = run(root)
    (arrow,) = (root.parent / "cache").glob("*/train.arrow")
    arrow.write_bytes(arrow.read_bytes()[:-100])
    assert texts(run(root)) == texts(first)
    assert "is damaged: preparing it again" in caplog.text


def test_nothing_of_a_failed_preparation_is_left(root: Path):
    with (root / "train.tsv").open("a") as file:
        file.write("no tab\n")
    with pytest.raises(UserError, match=r"train.tsv:301 has 1 tab-separated fields"):
        run(root)
    assert [path for path in (root.parent / "cache").iterdir() if path.is_dir()] == []


def test_no_training_corpus_is_refused(root: Path):
    with pytest.raises(UserError, match=r"^data.train is empty: give training corpora"):
        run(root, train=[])


def with_specs(split: str, spec: str) -> dict[str, Any]:
    return {split: [spec]}


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_missing_file_of_any_split_is_named(root: Path, split: str):
    with pytest.raises(UserError, match=r"nowhere.tsv does not exist"):
        run(root, **with_specs(split, "nowhere.tsv"))


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_an_empty_file_of_any_split_is_named(root: Path, split: str):
    (root / "empty.tsv").touch()
    with pytest.raises(UserError, match=r"^empty.tsv is empty: it has no sentence pair"):
        run(root, **with_specs(split, "empty.tsv"))


def test_training_text_of_which_nothing_is_left_tells_why(root: Path):
    write(root / "train.tsv", [("a", "a"), ("", "b")])
    with pytest.raises(UserError, match=r"no training pair is left after cleaning: .*'identical': 1"):
        run(root)
    write(root / "train.tsv", TEST)
    with pytest.raises(UserError, match=r"no training pair is left after cleaning: .*'overlap': 30"):
        run(root)


def test_validation_text_without_a_usable_pair_is_refused(root: Path):
    write(root / "validation.tsv", [("a", ""), ("\u200b", "b")])
    with pytest.raises(UserError, match=r"validation.tsv has no pair with text on both sides"):
        run(root)


def test_a_vocabulary_too_large_comes_through_as_one_line(root: Path):
    with pytest.raises(UserError, match=r"^tokenizer.vocab_size=9000 is larger than the training text can fill"):
        run(root, TokenizerConfig(vocab_size=9000))


def test_parallel_compressed_files_prepare_like_a_table(root: Path):
    expected = texts(run(root))
    for ending, side in (("en", 0), ("es", 1)):
        (root / f"t.{ending}.xz").write_bytes(lzma.compress("".join(pair[side] + "\n" for pair in TRAIN).encode()))
    assert texts(run(root, train=["t.en.xz+t.es.xz"])) == expected


@pytest.mark.system
def test_real_everyday_text_is_prepared(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(tmp_path))
    prepared = run(shared_data / "tatoeba", TokenizerConfig(vocab_size=8000))
    (file,) = prepared.report["files"]
    assert file["read"] == 107_990
    assert file["kept"] == len(prepared.train) > 107_900
    assert prepared.tokenizer.vocab_size == 8000
    assert len(prepared.tests["test"]) == 10_000


def test_real_mixed_corpora_lose_their_known_defects(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(tmp_path))
    news = "tests/newstest2012.en+tests/newstest2012.es"
    corpora = ["corpora/us_tax_help.tsv.xz", "corpora/opensource_guide.tsv.xz"]
    prepared = run(shared_data, TokenizerConfig(vocab_size=1000), train=corpora, validation=[news], test=[news])
    tax, guide = prepared.report["files"]
    assert (tax["read"], tax["ratio"]) == (3051, 2)
    assert (guide["read"], guide["overlap"]) == (1632, 1)
    assert prepared.tests["newstest2012"][0][0].startswith("Parliament Does Not Support")
    assert len(prepared.validation_pairs) == 3003
