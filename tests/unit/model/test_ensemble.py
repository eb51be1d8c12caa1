from typing import Any

import pytest
import torch
from torch.testing import assert_close

from seq2seq.model.ensemble import Ensemble
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig

SIZES: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_encoder_layers": 1}


@pytest.fixture
def members() -> list[Transformer]:
    torch.manual_seed(0)
    return [Transformer(ModelConfig(**SIZES, num_decoder_layers=layers), 40).eval() for layers in (1, 2)]


def test_an_ensemble_gives_the_mean_of_its_members_probabilities(members: list[Transformer]) -> None:
    src, tgt_in = torch.arange(4, 18).view(2, 7), torch.arange(4, 14).view(2, 5)
    for member in members:
        member.embedding.weight.data.mul_(20)  # so that they disagree
    together, _ = Ensemble(members).decode(tgt_in, Ensemble(members).encode(src))
    apart = [member.decode(tgt_in, member.encode(src))[0].softmax(-1) for member in members]
    assert_close(together.exp(), (apart[0] + apart[1]) / 2)
    assert not torch.allclose(apart[0], apart[1], atol=1e-2)


def test_an_ensemble_goes_on_from_chosen_rows_and_watches_all_members(members: list[Transformer]) -> None:
    src, tgt_in = torch.arange(4, 18).view(2, 7), torch.arange(4, 14).view(2, 5)
    ensemble = Ensemble(members)
    _, state = ensemble.decode(tgt_in[:, :4], ensemble.encode(src).watching())
    state = state.reorder(torch.tensor([1, 1]), [0, 2])
    logits, state = ensemble.decode(tgt_in[[1, 1], 4:], state)
    whole, watched = ensemble.decode(tgt_in[[1, 1]], ensemble.encode(src[[1, 1]]).watching())
    assert_close(logits, whole[:, 4:])
    assert_close(state.attention, watched.attention[:, 4:])
    assert_close(state.attention.sum(-1), torch.ones(2, 1))


def test_an_ensemble_trains_and_rests_with_its_members(members: list[Transformer]) -> None:
    ensemble = Ensemble(members).train()
    assert ensemble.training
    assert all(member.training for member in members)
    assert not ensemble.train(False).training
    assert not any(member.training for member in members)
