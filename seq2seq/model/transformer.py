"""The encoder-decoder Transformer: token ids to logits."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seq2seq.model.attention import KeysValues
from seq2seq.model.encoder_decoder import PAD, DecoderState, EncoderDecoder, Side
from seq2seq.model.layers import DecoderLayer, Dropout, EncoderLayer, cast_for_products, make_norm
from seq2seq.model.masks import padding_mask, target_mask
from seq2seq.model.positions import rotations, sinusoidal
from seq2seq.model.variants.trace import Trace, aligning_layer, record_attention
from seq2seq.settings.model import ModelConfig

INIT_STD = 0.02


def embedding_scale(config: ModelConfig) -> float:
    """Return the factor by which embeddings are multiplied before they enter the network."""
    return math.sqrt(config.d_model) if config.scale_embedding else 1.0


class Transformer(EncoderDecoder):
    """Encoder and decoder stacks around one embedding matrix, or around one for each side.

    `config.norm_position="post"`, ReLU and sinusoidal positions give the published model (Vaswani et al. 2017);
    pre-norm, RMSNorm, SwiGLU and rotary positions its modern form. `build_model` draws the weights, and removes what
    the configuration ablates.

    Attributes:
        target_mask: returns which target positions may attend to which, as `masks.target_mask`.
    """

    target_mask: Callable[[Int[Tensor, "n t"], int], Bool[Tensor, "#n 1 #t p_and_t"] | None]

    def __init__(self, config: ModelConfig, vocab_size: int, source_vocab_size: int | None = None) -> None:
        super().__init__(config, vocab_size, source_vocab_size)
        self.dropout = Dropout(config.dropout)
        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        is_pre_norm = config.norm_position == "pre"  # nothing else normalises the output of a pre-norm stack
        self.encoder_norm = make_norm(config) if is_pre_norm else nn.Identity()
        self.decoder_norm = make_norm(config) if is_pre_norm else nn.Identity()
        self.target_mask = target_mask

    def reset_parameters(self) -> None:
        """Draw all matrices from a normal distribution of standard deviation 0.02, as BERT does; biases are zero.

        In the first 600 updates on everyday text this gains 0.4 nats per token over Glorot-uniform matrices and
        embeddings of standard deviation 1/√d (docs/results.md): small sublayers let post-norm stacks learn at once.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=INIT_STD)
                if (bias := getattr(module, "bias", None)) is not None:
                    nn.init.zeros_(bias)
        for embedding in self.embeddings():
            nn.init.normal_(embedding.weight, std=INIT_STD)
            with torch.no_grad():
                embedding.weight[PAD].zero_()

    def encode(self, src: Int[Tensor, "b s"], source_mask: Bool[Tensor, "b 1 1 s"] | None = None) -> DecoderState:
        """Encode the source; return the state before the first target token.

        source_mask: which source positions may be attended to; None: all but padding.
        """
        mask = padding_mask(src, PAD) if source_mask is None else source_mask
        x, rotation = self._embed(src, "source", start=0)
        for layer in self._encoder():
            x = layer(x, mask, rotation)
        x = cast_for_products(self.encoder_norm(x))
        # Each decoder layer's cross-attention keys and values: computed once per sentence, not once per step.
        memory = tuple(layer.cross_attention.keys_values(x) for layer in self._decoder())
        return DecoderState(memory, mask)

    def hidden_states(
        self, tgt_in: Int[Tensor, "n t"], state: DecoderState
    ) -> tuple[Float[Tensor, "n t d"], DecoderState]:
        """Advance the target by t tokens; return the last layer's states, which `logits` turns into predictions."""
        x, rotation = self._embed(tgt_in, "target", start=state.length)
        mask = self.target_mask(tgt_in, state.length)
        past: list[KeysValues] = []
        for index, (layer, memory) in enumerate(zip(self._decoder(), state.memory, strict=True)):
            earlier = state.past[index] if state.past else None
            x, keys_values = layer(x, mask, memory, state.memory_mask, rotation, earlier)
            past.append(keys_values)
        return self.decoder_norm(x), replace(state, past=tuple(past))

    @torch.no_grad()
    def traced(self, src: Int[Tensor, "b s"], tgt_in: Int[Tensor, "b t"]) -> Trace:
        """Return the weights of every attention in `forward`; in training mode, those before dropout."""
        with record_attention(self.modules()) as calls:
            self(src, tgt_in)
        return Trace(
            encoder=[calls[layer.self_attention].weights() for layer in self._encoder()],
            decoder=[calls[layer.self_attention].weights() for layer in self._decoder()],
            cross=[calls[layer.cross_attention].weights() for layer in self._decoder()],
        )

    def predict_and_align(
        self, src: Int[Tensor, "b s"], tgt_in: Int[Tensor, "b t"]
    ) -> tuple[Float[Tensor, "b t v"], Float[Tensor, "b t s"]]:
        """See `EncoderDecoder`; the attention is the aligning layer's, the mean of its heads."""
        attention = list(self._decoder())[aligning_layer(len(self.decoder_layers))].cross_attention
        with record_attention([attention]) as calls:
            logits = self.predict(src, tgt_in)
        return logits, calls[attention].weights().mean(1)

    def embedded(
        self, ids: Int[Tensor, "n t"], side: Side, start: int = 0
    ) -> tuple[Float[Tensor, "n t d"], Float[Tensor, "t d"] | None]:
        """Return (scaled) embeddings, and the vectors to add for positions from start on; None: add nothing."""
        x = self.embedding_of(side)(ids) * embedding_scale(self.config)
        if self.config.positions != "sinusoidal":
            return x, None
        return x, sinusoidal(start, ids.shape[1], self.config.d_model, ids.device).to(x.dtype)

    def _encoder(self) -> Iterable[EncoderLayer]:
        return cast("Iterable[EncoderLayer]", self.encoder_layers)

    def _decoder(self) -> Iterable[DecoderLayer]:
        return cast("Iterable[DecoderLayer]", self.decoder_layers)

    def _embed(
        self, ids: Int[Tensor, "n t"], side: Side, start: int
    ) -> tuple[Float[Tensor, "n t d"], Float[Tensor, "2 t 1 c"] | None]:
        """Return scaled embeddings with positions added, or with the rotation for attention to apply, or neither."""
        embeddings, positions = self.embedded(ids, side, start)
        if positions is not None:
            return self.dropout(embeddings + positions), None
        if self.config.positions == "none":
            return self.dropout(embeddings), None
        channels = self.config.d_model // self.config.num_heads
        return self.dropout(embeddings), rotations(start, ids.shape[1], channels, ids.device)
