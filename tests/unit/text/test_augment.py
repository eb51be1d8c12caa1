"""Subwords are sampled as the papers say, exactly again from the same seed, in training only."""

import itertools
import json
import threading
from collections import Counter

import numpy as np
import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.settings.training import NoiseConfig, SubwordSamplingConfig, TrainingConfig
from seq2seq.text.augment import Encoder
from seq2seq.text.batching import Batch, BatchLoader
from seq2seq.text.dataset import Pairs
from seq2seq.text.epochs import BlockId, Mixture, PreparedEpochs
from seq2seq.text.loading import training_feed, validation_loaders
from seq2seq.text.prepare import prepare
from seq2seq.text.tokenizer import SPECIAL_IDS, UNK, Tokenizer, train_tokenizer
from seq2seq.text.vocabulary import Tokenizers

SUBJECTS, VERBS = ("The cat", "A dog", "El gato", "Un perro", "Ella"), ("drank", "sees", "bebió", "ve", "quiere")
THINGS = ("the milk", "a blue ball", "la leche", "una bola azul", "niños, años")
TEXTS = [f"{s} {v} {t}{m}" for s in SUBJECTS for v in VERBS for t in THINGS for m in (".", "?")]
PAIRS = [(src, tgt) for src, tgt in zip(TEXTS, reversed(TEXTS), strict=True)]


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def vocabulary(request: pytest.FixtureRequest) -> Tokenizer:
    return train_tokenizer(TEXTS, TokenizerConfig(type=request.param, vocab_size=300))


def sample(vocabulary: Tokenizer, seed: int, alpha: float = 0.1, nbest: int = -1) -> list[list[int]]:
    return vocabulary.sample(TEXTS, alpha=alpha, nbest=nbest, seed=seed)


def test_samples_are_other_segmentations_of_the_same_text(vocabulary: Tokenizer):
    drawn = sample(vocabulary, 1, alpha=0.3)
    assert vocabulary.decode(drawn) == TEXTS
    plain = vocabulary.encode(TEXTS)
    assert sum(a != b for a, b in zip(drawn, plain, strict=True)) > 0.5 * len(TEXTS)
    assert sum(map(len, drawn)) > 1.02 * sum(map(len, plain))


def test_the_same_seed_draws_the_same_whatever_was_drawn_before_and_in_any_thread(vocabulary: Tokenizer):
    first = sample(vocabulary, 5)
    assert sample(vocabulary, 6) != first
    found: list[list[list[int]]] = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append(sample(vocabulary, 5)))
        thread.start()
        thread.join()
    assert found == [first, first]
    assert sample(vocabulary, 5) == first


def test_bpe_dropout_leaves_out_the_share_of_merges_it_is_told():
    bpe = train_tokenizer(TEXTS, TokenizerConfig(type="bpe", vocab_size=300))
    plain = bpe.encode(TEXTS)
    assert sample(bpe, 1, alpha=0.0) == plain
    lengths = [sum(map(len, sample(bpe, 1, alpha=alpha))) for alpha in (0.05, 0.2, 0.6, 1.0)]
    assert lengths == sorted(lengths)
    characters = sum(len(text.replace(" ", "")) + text.count(" ") + 1 for text in TEXTS)
    assert lengths[-1] == characters, "without any merge every character is a piece, and so is the space mark"


def test_a_small_alpha_draws_evenly_and_a_large_one_the_likeliest():
    unigram = train_tokenizer(TEXTS, TokenizerConfig(vocab_size=300))

    def most_common(alpha: float) -> float:
        drawn = unigram.sample(["The cat drank the milk."] * 300, alpha=alpha, nbest=-1, seed=1)
        return Counter(map(tuple, drawn)).most_common(1)[0][1] / 300

    assert most_common(0.05) < most_common(0.5) <= most_common(1.0)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_tag_is_never_split(kind: str):
    tagged = [f"<bt> {text}" for text in TEXTS]
    config = TokenizerConfig(type=kind, vocab_size=300, user_symbols=["<bt>"])
    with_tag = train_tokenizer(tagged, config)
    drawn = with_tag.sample(tagged * 5, alpha=0.05, nbest=-1, seed=1)
    assert all(row.count(with_tag.user_symbols["<bt>"]) == 1 for row in drawn)
    assert sum(a != b for a, b in zip(drawn, with_tag.encode(tagged * 5), strict=True)) > 0.1 * len(drawn)


def test_nbest_draws_from_no_more_segmentations_than_it_says():
    unigram = train_tokenizer(TEXTS, TokenizerConfig(vocab_size=300))
    drawn = unigram.sample(["The cat drank the milk."] * 300, alpha=0.1, nbest=3, seed=1)
    assert 1 < len(set(map(tuple, drawn))) <= 3


def encoder(vocabulary: Tokenizer, max_length: int = 60, alpha: float = 0.2, typos: float = 0.0) -> Encoder:
    return Encoder(
        Tokenizers.joint(vocabulary), max_length, SubwordSamplingConfig(alpha=alpha), NoiseConfig(typos=typos)
    )


def test_noise_spoils_sources_and_never_targets(vocabulary: Tokenizer):
    src, tgt = encoder(vocabulary, alpha=0.0, typos=0.5).encode(TEXTS, TEXTS, [1, 2])
    assert tgt == vocabulary.encode(TEXTS)
    assert 0.4 < sum(a != b for a, b in zip(src, tgt, strict=True)) / len(TEXTS) < 0.6


