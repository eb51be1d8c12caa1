"""What every encoder-decoder promises, Transformer or recurrent."""

from collections.abc import Callable

import pytest
import torch
from torch.testing import assert_close

from seq2seq.errors import UserError
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.model import ModelConfig
from seq2seq.text.tokenizer import PAD
from tests.unit.model import models
from tests.unit.model.models import V, decode_in_parts, make_recurrent, make_transformer, other_ids, pair, token_ids

MODELS: dict[str, Callable[[], EncoderDecoder]] = {
    "vaswani": make_transformer,
    "modern": lambda: make_transformer(**models.STYLES["modern"]),
    "recurrent": make_recurrent,
    "recurrent, deep": lambda: make_recurrent(num_encoder_layers=2, num_decoder_layers=3),
    "recurrent, no attention": lambda: make_recurrent(attention="none", num_encoder_layers=2, num_decoder_layers=2),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> EncoderDecoder:
    return MODELS[request.param]()


def test_a_future_target_token_never_changes_an_earlier_prediction(model: EncoderDecoder) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    edited = tgt_in.clone()
    edited[:, 3:] = other_ids(edited[:, 3:])
    before, after = model(src, tgt_in), model(src, edited)
    assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


@pytest.mark.parametrize("position", [0, 3, 6])
def test_every_source_token_changes_every_prediction(model: EncoderDecoder, position: int) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    edited = src.clone()
    edited[:, position] = other_ids(edited[:, position])
    assert ((model(src, tgt_in) - model(edited, tgt_in)).abs().amax(-1) > 1e-7).all()


def test_padding_changes_nothing(model: EncoderDecoder) -> None:
    src, tgt_in = pair()
    for length in (5, 1):
        src[1, length:] = PAD
        batch = model(src, tgt_in)
        assert_close(model(src[1:, :length], tgt_in[1:, :3])[0], batch[1, :3])
    assert_close(model(torch.cat((src, torch.full((2, 4), PAD)), 1), tgt_in), batch)


def test_a_source_of_padding_alone_gives_finite_states_and_gradients(model: EncoderDecoder) -> None:
    src, tgt_in = token_ids(2, 7), token_ids(2, 5)
    src[1] = PAD
    hidden = model(src, tgt_in)
    assert hidden.isfinite().all()
    hidden.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_gradients_reach_every_parameter(model: EncoderDecoder) -> None:
    model.train()(token_ids(3, 7), token_ids(3, 5)).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


@pytest.mark.parametrize("lengths", [[1, 1, 1, 1, 1], [2, 3], [1, 4]], ids=str)
def test_decoding_in_parts_equals_all_at_once_also_in_gradients(model: EncoderDecoder, lengths: list[int]) -> None:
    src, tgt_in = pair()
    outputs = [decode_in_parts(model, src, tgt_in, parts) for parts in ([5], lengths)]
    assert_close(outputs[1], outputs[0])
    gradients = [torch.autograd.grad(logits.square().sum(), [model.embedding.weight])[0] for logits in outputs]
    assert_close(gradients[1], gradients[0])


def test_one_matrix_serves_source_target_and_output(model: EncoderDecoder) -> None:
    assert [name for name, p in model.named_parameters() if p.shape[0] == V] == ["embedding.weight"]
    assert not model.embedding.weight[PAD].any()
    hidden = torch.randn(2, 5, model.config.d_model)
    assert_close(model.logits(hidden), hidden @ model.embedding.weight.T)


def test_parameters_say_by_their_names_to_which_side_they_belong(model: EncoderDecoder) -> None:
    sides = {name.split("_")[0].split(".")[0] for name, _ in model.named_parameters()}
    assert sides == {"embedding", "encoder", "decoder"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"architecture": "markov"}, r"model.architecture=markov is not known: choose one of transformer, recurrent"),
        ({"d_model": 10, "num_heads": 3}, "model.d_model=10 must be a multiple of model.num_heads=3"),
        ({"dropout": 1.0}, r"model.dropout=1.0 must be in \[0, 1\)"),
        ({"norm": "batch"}, "model.norm=batch is not known: choose one of layernorm, rmsnorm"),
        ({"num_decoder_layers": 0}, "model.num_decoder_layers=0 must be at least 1"),
        ({"d_model": 10**9, "num_heads": 1}, r"model.d_model=\d+ must be at most"),
        ({"d_ff": 10**12}, r"model.d_ff=\d+ must be at most"),
        ({"num_decoder_layers": 10**9}, r"model.num_decoder_layers=\d+ must be at most"),
        ({"num_heads": 10**7}, r"model.num_heads=\d+ must be at most"),
        ({"d_model": 6, "num_heads": 2, "positions": "rotary"}, "must be even for rotary positions"),
        ({"relevance": "key_key"}, r"model\.relevance=key_key is not known: choose one of query_key, shared"),
        ({"decoder_mask": "off"}, r"model\.decoder_mask=off is not known: choose one of causal, none"),
        ({"cross_attention": "off"}, r"model\.cross_attention=off is not known: choose one of source, none"),
        ({"attention": "none"}, "^model.attention=none means nothing to model.architecture=transformer: leave it out$"),
        ({"architecture": "recurrent", "num_heads": 4}, "model.num_heads=4 means nothing to model.architecture=rec"),
        ({"architecture": "recurrent", "attention": "dot"}, "model.attention=dot is not known: choose one of additive"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        ModelConfig(**settings)  # type: ignore[arg-type]


def test_an_architecture_uses_its_own_settings() -> None:
    used = "architecture attention d_model num_encoder_layers num_decoder_layers dropout attention_dropout"
    assert models.recurrent_sizes().used().keys() == set(used.split())
    assert "attention" not in ModelConfig().used()
