"""Drawn segmentations have the probabilities that the papers give them, and are the same in every process."""

import hashlib
import itertools
import math
import pickle
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from seq2seq.settings.data import TokenizerConfig
from seq2seq.text.tokenizer import Tokenizer, train_tokenizer
from tests.unit.conftest import SENTENCES

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
