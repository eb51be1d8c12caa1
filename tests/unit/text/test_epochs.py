"""Corpora are drawn in the shares that weights or temperature say, and evenly within each."""

from collections import Counter

import numpy as np
import pytest

from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig
from seq2seq.text.corpus import names_corpus
from seq2seq.text.epochs import Mixture, tempered_shares, weigh, weighted_shares

NAMES = ["corpora/tax.tsv.xz", "tatoeba/train.tsv", "news.en+news.es", "corpora/guide.tsv"]


def draw(mixture: Mixture, epoch: int, seed: int = 4) -> list[int]:
    return np.random.default_rng([seed, epoch]).permutation(mixture.draw(epoch)).tolist()


def test_weights_name_corpora_by_name_folder_stem_or_pattern():
    assert weigh(NAMES, {"corpora/tax.tsv.xz": 3}) == [3, 1, 1, 1]
    assert weigh(NAMES, {"tatoeba": 2}) == [1, 2, 1, 1]
    assert weigh(NAMES, {"news": 0}) == [1, 1, 0, 1]
    assert weigh(NAMES, {"tax": 5, "corpora/*": 0.5}) == [5, 1, 1, 0.5]


def test_a_file_outside_the_root_is_named_by_its_file_or_its_whole_path():
    name = "/home/ana/texts/x.v1.tsv.gz"
    for key in ("x", "x.v1.tsv.gz", name, "/home/*/x.*"):
        assert names_corpus(key, name)
    for key in ("home", "ana", "texts", "x.v1", "texts/x.v1.tsv.gz"):
        assert not names_corpus(key, name)
    assert not names_corpus("texts", "../texts/x.tsv")


def test_only_a_file_is_named_without_its_endings():
    assert names_corpus("v1.2", "v1.2/a.tsv")
    assert not names_corpus("v1", "v1.2/a.tsv")


def test_a_weight_of_nothing_is_refused_with_the_names():
    with pytest.raises(UserError, match=r"data.weights has tatobea, which names none of the corpora: corpora/tax"):
        weigh(NAMES, {"tatobea": 2})
    with pytest.raises(UserError, match=r"data.weights is 0 for every corpus"):
        weighted_shares(["a.tsv"], {"a": 0})


def test_temperature_raises_small_corpora_as_published():
    sizes = [1_000_000, 1_000]
    assert tempered_shares(sizes, 1.0) == pytest.approx([1000 / 1001, 1 / 1001])
    ratio = tempered_shares(sizes, 5.0)
    assert ratio[0] / ratio[1] == pytest.approx(1000 ** (1 / 5))
    assert tempered_shares(sizes, 1e9) == pytest.approx([0.5, 0.5])
    assert tempered_shares([10, 0], 5.0).tolist() == [1.0, 0.0]


def test_an_epoch_has_as_many_draws_as_pairs_in_the_shares_asked_for():
    mixture = Mixture([900, 100], weighted_shares(["a", "b"], {"b": 3}), seed=1)
    for epoch in range(3):
        drawn = draw(mixture, epoch)
        assert len(drawn) == 1000
        assert sum(index >= 900 for index in drawn) == 750 == mixture.counts(epoch)[1]


def test_no_pair_comes_again_before_all_others_of_its_corpus_came():
    mixture = Mixture([70, 30], weighted_shares(["a", "b"], {}), seed=1)
    seen: Counter[int] = Counter()
    for epoch in range(5):
        drawn = draw(mixture, epoch)
        seen.update(drawn)
        for corpus in (range(70), range(70, 100)):
            times = [seen[index] for index in corpus]
            assert max(times) - min(times) <= 1
    assert sum(seen.values()) == 500


def test_uneven_shares_never_drift():
    mixture = Mixture([50, 31, 20], weighted_shares(["a", "b", "c"], {"b": 1.37, "c": 0.21}), seed=1)
    totals = np.sum([mixture.counts(epoch) for epoch in range(40)], axis=0)
    assert np.abs(totals - mixture.shares * 40 * 101).max() <= 0.5


def test_draws_depend_on_seed_and_epoch_alone():
    shares = weighted_shares(["a", "b"], {"a": 2})
    assert draw(Mixture([50, 30], shares, 1), 7) == draw(Mixture([50, 30], shares, 1), 7)
    assert sorted(draw(Mixture([50, 30], shares, 1), 0)) != sorted(draw(Mixture([50, 30], shares, 2), 0))


def test_a_corpus_of_weight_nothing_or_without_pairs_is_never_drawn():
    assert max(draw(Mixture([50, 30], weighted_shares(["a", "b"], {"b": 0}), 1), 0)) < 50
    assert min(draw(Mixture([0, 30], weighted_shares(["a", "b"], {}), 1), 0)) >= 0
    assert len(draw(Mixture([0, 30], weighted_shares(["a", "b"], {}), 1), 0)) == 30
    with pytest.raises(UserError, match="0 for every corpus that has a pair left"):
        Mixture([0, 30], weighted_shares(["a", "b"], {"b": 0}), 1)


def test_weights_that_say_nothing_clear_are_refused():
    with pytest.raises(UserError, match=r"data.weights and data.temperature both"):
        DataConfig(weights={"a": 1.0}, temperature=5.0)
    with pytest.raises(UserError, match=r"data.weights has a=-1.0"):
        DataConfig(weights={"a": -1.0})
