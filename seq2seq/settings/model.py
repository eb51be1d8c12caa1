"""Settings of the network: `model`."""

import math
from dataclasses import dataclass, fields
from typing import Any

from seq2seq.settings.checks import NumberOrAuto, check_choices, check_ranges, require
from seq2seq.settings.rules import AUTO

OF_BOTH = {"architecture", "d_model", "num_encoder_layers", "num_decoder_layers", "dropout", "attention_dropout"}
DROPOUTS = ("dropout", "attention_dropout", "ffn_dropout")  # settings that the weights do not depend on
OF_RECURRENT = {"attention"}  # the others are the Transformer's


@dataclass(kw_only=True)
class ModelConfig:
    """The network's sizes and style; defaults are the base Transformer as published (Vaswani et al. 2017)."""

    # transformer | recurrent: LSTMs, which the Transformer replaced (docs/recurrent.md) | a registered network, which
    # has the Transformer's settings (docs/extensions.md)
    architecture: str = "transformer"
    attention: str = "additive"  # attention to the source, for architecture=recurrent only: additive | none
    d_model: int = 512  # width of every residual stream
    num_heads: int = 8  # attention heads of every layer; must divide d_model
    # hidden width of the feed-forward network; SwiGLU uses two thirds of this width, so that the cost is the same
    d_ff: int = 2048
    num_encoder_layers: int = 6  # layers that read the source
    num_decoder_layers: int = 6  # layers that write the target
    # share of units dropped in training, after every sublayer; auto: 0.1, or 0.3 below 50,000 training pairs
    dropout: NumberOrAuto = 0.1
    attention_dropout: float = 0.0  # dropout on attention weights
    ffn_dropout: float = 0.0  # dropout on the feed-forward network's hidden units
    norm: str = "layernorm"  # layernorm | rmsnorm: the kind of normalisation
    norm_position: str = "post"  # post: after each sum, as published | pre: before each sublayer
    # activation of the feed-forward network: relu, as published | gelu | swish | swiglu, which has a gate
    activation: str = "relu"
    positions: str = "sinusoidal"  # sinusoidal | rotary | none: how the network knows the order of words
    bias: bool = True  # whether linear layers have biases
    scale_embedding: bool = True  # whether embeddings are multiplied by √d_model, as published
    output_bias: bool = False  # whether the logits have a bias, for imported models; the bias is not trained
    # for ablations (docs/lab.md): query_key | shared: queries are the keys | uniform: no queries | unscaled: no 1/√c
    relevance: str = "query_key"
    decoder_mask: str = "causal"  # for ablations: causal | none: in training, target positions see later positions
    cross_attention: str = "source"  # for ablations: source | none: the decoder sees nothing of the source

    def __post_init__(self) -> None:
        check_choices(
            "model.",
            self,
            architecture=("transformer", "recurrent"),
            attention=("additive", "none"),
            norm=("layernorm", "rmsnorm"),
            norm_position=("post", "pre"),
            activation=("relu", "gelu", "swish", "swiglu"),
            positions=("sinusoidal", "rotary", "none"),
            relevance=("query_key", "shared", "uniform", "unscaled"),
            decoder_mask=("causal", "none"),
            cross_attention=("source", "none"),
        )
        for field in fields(self):
            value = getattr(self, field.name)
            require(
                field.name in self.used() or value == field.default,
                f"model.{field.name}={value} means nothing to model.architecture={self.architecture}: leave it out",
            )
        check_ranges(
            "model.",
            self,
            **dict.fromkeys(("d_model", "num_heads", "d_ff"), (1, 1 << 18)),
            **dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), (1, 1000)),
            **dict.fromkeys(DROPOUTS, (0, math.inf)),
        )
        for key in DROPOUTS:
            value = getattr(self, key)
            require(value == AUTO or value < 1, f"model.{key}={value} must be in [0, 1)")
        if self.architecture == "recurrent":
            return
        require(
            self.d_model % self.num_heads == 0,
            f"model.d_model={self.d_model} must be a multiple of model.num_heads={self.num_heads}",
        )
        require(self.d_model % 2 == 0, f"model.d_model={self.d_model} must be even: positions come in pairs")
        if self.positions == "rotary":
            channels = self.d_model // self.num_heads
            require(channels % 2 == 0, f"model.d_model/num_heads={channels} must be even for rotary positions")

    def ablations(self) -> list[str]:
        """Return the settings that ablate the model, as `model.key=value`; exports refuse ablated models."""
        keys = ("relevance", "decoder_mask", "cross_attention")
        taken = [key for key in keys if getattr(self, key) != getattr(ModelConfig, key)]
        taken += ["positions"] if self.positions == "none" else []
        return [f"model.{key}={getattr(self, key)}" for key in taken]

    def used(self) -> dict[str, Any]:
        """Return the settings that this architecture uses."""
        is_recurrent = self.architecture == "recurrent"
        names = [field.name for field in fields(self)]
        used = OF_BOTH | (OF_RECURRENT if is_recurrent else set(names) - OF_RECURRENT)
        return {name: getattr(self, name) for name in names if name in used}