def test_a_pair_that_randomness_would_make_too_long_stays_plain(vocabulary: Tokenizer):
    plain = vocabulary.encode(TEXTS)
    limit = max(map(len, plain))
    src, tgt = encoder(vocabulary, max_length=limit, alpha=0.5).encode(TEXTS, TEXTS, [1])
    assert max(map(len, src + tgt)) <= limit
    assert src != plain


def ids(vocabulary: Tokenizer) -> Pairs:
    """Tokenised pairs, as preparation leaves them."""
    return Pairs.of(vocabulary.encode([src for src, _ in PAIRS]), vocabulary.encode([tgt for _, tgt in PAIRS]))


def texts(vocabulary: Tokenizer, batches: list[Batch]) -> Counter[tuple[str, str]]:
    rows = [row for batch in batches for row in zip(batch.src.tolist(), batch.tgt_in.tolist(), strict=True)]
    sides = ([[i for i in row[side] if i not in SPECIAL_IDS] for row in rows] for side in (0, 1))
    return Counter(zip(*map(vocabulary.decode, sides), strict=True))


def equal(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a, b) for one, two in zip(first, second, strict=True) for a, b in zip(one, two, strict=True)
    )


def test_prepared_pairs_come_once_an_epoch_split_otherwise_each_time(vocabulary: Tokenizer):
    source = PreparedEpochs(ids(vocabulary), 3, None, encoder(vocabulary), 60)
    loader = BatchLoader(source, max_tokens=300)
    epoch = list(itertools.takewhile(lambda _: loader.state_dict()["epoch"] == 0, loader))
    assert texts(vocabulary, epoch) == Counter(PAIRS)
    assert all(max(batch.src.numel(), batch.tgt_in.numel()) <= 300 for batch in epoch), "of sampled lengths"
    sizes = [len(block.pairs) for block in itertools.islice(source(BlockId(0, 0)), 4)]
    assert sizes == [63, 63, 62, 62]
    one, two = (next(source(BlockId(epoch, 0))).pairs for epoch in (0, 1))
    assert [len(one[i][0]) for i in range(60)] != [len(two[i][0]) for i in range(60)]


def test_sampling_goes_on_exactly_and_is_the_same_for_two_ranks(vocabulary: Tokenizer):
    mixture = Mixture([200, 50], np.array([0.5, 0.5]), seed=3)

    def loader(rank: int = 0, ranks: int = 1, accumulate: int = 2) -> BatchLoader:
        source = PreparedEpochs(ids(vocabulary), 3, mixture, encoder(vocabulary, typos=0.3), 60)
        return BatchLoader(source, max_tokens=300, rank=rank, world_size=ranks, accumulate=accumulate)

    expected = list(itertools.islice(loader(), 80))
    result: list[Batch] = []
    state = loader().state_dict()
    for steps in (1, 6, 17, 56):
        again = loader()
        again.load_state_dict(json.loads(json.dumps(state)))
        result += itertools.islice(again, steps)
        state = again.state_dict()
    assert equal(result, expected)
    assert state["epoch"] >= 1
    two = [list(itertools.islice(loader(rank, 2, 1), 40)) for rank in (0, 1)]
    assert equal([batch for step in zip(*two, strict=True) for batch in step], expected)


def test_a_pair_with_an_unknown_token_stays_as_it_is():
    narrow = train_tokenizer(TEXTS, TokenizerConfig(vocab_size=45, byte_fallback=False))
    pairs = Pairs.of([*([[UNK, 7]] * 3), *narrow.encode(TEXTS[3:])], narrow.encode(TEXTS))
    source = PreparedEpochs(pairs, 3, None, encoder(narrow, alpha=0.5), 1000)
    block = next(source(BlockId(0, 0)))
    rows = [block.pairs[i] for i in range(len(block.pairs))]
    kept = [tgt.tolist() for src, tgt in rows if src.tolist() == [UNK, 7]]
    assert sorted(kept) == sorted(narrow.encode(TEXTS[:3]))


def test_only_training_batches_are_sampled(tmp_path, tokenizer: Tokenizer):
    for name, pairs in (("t", PAIRS[:200]), ("v", PAIRS[200:])):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs))
    data = DataConfig(root=str(tmp_path), train=["t.tsv"], validation=["v.tsv"], test=["v.tsv"], remove_overlap=False)
    training = TrainingConfig(max_tokens=400, subword_sampling=SubwordSamplingConfig(alpha=0.2))
    config = Config(data=data, tokenizer=TokenizerConfig(vocab_size=300), training=training)
    prepared = prepare(data, config.tokenizer)
    feed = iter(training_feed(config, prepared, rank=0, world_size=1, pin=False))
    tokens = sum(int((next(feed).tgt_out != 0).sum()) for _ in range(5))
    feed.close()  # type: ignore[attr-defined]  # it is a generator
    assert tokens > 0
    (loader,) = validation_loaders(config, prepared, rank=0, world_size=1)
    again = list(loader)
    assert sum(int((b.tgt_out != 0).sum()) for b in again) == int(prepared.validation.tgt_lengths.sum()) + 50


def test_impossible_settings_are_refused_by_name():
    with pytest.raises(UserError, match=r"training.subword_sampling.alpha=2.0 must be in"):
        SubwordSamplingConfig(alpha=2.0)
    with pytest.raises(UserError, match=r"training.subword_sampling.nbest=1 must be at least 2, or -1"):
        SubwordSamplingConfig(alpha=0.1, nbest=1)
