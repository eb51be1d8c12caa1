"""Shortlists: what they allow, what is learned from pairs, and what their files survive."""

import itertools
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from seq2seq.data.dataset import Pairs
from seq2seq.errors import UserError
from seq2seq.search.shortlist import MULTIPLE, Shortlist
from seq2seq.settings.data import TokenizerConfig
from seq2seq.text.tokenizer import Tokenizer, train_tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.training import ibm_model1
from seq2seq.training.ibm_model1 import learn_shortlist
from tests.refusing import refuses
from tests.toy import PAIRS

SIZE = 200


@pytest.fixture(scope="module")
def toy_tokenizer() -> Tokenizer:
    return train_tokenizer([text for pair in PAIRS for text in pair], TokenizerConfig(vocab_size=305))


@pytest.fixture(scope="module")
def toy_pairs(toy_tokenizer: Tokenizer) -> Pairs:
    src, tgt = zip(*PAIRS, strict=True)
    return Pairs.of(toy_tokenizer.encode(src), toy_tokenizer.encode(tgt))


def shortlist(needed: dict[int, list[int]], always: list[int]) -> Shortlist:
    lists = [sorted(needed.get(source, [])) for source in range(SIZE)]
    offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    targets, by_frequency = np.array([*itertools.chain(*lists)], np.int32), np.arange(SIZE, dtype=np.int32)[::-1].copy()
    return Shortlist(offsets, targets, np.array(always, np.int32), by_frequency, "of a test")


def reference(pairs: Pairs, rounds: int) -> dict[int, dict[int, float]]:
    """Expected counts of Model 1 by source and target id, pair by pair as the paper has it."""
    probs: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(lambda: 1.0))
    counts: dict[int, dict[int, float]] = {}
    for _ in range(rounds):
        counts = defaultdict(lambda: defaultdict(float))
        for src, tgt in (pairs[i] for i in range(len(pairs))):
            sources = [ibm_model1.NO_SOURCE, *src.tolist()]
            for target in tgt.tolist():
                total = sum(probs[source][target] for source in sources)
                for source in sources:
                    counts[source][target] += probs[source][target] / total
        probs = {s: {t: c / sum(row.values()) for t, c in row.items()} for s, row in counts.items()}
    return counts


def test_a_union_has_what_its_sources_need_and_is_filled_up_with_frequent_ids() -> None:
    union = shortlist({5: [70, 80], 6: [80, 90], 7: [100]}, [0, 1, 2, 3, 10]).union([[5, 6], [6], []], [120])
    needed = {0, 1, 2, 3, 10, 5, 6, 70, 80, 90, 120}
    assert union.tolist() == sorted(needed | set(range(SIZE - (MULTIPLE - len(needed)), SIZE)))
    assert len(union) == MULTIPLE
    assert shortlist({}, list(range(SIZE))).union([]).tolist() == list(range(SIZE)), "the vocabulary is the most"


def test_what_is_learned_are_the_best_of_model_1(toy_pairs, toy_tokenizer, monkeypatch):
    expected = reference(toy_pairs, ibm_model1._ROUNDS)
    for block in (ibm_model1._BLOCK, 300, 1):
        monkeypatch.setattr(ibm_model1, "_BLOCK", block)
        learned = learn_shortlist(toy_pairs, Tokenizers.joint(toy_tokenizer), best=3, frequent=0)
        for source in range(toy_tokenizer.vocab_size):
            counts = expected.get(source, {}) if source != ibm_model1.NO_SOURCE else {}
            kept = learned.needed_by(source).tolist()
            assert len(kept) == min(3, len(counts))
            least = min((counts[target] for target in kept), default=0)
            assert all(count <= least * (1 + 1e-9) for target, count in counts.items() if target not in kept)


def test_every_text_is_allowed_specials_frequent_ids_and_the_bytes_of_targets(tokenizer: Tokenizer) -> None:
    src, tgt = tokenizer.encode(["the milk", "a dog"]), tokenizer.encode(["la la leche ☃", "perro"])
    learned = learn_shortlist(Pairs.of(src, tgt), Tokenizers.joint(tokenizer), best=1, frequent=1)
    snow = [token for token in tgt[0] if token in tokenizer.byte_ids]
    frequent = int(np.bincount(list(itertools.chain(*tgt))).argmax())
    assert snow
    assert learned.always.tolist() == sorted({0, 1, 2, 3, *snow, frequent})


