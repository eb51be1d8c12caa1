import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seq2seq.search.next_tokens import MAX_QUICK, NextTokens, best_next, next_log_probs

EOS = 3


def next_tokens(logits, *, too_short=None, change=None, find_best=best_next):
    return NextTokens(logits, torch.tensor([0]), EOS, too_short, change, find_best)


def test_log_probabilities_of_allowed_tokens_are_the_models_own():
    logits = torch.randn(3, 7, dtype=torch.float64)
    before, expected = logits.clone(), logits.log_softmax(-1)
    expected[:, [0, 4]] = -torch.inf
    assert_close(next_log_probs(logits, banned=torch.tensor([0, 4])), expected)
    assert_close(logits, before)  # the model's tensor is not changed


@pytest.mark.parametrize("size", [7, 64, 130, 192])  # searched in blocks of 1, 64, 2 and 64 tokens
@pytest.mark.parametrize("count", [1, 5, 300])
def test_the_best_tokens_are_those_of_a_sort(size, count):
    logits, banned = torch.randn(4, size), torch.tensor([0, 5])
    values, tokens = best_next(logits, banned, count)
    expected = next_log_probs(logits, banned).sort(-1, descending=True)
    assert_close(values, expected.values[:, :count])
    is_allowed = values > -torch.inf
    assert torch.equal(tokens[is_allowed], expected.indices[:, :count][is_allowed])


def test_a_row_that_is_too_short_gets_no_eos_and_needs_no_rule():
    logits = torch.randn(2, 9)
    logits[:, EOS] = 9
    log_probs = next_log_probs(logits, torch.tensor([0])).tolist()
    scores = next_tokens(logits, too_short=np.array([True, False]))
    values, tokens = scores.best(3)
    table = [dict(zip(*row, strict=True)) for row in zip(tokens, values, strict=True)]
    assert table[0].pop(EOS) == -torch.inf
    assert list(table[0].values()) == sorted((v for t, v in enumerate(log_probs[0]) if t != EOS), reverse=True)[:3]
    assert table[1][EOS] == max(log_probs[1])
    assert torch.isneginf(scores.log_probs[:, EOS]).tolist() == [True, False]


@pytest.mark.parametrize("count", [1, 4, MAX_QUICK])
def test_tokens_that_rules_forbid_leave_the_others_their_log_probabilities(count):
    logits = torch.randn(3, 2 * MAX_QUICK)
    forbidden = next_log_probs(logits, torch.tensor([0, 5, 6]))
    values, tokens = next_tokens(
        logits, change=lambda log_probs: log_probs.index_fill(1, torch.tensor([5, 6]), -torch.inf)
    ).best(count)
    expected = forbidden.topk(count)
    assert_close(torch.tensor(values), expected.values)
    assert tokens == expected.indices.tolist()


def test_only_few_best_tokens_are_found_by_the_decoders_own_function():
    calls = []

    def find_best(logits, banned, count):
        calls.append(count)
        return best_next(logits, banned, count)

    logits = torch.randn(3, 2 * MAX_QUICK)
    for count in (1, MAX_QUICK - 1, MAX_QUICK):
        assert next_tokens(logits, find_best=find_best).best(count) == next_tokens(logits).best(count)
    assert calls == [1, MAX_QUICK - 1]
