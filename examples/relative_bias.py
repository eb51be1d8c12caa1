"""A network of one's own: self-attention with a learned bias for each distance (Raffel et al. 2020, §2.1).

`python train.py extensions=examples.relative_bias model.architecture=relative_bias model.positions=none name=relative`
`python translate.py --extension examples.relative_bias --model runs/relative "The black cat drank the milk."`
"""

import math

import torch
from torch import Tensor, nn

from seq2seq import register
from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig

FARTHEST = 16  # words; beyond it, all distances have the same bias


class RelativeAttention(MultiHeadAttention):
    """Attention whose relevance has a bias for each head and distance."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.d_model, config.num_heads, dropout=config.attention_dropout, bias=config.bias)
        self.bias = nn.Parameter(torch.zeros(config.num_heads, 2 * FARTHEST + 1))

    def weights_of(self, queries: Tensor, keys: Tensor, mask: Tensor | None) -> Tensor:
        """Return softmax(Q Kᵀ / √c + bias) of the last t of s positions (n h t c, n h s c), as n h t s."""
        t, s = queries.shape[2], keys.shape[2]
        places = torch.arange(s, device=keys.device)
        distances = (places - places[s - t :, None]).clamp(-FARTHEST, FARTHEST) + FARTHEST
        relevance = queries @ keys.mT / math.sqrt(queries.shape[-1]) + self.bias[:, distances]
        if mask is not None:
            relevance = relevance.masked_fill(~mask, torch.finfo(relevance.dtype).min)
        return relevance.softmax(-1)


@register("model.architecture", "relative_bias")
class RelativeBias(Transformer):
    """A Transformer that knows the order of words by the distances alone, with model.positions=none."""

    def __init__(self, config: ModelConfig, vocab_size: int, source_vocab_size: int | None = None) -> None:
        super().__init__(config, vocab_size, source_vocab_size)
        for layer in (*self.encoder_layers, *self.decoder_layers):
            layer.self_attention = RelativeAttention(config)
