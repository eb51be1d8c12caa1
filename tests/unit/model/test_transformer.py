import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from seq2seq.model.layers import Dropout
from tests.unit.model.models import make_transformer, pair


@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_encoder_layer_equals_pytorchs_with_copied_weights(norm_position: str) -> None:
    ours = make_transformer(num_encoder_layers=1, norm_position=norm_position).encoder_layers[0]
    theirs = nn.TransformerEncoderLayer(12, 3, 20, batch_first=True, norm_first=norm_position == "pre").eval()
    weights = dict(ours.named_parameters())
    with torch.no_grad():
        for part in ("weight", "bias"):
            joined = torch.cat([weights[f"self_attention.{which}_proj.{part}"] for which in "qkv"])
            getattr(theirs.self_attn, f"in_proj_{part}").copy_(joined)
            getattr(theirs.self_attn.out_proj, part).copy_(weights[f"self_attention.out_proj.{part}"])
            getattr(theirs.linear1, part).copy_(weights[f"feed_forward.up.{part}"])
            getattr(theirs.linear2, part).copy_(weights[f"feed_forward.down.{part}"])
    x = torch.randn(2, 7, 12)
    mask = torch.tensor([[True] * 7, [True] * 5 + [False] * 2])
    expected = theirs(x, src_key_padding_mask=~mask)
    assert_close(ours(x, mask[:, None, None], None)[mask], expected[mask])


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_drops_its_rate_and_keeps_the_mean_by_the_seed(rate: float) -> None:
    dropout, x, draws = Dropout(rate), torch.ones(300, 401, requires_grad=True), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(dropout(x))
    assert abs((draws[0] == 0).float().mean().item() - rate) < 0.01
    assert abs(draws[0].mean().item() - 1) < 0.01
    assert draws[0].unique().numel() == 2
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert_close(torch.autograd.grad(draws[0].sum(), x)[0], draws[0].detach())
    assert torch.equal(dropout.eval()(x), x)


def test_logits_are_computed_in_float32_in_every_precision() -> None:
    model, (src, tgt_in) = make_transformer(output_bias=True), pair()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        hidden = model(src, tgt_in).bfloat16()
        logits, predicted = model.logits(hidden), model.predict(src, tgt_in)
    assert (logits.dtype, predicted.dtype) == (torch.float32, torch.float32)
    assert torch.equal(logits, F.linear(hidden.float(), model.embedding.weight, model.output_bias))


@pytest.mark.parametrize("layers", [1, 3])
def test_predictions_come_with_the_attention_of_the_aligning_layer(layers: int) -> None:
    model, (src, tgt_in) = make_transformer(scale=4, num_decoder_layers=layers), pair()
    with torch.no_grad():
        logits, attention = model.predict_and_align(src, tgt_in)
        assert torch.equal(logits, model.predict(src, tgt_in))
    assert_close(attention, model.traced(src, tgt_in).cross[max(0, layers - 2)].mean(1))
