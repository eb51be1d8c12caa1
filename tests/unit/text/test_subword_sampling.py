"""Drawn segmentations have the probabilities that the papers give them, and are the same in every process."""

import hashlib
import itertools
import math
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from seq2seq.settings.data import TokenizerConfig
from seq2seq.text.tokenizer import Tokenizer, train_tokenizer

REPOSITORY = Path(__file__).parents[3]
TEXTS = [
    f"{subject} {verb} {thing}{mark}"
    for subject in ("The cat", "A dog", "El gato", "Un perro", "Ella")
    for verb in ("drank", "sees", "bebió", "ve", "quiere")
    for thing in ("the milk", "a blue ball", "la leche", "una bola azul", "niños, años")
    for mark in (".", "?")
]
STRANGE = ["", "😀😀 ñandú", "a▁b", "日本 cat", "\x01 \u202eabc", "¿" * 40, "<bt> El gato"]
KINDS = ("unigram", "bpe")


@pytest.fixture(scope="module", params=itertools.product(KINDS, (True, False)), ids=str)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    kind, byte_fallback = request.param
    size = 300 if byte_fallback else 45
    return train_tokenizer(TEXTS, TokenizerConfig(type=kind, vocab_size=size, byte_fallback=byte_fallback))


def without_draws(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    """The limit in which nothing is left to chance."""
    alpha = 0.0 if tokenizer._is_bpe else 1000.0
    return tokenizer.sample(texts, alpha=alpha, nbest=-1, seed=1)


def test_without_randomness_segmentations_are_those_of_sentencepiece(tokenizer: Tokenizer):
    assert without_draws(tokenizer, TEXTS + STRANGE) == tokenizer.encode_normalised(TEXTS + STRANGE)


def test_random_segmentations_are_of_the_same_text(tokenizer: Tokenizer):
    plain = tokenizer.encode_normalised(TEXTS + STRANGE)
    for seed, nbest in ((1, -1), (2, -1), (3, 10)):
        drawn = tokenizer.sample(TEXTS + STRANGE, alpha=0.2, nbest=nbest, seed=seed)
        assert drawn != plain
        assert tokenizer.decode(drawn) == tokenizer.decode(plain)


def segmentations(tokenizer: Tokenizer, word: str) -> dict[tuple[int, ...], float]:
    """All that a word's pieces allow, and their log-probabilities."""
    pieces = {tokenizer._processor.id_to_piece(i): i for i in range(260, tokenizer.vocab_size)}
    if not word:
        return {(): 0.0}
    return {
        (pieces[word[:end]], *rest): tokenizer._processor.get_score(pieces[word[:end]]) + score
        for end in range(1, len(word) + 1)
        if word[:end] in pieces
        for rest, score in segmentations(tokenizer, word[end:]).items()
    }


@pytest.mark.parametrize("nbest", [-1, 4])
def test_unigram_segmentations_come_as_often_as_their_probability_to_the_power_of_alpha(nbest: int):
    texts = ["a" * many + " " + "b" * few for many in range(1, 9) for few in range(1, 9)]
    tokenizer, alpha, draws = train_tokenizer(texts, TokenizerConfig(vocab_size=270)), 0.3, 20_000
    expected = segmentations(tokenizer, "▁aaaaaa")
    best = sorted(expected, key=expected.__getitem__, reverse=True)[: None if nbest == -1 else nbest]
    assert len(best) == (7 if nbest == -1 else nbest), "▁, and a or up to six of it in one piece with the space"
    weights = {ids: math.exp(alpha * expected[ids]) for ids in best}
    found = Counter(map(tuple, tokenizer.sample(["aaaaaa"] * draws, alpha=alpha, nbest=nbest, seed=1)))
    assert set(found) <= set(weights)
    for ids, weight in weights.items():
        share = weight / sum(weights.values())
        assert found[ids] / draws == pytest.approx(share, abs=5 * math.sqrt(share / draws))


def test_segmentations_have_the_scores_that_sentencepiece_gives_them():
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig(vocab_size=300))
    sampler = tokenizer._sampler(0.2, 5)
    for text in ("Ella quiere", "Ella ve 日本"):  # the last two characters are spelt in three bytes each
        best = tokenizer._processor.nbest_encode_as_proto(text, 5).nbests
        assert len(best) > 1
        scores = [sampler._score([subword.id for subword in split.pieces]) for split in best]
        assert scores == pytest.approx([split.score for split in best], abs=1e-3)


def test_a_merge_is_left_out_as_often_as_alpha_says():
    tokenizer, draws = train_tokenizer(["ab ab ab"], TokenizerConfig(type="bpe", vocab_size=264)), 10_000
    pair = tokenizer.sample(["ab"], alpha=0.0, nbest=-1, seed=1)[0]
    assert len(pair) == 2, "▁ and ab, or ▁a and b: one merge"
    found = Counter(len(row) for row in tokenizer.sample(["ab"] * draws, alpha=0.3, nbest=-1, seed=1))
    assert found[3] / draws == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("nbest", [-1, 5])
def test_another_process_draws_the_same(kind: str, nbest: int, tmp_path: Path):
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig(type=kind, vocab_size=300))
    (tmp_path / "tokenizer.model").write_bytes(tokenizer.model_bytes)
    script = (
        "import hashlib, sys\n"
        "from pathlib import Path\n"
        "from seq2seq.text.vocabulary import load_tokenizers\n"
        "texts = Path('texts').read_text(encoding='utf-8').splitlines()\n"
        f"drawn = load_tokenizers(Path('tokenizer.model')).source.sample(texts, alpha=0.2, nbest={nbest}, seed=7)\n"
        "print(hashlib.sha256(repr(drawn).encode()).hexdigest())\n"
    )
    (tmp_path / "texts").write_text("\n".join(TEXTS), encoding="utf-8")
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n{script}"]
    there = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
    drawn = tokenizer.sample(TEXTS, alpha=0.2, nbest=nbest, seed=7)
    assert hashlib.sha256(repr(drawn).encode()).hexdigest() == there


def test_a_tokenizer_that_has_drawn_can_be_sent_to_another_process():
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig(vocab_size=300))
    drawn = tokenizer.sample(TEXTS, alpha=0.2, nbest=-1, seed=7)
    assert pickle.loads(pickle.dumps(tokenizer)).sample(TEXTS, alpha=0.2, nbest=-1, seed=7) == drawn
