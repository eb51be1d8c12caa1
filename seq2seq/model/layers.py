"""Encoder and decoder layers: attention and feed-forward sublayers, each in a residual. Knows no embeddings."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from seq2seq.model.attention import KeysValues, MultiHeadAttention
from seq2seq.settings.model import ModelConfig


class Dropout(nn.Module):
    """Zeroes a share of the values and scales up the others (Srivastava et al. 2014); fast on the CPU.

    On the CPU, one random number of 64 bits decides four values, 16 bits each, so the rate is exact to 1/65536. Other
    devices use PyTorch's own dropout.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return x with values dropped in training mode, else x itself."""
        if not self.training or self.rate == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        dropped = round(self.rate * 2**16)  # of the 65536 values of an int16
        keep = (draws.view(torch.int16)[: x.numel()] >= dropped - 2**15).view(x.shape)
        return x * keep.to(x.dtype).mul_(2**16 / (2**16 - dropped))


Sublayer = Callable[[Float[Tensor, "n t d"]], Float[Tensor, "n t d"]]


class Residual(nn.Module):
    """A sublayer with its residual connection, dropout and normalisation.

    Post-norm, as published: norm(x + dropout(sublayer(x))).
    Pre-norm (Xiong et al. 2020): x + dropout(sublayer(norm(x))).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.is_pre_norm = config.norm_position == "pre"
        self.norm = make_norm(config)
        self.dropout = Dropout(config.dropout)

    __call__: Callable[[Tensor, Sublayer], Tensor]  # the type of `forward`, for type checkers

    def forward(self, x: Float[Tensor, "n t d"], sublayer: Sublayer) -> Float[Tensor, "n t d"]:
        """Return the residual stream x after a sublayer."""
        if self.is_pre_norm:
            return x + self.dropout(sublayer(cast_for_products(self.norm(x))))
        return self.norm(x + self.dropout(sublayer(cast_for_products(x))))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,  # in place, autograd would copy the hidden layer: a linear map returns a view
    "gelu": F.gelu,  # by the error function (Hendrycks & Gimpel 2016)
    "swish": F.silu,  # x · sigmoid(x) (Ramachandran et al. 2017)
}


class FeedForward(nn.Module):
    """Two linear maps with ReLU or another activation between (Vaswani et al. 2017, eq. 2)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.down = nn.Linear(config.d_ff, config.d_model, bias=config.bias)
        self.dropout = Dropout(config.ffn_dropout)
        self.activate = ACTIVATIONS[config.activation]

    def forward(self, x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
        """Transform every position by itself."""
        return self.down(self.dropout(self.activate(self.up(x))))


class GatedFeedForward(nn.Module):
    """SwiGLU: (swish(x W) ⊙ x V) W₂ (Shazeer 2020, eq. 6).

    The width is two thirds of d_ff, rounded to a multiple of 8: three matrices of this width have about as many weights
    as the two matrices of `FeedForward`.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = max(1, round(config.d_ff * 2 / 3 / 8)) * 8
        self.gate = nn.Linear(config.d_model, width, bias=config.bias)
        self.up = nn.Linear(config.d_model, width, bias=config.bias)
        self.down = nn.Linear(width, config.d_model, bias=config.bias)
        self.dropout = Dropout(config.ffn_dropout)

    def forward(self, x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
        """Transform every position by itself."""
        return self.down(self.dropout(F.silu(self.gate(x)) * self.up(x)))


class EncoderLayer(nn.Module):
    """Self-attention over the whole source, then feed-forward (Vaswani et al. 2017, §3.1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = make_attention(config)
        self.self_residual = Residual(config)
        self.feed_forward = make_feed_forward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self, x: Float[Tensor, "b s d"], mask: Bool[Tensor, "b 1 1 s"], rotation: Float[Tensor, "2 s 1 c"] | None
    ) -> Float[Tensor, "b s d"]:
        """Return the source positions after this layer; mask: which of them have a token."""
        attention = self.self_attention  # queries and keys are rotated by the same angles
        x = self.self_residual(x, lambda y: attention(y, attention.keys_values(y, rotation), mask, rotation))
        return self.feed_forward_residual(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention over the target so far, cross-attention to the source, then feed-forward (§3.1)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = make_attention(config)
        self.self_residual = Residual(config)
        self.cross_attention = make_attention(config)
        self.cross_residual = Residual(config)
        self.feed_forward = make_feed_forward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self,
        x: Float[Tensor, "n t d"],
        mask: Bool[Tensor, "#n 1 #t p_and_t"] | None,
        memory: KeysValues,
        memory_mask: Bool[Tensor, "b 1 1 s"],
        rotation: Float[Tensor, "2 t 1 c"] | None = None,
        past: KeysValues | None = None,
    ) -> tuple[Float[Tensor, "n t d"], KeysValues]:
        """Advance the target by t positions.

        Args:
            x: the layer's input.
            mask: which of the p past and t new positions each position may attend to; None: all.
            memory: keys and values of the source, computed by this layer's cross-attention.
            memory_mask: where the source has a real token.
            rotation: cosines and sines of the new positions; None: positions are not rotary.
            past: keys and values of the p earlier positions; None: there are no earlier positions.

        Returns:
            The layer's output, and the keys and values of all p + t positions.
        """
        keys_values = past

        def attend_to_target(y: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
            nonlocal keys_values
            keys_values = self.self_attention.keys_values(y, rotation).after(past)
            return self.self_attention(y, keys_values, mask, rotation)

        x = self.self_residual(x, attend_to_target)
        x = self.cross_residual(x, lambda y: self.cross_attention(y, memory, memory_mask))
        x = self.feed_forward_residual(x, self.feed_forward)
        assert keys_values is not None
        return x, keys_values


def cast_for_products(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Return x in autocast's precision if autocast is on, so that the linear maps that follow need no conversion."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x


def make_norm(config: ModelConfig) -> nn.Module:
    """Return the configured normalisation: LayerNorm (Ba et al. 2016) or RMSNorm (Zhang & Sennrich 2019)."""
    return nn.LayerNorm(config.d_model) if config.norm == "layernorm" else nn.RMSNorm(config.d_model, eps=1e-6)


def make_attention(config: ModelConfig) -> MultiHeadAttention:
    """Return multi-head attention of the configured size."""
    return MultiHeadAttention(config.d_model, config.num_heads, dropout=config.attention_dropout, bias=config.bias)


def make_feed_forward(config: ModelConfig) -> nn.Module:
    """Return the feed-forward network of the configured activation."""
    return GatedFeedForward(config) if config.activation == "swiglu" else FeedForward(config)
