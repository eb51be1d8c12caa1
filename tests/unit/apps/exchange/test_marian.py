import re
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from seq2seq.text.tokenizer import BOS, EOS, PAD
from tests.refusing import refuses

pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")

from seq2seq.apps.exchange.huggingface import from_marian, to_marian

VOCAB = 30
SRC = torch.tensor([[5, 9, 12, 29, 7, EOS], [8, 8, 4, EOS, PAD, PAD]])
TGT_IN = torch.tensor([[BOS, 6, 17, 23], [BOS, 11, 4, 4]])


@pytest.mark.parametrize(
    "style",
    [
        {},
        {"bias": False},
        {"activation": "swish", "output_bias": True},
        {"activation": "gelu", "scale_embedding": False},
    ],
)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.no_grad()
def test_a_converted_model_gives_the_same_logits(random_model, attention: str, style: dict[str, Any]):
    model = random_model(VOCAB, **style)
    theirs = to_marian(model, attention)(input_ids=SRC, attention_mask=SRC != PAD, decoder_input_ids=TGT_IN).logits
    ours, _ = model.decode(TGT_IN, model.encode(SRC))
    assert_close(theirs, ours, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("has_bias", [False, True])
def test_converting_there_and_back_changes_no_weight(random_model, has_bias: bool):
    model = random_model(VOCAB, output_bias=has_bias)
    assert_close(from_marian(to_marian(model), model.config).state_dict(), model.state_dict(), atol=0, rtol=0)


@pytest.mark.parametrize(
    ("style", "message"),
    [
        ({"norm": "rmsnorm"}, "model.norm=rmsnorm: a Marian model can only have layernorm"),
        ({"norm_position": "pre"}, "model.norm_position=pre: a Marian model can only have post"),
        ({"activation": "swiglu"}, "model.activation=swiglu: a Marian model can only have relu"),
        ({"positions": "rotary"}, "model.positions=rotary: a Marian model can only have sinusoidal"),
    ],
)
def test_a_style_that_marian_has_not_is_refused_by_name(random_model, style, message):
    refuses(re.escape(message), to_marian, random_model(VOCAB, **style))
