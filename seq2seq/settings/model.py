"""Settings of the network: `model`."""

from dataclasses import dataclass, fields
from typing import Any

from seq2seq.settings.checks import (
    NumberOrAuto,
    require,
    require_at_least,
    require_at_most,
    require_choice,
    require_number_or_auto,
)
from seq2seq.settings.rules import AUTO

OF_BOTH = {"architecture", "d_model", "num_encoder_layers", "num_decoder_layers", "dropout", "attention_dropout"}
OF_RECURRENT = {"attention"}  # the others are the Transformer's


@dataclass(kw_only=True)
class ModelConfig:
    """The network's sizes and style; defaults are the base Transformer as published (Vaswani et al. 2017)."""

    architecture: str = "transformer"  # transformer | recurrent (LSTMs, which it replaced; docs/recurrent.md)
    attention: str = "additive"  # of architecture=recurrent, to the source: additive | none
    d_model: int = 512  # width of every residual stream
    num_heads: int = 8  # attention heads of every layer; must divide d_model
    d_ff: int = (
        2048  # hidden width of the feed-forward network; SwiGLU's is two thirds of it, so that both cost the same
    )
    num_encoder_layers: int = 6  # layers that read the source
    num_decoder_layers: int = 6  # layers that write the target
    dropout: NumberOrAuto = (
        0.1  # share of units dropped in training, after every sublayer; auto: 0.1, 0.3 below 50,000 pairs
    )
    attention_dropout: float = 0.0  # on attention weights
    ffn_dropout: float = 0.0  # on the feed-forward network's hidden units
    norm: str = "layernorm"  # layernorm | rmsnorm: the kind of normalisation
    norm_position: str = "post"  # post: after each sum, as published | pre: before each sublayer
    activation: str = "relu"  # relu | swiglu: of the feed-forward network
    positions: str = "sinusoidal"  # sinusoidal | rotary | none: how the network knows the order of words
    bias: bool = True  # in linear layers
    # What the ablation lab takes away (docs/lab.md):
    relevance: str = "query_key"  # query_key | shared: queries are keys | uniform: no queries | unscaled: no 1/√c
    decoder_mask: str = "causal"  # causal | none: in training every target position sees the later ones, too
    cross_attention: str = "source"  # source | none: the decoder sees nothing of the source

    def __post_init__(self) -> None:
        require_choice("model.architecture", self.architecture, ("transformer", "recurrent"))
        require_choice("model.attention", self.attention, ("additive", "none"))
        for field in fields(self):
            value = getattr(self, field.name)
            require(
                field.name in self.used() or value == field.default,
                f"model.{field.name}={value} means nothing to model.architecture={self.architecture}: leave it out",
            )
        for key in ("d_model", "num_heads", "d_ff", "num_encoder_layers", "num_decoder_layers"):
            require_at_least(f"model.{key}", getattr(self, key), 1)
            require_at_most(f"model.{key}", getattr(self, key), 1000 if key.endswith("layers") else 1 << 18)
        is_transformer = self.architecture == "transformer"
        require(
            not is_transformer or self.d_model % self.num_heads == 0,
            f"model.d_model={self.d_model} must be a multiple of model.num_heads={self.num_heads}",
        )
        require(
            not is_transformer or self.d_model % 2 == 0,
            f"model.d_model={self.d_model} must be even: positions come in pairs",
        )
        for key in ("dropout", "attention_dropout", "ffn_dropout"):
            require_number_or_auto(f"model.{key}", value := getattr(self, key), 0)
            require(value == AUTO or value < 1, f"model.{key}={value} must be in [0, 1)")
        require_choice("model.norm", self.norm, ("layernorm", "rmsnorm"))
        require_choice("model.norm_position", self.norm_position, ("post", "pre"))
        require_choice("model.activation", self.activation, ("relu", "swiglu"))
        require_choice("model.positions", self.positions, ("sinusoidal", "rotary", "none"))
        require_choice("model.relevance", self.relevance, ("query_key", "shared", "uniform", "unscaled"))
        require_choice("model.decoder_mask", self.decoder_mask, ("causal", "none"))
        require_choice("model.cross_attention", self.cross_attention, ("source", "none"))
        if self.positions == "rotary":
            channels = self.d_model // self.num_heads
            require(channels % 2 == 0, f"model.d_model/num_heads={channels} must be even for rotary positions")

    def ablations(self) -> list[str]:
        """What is taken away from the model, as `model.key=value`; other programs have no such models."""
        keys = ("relevance", "decoder_mask", "cross_attention")
        taken = [key for key in keys if getattr(self, key) != getattr(ModelConfig, key)]
        taken += ["positions"] if self.positions == "none" else []
        return [f"model.{key}={getattr(self, key)}" for key in taken]

    def used(self) -> dict[str, Any]:
        """The settings that mean something to this architecture."""
        is_recurrent = self.architecture == "recurrent"
        names = [one.name for one in fields(self)]
        ours = OF_BOTH | (OF_RECURRENT if is_recurrent else set(names) - OF_RECURRENT)
        return {name: getattr(self, name) for name in names if name in ours}
