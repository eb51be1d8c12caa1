"""Prepared text is taken from the cache while nothing has changed, and is the same for any number of processes."""

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from preparing import TEST, TRAIN, config, files, make_pairs, run, texts, write

from seq2seq.data import cleaned, pipeline
from seq2seq.data.loading import make_mixture
from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.data import TokenizerConfig
from seq2seq.text import vocabulary
from tests.refusing import refuses
from tests.thin import thin


@pytest.fixture
def count_trainings(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    calls: list[TokenizerConfig] = []

    def counting(pairs: Any, settings: TokenizerConfig, automatic_size: int) -> vocabulary.Tokenizers:
        calls.append(settings)
        return vocabulary.learn_tokenizers(pairs, settings, automatic_size)

    monkeypatch.setattr(pipeline, "learn_tokenizers", counting)
    return lambda: len(calls)


def test_the_second_run_takes_everything_from_the_cache(root: Path, count_trainings: Callable[[], int]):
    first, second = run(root), run(root)
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
    refuses(r"train.csv.gz:1 has no column en", run, root, train=["train.csv.gz"])


def test_a_corpus_has_its_present_name_in_tables_weights_and_held_out_from(root, count_trainings):
    write(root / "own.tsv", make_pairs(100, 5))
    run(root, train=["train.tsv", "own.tsv"], held_out_from=["own.tsv"])
    (root / "mine").mkdir()
    (root / "own.tsv").rename(root / "mine" / "own.tsv")
    names = {"train": ["train.tsv", "mine/own.tsv"], "held_out_from": ["mine"], "weights": {"mine": 2.0, "train": 1.0}}
    prepared = run(root, **names)
    assert count_trainings() == 1
    assert [file["name"] for file in prepared.report["files"]] == ["train.tsv", "mine/own.tsv"]
    mixture = make_mixture(Config(data=config(root, **names)), prepared)
    assert mixture is not None
    assert mixture.shares[1] == pytest.approx(2 / 3)


@pytest.mark.slow
def test_a_file_that_changes_while_it_is_read_is_refused_and_nothing_is_stored(root, monkeypatch):
    def change(*arguments: Any) -> vocabulary.Tokenizers:
        write(root / "train.tsv", TRAIN[:200])
        return vocabulary.learn_tokenizers(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "learn_tokenizers", change)
        refuses(r"train.tsv changed while it was read: run the same command again", run, root)
    assert len(run(root).train) == 200
    write(root / "train.tsv", TRAIN)
    assert len(run(root).train) == 300


@pytest.mark.slow
def test_what_is_asked_of_a_finished_tokenizer_is_asked_of_a_cached_text_too(root: Path):
    model = root / "finished.model"
    model.write_bytes(run(root).tokenizer.target.model_bytes)
    run(root, TokenizerConfig(model=str(model)))
    with pytest.raises(UserError, match=r"has no tokenizer.user_symbols=\['<bt>'\]"):
        run(root, TokenizerConfig(model=str(model), user_symbols=["<bt>"]))


@pytest.mark.slow
def test_a_changed_setting_or_file_is_prepared_anew(root: Path, count_trainings: Callable[[], int]):
    changes: list[dict[str, Any]] = [
        {},
        {"max_length": 99},
        {"max_ratio": 2.5},
        {"remove_overlap": False},
        {"vocabulary": TokenizerConfig(vocab_size=310)},
        {"test": ["validation.tsv"]},
        {"test": []},
    ]
    for number, change in enumerate(changes, start=1):
        run(root, **change)
        assert count_trainings() == number, change
    for number, name in enumerate(("train.tsv", "validation.tsv", "test.tsv"), start=1):
        with (root / name).open("a", encoding="utf-8") as file:
            file.write(f"{number} more\t{number} más\n")
        sizes = run(root).report["sizes"]
        assert count_trainings() == len(changes) + number
        assert sizes["train"] + sizes["validation"] + sizes["tests"]["test"] == 350 + number


def test_a_file_that_cannot_be_hashed_is_named(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hashlib, "file_digest", Mock(side_effect=OSError(5, "Input/output error")))
    refuses(r"train.tsv cannot be read: Input/output error", run, root)


def test_weights_that_cannot_be_drawn_by_are_refused_before_preparation(root: Path):
    for weights, message in (({"x": 1.0}, "names none of the corpora"), ({"train": 0.0}, "is 0 for")):
        refuses(message, run, root, weights=weights)
    assert not (root.parent / "cache").exists()


REPEATED = [*TRAIN, TEST[0], ("", "x"), *TRAIN[10:20], ("same", "same")]
SPLITS: dict[str, dict[str, Any]] = {
    "given": {},
    "held out": {"validation": [], "test": []},
    "of one corpus": {"held_out_from": ["more.tsv"]},
}


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut little text into many batches, and its digests into four ranges."""
    monkeypatch.setattr(cleaned, "TASK", 9000)
    monkeypatch.setattr(cleaned, "BATCH", 40)
    monkeypatch.setattr(cleaned, "PART", 110)


@pytest.fixture
def corpus(root: Path) -> Path:
    write(root / "train.tsv", REPEATED)
    write(root / "more.tsv", TRAIN[:70] + [(f"{src} more", f"{tgt} más") for src, tgt in TRAIN[:60]])
    return root


def prepare_into(cache: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> dict[str, bytes]:
    monkeypatch.setenv("SEQ2SEQ_CACHE", str(cache))
    run(corpus, train=["train.tsv", "more.tsv"], max_length=20, **changes)
    return files(cache)


@pytest.mark.slow
@pytest.mark.parametrize("splits", thin(SPLITS, ["held out"]))
def test_batches_of_any_size_for_one_or_two_processes_give_the_same_bytes(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest, splits: str
):
    expected = prepare_into(tmp_path / "o::ne", corpus, monkeypatch, **SPLITS[splits])
    request.getfixturevalue("small_batches")
    assert prepare_into(tmp_path / "batches", corpus, monkeypatch, **SPLITS[splits]) == expected
    assert prepare_into(tmp_path / "two", corpus, monkeypatch, num_proc=2, **SPLITS[splits]) == expected
    assert b'"duplicate": 10' in expected["report.json"]
    assert b'"duplicate": 70' in expected["report.json"]


@pytest.mark.slow
def test_the_disk_being_full_names_the_cache(corpus: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(
        "datasets.arrow_writer.ArrowWriter.write_batch", Mock(side_effect=OSError(28, "No space left on device"))
    )
    with pytest.raises(UserError, match=r"data.cache=.* cannot be used \(No space left on device\)"):
        prepare_into(tmp_path / "cache", corpus, monkeypatch)


@pytest.mark.slow
def test_duplicates_can_be_kept(corpus: Path):
    assert len(run(corpus, drop_duplicates=False).train) == len(TRAIN) + 10
