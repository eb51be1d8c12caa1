from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from seq2seq.errors import UserError
from seq2seq.model.recurrent.additive import AdditiveAttention
from seq2seq.model.recurrent.network import BidirectionalLSTM, Recurrent, turning
from seq2seq.model.recurrent.state import RecurrentState
from seq2seq.settings.model import ModelConfig
from seq2seq.text.tokenizer import PAD
from tests.unit.model.models import make_recurrent, other_ids, recurrent_sizes, token_ids

KINDS: dict[str, dict[str, Any]] = {
    "additive": {},
    "none": {"attention": "none"},
    "deep": {"num_encoder_layers": 2, "num_decoder_layers": 3},
    "deep, none": {"attention": "none", "num_encoder_layers": 2, "num_decoder_layers": 2},
}


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> Recurrent:
    return make_recurrent(**KINDS[request.param])


def test_a_future_target_token_never_changes_an_earlier_prediction(model: Recurrent) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    edited = tgt_in.clone()
    edited[:, 3:] = other_ids(edited[:, 3:])
    before, after = model(src, tgt_in), model(src, edited)
    assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


@pytest.mark.parametrize("place", [0, 3, 6])
def test_every_source_token_changes_every_prediction(model: Recurrent, place: int) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    edited = src.clone()
    edited[:, place] = other_ids(edited[:, place])
    difference = (model(src, tgt_in) - model(edited, tgt_in)).abs().amax(-1)
    assert (difference > 1e-7).all()


def test_padding_of_the_source_changes_nothing(model: Recurrent) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    padded = torch.cat((src, torch.full((2, 4), PAD)), 1)
    assert_close(model(padded, tgt_in), model(src, tgt_in))


def test_a_sentence_alone_equals_the_same_sentence_in_a_padded_batch(model: Recurrent) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    src[1, 4:], tgt_in[1, 3:] = PAD, PAD
    batch = model(src, tgt_in)
    assert_close(model(src[1:, :4], tgt_in[1:, :3])[0], batch[1, :3])


def test_a_source_of_padding_alone_gives_finite_states_and_gradients(model: Recurrent) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    src[1] = PAD
    hidden = model(src, tgt_in)
    assert hidden.isfinite().all()
    hidden.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_gradients_reach_every_parameter(model: Recurrent) -> None:
    model.train()(token_ids(3, 7), token_ids(3, 5)).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize("steps", [[1, 1, 1, 1, 1], [2, 3], [1, 4]])
def test_token_by_token_equals_all_at_once(model: Recurrent, steps: list[int]) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    src[1, 5:] = PAD
    whole, _ = model.decode(tgt_in, model.encode(src))
    state, parts = model.encode(src), []
    for part in tgt_in.split(steps, dim=1):
        logits, state = model.decode(part, state)
        parts.append(logits)
    assert_close(torch.cat(parts, 1), whole)


def test_bf16_agrees_with_float32_to_its_precision(model: Recurrent) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
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
    found = ours(x, turning(mask))
    assert_close(found[mask], expected[mask])


def test_steps_equal_pytorchs_lstm_that_gets_the_attended_source() -> None:
    model = make_recurrent()
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    state = model.encode(src)
    assert state.memory is not None
    _, after = model.hidden_states(tgt_in, state)
    assert after.attention is not None
    attended = torch.cat((model._embed(tgt_in, "target"), after.attention @ state.memory.values), -1)
    start = (state.past[:, 0, 0][None].contiguous(), state.past[:, 0, 1][None].contiguous())
    _, (hidden, cell) = model.decoder_layers[0](attended, start)
    assert_close(after.past[:, 0, 0], hidden[0])
    assert_close(after.past[:, 0, 1], cell[0])


