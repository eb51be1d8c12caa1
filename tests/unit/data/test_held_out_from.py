"""Several validation sets are kept apart by file, and named corpora give held-out sets of their own."""

from pathlib import Path
from typing import Any

import pytest
from preparing import TEST, TRAIN, VALIDATION, make_pairs, run, texts, write

from seq2seq.data.loading import validation_loaders
from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.data import TokenizerConfig
from seq2seq.settings.training import TrainingConfig
from tests.refusing import refuses

OWN = make_pairs(100, 5)


@pytest.fixture
def own(root: Path) -> Path:
    write(root / "own.tsv", OWN)
    return root


def test_each_validation_file_is_a_set_under_its_own_name_with_its_own_batches(root: Path) -> None:
    write(root / "news (1).tsv", OWN[:7])
    prepared = run(root, validation=["validation.tsv", "news (1).tsv"])
    assert prepared.validation_sets == {"validation": range(20), "news_1_": range(20, 27)}
    assert prepared.validation_pairs == [*VALIDATION, *OWN[:7]]
    assert prepared.report["sizes"]["validation_sets"] == {"validation": 20, "news_1_": 7}
    loaders = validation_loaders(Config(training=TrainingConfig(max_tokens=100)), prepared, rank=0, world_size=1)
    assert [sum(len(batch.src) for batch in loader) for loader in loaders] == [20, 7]


def test_a_validation_file_without_a_whole_pair_is_refused_though_another_has_one(root: Path) -> None:
    write(root / "empty.tsv", [("", "x")])
    with pytest.raises(UserError, match=r"empty.tsv has no pair with text on both sides: it cannot serve"):
        run(root, validation=["validation.tsv", "empty.tsv"])
    (root / "validation.csv").write_text("en,es\na,b\n")
    with pytest.raises(UserError, match=r"data.validation has two sets called .*-validation: rename one of the files"):
        run(root, validation=["validation.tsv", "validation.csv"])


def test_a_named_corpus_gives_a_validation_and_a_test_set_besides_the_given_ones(own: Path) -> None:
    prepared = run(own, train=["train.tsv", "own.tsv"], held_out_from=["own"], held_out=9)
    assert prepared.validation_sets == {"validation": range(20), "own": range(20, 29)}
    held_out = [*prepared.validation_pairs[20:], *prepared.tests["own"]]
    assert prepared.tests["test"] == TEST
    assert (len(held_out), len(set(held_out))) == (18, 18)
    assert sorted([*texts(prepared)[300:], *held_out]) == sorted(OWN)
    assert texts(prepared)[:300] == TRAIN
    assert prepared.report["files"][1] == {"name": "own.tsv", "read": 100, "kept": 82, "held out": 18}


@pytest.mark.parametrize("changes", [{}, {"remove_overlap": False}, {"drop_duplicates": False}])
def test_what_a_corpus_holds_out_does_not_depend_on_other_corpora(own: Path, changes: dict[str, Any]) -> None:
    settings = {"held_out_from": ["own"], "held_out": 9, "vocabulary": TokenizerConfig(vocab_size=300)}
    alone = run(own, train=["own.tsv"], **settings)
    held_out = {*alone.validation_pairs[20:], *alone.tests["own"]}
    assert len(held_out) == 18
    write(own / "train.tsv", [*TRAIN, *sorted(held_out)[::2]])  # has some of these pairs, too
    mixed = run(own, train=["train.tsv", "own.tsv"], **settings, **changes)
    assert mixed.tests["own"] == alone.tests["own"]
    assert mixed.validation_pairs == alone.validation_pairs
    assert sorted(texts(mixed)) == sorted({*TRAIN, *OWN} - held_out)


@pytest.mark.slow
def test_without_given_sets_only_the_named_corpora_hold_out(own: Path) -> None:
    corpora = {"train": ["train.tsv", "own.tsv"], "validation": [], "test": [], "held_out": "auto"}
    prepared = run(own, **corpora, held_out_from=["own"])
    assert prepared.validation_sets == {"validation": range(5)}  # a twentieth of the corpus; one set needs no name
    assert {name: len(pairs) for name, pairs in prepared.tests.items()} == {"own": 5}
    prepared = run(own, **corpora, held_out_from=["*"])
    assert prepared.validation_sets == {"train": range(15), "own": range(15, 20)}
    assert {name: len(pairs) for name, pairs in prepared.tests.items()} == {"train": 15, "own": 5}


@pytest.mark.parametrize("train", [["same.tsv", "own.tsv"], ["own.tsv", "same.tsv"]])
def test_a_corpus_without_a_pair_left_is_refused_wherever_it_stands(own: Path, train: list[str]) -> None:
    (own / "same.tsv").write_text("a\ta\n" * 100)
    refuses(r"takes more than half of 0 training pairs of same\.tsv", run, own, train=train, held_out_from=["same"])


def test_what_cannot_be_held_out_is_refused_by_name(own: Path) -> None:
    with pytest.raises(UserError, match=r"data.held_out_from has mine, which names none of the corpora: own.tsv; lea"):
        run(own, train=["own.tsv"], held_out_from=["mine"])
    message = (
        r"data.held_out=26 for validation and test takes more than half of 100 training pairs of own.tsv: lower it, or "
        "leave own.tsv out of data.held_out_from"
    )
    refuses(message, run, own, train=["train.tsv", "own.tsv"], held_out_from=["own"], held_out=26)
