"""A model that translates every text into itself, for tests of what is around a model."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.model import ModelConfig
from seq2seq.text.tokenizer import EOS

TEXTS = [
    "The cat drank the milk.",
    "Ella ve.",
    "A dog sees a blue ball!",
    "¿Quién quiere la leche?",
    "niños",
    "a, b, c, d, e",
]


@dataclass(frozen=True)
class EchoState:
    src: Tensor  # (n, s)
    position: int = 0

    def reorder(self, rows: Tensor, counts: Any) -> "EchoState":
        return replace(self, src=self.src[rows])


class EchoModel(EncoderDecoder):
    """Translates every text into itself; has room for so many padded source tokens times beam."""

    def __init__(
        self, vocab_size: int, room: int = 10**9, error: str = "CUDA out of memory. Tried to allocate 2 GiB"
    ) -> None:
        super().__init__(ModelConfig(d_model=2, num_heads=1), vocab_size)
        self.room, self.error = room, error
        self.shapes: list[tuple[int, ...]] = []
        self.modes: list[bool] = []

    def encode(self, src: Tensor) -> EchoState:
        self.shapes.append(tuple(src.shape))
        self.modes.append(self.training)
        if src.numel() > self.room:
            raise RuntimeError(self.error)
        return EchoState(src)

    def decode(self, tgt_in: Tensor, state: EchoState) -> tuple[Tensor, EchoState]:
        logits = torch.zeros(len(tgt_in), 1, self.vocab_size)
        expected = state.src[:, min(state.position, state.src.shape[1] - 1)]
        logits[torch.arange(len(tgt_in)), 0, torch.where(expected == 0, EOS, expected)] = 30.0
        return logits, replace(state, position=state.position + 1)
