"""One tokenizer for both sides or one for each: learned, kept in a folder, described for the cache."""

import hashlib
import itertools
import json
import math
import pickle
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.checkpoints import learned as marian_models
from seq2seq.errors import UserError
from seq2seq.settings.data import TokenizerConfig
from seq2seq.text.tokenizer import BOS, PAD, UNK, Tokenizer, train_tokenizer
from seq2seq.text.vocabulary import (
    Tokenizers,
    describe_tokenizers,
    learn_tokenizers,
    load_tokenizers,
    tokenizer_files,
    write_files,
)
from tests.refusing import refuses
from tests.unit.conftest import SENTENCES

FILE = Path(__file__).parents[3] / "data/bundled/everyday.train.tsv"
PAIRS = [line.split("\t") for line in FILE.read_text(encoding="utf-8").splitlines()[:300]]
ENGLISH, SPANISH = ([pair[side] for pair in PAIRS] for side in (0, 1))


def pairs() -> Iterable[tuple[str, str]]:
    return zip(ENGLISH, SPANISH, strict=True)


def learned(**changes: Any) -> Tokenizers:
    return learn_tokenizers(pairs, TokenizerConfig(**{"vocab_size": 400, "character_coverage": 1.0, **changes}), 320)


def test_one_tokenizer_learns_both_sides_and_two_one_each():
    joint, pair = learned(), learned(joint=False)
    assert joint.source is joint.target
    assert joint.is_shared
    assert joint.sizes == (400, None)
    assert not pair.is_joint
    assert not pair.is_shared
    assert pair.sizes == (400, 400)
    assert (pair.start, pair.unproducible) == (BOS, (PAD, UNK, BOS))
    assert Tokenizers(pair.target, pair.source).digest != pair.digest
    of_source, of_target = (set(side.tokens(range(400))) for side in (pair.source, pair.target))
    assert "¿" not in of_source  # English has none, so the other bytes of the alphabet spell it
    assert "¿" in "".join(of_target)
    assert of_source != of_target


def test_a_size_that_was_not_chosen_gives_way_on_each_side():
    pair = learn_tokenizers(pairs, TokenizerConfig(joint=False), 32_000)
    sizes = pair.sizes
    assert all(size is not None and size < 1_500 for size in sizes)
    assert sizes[0] != sizes[1]
    refuses("larger than the training text can fill", learned, vocab_size=32_000, joint=False)


def imported(is_shared: bool) -> Tokenizers:
    """Tokenizers as of an imported model that starts translations with padding."""
    subwords = ["<pad>", "<unk>", "▁The", "</s>", "▁", "a", "▁El", "n", "o", "e"]
    ids = {subword: len(subwords) - 1 - number for number, subword in enumerate(subwords)}
    source, target = (Tokenizer(model, "a", ids) for model in marian_models())
    return Tokenizers(source, target, is_shared, start=PAD, unproducible=(PAD, 9), renormalises=True)


def test_an_imported_subword_puts_no_control_characters_into_a_translation():
    subwords = ["<pad>", "<unk>", "▁caf\x1b[2J", "</s>", "é\x9b1m\x7f\u200d\xad"]
    tokenizer = Tokenizer(marian_models()[0], "a", {subword: number for number, subword in enumerate(subwords)})
    assert tokenizer.decode([[2, 4]]) == ["caf[2Jé1m\u200d\xad"]


