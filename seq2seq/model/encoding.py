"""The encoder for search: the same network as `Transformer.encode`, with its weights laid out once."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seq2seq.model.layers import DecoderLayer, EncoderLayer, FeedForward, GatedFeedForward, Residual
from seq2seq.model.masks import additive
from seq2seq.model.positions import rotate, rotations
from seq2seq.model.products import product
from seq2seq.model.transformer import Transformer

Rows = Float[Tensor, "n d"]


class Residuals:
    """The residual connections of a layer, one per sublayer, with their present weights."""

    def __init__(self, residuals: list[Residual]) -> None:
        self.is_pre_norm = residuals[0].is_pre_norm
        self.norms = [norm_of_rows(residual.norm) for residual in residuals]

    def enter(self, number: int, x: Rows) -> Rows:
        """Return what sublayer `number` reads."""
        return self.norms[number](x) if self.is_pre_norm else x

    def leave(self, number: int, x: Rows, output: Rows) -> Rows:
        """Return the rows after sublayer `number`."""
        return x + output if self.is_pre_norm else self.norms[number](x + output)


class FlatEncoderLayer:
    """An `EncoderLayer` with its weights laid out."""

    def __init__(self, layer: EncoderLayer, dtype: torch.dtype) -> None:
        own = layer.self_attention
        self.heads = own.num_heads
        self.residuals = Residuals([layer.self_residual, layer.feed_forward_residual])
        self.queries_keys_values = product([own.q_proj, own.k_proj, own.v_proj], dtype, [own.stretch, 1.0, 1.0])
        self.own_out = product([own.out_proj], dtype)
        self.feed_forward = feed_forward_of_rows(layer.feed_forward, dtype)

    def __call__(self, x: Rows, mask: Float[Tensor, "b 1 1 s"], rotation: Float[Tensor, "2 s 1 c"] | None) -> Rows:
        """Return the rows of all b × s source positions after this layer."""
        rows = self.queries_keys_values(self.residuals.enter(0, x))
        parts = rows.view(len(mask), mask.shape[3], 3 * self.heads, -1)  # (b, s, 3 h, c)
        if rotation is not None:
            queries_keys, values = parts.tensor_split([2 * self.heads], 2)
            parts = torch.cat((rotate(queries_keys, rotation), values), 2)
        queries, keys, values = parts.transpose(1, 2).chunk(3, 1)
        context = F.scaled_dot_product_attention(queries, keys, values, mask)  # (b, h, s, c)
        x = self.residuals.leave(0, x, self.own_out(context.transpose(1, 2).reshape(len(x), -1)))
        return self.residuals.leave(1, x, self.feed_forward(self.residuals.enter(1, x)))


class FlatEncoder:
    """A Transformer's encoder for search, with its present weights, and the keys and values of cross-attention."""

    def __init__(self, model: Transformer, dtype: torch.dtype) -> None:
        """Lay out the weights for products in dtype."""
        self.model, self.dtype = model, dtype
        self.layers = [FlatEncoderLayer(one, dtype) for one in model.encoder_layers if isinstance(one, EncoderLayer)]
        self.norm = norm_of_rows(model.encoder_norm)
        cross = [layer.cross_attention for layer in model.decoder_layers if isinstance(layer, DecoderLayer)]
        maps = [one for attention in cross for one in (attention.k_proj, attention.v_proj)]
        self.memory = product(maps, dtype, [1.0] * len(maps))

    def __call__(self, src: Int[Tensor, "b s"]) -> tuple[Float[Tensor, "b s m d"], Bool[Tensor, "b 1 1 s"]]:
        """Read the source ids.

        Returns:
            Keys and values for the cross-attention of each decoder layer in turn (m is twice the number of layers), and
            a mask that is True where the source has a real token that may be attended to.
        """
        config, mask = self.model.config, self.model.source_mask(src)
        with torch.autocast(src.device.type, enabled=False):
            x, positions = self.model.embedded(src, "source")
            x, rotation = (x if positions is None else x + positions).float().flatten(0, 1), None
            if config.positions == "rotary":
                rotation = rotations(0, src.shape[1], config.d_model // config.num_heads, src.device)
            layer_mask = additive(mask, self.dtype)
            for layer in self.layers:
                x = layer(x, layer_mask, rotation)
            memory = self.memory(self.norm(x)).view(*src.shape, -1, config.d_model)
        return memory, mask if config.cross_attention == "source" else torch.zeros_like(mask)


def norm_of_rows(module: nn.Module) -> Callable[[Rows], Rows]:
    """Return a normalisation with its present weights as a function of rows, which is faster than calling a module."""
    if isinstance(module, nn.LayerNorm):
        shape, eps, weight, bias = list(module.normalized_shape), module.eps, _copy(module.weight), _copy(module.bias)
        return lambda x: F.layer_norm(x, shape, weight, bias, eps)
    if isinstance(module, nn.RMSNorm):
        shape, eps, weight = list(module.normalized_shape), module.eps, _copy(module.weight)
        return lambda x: F.rms_norm(x, shape, weight, eps)
    return lambda x: x


def _copy(weight: Tensor) -> Tensor:
    return weight.detach().clone().float()


def feed_forward_of_rows(module: nn.Module, dtype: torch.dtype) -> Callable[[Rows], Rows]:
    """Return a feed-forward network with its present weights as a function of rows, its products in dtype."""
    if isinstance(module, GatedFeedForward):
        gate_and_up, down = product([module.gate, module.up], dtype, [1.0, 1.0]), product([module.down], dtype)

        def gated(y: Rows) -> Rows:
            gate, up = gate_and_up(y).chunk(2, 1)
            return down(F.silu(gate) * up)

        return gated
    assert isinstance(module, FeedForward)
    up, down = product([module.up], dtype), product([module.down], dtype)
    return lambda y: down(module.activate(up(y)))
