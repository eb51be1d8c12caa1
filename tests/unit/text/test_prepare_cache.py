"""Prepared text is taken from the cache while nothing has changed; text that cannot be prepared is told in one line."""

import gzip
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from preparing import TEST, TRAIN, config, make_pairs, run, texts, write

from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.data import TokenizerConfig
from seq2seq.text import pipeline, vocabulary
from seq2seq.text.loading import make_mixture


@pytest.fixture
def count_trainings(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    calls: list[TokenizerConfig] = []

    def counting(pairs: Any, settings: TokenizerConfig, automatic_size: int) -> vocabulary.Tokenizers:
        calls.append(settings)
        return vocabulary.learn_tokenizers(pairs, settings, automatic_size)

    monkeypatch.setattr(pipeline, "learn_tokenizers", counting)
    return lambda: len(calls)


def test_the_second_run_takes_everything_from_the_cache(root: Path, count_trainings: Callable[[], int]):
    first = run(root)
    start = time.process_time()
    second = run(root)
    assert time.process_time() - start < 1  # seconds
    assert count_trainings() == 1
    assert texts(second) == texts(first)
    assert second.tokenizer.files == first.tokenizer.files
    assert (second.report, second.tests, second.validation_pairs) == (first.report, first.tests, first.validation_pairs)


def test_the_cache_follows_contents_and_not_places_or_times(root: Path, count_trainings: Callable[[], int]):
    run(root)
    moved = root.rename(root.with_name("moved"))
    write(moved / "train.tsv", TRAIN)
    run(moved)
    (root.parent / "elsewhere").mkdir()
    path = (moved / "train.tsv").rename(root.parent / "elsewhere" / "renamed.tsv")
    run(moved, train=[str(path)])  # not in data.root
    assert count_trainings() == 1


def test_a_file_that_is_read_in_another_way_is_prepared_anew(root: Path):
    (root / "train.tsv.gz").write_bytes(gzip.compress((root / "train.tsv").read_bytes()))
    assert texts(run(root, train=["train.tsv.gz"])) == TRAIN
    (root / "train.tsv.gz").rename(root / "train.csv.gz")
    with pytest.raises(UserError, match=r"train.csv.gz:1 has no column en"):
        run(root, train=["train.csv.gz"])


def test_a_corpus_has_its_present_name_in_tables_weights_and_held_out_from(
    root: Path, count_trainings: Callable[[], int]
):
    write(root / "own.tsv", make_pairs(100, 5))
    run(root, train=["train.tsv", "own.tsv"], held_out_from=["own.tsv"])
    (root / "mine").mkdir()
    (root / "own.tsv").rename(root / "mine" / "own.tsv")
    given = {"train": ["train.tsv", "mine/own.tsv"], "held_out_from": ["mine"], "weights": {"mine": 2.0, "train": 1.0}}
    prepared = run(root, **given)
    assert count_trainings() == 1
    assert [file["name"] for file in prepared.report["files"]] == ["train.tsv", "mine/own.tsv"]
    mixture = make_mixture(Config(data=config(root, **given)), prepared)
    assert mixture is not None
    assert mixture.shares[1] == pytest.approx(2 / 3)


def test_a_file_that_changes_while_it_is_read_is_refused_and_nothing_is_stored(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    def change(*given: Any) -> vocabulary.Tokenizers:
        write(root / "train.tsv", TRAIN[:200])
        return vocabulary.learn_tokenizers(*given)

    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "learn_tokenizers", change)
        with pytest.raises(UserError, match=r"train.tsv changed while it was read: run the same command again"):
            run(root)
    assert len(run(root).train) == 200
    write(root / "train.tsv", TRAIN)
    assert len(run(root).train) == 300


CHANGES: dict[str, dict[str, Any]] = {
    "longer pairs": {"max_length": 99},
    "another ratio": {"max_ratio": 2.5},
    "overlap kept": {"remove_overlap": False},
    "another vocabulary": {"vocabulary": TokenizerConfig(vocab_size=310)},
    "another test": {"test": ["validation.tsv"]},
    "no test": {"test": []},
}


def test_what_is_asked_of_a_finished_tokenizer_is_asked_of_a_cached_text_too(root: Path):
    model = root / "finished.model"
    model.write_bytes(run(root).tokenizer.target.model_bytes)
    run(root, TokenizerConfig(model=str(model)))
    with pytest.raises(UserError, match=r"has no tokenizer.user_symbols=\['<bt>'\]"):
        run(root, TokenizerConfig(model=str(model), user_symbols=["<bt>"]))


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
    first = texts(run(root))
    (ids,) = (root.parent / "cache").glob("*/train.ids")
    ids.write_bytes(ids.read_bytes()[:-100])
    assert texts(run(root)) == first
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


def test_a_file_that_cannot_be_hashed_is_named(root: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(hashlib, "file_digest", refuse)
    with pytest.raises(UserError, match=r"train.tsv cannot be read: Input/output error"):
        run(root)


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


@pytest.mark.parametrize(
    ("weights", "message"), [({"x": 1.0}, "names none of the corpora"), ({"train": 0.0}, "is 0 for")]
)
def test_weights_that_cannot_be_drawn_by_are_refused_before_preparation(root: Path, weights: dict, message: str):
    with pytest.raises(UserError, match=message):
        run(root, weights=weights)
    assert not (root.parent / "cache").exists()


def test_a_vocabulary_too_large_comes_through_as_one_line(root: Path):
    with pytest.raises(UserError, match=r"^tokenizer.vocab_size=9000 is larger than the training text can fill"):
        run(root, TokenizerConfig(vocab_size=9000))