@pytest.mark.parametrize("kind", ["joint", "pair", "imported", "imported pair"])
def test_a_folder_keeps_them(tmp_path: Path, kind: str):
    tokenizers = imported(kind == "imported") if kind.startswith("imported") else learned(joint=kind == "joint")
    write_files(tmp_path, tokenizers)
    assert sorted(tokenizer_files(tmp_path)) == sorted(tokenizers.files)
    for again in (load_tokenizers(tmp_path), pickle.loads(pickle.dumps(tokenizers))):
        assert (again.digest, again.files, again.sizes) == (tokenizers.digest, tokenizers.files, tokenizers.sizes)
        assert (again.start, again.unproducible) == (tokenizers.start, tokenizers.unproducible)
        assert (again.is_joint, again.renormalises) == (kind == "joint", tokenizers.renormalises)
        assert again.source.encode(ENGLISH) == tokenizers.source.encode(ENGLISH)
        assert again.target.encode(SPANISH) == tokenizers.target.encode(SPANISH)
        assert again.target.original_ids == tokenizers.target.original_ids


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("source", ["a"]), ("source", None), ("target", {"a": 0}), ("target", {"a": 0, "b": 1, "c": 2, "d": 4}),
        ("source", {"a": 0, "b": 1, "c": 2, "\ud800": 3}), ("source", {"a": 0, "b": 1, "c": 2, "d": "3"}),
        ("start", 1), ("start", 2.0), ("unproducible", [10]), ("unproducible", [3]), ("renormalises", 1), ("more", 1),
    ],
)  # fmt: skip
def test_a_damaged_list_of_subwords_is_refused(tmp_path: Path, key: str, value: Any):
    write_files(tmp_path, imported(is_shared=True))
    path = tmp_path / "subwords.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    refuses(r"subwords.json is damaged: it does not list the subwords", load_tokenizers, tmp_path)
    path.write_text("{")
    refuses(r"subwords.json is damaged: it is no JSON", load_tokenizers, tmp_path)


def test_an_imported_tokenizer_has_no_random_splits():
    refuses("no random splits", imported(is_shared=True).source.sample, ["a"], alpha=0.1, seed=1)


def test_a_finished_tokenizer_is_taken_instead_of_training_one(tmp_path: Path):
    tokenizer, file = learned(), tmp_path / "tokenizer.model"
    write_files(tmp_path, tokenizer)
    settings = TokenizerConfig(model=str(file))
    assert learn_tokenizers(list, settings, 0).digest == tokenizer.digest
    assert "joint" not in describe_tokenizers(TokenizerConfig())  # as before there could be two
    assert describe_tokenizers(TokenizerConfig(joint=False))["joint"] is False
    described = describe_tokenizers(settings)
    assert str(file) not in str(described)
    write_files(tmp_path, learned(vocab_size=390))
    assert describe_tokenizers(settings) != described
    with pytest.raises(UserError, match=r"has no tokenizer.user_symbols=\['<bt>'\]: leave them out"):
        learn_tokenizers(list, TokenizerConfig(model=str(file), user_symbols=["<bt>"]), 0)
    refuses(r"none.model cannot be read", describe_tokenizers, TokenizerConfig(model=str(tmp_path / "none.model")))
    refuses(r"leave out tokenizer.joint", TokenizerConfig, model=str(file), joint=False)


def test_a_folder_without_tokenizer_is_refused_by_name(tmp_path: Path):
    write_files(tmp_path, learned(joint=False))
    (tmp_path / "target.model").unlink()
    refuses(r"target.model cannot be read \(No such file", load_tokenizers, tmp_path)


REPOSITORY = Path(__file__).parents[3]
TEXTS = SENTENCES[::2]
STRANGE = ["", "😀😀 ñandú", "a▁b", "日本 cat", "\x01 \u202eabc", "¿" * 40, "<bt> El gato"]
KINDS = ("unigram", "bpe")


@pytest.fixture(scope="module", params=itertools.product(KINDS, (True, False)), ids=str)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    kind, byte_fallback = request.param
    size = 300 if byte_fallback else 45
    return train_tokenizer(TEXTS, TokenizerConfig(type=kind, vocab_size=size, byte_fallback=byte_fallback))


def test_without_randomness_segmentations_are_those_of_sentencepiece(tokenizer: Tokenizer):
    alpha = 0.0 if tokenizer.is_bpe else 1000.0  # the limit in which nothing is left to chance
    drawn = tokenizer.sample(TEXTS + STRANGE, alpha=alpha, seed=1)
    assert drawn == tokenizer.encode_normalised(TEXTS + STRANGE)


def test_random_segmentations_are_of_the_same_text(tokenizer: Tokenizer):
    plain = tokenizer.encode_normalised(TEXTS + STRANGE)
    for seed in (1, 2, 3):
        drawn = tokenizer.sample(TEXTS + STRANGE, alpha=0.2, seed=seed)
        assert drawn != plain
        assert tokenizer.decode(drawn) == tokenizer.decode(plain)


