"""Corpora are drawn in the shares that weights or temperature say, and evenly within each."""

from collections import Counter

import numpy as np
import pytest

from seq2seq.data.epochs import Mixture, tempered_shares, weighted_shares
from seq2seq.errors import UserError

NAMES = ["corpora/tax.tsv.xz", "tatoeba/train.tsv", "news.en+news.es", "corpora/guide.tsv"]


def mix(sizes: list[int], weights: dict[str, float | int], seed: int = 1) -> Mixture:
    """A mixture of corpora called a, b, …"""
    return Mixture(sizes, weighted_shares(list("abc")[: len(sizes)], sizes, weights), seed)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ({"corpora/tax.tsv.xz": 30}, [30, 20, 30, 40]),
        ({"tatoeba": 2}, [10, 2, 30, 40]),
        ({"news": 0}, [10, 20, 0, 40]),
        ({"tax": 5, "corpora/*": 0.5}, [5, 20, 30, 0.5]),
        ({"tax": 2, "*": 1}, [2, 1, 1, 1]),
    ],
)
def test_the_first_key_that_names_a_corpus_weighs_it_and_the_others_weigh_their_size(weights, expected):
    shares = weighted_shares(NAMES, [10, 20, 30, 40], weights)
    assert shares == pytest.approx(np.array(expected) / sum(expected))


def test_weights_that_name_no_corpus_or_draw_nothing_are_refused():
    with pytest.raises(UserError, match=r"data.weights has tatobea, which names none of the corpora: corpora/tax"):
        weighted_shares(NAMES, [1] * len(NAMES), {"tatobea": 2})
    with pytest.raises(UserError, match=r"data.weights is 0 for every corpus"):
        weighted_shares(["a.tsv"], [1], {"a": 0})
    with pytest.raises(UserError, match="0 for every corpus that has a pair left"):
        mix([0, 30], {"a": 1, "b": 0})


def test_temperature_raises_small_corpora_as_published():
    sizes = [1_000_000, 1_000]
    assert tempered_shares(sizes, 1.0) == pytest.approx([1000 / 1001, 1 / 1001])
    ratio = tempered_shares(sizes, 5.0)
    assert ratio[0] / ratio[1] == pytest.approx(1000 ** (1 / 5))
    assert tempered_shares(sizes, 1e9) == pytest.approx([0.5, 0.5])
    assert tempered_shares([10, 0], 5.0).tolist() == [1.0, 0.0]
    assert tempered_shares([100, 100, 50], 0.001).tolist() == pytest.approx([0.5, 0.5, 0.0])


def test_an_epoch_has_as_many_draws_as_pairs_in_the_shares_asked_for():
    mixture = mix([900, 100], {"a": 1, "b": 3})
    for epoch in range(3):
        drawn = mixture.draw(epoch)
        assert len(drawn) == 1000
        assert sum(drawn >= 900) == 750 == mixture.counts(epoch)[1]


def test_no_pair_comes_again_before_all_others_of_its_corpus_came():
    mixture = mix([70, 30], {"*": 1})
    seen: Counter[int] = Counter()
    for epoch in range(5):
        seen.update(mixture.draw(epoch).tolist())
        for corpus in (range(70), range(70, 100)):
            times = [seen[index] for index in corpus]
            assert max(times) - min(times) <= 1
    assert sum(seen.values()) == 500


def test_every_pass_over_a_corpus_has_a_new_order_which_the_seed_decides():
    def passes(seed: int) -> list[tuple[int, ...]]:
        mixture = mix([90, 30], {"*": 1}, seed)  # an epoch draws 60 of the second corpus: two passes
        drawn = [index for epoch in range(2) for index in mixture.draw(epoch).tolist() if index >= 90]
        return [tuple(drawn[start : start + 30]) for start in range(0, 120, 30)]

    assert all(sorted(order) == list(range(90, 120)) for order in passes(1))
    assert len({*passes(1), *passes(2)}) == 8
    assert passes(1) == passes(1)


def test_uneven_shares_never_drift():
    mixture = mix([50, 31, 20], {"a": 1, "b": 1.37, "c": 0.21})
    totals = np.sum([mixture.counts(epoch) for epoch in range(40)], axis=0)
    assert np.abs(totals - mixture.shares * 40 * 101).max() <= 0.5


def test_a_corpus_of_weight_0_or_without_pairs_is_never_drawn():
    assert mix([50, 30], {"b": 0}).draw(0).max() < 50
    assert sorted(mix([0, 30], {"a": 1}).draw(0)) == list(range(30))
