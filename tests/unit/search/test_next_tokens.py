import pytest
import torch
from torch.testing import assert_close

from seq2seq.search.driver import NextTokens, best_next, next_log_probs


def forbidding(rows: int, size: int, *tokens: int) -> torch.Tensor:
    return torch.zeros(rows, size, dtype=torch.bool).index_fill_(1, torch.tensor(tokens), True)


def test_log_probabilities_of_allowed_tokens_are_the_models_own():
    logits = torch.randn(3, 7, dtype=torch.float64)
    before, expected = logits.clone(), logits.log_softmax(-1)
    expected[:, [0, 4]] = -torch.inf
    assert_close(next_log_probs(logits, forbidding(3, 7, 0, 4)), expected)
    assert_close(logits, before)  # the model's tensor is not changed


@pytest.mark.parametrize("count", [1, 5, 300])
def test_the_best_tokens_are_those_of_a_sort(count):
    logits, forbidden = torch.randn(4, 130), forbidding(4, 130, 0, 5)
    forbidden[1, 7:] = True
    values, tokens = NextTokens(logits, forbidden, best_next).best(count)
    expected = next_log_probs(logits, forbidden).sort(-1, descending=True)
    assert_close(torch.tensor(values), expected.values[:, :count])
    is_allowed = torch.tensor(values) > -torch.inf
    assert torch.equal(torch.tensor(tokens)[is_allowed], expected.indices[:, :count][is_allowed])
