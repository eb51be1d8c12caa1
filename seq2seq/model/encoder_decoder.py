"""What every encoder-decoder of the project shares: one embedding matrix, and the way from ids to predictions.

Knows no text, no loss, no search, and of the network only what training and translating call.
"""

from typing import Any

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from seq2seq.model.trace import Trace
from seq2seq.settings.model import ModelConfig

PAD = 0


class EncoderDecoder(nn.Module):
    """Reads a source into a state and advances targets from it; the embedding matrix is the output projection, too.

    Source rows hold tokens, EOS, then padding; target rows BOS, tokens, then padding. Id 0 is padding. Parameters of
    the encoder have names that begin with `encoder_`, those of the decoder `decoder_`; the embedding belongs to both.
    """

    encoder_layers: nn.ModuleList
    decoder_layers: nn.ModuleList

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocab_size, config.d_model, padding_idx=PAD)

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return self.embedding.num_embeddings

    @property
    def can_align(self) -> bool:
        """Whether the decoder attends to the source, so that words can be aligned."""
        return self.config.cross_attention == "source" and self.config.attention == "additive"

    def encode(self, src: Int[Tensor, "b s"]) -> Any:
        """Read the source; the result is the state before the first target token."""
        raise NotImplementedError

    def hidden_states(self, tgt_in: Int[Tensor, "n t"], state: Any) -> tuple[Float[Tensor, "n t d"], Any]:
        """Advance the target by t tokens; return what `logits` turns into predictions, and the state after them."""
        raise NotImplementedError

    def traced(self, src: Int[Tensor, "b s"], tgt_in: Int[Tensor, "b t"]) -> Trace:
        """The weights of every attention in `forward`; in training mode, those that dropout has not touched yet."""
        raise NotImplementedError

    def logits(self, hidden: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows v"]:
        """Unnormalised log-probabilities of the next token."""
        return F.linear(hidden, self.embedding.weight)

    def decode(self, tgt_in: Int[Tensor, "n t"], state: Any) -> tuple[Float[Tensor, "n t v"], Any]:
        """Predict the token that follows each of tgt_in's, given the source and all tokens before."""
        hidden, state = self.hidden_states(tgt_in, state)
        return self.logits(hidden), state

    def forward(self, src: Int[Tensor, "b s"], tgt_in: Int[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
        """Encode and decode a whole batch at once, as training does: the decoder's last hidden states."""
        return self.hidden_states(tgt_in, self.encode(src))[0]

    def layers(self) -> list[nn.Module]:
        """The parts that a backward pass may compute again from their inputs instead of keeping what is in them."""
        return [*self.encoder_layers, *self.decoder_layers]
