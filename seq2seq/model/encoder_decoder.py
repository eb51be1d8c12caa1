"""The base class of all encoder-decoders, with its embeddings, and the state of a decoder between calls."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seq2seq.model.attention import KeysValues
from seq2seq.model.variants.trace import Trace
from seq2seq.settings.model import ModelConfig

PAD = 0
Side = Literal["source", "target"]


class EncoderDecoder(nn.Module):
    """Encodes a source into a state and advances targets from this state; the output shares the targets' embedding.

    If both sides have one vocabulary, the source shares this embedding, too. Source rows hold tokens, EOS, then
    padding; target rows hold a start token, tokens, then padding. Id 0 is padding. The names of the encoder's
    parameters begin with `encoder_`, and the names of the decoder's parameters with `decoder_`; both use the embedding.

    Attributes:
        embedding: embedding of the targets' ids; also the output projection.
        encoder_embedding: embedding of the sources' ids; None: sources use `embedding`, too.
    """

    encoder_layers: nn.ModuleList
    decoder_layers: nn.ModuleList

    def __init__(self, config: ModelConfig, vocab_size: int, source_vocab_size: int | None = None) -> None:
        """Make the embeddings; without source_vocab_size, sources have the ids of targets."""
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocab_size, config.d_model, padding_idx=PAD)
        has_own = source_vocab_size is not None
        self.encoder_embedding = nn.Embedding(source_vocab_size, config.d_model, padding_idx=PAD) if has_own else None
        self.output_bias: Tensor | None
        self.register_buffer("output_bias", torch.zeros(vocab_size) if config.output_bias else None)

    @property
    def vocab_size(self) -> int:
        """Number of the targets' token ids."""
        return self.embedding.num_embeddings

    @property
    def source_vocab_size(self) -> int | None:
        """Number of the sources' token ids; None: sources have the ids of targets."""
        return None if self.encoder_embedding is None else self.encoder_embedding.num_embeddings

    def embeddings(self) -> list[nn.Embedding]:
        """Return the embedding that both sides share, or the targets' embedding and the sources' embedding."""
        return [self.embedding] if self.encoder_embedding is None else [self.embedding, self.encoder_embedding]

    def embedding_of(self, side: Side) -> nn.Embedding:
        """Return the embedding of a side's ids."""
        return self.embeddings()[-1] if side == "source" else self.embedding

    @property
    def can_align(self) -> bool:
        """Whether the decoder attends to the source, which word alignment needs."""
        return self.config.cross_attention == "source" and self.config.attention == "additive"

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        raise NotImplementedError

    def encode(self, src: Int[Tensor, "b s"]) -> Any:
        """Encode the source; return the state before the first target token."""
        raise NotImplementedError

    def hidden_states(self, tgt_in: Int[Tensor, "n t"], state: Any) -> tuple[Float[Tensor, "n t d"], Any]:
        """Advance the target by t tokens; return hidden states, which `logits` makes predictions of, and the state."""
        raise NotImplementedError

    def traced(self, src: Int[Tensor, "b s"], tgt_in: Int[Tensor, "b t"]) -> Trace:
        """Return the weights of every attention in `forward`; in training mode, those before dropout."""
        raise NotImplementedError

    def logits(self, hidden: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows v"]:
        """Return unnormalised log-probabilities of the next token.

        Computed in float32, whatever the precision of the layers: a projection in bfloat16 changes more translations
        (docs/performance.md).
        """
        with torch.autocast(hidden.device.type, enabled=False):
            return F.linear(hidden.float(), self.embedding.weight.float(), self.output_bias)

    def decode(self, tgt_in: Int[Tensor, "n t"], state: Any) -> tuple[Float[Tensor, "n t v"], Any]:
        """Predict the token after each token of tgt_in, given the source and all earlier tokens."""
        hidden, state = self.hidden_states(tgt_in, state)
        return self.logits(hidden), state

    def predict(self, src: Int[Tensor, "b s"], tgt_in: Int[Tensor, "b t"]) -> Float[Tensor, "b t v"]:
        """Return the logits of the token after each token of tgt_in."""
        return self.logits(self(src, tgt_in))

    def predict_and_align(
        self, src: Int[Tensor, "b s"], tgt_in: Int[Tensor, "b t"]
    ) -> tuple[Float[Tensor, "b t v"], Float[Tensor, "b t s"]]:
        """Return what `predict` returns, and each prediction's attention to the source positions (rows sum to 1)."""
        raise NotImplementedError

    def forward(self, src: Int[Tensor, "b s"], tgt_in: Int[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
        """Encode and decode a whole batch at once, as in training; return the decoder's last hidden states."""
        return self.hidden_states(tgt_in, self.encode(src))[0]

    def layers(self) -> list[nn.Module]:
        """Return the modules that activation checkpointing may recompute in the backward pass."""
        return [*self.encoder_layers, *self.decoder_layers]


@dataclass(frozen=True)
class DecoderState:
    """The b encoded sentences, and the targets so far of w rows for each; calls return a new state.

    With w = 3, rows 0 to 2 continue sentence 0, and rows 3 to 5 sentence 1. They share its keys and values.

    Attributes:
        memory: keys and values of the encoded sentences, one pair per decoder layer.
        memory_mask: True where the source has a real token.
        past: keys and values of the target tokens so far, one pair per decoder layer; empty before the first token.
    """

    memory: tuple[KeysValues, ...]
    memory_mask: Bool[Tensor, "b 1 1 s"]
    past: tuple[KeysValues, ...] = ()

    @property
    def length(self) -> int:
        """Target positions decoded so far (tokens)."""
        return self.past[0].keys.shape[2] if self.past else 0

    def reorder(self, rows: Int[Tensor, "b w"]) -> "DecoderState":
        """Return the state of the given rows: a line for each sentence that goes on, in order, with its w rows."""
        past = tuple(layer.select(rows.flatten()) for layer in self.past)
        if len(rows) == len(self.memory_mask):
            return replace(self, past=past)
        sentences = sentences_of(rows, self.past[0].keys, self.memory_mask)
        memory = tuple(layer.select(sentences) for layer in self.memory)
        return DecoderState(memory, self.memory_mask.index_select(0, sentences), past)


def sentences_of(
    rows: Int[Tensor, "b w"], by_row: Float[Tensor, "n ..."], by_sentence: Bool[Tensor, "z ..."]
) -> Int[Tensor, " b"]:
    """Return the sentence of each line of rows, in a state of n rows for z sentences."""
    return rows[:, 0] // (len(by_row) // len(by_sentence))
