"""Training text is encoded anew each epoch: split at random, with noise in the sources; other text stays plain."""

import itertools
from collections import Counter

import pytest
from preparing import write

from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.settings.training import NoiseConfig, SubwordSamplingConfig, TrainingConfig
from seq2seq.text.augment import Encoder
from seq2seq.text.batching import Batch, BatchLoader
from seq2seq.text.dataset import Pairs
from seq2seq.text.epochs import BlockId, PreparedEpochs
from seq2seq.text.loading import training_feed, validation_loaders
from seq2seq.text.prepare import prepare
from seq2seq.text.tokenizer import SPECIAL_IDS, UNK, Tokenizer, train_tokenizer
from seq2seq.text.vocabulary import Tokenizers
from tests.unit.conftest import SENTENCES

PAIRS = list(zip(SENTENCES, reversed(SENTENCES), strict=True))


def encoder(tokenizer: Tokenizer, max_length: int = 60, alpha: float = 0.2, typos: float = 0.0) -> Encoder:
    return Encoder(
        Tokenizers.joint(tokenizer), max_length, SubwordSamplingConfig(alpha=alpha), NoiseConfig(typos=typos)
    )


def test_noise_spoils_sources_and_never_targets(tokenizer: Tokenizer):
    src, tgt = encoder(tokenizer, alpha=0.0, typos=0.5).encode(SENTENCES, SENTENCES, [1, 2])
    assert tgt == tokenizer.encode(SENTENCES)
    assert 0.4 < sum(a != b for a, b in zip(src, tgt, strict=True)) / len(SENTENCES) < 0.6


def test_a_pair_that_randomness_would_make_too_long_stays_plain(tokenizer: Tokenizer):
    plain = tokenizer.encode(SENTENCES)
    limit = max(map(len, plain))
    src, tgt = encoder(tokenizer, max_length=limit, alpha=0.5).encode(SENTENCES, SENTENCES, [1])
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


def test_a_pair_with_an_unknown_token_stays_as_it_is():
    narrow = train_tokenizer(SENTENCES, TokenizerConfig(vocab_size=45, byte_fallback=False))
    pairs = Pairs.of([*([[UNK, 7]] * 3), *narrow.encode(SENTENCES[3:])], narrow.encode(SENTENCES))
    block = next(PreparedEpochs(pairs, 3, None, encoder(narrow, alpha=0.5), 1000)(BlockId(0, 0)))
    rows = [block.pairs[i] for i in range(len(block.pairs))]
    kept = [tgt.tolist() for src, tgt in rows if src.tolist() == [UNK, 7]]
    assert sorted(kept) == sorted(narrow.encode(SENTENCES[:3]))


@pytest.mark.slow
def test_only_training_batches_are_sampled_and_noisy(tmp_path):
    write(tmp_path / "t.tsv", PAIRS[:160])
    write(tmp_path / "v.tsv", PAIRS[160:])
    data = DataConfig(root=str(tmp_path), train=["t.tsv"], validation=["v.tsv"], test=["v.tsv"], remove_overlap=False)
    sampling, noise = SubwordSamplingConfig(alpha=0.2), NoiseConfig(typos=0.5)
    training = TrainingConfig(max_tokens=400, subword_sampling=sampling, noise=noise)
    config = Config(data=data, tokenizer=TokenizerConfig(vocab_size=300), training=training)
    prepared = prepare(data, config.tokenizer)
    batches = list(itertools.islice(training_feed(config, prepared, rank=0, world_size=1, pin=False), 40))
    drawn, (sources, targets) = texts(prepared.tokenizer.target, batches), map(set, zip(*PAIRS, strict=True))
    assert {tgt for _, tgt in drawn} <= targets
    assert 0.3 < sum(count for (src, _), count in drawn.items() if src not in sources) / drawn.total() < 0.6
    sampled = sum(int((batch.tgt_out != 0).sum()) - len(batch.src) for batch in batches)
    assert sampled > 1.1 * int(prepared.train.tgt_lengths.sum())
    (loader,) = validation_loaders(config, prepared, rank=0, world_size=1)
    plain = sum(int((batch.tgt_out != 0).sum()) - len(batch.src) for batch in loader)
    assert plain == int(prepared.validation.tgt_lengths.sum())


def test_impossible_settings_are_refused_by_name():
    with pytest.raises(UserError, match=r"training.subword_sampling.alpha=2.0 must be in"):
        SubwordSamplingConfig(alpha=2.0)
    with pytest.raises(UserError, match=r"training.subword_sampling.nbest=1 must be at least 2, or -1"):
        SubwordSamplingConfig(alpha=0.1, nbest=1)
