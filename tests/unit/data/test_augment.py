"""Training text is encoded anew each epoch: split at random, in unusual forms; other text stays plain."""

import itertools
from collections import Counter
from typing import Any

import pytest
from preparing import write

from seq2seq.data.augment import Encoder
from seq2seq.data.batching import Batch, BatchLoader
from seq2seq.data.dataset import Pairs
from seq2seq.data.epochs import BlockId, PreparedEpochs
from seq2seq.data.loading import training_feed, validation_loaders
from seq2seq.data.prepare import prepare
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.settings.training import ModifiersConfig, SubwordSamplingConfig, TrainingConfig
from seq2seq.text.tokenizer import SPECIAL_IDS, UNK, Tokenizer, train_tokenizer
from seq2seq.text.vocabulary import Tokenizers
from tests.unit.conftest import SENTENCES

PAIRS = list(zip(SENTENCES, reversed(SENTENCES), strict=True))


def encoder(tokenizer: Tokenizer, max_length: int = 60, alpha: float = 0.2, share: float = 0.0) -> Encoder:
    sampling, modifiers = SubwordSamplingConfig(alpha=alpha), ModifiersConfig(share=share)
    return Encoder(Tokenizers.joint(tokenizer), max_length, sampling, modifiers, ("en", "es"))


def test_about_the_share_of_pairs_is_modified_and_the_same_ones_with_the_same_seed(tokenizer: Tokenizer):
    plain, modifying = tokenizer.encode(SENTENCES), encoder(tokenizer, alpha=0.0, share=0.5, max_length=200)
    src, tgt = modifying.encode(plain, plain, [1, 2])
    changed = [ids for ids, other, before in zip(src, tgt, plain, strict=True) if (ids, other) != (before, before)]
    assert 0.35 < len(changed) / len(SENTENCES) <= 0.6
    assert (src, tgt) == modifying.encode(plain, plain, [1, 2]) != modifying.encode(plain, plain, [1, 3])


@pytest.mark.parametrize("randomness", [{"alpha": 0.5}, {"alpha": 0.0, "share": 1.0}, {"alpha": 0.5, "share": 1.0}])
def test_a_pair_that_randomness_would_make_too_long_stays_plain(tokenizer: Tokenizer, randomness: dict[str, Any]):
    plain = tokenizer.encode(SENTENCES)
    limit = max(map(len, plain))
    src, tgt = encoder(tokenizer, max_length=limit, **randomness).encode(plain, plain, [1])
    assert max(map(len, src + tgt)) <= limit
    assert src != plain


def texts(tokenizer: Tokenizer, batches: list[Batch]) -> Counter[tuple[str, str]]:
    rows = [row for batch in batches for row in zip(batch.src.tolist(), batch.tgt_in.tolist(), strict=True)]
    sides = ([[i for i in row[side] if i not in SPECIAL_IDS] for row in rows] for side in (0, 1))
    return Counter(zip(*map(tokenizer.decode, sides), strict=True))


@pytest.mark.slow
def test_prepared_pairs_come_once_an_epoch_split_otherwise_each_time(tokenizer: Tokenizer):
    pairs = Pairs.of(*(tokenizer.encode([pair[side] for pair in PAIRS]) for side in (0, 1)))
    source = PreparedEpochs(pairs, 3, None, encoder(tokenizer), 100)
    loader = BatchLoader(source, max_tokens=300)
    epoch = list(itertools.takewhile(lambda _: loader.state_dict()["epoch"] == 0, loader))
    assert texts(tokenizer, epoch) == Counter(PAIRS)
    assert all(max(batch.src.numel(), batch.tgt_in.numel()) <= 300 for batch in epoch), "of sampled lengths"
    blocks = list(itertools.islice(source(BlockId(0, 0)), 6))
    assert [len(block.pairs) for block in blocks[:5]] == [len(PAIRS) // 5] * 5
    first, again = blocks[0].pairs.lengths, blocks[5].pairs.lengths
    assert (first != again).any()


@pytest.mark.parametrize("randomness", [{"alpha": 0.5}, {"alpha": 0.0, "share": 1.0}])
def test_a_pair_with_an_unknown_token_stays_as_it_is(randomness: dict[str, Any]):
    narrow = train_tokenizer(SENTENCES, TokenizerConfig(vocab_size=45, byte_fallback=False))
    pairs = Pairs.of([*([[UNK, 7]] * 3), *narrow.encode(SENTENCES[3:])], narrow.encode(SENTENCES))
    block = next(PreparedEpochs(pairs, 3, None, encoder(narrow, **randomness), 1000)(BlockId(0, 0)))
    rows = [block.pairs[i] for i in range(len(block.pairs))]
    kept = [tgt.tolist() for src, tgt in rows if src.tolist() == [UNK, 7]]
    assert sorted(kept) == sorted(narrow.encode(SENTENCES[:3]))


@pytest.mark.slow
def test_only_training_batches_are_sampled_and_modified(tmp_path):
    write(tmp_path / "t.tsv", PAIRS[:160])
    write(tmp_path / "v.tsv", PAIRS[160:])
    data = DataConfig(root=str(tmp_path), train=["t.tsv"], validation=["v.tsv"], test=["v.tsv"], remove_overlap=False)
    sampling, modifiers = SubwordSamplingConfig(alpha=0.2), ModifiersConfig(share=0.5)
    training = TrainingConfig(max_tokens=400, subword_sampling=sampling, modifiers=modifiers)
    config = Config(data=data, tokenizer=TokenizerConfig(vocab_size=300), training=training)
    prepared = prepare(data, config.tokenizer)
    batches = list(itertools.islice(training_feed(config, prepared, rank=0, world_size=1, pin=False), 40))
    drawn = texts(prepared.tokenizer.target, batches)
    assert 0.3 < sum(count for pair, count in drawn.items() if pair not in PAIRS) / drawn.total() < 0.6
    sampled = sum(int((batch.tgt_out != 0).sum()) - len(batch.src) for batch in batches)
    assert sampled > 1.1 * int(prepared.train.lengths[:, 1].sum())
    (loader,) = validation_loaders(config, prepared, rank=0, world_size=1)
    plain = sum(int((batch.tgt_out != 0).sum()) - len(batch.src) for batch in loader)
    assert plain == int(prepared.validation.lengths[:, 1].sum())
