"""Settings of the network: `model`."""

from dataclasses import dataclass

from seq2seq.settings.checks import require, require_at_least, require_at_most, require_choice


@dataclass(kw_only=True)
class ModelConfig:
    """The Transformer's sizes and style; defaults are the base model as published (Vaswani et al. 2017)."""

    architecture: str = "transformer"
    d_model: int = 512  # width of every residual stream
    num_heads: int = 8
    d_ff: int = (
        2048  # hidden width of the feed-forward network; SwiGLU's is two thirds of it, so that both cost the same
    )
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    dropout: float = 0.1  # on embeddings and every sublayer's output
    attention_dropout: float = 0.0  # on attention weights
    ffn_dropout: float = 0.0  # on the feed-forward network's hidden units
    norm: str = "layernorm"  # layernorm | rmsnorm
    norm_position: str = "post"  # post | pre
    activation: str = "relu"  # relu | swiglu
    positions: str = "sinusoidal"  # sinusoidal | rotary | none
    bias: bool = True  # in linear layers
    # What the ablation lab takes away (docs/lab.md); every model that is to translate has the defaults.
    relevance: str = "query_key"  # query_key | shared (queries are keys) | uniform (no queries) | unscaled (no 1/√c)
    decoder_mask: str = "causal"  # causal | none: in training every target position sees the later ones, too
    cross_attention: str = "source"  # source | none: the decoder sees nothing of the source

    def __post_init__(self) -> None:
        require_choice("model.architecture", self.architecture, ("transformer",))
        for key in ("d_model", "num_heads", "d_ff", "num_encoder_layers", "num_decoder_layers"):
            require_at_least(f"model.{key}", getattr(self, key), 1)
            require_at_most(f"model.{key}", getattr(self, key), 1000 if key.endswith("layers") else 1 << 18)
        require(
            self.d_model % self.num_heads == 0,
            f"model.d_model={self.d_model} must be a multiple of model.num_heads={self.num_heads}",
        )
        require(self.d_model % 2 == 0, f"model.d_model={self.d_model} must be even: positions come in pairs")
        for key in ("dropout", "attention_dropout", "ffn_dropout"):
            require(0 <= getattr(self, key) < 1, f"model.{key}={getattr(self, key)} must be in [0, 1)")
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
