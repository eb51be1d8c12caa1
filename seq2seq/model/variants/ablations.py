"""Transformers with a part removed, for the lab's experiments (docs/lab.md): other modules replace the paper's."""

import math

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seq2seq.model.attention import KeysValues, MultiHeadAttention
from seq2seq.model.encoder_decoder import PAD
from seq2seq.model.masks import padding_mask, target_mask
from seq2seq.model.transformer import Transformer


def ablate(model: Transformer) -> Transformer:
    """Remove from a Transformer what its configuration ablates; return the same model.

    The removed modules' weights stay, with their names; `reset_parameters` must draw them afterwards.
    """
    config = model.config
    for layer in (*model.encoder_layers, *model.decoder_layers):
        for name, module in list(layer.named_children()):
            if not isinstance(module, MultiHeadAttention):
                continue
            if name == "cross_attention" and config.cross_attention == "none":
                setattr(layer, name, NoAttention(module))
            elif config.relevance != "query_key":
                setattr(layer, name, AblatedAttention(module, config.relevance))
    if config.decoder_mask == "none":
        model.target_mask = mask_without_order
    return model


def mask_without_order(tgt_in: Int[Tensor, "n t"], past: int) -> Bool[Tensor, "#n 1 #t s"] | None:
    """Let all positions of a whole target (past 0) attend to all of its tokens; a search has no later tokens."""
    return padding_mask(tgt_in, PAD) if past == 0 else target_mask(tgt_in, past)


class AblatedAttention(MultiHeadAttention):
    """Attention whose relevance lacks a part.

    "shared" has one projection for queries and keys, so relevance becomes symmetric: score(a, b) = score(b, a).
    "uniform" has queries of zero, so all scores are equal. "unscaled" has queries √c times as long, which cancels the
    1/√c.
    """

    def __init__(self, attention: MultiHeadAttention, relevance: str) -> None:
        """Take over the projections of an attention."""
        nn.Module.__init__(self)
        vars(self).update(vars(attention))
        channels = attention.q_proj.out_features // attention.num_heads
        self.factor = {"uniform": 0.0, "unscaled": math.sqrt(channels)}.get(relevance, 1.0)
        if relevance == "shared":
            self.k_proj = self.q_proj

    def queries(
        self, x: Float[Tensor, "n t d"], rotation: Float[Tensor, "2 t 1 c"] | None = None
    ) -> Float[Tensor, "n h t c"]:
        """Return the queries of all positions, times a constant factor."""
        return super().queries(x, rotation) * self.factor


class NoAttention(MultiHeadAttention):
    """Attention whose weights and values are all zero, so that it tells nothing of its memory."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        """Take over the projections of an attention."""
        nn.Module.__init__(self)
        vars(self).update(vars(attention))

    def keys_values(self, x: Float[Tensor, "n s d"], rotation: Float[Tensor, "2 s 1 c"] | None = None) -> KeysValues:
        """Return the keys, and zero for each value."""
        keys, values = super().keys_values(x, rotation)
        return KeysValues(keys, values * 0.0)  # with gradients of zero, which data-parallel training needs

    def weights_of(
        self, queries: Float[Tensor, "n h t c"], keys: Float[Tensor, "n h s c"], mask: Bool[Tensor, "#n 1 #t s"] | None
    ) -> Float[Tensor, "n h t s"]:
        """Return zero for each key, with gradients of zero."""
        return super().weights_of(queries, keys, mask) * 0.0
