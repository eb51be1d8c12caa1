"""The encoder-decoder Transformer: token ids to logits."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seq2seq.model.encoder_decoder import PAD, EncoderDecoder
from seq2seq.model.layers import DecoderLayer, Dropout, EncoderLayer, cast_for_products, for_attention, make_norm
from seq2seq.model.masks import padding_mask, whole_target_mask
from seq2seq.model.packed import PackedLinear, can_pack
from seq2seq.model.positions import rotations, sinusoidal
from seq2seq.model.state import DecoderState
from seq2seq.model.trace import Trace, watch
from seq2seq.settings.model import ModelConfig

INIT_STD = 0.02


class Transformer(EncoderDecoder):
    """Encoder and decoder stacks around one embedding matrix.

    `config.norm_position="post"`, ReLU and sinusoidal positions give the published model (Vaswani et al. 2017);
    pre-norm, RMSNorm, SwiGLU and rotary positions its modern form.
    """

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        self.dropout = Dropout(config.dropout)
        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        is_pre_norm = config.norm_position == "pre"  # nothing else normalises the output of a pre-norm stack
        self.encoder_norm = make_norm(config) if is_pre_norm else nn.Identity()
        self.decoder_norm = make_norm(config) if is_pre_norm else nn.Identity()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all matrices from a normal distribution of standard deviation 0.02, as BERT does; biases are zero.

        In the first 600 updates on everyday text this gains 0.4 nats per token over Glorot-uniform matrices and
        embeddings of standard deviation 1/√d (docs/results.md): small sublayers let post-norm stacks learn at once.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=INIT_STD)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight, std=INIT_STD)
        with torch.no_grad():
            self.embedding.weight[PAD].zero_()

    def encode(self, src: Int[Tensor, "b s"]) -> DecoderState:
        """Encode the source; return the state before the first target token."""
        mask = padding_mask(src, PAD)
        x, rotation = self._embed(src, start=0)
        layer_mask = for_attention(mask, x)
        for layer in self.encoder_layers:
            x = layer(x, layer_mask, rotation)
        x = cast_for_products(self.encoder_norm(x))
        memory = tuple(layer.cross_attention.keys_values(x) for layer in self._decoder_layers())
        sees_source = self.config.cross_attention == "source"
        return DecoderState.start(memory, mask if sees_source else torch.zeros_like(mask))

    def hidden_states(
        self, tgt_in: Int[Tensor, "n t"], state: DecoderState
    ) -> tuple[Float[Tensor, "n t d"], DecoderState]:
        """Advance the target by t tokens; return hidden states for `logits`, and the next state."""
        state = state.for_rows(tgt_in.shape[0])
        x, rotation = self._embed(tgt_in, start=state.length)
        mask = self._mask(tgt_in, state)
        is_causal = mask is not None and self.config.decoder_mask == "causal" and state.is_fresh
        own_mask = None if mask is None else for_attention(mask, x, is_causal=is_causal)
        memory_mask = for_attention(state.memory_mask, x)
        past, watched = [], None
        for index, layer in enumerate(self._decoder_layers()):
            x, slots, attention = layer(x, own_mask, memory_mask, rotation, state, index, is_causal)
            past.append(slots)
            watched = attention if index == state.watched else watched
        return self.decoder_norm(x), state.advanced(tgt_in.shape[1], tuple(past), mask, watched)

    def pack(self, dtype: torch.dtype) -> "Transformer":
        """Speed up search on the CPU, with products in dtype; the weights must not change afterwards."""
        if can_pack(dtype):
            self.requires_grad_(False)
            for layer in self._decoder_layers():
                layer.pack(dtype)
            self.packed_output = PackedLinear(self.embedding.weight, None, dtype)
        return self

    @torch.no_grad()
    def traced(self, src: Int[Tensor, "b s"], tgt_in: Int[Tensor, "b t"]) -> Trace:
        """Return the weights of every attention in `forward`; in training mode, those before dropout."""
        with watch(self.modules()) as mixed:
            self(src, tgt_in)
        return Trace(
            encoder=[mixed[layer.self_attention].weights() for layer in self._encoder_layers()],
            decoder=[mixed[layer.self_attention].weights() for layer in self._decoder_layers()],
            cross=[mixed[layer.cross_attention].weights() for layer in self._decoder_layers()],
        )

    def embedded(
        self, ids: Int[Tensor, "n t"], start: int = 0
    ) -> tuple[Float[Tensor, "n t d"], Float[Tensor, "t d"] | None]:
        """Return scaled embeddings, and the vectors to add for positions from start on; None: add nothing."""
        x = self.embedding(ids) * math.sqrt(self.config.d_model)
        if self.config.positions != "sinusoidal":
            return x, None
        return x, sinusoidal(start, ids.shape[1], self.config.d_model, ids.device).to(x.dtype)

    def _encoder_layers(self) -> list[EncoderLayer]:
        return [layer for layer in self.encoder_layers if isinstance(layer, EncoderLayer)]

    def _decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder_layers if isinstance(layer, DecoderLayer)]

    def _mask(self, tgt_in: Int[Tensor, "n t"], state: DecoderState) -> Bool[Tensor, "#b 1 wt slots_and_wt"] | None:
        """Return which target positions may attend to which; without the causal mask, all of a target to all of it."""
        if self.config.decoder_mask == "causal" or state.length:
            return state.mask(tgt_in.shape[1])
        return whole_target_mask(state.places.spread(tgt_in != PAD), state.places.width)

    def _embed(
        self, ids: Int[Tensor, "n t"], start: int
    ) -> tuple[Float[Tensor, "n t d"], Float[Tensor, "2 t 1 c"] | None]:
        """Return scaled embeddings with positions added, or with the rotation for attention to apply, or neither."""
        embeddings, positions = self.embedded(ids, start)
        if positions is not None:
            return self.dropout(embeddings + positions), None
        if self.config.positions == "none":
            return self.dropout(embeddings), None
        channels = self.config.d_model // self.config.num_heads
        return self.dropout(embeddings), rotations(start, ids.shape[1], channels, ids.device)
