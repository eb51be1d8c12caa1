"""Preparation gives training what the settings say, counts what became of every pair, and keeps its sets apart."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from preparing import TEST, TRAIN, VALIDATION, make_pairs, run, texts, write

from seq2seq.data.clean import digest_pair
from seq2seq.data.dataset import example
from seq2seq.data.loading import validation_loaders
from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.data import TokenizerConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.tokenizer import SPECIAL_IDS
from tests.refusing import refuses


def test_clean_text_comes_through_in_order_and_without_special_ids(root: Path):
    prepared = run(root)
    assert texts(prepared) == TRAIN
    assert not set(prepared.train.ids.tolist()) & set(SPECIAL_IDS)
    assert prepared.validation_pairs == VALIDATION
    assert [[*map(np.ndarray.tolist, prepared.validation[row])] for row in range(20)] == [
        prepared.tokenizer.target.encode(pair) for pair in VALIDATION
    ]
    assert prepared.tests == {"test": TEST}
    assert prepared.report["sizes"] == {"train": 300, "validation": 20, "tests": {"test": 30}}


@pytest.mark.slow
def test_a_training_pair_is_shown_in_the_direction_of_training(root: Path):
    write(root / "train.tsv", [("word " * 40, "¿" + "wort " * 40), *TRAIN])
    source, target = "word " * 20 + "…", ("¿" + "wort " * 20)[:100] + "…"
    assert example(run(root)) == f"{source} → {target}"
    assert example(run(root, src_lang="es", tgt_lang="en", languages=["en", "es"])) == f"{target} → {source}"


def test_each_drop_is_counted_for_its_own_file(root: Path):
    write(root / "b.tsv", [("", "x"), ("same", "same"), TRAIN[5], TEST[3], ("long " * 99, "largo " * 99), ("a", "b")])
    report = run(root, train=["train.tsv", "b.tsv"], max_length=60).report
    assert report["files"] == [
        {"name": "train.tsv", "read": 300, "kept": 300},
        {"name": "b.tsv", "read": 6, "kept": 1, "empty": 1, "identical": 1, "duplicate": 1, "overlap": 1, "tokens": 1},
    ]


def test_no_side_is_longer_than_max_length_tokens(root: Path):
    prepared = run(root, max_length=20)
    assert prepared.train.lengths.max() == 20
    assert 0 < len(prepared.train) == 300 - prepared.report["files"][0]["tokens"]


def test_overlap_is_removed_from_training_and_reported_by_set_and_side_with_three_examples(root: Path):
    shared = [(VALIDATION[0][0].upper(), f"otra {i}") for i in range(5)]
    shared += [(VALIDATION[1][0], TEST[1][1].replace(" ", "  ")), (f"{TEST[0][0]}!", TEST[0][1])]
    write(root / "train.tsv", TRAIN + shared)
    prepared = run(root)
    assert texts(prepared) == TRAIN
    assert (len(prepared.validation_pairs), len(prepared.tests["test"])) == (20, 30)
    normal = [[src, " ".join(tgt.split())] for src, tgt in shared]
    assert prepared.report["overlap"] == {
        "removed": True,
        "sets": {
            "validation": {"pairs": 6, "source": 6, "target": 0, "examples": normal[:3]},
            "test": {"pairs": 2, "source": 1, "target": 2, "examples": normal[5:]},
        },
    }


def test_test_sets_called_like_the_validation_set_do_not_hide_it(root: Path):
    (root / "other").mkdir()
    names = ("validation", "validation*")
    for i, name in enumerate(names):
        write(root / "other" / f"{name}.tsv", TRAIN[100 * i : 100 * i + 20])
    prepared = run(root, test=[f"other/{name}.tsv" for name in names])
    assert tuple(prepared.tests) == names
    assert list(prepared.report["overlap"]["sets"]) == ["validation**", *names]
    assert len(prepared.train) == len(TRAIN) - 40


def test_overlap_is_only_reported_when_asked(root: Path, caplog: pytest.LogCaptureFixture):
    write(root / "train.tsv", [*TRAIN, TEST[0]])
    prepared = run(root, remove_overlap=False)
    assert "share a side with test, KEPT in training: 1 (1 the source, 1 the target), such as" in caplog.text
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
    for held_out, size in ((10, 10), ("auto", 15)):  # a twentieth of a small text
        prepared = run(root, validation=[], test=[], held_out=held_out, remove_overlap=False)
        drawn = prepared.tests["held_out"]
        assert (len(prepared.validation_pairs), len(drawn)) == (size, size)
        assert sorted([*texts(prepared), *prepared.validation_pairs, *drawn]) == sorted(TRAIN)
        counts = {"name": "train.tsv", "read": 300, "kept": 300 - 2 * size, "held out": 2 * size}
        assert prepared.report["files"] == [counts]


def test_a_held_out_split_shares_no_side_with_training(root: Path):
    variants = [pair for src, tgt in TRAIN[:100] for pair in ((src, tgt), (src, tgt + "!?"), (src, "z" + tgt))]
    write(root / "train.tsv", variants)
    prepared = run(root, validation=[], held_out=20)
    assert len(prepared.validation_pairs) == 20
    assert not {src for src, _ in prepared.validation_pairs} & {src for src, _ in texts(prepared)}


@pytest.mark.slow
def test_what_is_held_out_does_not_depend_on_the_order_of_files_or_on_repeats(root: Path):
    first = run(root, validation=[], test=[])
    write(root / "a.tsv", [*TRAIN[200:], *TRAIN[:20]])
    write(root / "b.tsv", TRAIN[:200][::-1])
    second = run(root, train=["a.tsv", "b.tsv"], validation=[], test=[], drop_duplicates=False)
    assert second.validation_pairs == first.validation_pairs
    assert second.tests == first.tests
    assert not {*second.validation_pairs, *second.tests["held_out"]} & {*texts(second)}


@pytest.mark.slow
def test_drawn_pairs_have_the_outermost_digests_of_those_that_no_other_set_takes(root: Path):
    ranked = sorted(TRAIN, key=lambda pair: digest_pair(*pair))
    write(root / "validation.tsv", ranked[-30:])
    assert run(root, test=[], held_out=20).tests["held_out"] == ranked[-50:-30]
    write(root / "test.tsv", ranked[:30])
    assert run(root, validation=[], held_out=20).validation_pairs == ranked[30:50]


def test_test_sets_of_one_name_are_told_apart_by_their_folders(root: Path):
    for name in ("a", "b"):
        (root / name).mkdir()
        write(root / name / "test.tsv", TEST)
    assert list(run(root, test=["a/test.tsv", "b/test.tsv"]).tests) == ["a-test", "b-test"]


@pytest.mark.slow
def test_no_drawn_set_shares_a_side_with_another_held_out_set(root: Path):
    """Else early stopping would see the test set."""
    leaked, others = TRAIN[:100], [(src, tgt.upper()) for src, tgt in TRAIN[200:280]]
    write(root / "leaked.tsv", leaked)
    write(root / "more.tsv", others)  # other translations of the same sources
    drawn = run(root, validation=[], test=["leaked.tsv"], held_out=40)
    assert len(drawn.validation_pairs) == 40
    assert not set(drawn.validation_pairs) & set(leaked)
    drawn = run(root, train=["train.tsv", "more.tsv"], validation=[], test=[], held_out=60)
    sides = [{src for src, _ in pairs} for pairs in (drawn.validation_pairs, drawn.tests["held_out"])]
    assert [len(pairs) for pairs in (drawn.validation_pairs, drawn.tests["held_out"])] == [60, 60]
    assert not sides[0] & sides[1]
    write(root / "most.tsv", TRAIN[100:])
    with pytest.raises(UserError, match=r"data.held_out=110: only 100 training pairs share no side .* lower it, give"):
        run(root, train=["train.tsv"], validation=[], test=["most.tsv"], held_out=110)


def test_a_pair_whose_side_has_no_token_is_dropped(root: Path, tmp_path: Path):
    """SentencePiece's own normalisation, which a ready tokenizer may have, leaves nothing of some characters."""
    model = tmp_path / "own.model"
    with model.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(side for pair in TRAIN for side in pair), model_writer=file, vocab_size=60,
            character_coverage=1.0, pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2,
        )  # fmt: skip
    write(root / "train.tsv", [*TRAIN, ("\ufffd", "hola")])
    prepared = run(root, TokenizerConfig(model=str(model)))
    assert prepared.train.lengths.min() > 0
    assert prepared.report["files"][0]["tokens"] == 1


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


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"train": []}, "^data.train is empty: give training corpora"),
    *(({split: ["nowhere.tsv"]}, "nowhere.tsv does not exist") for split in ("train", "validation", "test")),
    *(({split: ["empty.tsv"]}, "^empty.tsv is empty: it has no") for split in ("train", "validation", "test")),
    ({"train": ["useless.tsv"]}, "no training pair is left after cleaning: .*'identical': 100"),
    ({"train": ["test.tsv"]}, "no training pair is left after cleaning: .*'overlap': 30"),
    (
        {"validation": ["validation.tsv", "half.tsv"]},
        "half.tsv has no pair with text on both sides: it cannot serve as",
    ),
    ({"validation": ["own.tsv", "own.csv"]}, "data.validation has two sets called .*-own: rename one of the files"),
    ({"test": ["own.tsv", "own.tsv"]}, "data.test has two sets called data-own: rename one"),
    ({"test": ["a.source.tsv"]}, r"has a set called a\.source, .* of a: rename its file, without \.source"),
    ({"test": ["a.reference.tsv"]}, r"a set called a\.reference, .* of a: rename its file, without \.reference"),
    (
        {"validation": [], "test": [], "held_out": 76},
        "data.held_out=76 for validation and test takes more than half of 300 training pairs: lower it, or give",
    ),
    ({"train": ["own.tsv"], "held_out_from": ["mine"]}, "held_out_from has mine, which names none of the corpora: own"),
    (
        {"train": ["train.tsv", "own.tsv"], "held_out_from": ["own"], "held_out": 26},
        "data.held_out=26 for validation and test takes more than half of 100 training pairs of own.tsv: lower it, or "
        "leave own.tsv out of data.held_out_from",
    ),
    *(
        ({"train": train, "held_out_from": ["useless"]}, "takes more than half of 0 training pairs of useless.tsv")
        for train in (["useless.tsv", "own.tsv"], ["own.tsv", "useless.tsv"])
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_what_cannot_be_prepared_is_refused_by_name(own: Path, changes: dict[str, Any], message: str) -> None:
    (own / "empty.tsv").touch()
    (own / "own.csv").write_text("en,es\na,b\n")
    write(own / "useless.tsv", [("a", "a")] * 100)
    write(own / "half.tsv", [("a", ""), ("\u200b", "b")])
    for name in ("a.source.tsv", "a.reference.tsv"):
        write(own / name, TEST)
    refuses(message, run, own, **changes)
