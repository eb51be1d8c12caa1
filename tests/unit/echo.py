"""A model that translates every text into itself, for tests of what is around a model."""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import EOS, Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.translator import Translator

TEXTS = [
    "The cat drank the milk.",
    "Ella ve.",
    "A dog sees a blue ball!",
    "¿Quién quiere la leche?",
    "niños",
    "a, b, c",
]


@dataclass(frozen=True)
class EchoState:
    src: Tensor  # (n, s)
    position: int = 0

    def reorder(self, rows: Tensor) -> "EchoState":
        return replace(self, src=self.src[rows.flatten()])


class EchoModel(EncoderDecoder):
    """Translates every text into itself; a batch of more than `room` source tokens, padding included, is an error."""

    def __init__(
        self, vocab_size: int, room: int = 10**9, error: str = "CUDA out of memory. Tried to allocate 2 GiB"
    ) -> None:
        super().__init__(ModelConfig(d_model=2, num_heads=1), vocab_size)
        self.embedding = nn.Embedding.from_pretrained(torch.eye(vocab_size))  # hidden states are logits
        self.room, self.error = room, error
        self.shapes: list[tuple[int, ...]] = []

    def encode(self, src: Tensor) -> EchoState:
        self.shapes.append(tuple(src.shape))
        if src.numel() > self.room:
            raise RuntimeError(self.error)
        return EchoState(src)

    def hidden_states(self, tgt_in: Tensor, state: EchoState) -> tuple[Tensor, EchoState]:
        expected = state.src[:, min(state.position, state.src.shape[1] - 1)]
        hidden = 30.0 * F.one_hot(torch.where(expected == 0, EOS, expected), self.vocab_size)
        return hidden[:, None], replace(state, position=state.position + 1)

    def predict_and_align(self, src: Tensor, tgt_in: Tensor) -> tuple[Tensor, Tensor]:
        (b, t), s = tgt_in.shape, src.shape[1]
        return torch.zeros(b, t, self.vocab_size), torch.eye(t, s).expand(b, t, s)


def echo_translator(
    tokenizer: Tokenizer,
    *,
    room: int = 10**9,
    error: str | None = None,
    trained_length: int | None = None,
    **search: Any,
) -> Translator:
    """Return a translator with an EchoModel; search holds fields of SearchConfig."""
    model = EchoModel(tokenizer.vocab_size, room, **({"error": error} if error else {}))
    settings = SearchConfig(**search)
    return Translator(model, Tokenizers.joint(tokenizer), search=settings, trained_length=trained_length)
