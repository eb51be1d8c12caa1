import pytest
import torch
from torch.testing import assert_close

from seq2seq.model.ensemble import Ensemble
from seq2seq.model.transformer import Transformer
from tests.unit.model.models import make_recurrent, make_transformer, token_ids


@pytest.fixture
def members() -> list[Transformer]:
    return [make_transformer(scale=4, num_decoder_layers=layers) for layers in (1, 2)]


@torch.no_grad()
def test_an_ensemble_gives_the_mean_of_its_members_probabilities_and_attention(members: list[Transformer]) -> None:
    src, tgt_in, ensemble = token_ids(2, 7), token_ids(2, 5), Ensemble(members)
    log_probs, attention = ensemble.predict_and_align(src, tgt_in)
    assert_close(ensemble.predict(src, tgt_in), log_probs)
    apart = [member.predict(src, tgt_in).softmax(-1) for member in members]
    assert_close(log_probs.exp(), (apart[0] + apart[1]) / 2)
    assert not torch.allclose(apart[0], apart[1], atol=1e-2)
    assert_close(attention, sum(member.predict_and_align(src, tgt_in)[1] for member in members) / 2)
    assert_close(attention.sum(-1), torch.ones(2, 5))


def test_an_ensemble_aligns_if_all_members_do(members: list[Transformer]) -> None:
    assert Ensemble(members).can_align
    assert not Ensemble([*members, make_recurrent(attention="none")]).can_align


def test_an_ensemble_switches_off_the_dropout_of_all_members(members: list[Transformer]) -> None:
    ensemble = Ensemble([member.train() for member in members])
    assert ensemble.eval() is ensemble
    assert not any(member.training for member in members)
