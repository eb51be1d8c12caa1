from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seq2seq.errors import UserError
from seq2seq.model.variants.recurrent import AdditiveAttention, BidirectionalLSTM, RecurrentState, turning
from tests.unit.model.models import make_recurrent, pair, token_ids


@pytest.mark.parametrize("changes", [{"num_decoder_layers": 2}, {"attention": "none"}], ids=str)
def test_bf16_agrees_with_float32_to_its_precision(changes: dict[str, Any]) -> None:
    model, (src, tgt_in) = make_recurrent(**changes), pair()
    exact = model(src, tgt_in)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(src, tgt_in)
        rough.float().sum().backward()
        assert model.logits(rough).dtype == torch.float32
    assert rough.dtype == torch.bfloat16
    assert_close(rough.float(), exact, atol=0.02, rtol=0.05)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_encoder_equals_pytorchs_packed_bidirectional_lstm() -> None:
    ours, theirs = BidirectionalLSTM(5, 11), nn.LSTM(5, 11, batch_first=True, bidirectional=True)
    for name, direction in (("", ours.forwards), ("_reverse", ours.backwards)):
        for key, parameter in direction.named_parameters():
            getattr(theirs, key + name).data.copy_(parameter.data)
    x, lengths = torch.randn(3, 7, 5), torch.tensor([7, 2, 5])
    mask = torch.arange(7) < lengths[:, None]
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    assert_close(ours(x, turning(mask))[mask], expected[mask])


def test_steps_equal_pytorchs_lstm_that_gets_the_attended_source_and_their_readout_is_maxout() -> None:
    model, (src, tgt_in) = make_recurrent(), pair()
    state = model.encode(src)
    assert state.memory is not None
    states, after = model.hidden_states(tgt_in, state)
    assert after.attention is not None
    embedded, contexts = model._embed(tgt_in, "target"), after.attention @ state.memory.values
    start = (state.past[:, 0, 0][None].contiguous(), state.past[:, 0, 1][None].contiguous())
    outputs, (hidden, cell) = model.decoder_layers[0](torch.cat((embedded, contexts), -1), start)
    assert_close(after.past[:, 0], torch.stack((hidden[0], cell[0]), 1))
    readout = model.decoder_readout(torch.cat((outputs, contexts, embedded), -1))
    assert_close(states, readout.unflatten(-1, (2, -1)).amax(-2))


@pytest.mark.parametrize("length", [7, 4, 0])
def test_additive_attention_is_the_published_formula(length: int) -> None:
    torch.manual_seed(0)
    attention, state, memory = AdditiveAttention(3, 4, 5), torch.randn(3), torch.randn(7, 4)
    w, b, u, v = attention.q_proj.weight, attention.q_proj.bias, attention.k_proj.weight, attention.score_proj.weight[0]
    energies = torch.tensor([(v @ torch.tanh(w @ state + b + u @ h)).item() for h in memory])
    mask = (torch.arange(7) < length)[None, None]
    weights = attention(state[None, None], attention.keys(memory[None]), mask)
    assert_close(weights[0, 0], torch.cat((energies[:length].softmax(-1), torch.zeros(7 - length))))


def test_attention_of_every_call_is_in_the_state() -> None:
    model, (src, tgt_in) = make_recurrent(num_decoder_layers=2), pair()
    assert model.encode(src).attention is None
    logits, attention = model.predict_and_align(src, tgt_in)
    assert torch.equal(logits, model.predict(src, tgt_in))
    assert_close(attention.sum(-1), torch.ones(2, 5))
    assert (attention[1, :, 5:] == 0).all()
    _, state = model.decode(tgt_in[:, :4], model.encode(src))
    _, state = model.decode(tgt_in[[0, 0, 1, 1], 4:], state.reorder(torch.tensor([[0, 0], [1, 1]])))
    assert_close(state.attention, attention[[0, 0, 1, 1], 4:])
    trace = model.traced(src, tgt_in)
    assert (trace.encoder, trace.decoder) == ([], [])
    assert_close(trace.cross[0][:, 0], attention)


def test_a_model_without_attention_cannot_align_and_knows_the_source_by_its_first_state_only() -> None:
    model, (src, tgt_in) = make_recurrent(attention="none"), pair()
    assert model.traced(src, tgt_in).cross == []
    with pytest.raises(UserError, match=r"no attention \(model.attention=none\): leave out alignments, or train"):
        model.predict_and_align(src, tgt_in)
    first, second = model.encode(src), model.encode(token_ids(2, 9))
    same, _ = model.decode(tgt_in, RecurrentState(None, second.memory_mask, first.past))
    assert_close(same, model.decode(tgt_in, first)[0])


def test_forget_gates_begin_open_and_recurrent_matrices_orthogonal() -> None:
    parameters = dict(make_recurrent().decoder_layers[0].named_parameters())
    assert_close(parameters["bias_ih_l0"].chunk(4)[1], torch.ones(11))
    for gate in parameters["weight_hh_l0"].chunk(4):
        assert_close(gate @ gate.T, torch.eye(11))
