from typing import Any

import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.model.build import build_model
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig
from tests.unit.model.models import V, sizes


def test_the_transformer_is_built_unless_another_network_is_asked_for() -> None:
    config = sizes()
    models: list[EncoderDecoder] = []
    for build in (build_model, Transformer):
        torch.manual_seed(0)
        models.append(build(config, V))
    assert isinstance(models[0], Transformer)
    built, drawn = (model.state_dict() for model in models)
    assert all(torch.equal(built[name], drawn[name]) for name in drawn)


def test_an_unknown_architecture_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"model.architecture=markov is not known: choose one of transformer"):
        ModelConfig(architecture="markov")


def test_parameters_say_by_their_names_to_which_side_they_belong() -> None:
    styles: list[dict[str, Any]] = [{}, {"norm_position": "pre", "norm": "rmsnorm", "activation": "swiglu"}]
    for changes in styles:
        model = build_model(sizes(**changes), V)
        sides = {name.split("_")[0].split(".")[0] for name, _ in model.named_parameters()}
        assert sides == {"embedding", "encoder", "decoder"}