def segmentations(tokenizer: Tokenizer, word: str) -> dict[tuple[int, ...], float]:
    """All that a word's subwords allow, and their log-probabilities."""
    subwords = {tokenizer._processor.id_to_piece(i): i for i in range(260, tokenizer.vocab_size)}
    if not word:
        return {(): 0.0}
    return {
        (subwords[word[:end]], *rest): tokenizer._processor.get_score(subwords[word[:end]]) + score
        for end in range(1, len(word) + 1)
        if word[:end] in subwords
        for rest, score in segmentations(tokenizer, word[end:]).items()
    }


def test_unigram_segmentations_come_as_often_as_their_probability_to_the_power_of_alpha():
    texts = ["a" * many + " " + "b" * few for many in range(1, 9) for few in range(1, 9)]
    tokenizer, alpha, draws = train_tokenizer(texts, TokenizerConfig(vocab_size=270)), 0.3, 4_000
    log_probs = segmentations(tokenizer, "▁aaaaaa")
    assert len(log_probs) == 7, "▁, and a or up to six of it in one subword with the space"
    weights = {ids: math.exp(alpha * log_prob) for ids, log_prob in log_probs.items()}
    counts = Counter(map(tuple, tokenizer.sample(["aaaaaa"] * draws, alpha=alpha, seed=1)))
    assert set(counts) <= set(weights)
    for ids, weight in weights.items():
        share = weight / sum(weights.values())
        assert counts[ids] / draws == pytest.approx(share, abs=5 * math.sqrt(share / draws))


@pytest.mark.slow
def test_a_merge_is_left_out_as_often_as_alpha_says():
    tokenizer, draws = train_tokenizer(["ab ab ab"], TokenizerConfig(type="bpe", vocab_size=264)), 3_000
    lengths = {
        alpha: Counter(len(ids) for ids in tokenizer.sample(["ab"] * draws, alpha=alpha, seed=1))
        for alpha in (0.0, 0.3, 1.0)
    }
    assert lengths[0.0] == {2: draws}, "▁ and ab, or ▁a and b: one merge"
    assert lengths[0.3][3] / draws == pytest.approx(0.3, abs=0.03)
    assert lengths[1.0] == {3: draws}


@pytest.mark.parametrize("kind", KINDS)
def test_a_tag_is_never_split(kind: str):
    tagged = [f"<bt> {text}" for text in TEXTS]
    tokenizer = train_tokenizer(tagged, TokenizerConfig(type=kind, vocab_size=300, user_symbols=["<bt>"]))
    drawn = tokenizer.sample(tagged * 3, alpha=0.05, seed=1)
    assert all(ids.count(tokenizer.user_symbols["<bt>"]) == 1 for ids in drawn)
    assert sum(a != b for a, b in zip(drawn, tokenizer.encode(tagged * 3), strict=True)) > 0.1 * len(drawn)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_draws_the_same_in_every_thread_and_process_whatever_was_drawn_before(kind: str, tmp_path: Path):
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig(type=kind, vocab_size=300))
    script = (
        f"import hashlib, pickle, sys; sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "tokenizer, texts = pickle.load(open('values', 'rb'))\n"
        f"drawn = tokenizer.sample(texts, alpha=0.2, seed=7)\n"
        "print(hashlib.sha256(repr(drawn).encode()).hexdigest())\n"
    )
    drawn = [tokenizer.sample(TEXTS, alpha=0.2, seed=seed) for seed in (7, 8, 7)]
    thread = threading.Thread(target=lambda: drawn.append(tokenizer.sample(TEXTS, alpha=0.2, seed=7)))
    thread.start()
    thread.join()
    assert drawn[0] == drawn[2] == drawn[3] != drawn[1]
    (tmp_path / "values").write_bytes(pickle.dumps((tokenizer, TEXTS)))  # also of one that has drawn
    output = subprocess.check_output([sys.executable, "-c", script], cwd=tmp_path, text=True)
    assert output.strip() == hashlib.sha256(repr(drawn[0]).encode()).hexdigest()