def test_additive_attention_is_the_published_formula() -> None:
    torch.manual_seed(0)
    attention = AdditiveAttention(3, 4, 5)
    state, memory = torch.randn(3), torch.randn(7, 4)
    w, b, u, v = attention.q_proj.weight, attention.q_proj.bias, attention.k_proj.weight, attention.score_proj.weight[0]
    energies = torch.stack([v @ torch.tanh(w @ state + b + u @ h) for h in memory])
    weights = attention(state[None, None], attention.keys(memory[None]), torch.ones(1, 1, 7, dtype=torch.bool))
    assert_close(weights[0, 0], energies.softmax(-1))
    mask = torch.tensor([[[True] * 4 + [False] * 3]])
    weights = attention(state[None, None], attention.keys(memory[None]), mask)
    assert_close(weights[0, 0, :4], energies[:4].softmax(-1))
    assert (weights[0, 0, 4:] == 0).all()


def test_attention_of_every_call_is_in_the_state() -> None:
    model = make_recurrent(num_decoder_layers=2)
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    src[1, 5:] = PAD
    assert model.encode(src).attention is None
    logits, whole = model.predict_and_align(src, tgt_in)
    assert torch.equal(logits, model.predict(src, tgt_in))
    assert_close(whole.sum(-1), torch.ones(2, 5))
    assert (whole[1, :, 5:] == 0).all()
    _, state = model.decode(tgt_in[:, :4], model.encode(src))
    _, state = model.decode(tgt_in[[0, 0, 1, 1], 4:], state.reorder(torch.tensor([[0, 0], [1, 1]])))
    assert_close(state.attention, whole[[0, 0, 1, 1], 4:])
    trace = model.traced(src, tgt_in)
    assert (trace.encoder, trace.decoder) == ([], [])
    assert_close(trace.cross[0][:, 0], whole)


def test_a_model_without_attention_cannot_align() -> None:
    model = make_recurrent(attention="none")
    assert model.traced(token_ids(2, 7), token_ids(2, 5)).cross == []
    with pytest.raises(UserError, match=r"no attention \(model.attention=none\): leave out alignments, or train"):
        model.predict_and_align(token_ids(2, 7), token_ids(2, 5))


def test_without_attention_the_source_is_known_by_the_first_state_only() -> None:
    model = make_recurrent(attention="none")
    first, second = model.encode(token_ids(2, 7)), model.encode(token_ids(2, 9))
    tgt_in = token_ids(2, 5)
    same, _ = model.decode(tgt_in, RecurrentState(None, second.memory_mask, first.past))
    assert_close(same, model.decode(tgt_in, first)[0])


def test_forget_gates_begin_open_and_recurrent_matrices_orthogonal() -> None:
    lstm = make_recurrent().decoder_layers[0]
    assert_close(lstm.bias_ih_l0.chunk(4)[1], torch.ones(11))  # type: ignore[union-attr]
    for gate in lstm.weight_hh_l0.chunk(4):  # type: ignore[union-attr]
        assert_close(gate @ gate.T, torch.eye(11))


def names_of(make: Callable[..., ModelConfig], **changes: Any) -> str:
    with pytest.raises(UserError) as refusal:
        make(**changes)
    return str(refusal.value)


def test_settings_of_the_other_architecture_are_refused() -> None:
    assert names_of(recurrent_sizes, num_heads=4) == (
        "model.num_heads=4 means nothing to model.architecture=recurrent: leave it out"
    )
    assert "model.norm=rmsnorm means nothing to model.architecture=recurrent" in names_of(
        recurrent_sizes, norm="rmsnorm"
    )
    assert names_of(ModelConfig, attention="none") == (
        "model.attention=none means nothing to model.architecture=transformer: leave it out"
    )
    assert "model.attention=dot is not known: choose one of additive, none" in names_of(
        recurrent_sizes, attention="dot"
    )
    assert set(recurrent_sizes().used()) == {
        "architecture",
        "attention",
        "d_model",
        "num_encoder_layers",
        "num_decoder_layers",
        "dropout",
        "attention_dropout",
    }
    assert "attention" not in ModelConfig().used()