def test_of_a_large_corpus_some_pairs_are_read(toy_pairs, toy_tokenizer, monkeypatch):
    total = int((toy_pairs.lengths[:, 1] * (toy_pairs.lengths[:, 0] + 1)).sum())
    monkeypatch.setattr(ibm_model1, "_MOST", -(-total // 4))
    few = Pairs.of(*zip(*([ids.tolist() for ids in toy_pairs[i]] for i in range(0, len(toy_pairs), 4)), strict=True))
    sampled, expected = (
        learn_shortlist(pairs, Tokenizers.joint(toy_tokenizer), best=5, frequent=9) for pairs in (toy_pairs, few)
    )
    assert sampled.digest == expected.digest


@pytest.mark.parametrize("pairs", [Pairs.of([], []), Pairs.of([[], [4]], [[5], []])])
def test_pairs_without_words_teach_nothing(pairs: Pairs, tokenizer: Tokenizer) -> None:
    learned = learn_shortlist(pairs, Tokenizers.joint(tokenizer), best=3, frequent=2)
    assert len(learned.targets) == 0
    assert learned.always.tolist()[:4] == [0, 1, 2, 3]


def test_a_file_comes_back_with_its_digest_and_vocabulary(tmp_path: Path) -> None:
    saved = replace(shortlist({5: [70]}, [0, 10]), vocabulary="mine")
    saved.save(tmp_path / "file")
    loaded = Shortlist.load(tmp_path / "file")
    assert loaded.digest == saved.digest
    loaded.require("mine")
    refuses("belongs to another model, whose tokenizer differs: make one for this model", loaded.require, "another")


def test_a_shortlist_that_allows_other_ids_has_another_digest() -> None:
    """A half-written output of `seq2seq translate` is not continued with another shortlist."""
    first = shortlist({5: [70]}, [0, 10])
    others = [shortlist({5: [71]}, [0, 10]), shortlist({6: [70]}, [0, 10]), shortlist({5: [70]}, [0, 11])]
    others.append(replace(first, by_frequency=first.by_frequency[::-1].copy()))
    assert len({listed.digest for listed in (first, *others)}) == 5
    assert shortlist({5: [70]}, [0, 10]).digest == first.digest


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("offsets", np.array([0, 2, 1, 3], np.int64)),
        ("offsets", np.array([0, 1, 2, 4], np.int64)),
        ("offsets", np.array([0, 3], np.int64)),
        ("offsets", np.array([0.0, 1.0, 2.0, 3.0])),
        ("targets", np.array([0, 1, 3], np.int32)),
        ("targets", np.array([[0, 1, 2]], np.int32)),
        ("always", np.array([-1], np.int32)),
        ("by_frequency", np.array([0, 1, 1], np.int32)),
    ],
)
def test_damaged_numbers_are_one_line(tmp_path: Path, name: str, value: np.ndarray) -> None:
    ids = np.array([0, 1, 2], np.int32)
    arrays = {"offsets": np.array([0, 1, 2, 3], np.int64), "targets": ids, "always": ids, "by_frequency": ids}
    about = {"format": "seq2seq-shortlist-1", "vocabulary": ""}
    save_file(arrays, tmp_path / "file", about)
    assert Shortlist.load(tmp_path / "file").union([[1]]).tolist() == [0, 1, 2]
    save_file({**arrays, name: value}, tmp_path / "file", about)
    with pytest.raises(UserError, match="file is damaged: its numbers do not fit each other; make it with `seq2seq sh"):
        Shortlist.load(tmp_path / "file")


def test_another_file_is_one_line(tmp_path: Path) -> None:
    for content in (b"", b"no shortlist", b"\x08\0\0\0\0\0\0\0" + b"{" * 8, b"\xff" * 64):
        (tmp_path / "file").write_bytes(content)
        refuses("file is damaged, or no shortlist: make it with `seq2seq shortlist`", Shortlist.load, tmp_path / "file")
    refuses(r"missing cannot be read \(No such file or directory\): make it with", Shortlist.load, tmp_path / "missing")
    refuses(r"cannot be read|is damaged", Shortlist.load, tmp_path)
    save_file({"weights": np.zeros(3)}, tmp_path / "weights")
    refuses("weights is no shortlist of this version", Shortlist.load, tmp_path / "weights")


def test_a_vmap_has_a_line_for_each_source_subword() -> None:
    subwords = [f"p{number}" for number in range(SIZE)]
    subwords[6], subwords[80] = "two words", "a\ttab"  # which the format cannot hold
    lines = list(shortlist({5: [70, 80]}, [0, 3, 10]).vmap(subwords))
    assert lines[0] == "\tp0 p3 p10"
    assert "p5\tp5 p70" in lines
    assert "p7\tp7" in lines
    assert len(lines) == 1 + SIZE - 2
