import torch
from torch.testing import assert_close

from seq2seq.search.step import SearchState, force_end, next_log_probs


def test_log_probabilities_of_allowed_tokens_are_the_models_own():
    logits = torch.randn(3, 7, dtype=torch.float64)
    kept = logits.clone()
    log_probs = next_log_probs(logits, banned=torch.tensor([0, 4]))
    expected = logits.log_softmax(-1)
    expected[:, [0, 4]] = -torch.inf
    assert_close(log_probs, expected)
    assert_close(logits, kept)  # the model's tensor is not touched


def test_rows_forced_to_end_keep_only_eos_at_its_own_price():
    log_probs = torch.randn(3, 7).log_softmax(-1)
    forced = force_end(log_probs, torch.tensor([False, True, False]), eos=5)
    assert_close(forced[[0, 2]], log_probs[[0, 2]])
    assert forced[1, 5] == log_probs[1, 5]
    assert torch.isneginf(forced[1, [0, 1, 2, 3, 4, 6]]).all()


def test_what_can_be_reordered_is_a_search_state(table_model):
    assert isinstance(table_model(5).start([1, 2]), SearchState)
    assert not isinstance([1, 2], SearchState)
