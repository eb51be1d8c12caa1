"""The recurrent encoder-decoder that the Transformer replaced: token ids to logits."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.model.encoder_decoder import PAD, EncoderDecoder, Side, sentences_of
from seq2seq.model.layers import Dropout
from seq2seq.model.variants.trace import Trace
from seq2seq.settings.model import ModelConfig

INIT_STD = 0.02  # of the embeddings, as in the Transformer
LSTMState = tuple[Tensor, Tensor]  # hidden, cell; each (n, d)


@dataclass(frozen=True)
class Annotations:
    """The source states of the b encoded sentences, to which the decoder attends, and their keys."""

    keys: Float[Tensor, "b s a"]
    values: Float[Tensor, "b s m"]

    def select(self, sentences: Int[Tensor, " i"]) -> "Annotations":
        """Return the annotations of some sentences."""
        return Annotations(self.keys.index_select(0, sentences), self.values.index_select(0, sentences))


@dataclass(frozen=True)
class RecurrentState:
    """The b encoded sentences, and the LSTM states of w rows for each; calls return a new state.

    With w = 3, rows 0 to 2 continue sentence 0, and rows 3 to 5 sentence 1. They share its annotations.

    Attributes:
        memory: annotations of the encoded sentences; None: the network has no attention.
        memory_mask: True where the source has a real token.
        past: each row's hidden and cell state, (n, layers, 2, d).
        attention: weights of the last call's target positions over source positions; None: no attention, or no call.
    """

    memory: Annotations | None
    memory_mask: Bool[Tensor, "b 1 s"]
    past: Float[Tensor, "n l 2 d"]
    attention: Float[Tensor, "n t s"] | None = None

    def reorder(self, rows: Int[Tensor, "b w"]) -> "RecurrentState":
        """Return the state of the given rows: a line for each sentence that goes on, in order, with its w rows."""
        past = self.past.index_select(0, rows.flatten())
        if len(rows) == len(self.memory_mask):
            return replace(self, past=past, attention=None)
        sentences = sentences_of(rows, self.past, self.memory_mask)
        memory = None if self.memory is None else self.memory.select(sentences)
        return RecurrentState(memory, self.memory_mask.index_select(0, sentences), past)


class AdditiveAttention(nn.Module):
    """Score keys by a small network, e = vᵀ tanh(W s + U h), then softmax (Bahdanau et al. 2015, eq. 6 and A.1.2).

    The query s is a decoder state, the keys are the source states h, projected by U once per sentence; the values are
    the source states themselves.
    """

    def __init__(self, d_query: int, d_memory: int, d_attention: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(d_query, d_attention)
        self.k_proj = nn.Linear(d_memory, d_attention, bias=False)
        self.score_proj = nn.Linear(d_attention, 1, bias=False)

    def keys(self, memory: Float[Tensor, "b s m"]) -> Float[Tensor, "b s a"]:
        """Return the key of each source position."""
        return self.k_proj(memory)

    def forward(
        self, queries: Float[Tensor, "b w q"], keys: Float[Tensor, "b s a"], mask: Bool[Tensor, "b 1 s"]
    ) -> Float[Tensor, "b w s"]:
        """Return each source position's weight for each query; rows sum to 1, or are 0 if every position is masked.

        mask: True = may attend.
        """
        relevance = self.score_proj(torch.tanh(self.q_proj(queries)[:, :, None] + keys[:, None])).squeeze(-1)
        lowest = torch.finfo(relevance.dtype).min
        return relevance.masked_fill(~mask, lowest).softmax(-1) * mask.any(-1, keepdim=True)


class BidirectionalLSTM(nn.Module):
    """Two LSTMs that read a sentence forwards and backwards; the output is their states side by side.

    The second LSTM reads each sentence reversed within its own length, so neither LSTM reads padding before a token,
    and lengths stay on the device.
    """

    def __init__(self, d_input: int, d_model: int) -> None:
        super().__init__()
        self.forwards = nn.LSTM(d_input, d_model, batch_first=True)
        self.backwards = nn.LSTM(d_input, d_model, batch_first=True)

    def forward(self, x: Float[Tensor, "b s i"], turned: Int[Tensor, "b s"]) -> Float[Tensor, "b s m"]:
        """Read in both directions; turned comes from `turning`."""
        backwards, _ = run_lstm(self.backwards, at(x, turned))
        return torch.cat((run_lstm(self.forwards, x)[0], at(backwards, turned)), -1)


def run_lstm(
    lstm: nn.LSTM, x: Float[Tensor, "n t i"], past: LSTMState | None = None
) -> tuple[Float[Tensor, "n t d"], LSTMState]:
    """Run over all positions in one call, on the CPU in float32, because oneDNN cannot train an LSTM in bf16.

    past: the first hidden and cell state; None: zeros.
    """
    with torch.autocast("cpu", enabled=False):
        x, (hidden, cell) = lstm(x.float(), None if past is None else (past[0][None].float(), past[1][None].float()))
    return x, (hidden[0], cell[0])


def turning(mask: Bool[Tensor, "b s"]) -> Int[Tensor, "b s"]:
    """Return for each position its position in the reversed sentence; padding at the end keeps its position."""
    positions, lengths = torch.arange(mask.shape[1], device=mask.device), mask.sum(1, keepdim=True)
    return torch.where(positions < lengths, lengths - 1 - positions, positions)


def at(x: Float[Tensor, "b s i"], positions: Int[Tensor, "b p"]) -> Float[Tensor, "b p i"]:
    """Return the vectors at the given positions of each row."""
    return x.gather(1, positions[:, :, None].expand(-1, -1, x.shape[-1]))


class Recurrent(EncoderDecoder):
    """Bidirectional LSTM encoder, LSTM decoder, additive attention (Bahdanau et al. 2015).

    For target position i, from the decoder's state before it, s[i-1], and the source states h:

        α[i] = softmax(vᵀ tanh(W s[i-1] + U h))                                  (eq. 6)
        c[i] = Σ α[i, j] h[j]                                                    (eq. 5)
        s[i] = LSTM(s[i-1], [y[i-1]; c[i]])
        prediction of y[i] from maxout(s[i], c[i], y[i-1])                       (eq. 4)

    Each step's attention depends on the previous step, so training, too, must go step by step. With
    `config.attention="none"` there is no c, and the decoder sees the source through s[0] only (Sutskever et al. 2014).
    docs/recurrent.md lists the differences from both papers.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, source_vocab_size: int | None = None) -> None:
        super().__init__(config, vocab_size, source_vocab_size)
        d, has_attention = config.d_model, config.attention == "additive"
        widths = [d] + [2 * d] * (config.num_encoder_layers - 1)
        self.dropout = Dropout(config.dropout)
        self.attention_dropout = Dropout(config.attention_dropout)
        self.encoder_layers = nn.ModuleList(BidirectionalLSTM(width, d) for width in widths)
        d_context = 2 * d if has_attention else 0
        widths = [d + d_context] + [d] * (config.num_decoder_layers - 1)
        self.decoder_layers = nn.ModuleList(nn.LSTM(width, d, batch_first=True) for width in widths)
        self.decoder_start = nn.Linear(2 * d, config.num_decoder_layers * 2 * d)
        self.decoder_attention = AdditiveAttention(d, 2 * d, d) if has_attention else None
        self.decoder_readout = nn.Linear(d + d_context + d, 2 * d)

    def reset_parameters(self) -> None:
        """Draw orthogonal recurrent matrices and Glorot-uniform others; biases are 0, of forget gates 1.

        Orthogonal matrices keep the norm of the state (Saxe et al. 2014), and an open forget gate lets a cell remember
        from the start (Jozefowicz et al. 2015).
        """
        for name, parameter in self.named_parameters():
            if parameter.ndim == 1:
                nn.init.zeros_(parameter)
            elif name.endswith("weight_hh_l0"):
                for gate in parameter.chunk(4):
                    nn.init.orthogonal_(gate)
            elif not any(parameter is embedding.weight for embedding in self.embeddings()):
                nn.init.xavier_uniform_(parameter)
        for embedding in self.embeddings():
            nn.init.normal_(embedding.weight, std=INIT_STD)
        with torch.no_grad():
            for embedding in self.embeddings():
                embedding.weight[PAD].zero_()
            for name, parameter in self.named_parameters():
                if name.endswith("bias_ih_l0"):  # the gates' order: input, forget, cell, output
                    parameter.chunk(4)[1].fill_(1)

    def encode(self, src: Int[Tensor, "b s"]) -> RecurrentState:
        """Encode the source in both directions; the decoder starts from the last state of each."""
        mask = src != PAD
        turned = turning(mask)
        x = self._embed(src, "source")
        for index, layer in enumerate(self.encoder_layers):
            x = layer(x if index == 0 else self.dropout(x), turned)
        forwards, backwards = x.chunk(2, -1)
        last = (mask.sum(1, keepdim=True) - 1).clamp(min=0)
        summary = torch.cat((at(forwards, last)[:, 0], backwards[:, 0]), -1)
        past = self.decoder_start(summary).unflatten(-1, (-1, 2, self.config.d_model)).tanh()
        attention = self.decoder_attention
        memory = None if attention is None else Annotations(attention.keys(x), x)
        return RecurrentState(memory, mask[:, None], past)

    def hidden_states(
        self, tgt_in: Int[Tensor, "n t"], state: RecurrentState
    ) -> tuple[Float[Tensor, "n t d"], RecurrentState]:
        """Advance the target by t tokens; return hidden states, which `logits` makes predictions of, and the state."""
        x = self._embed(tgt_in, "target")
        past: list[LSTMState] = [(layer[:, 0], layer[:, 1]) for layer in state.past.unbind(1)]
        weights = None
        if state.memory is None:
            outputs, past = self._run(x, past)
            seen = [outputs, x]
        else:
            steps: list[tuple[Tensor, Tensor, Tensor]] = []
            for token in x.unbind(1):
                step, past = self._step(token, past, state)
                steps.append(step)
            outputs, contexts, weights = (torch.stack(parts, 1) for parts in zip(*steps, strict=True))
            seen = [outputs, contexts, x]
        hidden = torch.maximum(*self.decoder_readout(torch.cat(seen, -1)).chunk(2, -1))  # Goodfellow et al. 2013
        layers = torch.stack([torch.stack(layer, 1) for layer in past], 1)
        return self.dropout(hidden), replace(state, past=layers, attention=weights)

    def _step(
        self, token: Float[Tensor, "n d"], past: list[LSTMState], state: RecurrentState
    ) -> tuple[tuple[Float[Tensor, "n d"], Float[Tensor, "n m"], Float[Tensor, "n s"]], list[LSTMState]]:
        """Attend and advance by one position; return output, context and weights, then the new states."""
        assert self.decoder_attention is not None
        assert state.memory is not None
        queries = past[-1][0].reshape(len(state.memory.keys), -1, self.config.d_model)  # (b, w, d)
        weights = self.decoder_attention(queries, state.memory.keys, state.memory_mask)  # (b, w, s)
        context = (self.attention_dropout(weights) @ state.memory.values).flatten(0, 1)
        inputs, after = torch.cat((token, context), -1), list[LSTMState]()
        for index, layer in enumerate(self._decoder()):
            inputs = inputs if index == 0 else self.dropout(inputs)
            after.append(torch.lstm_cell(inputs, past[index], *layer.all_weights[0]))
            inputs = after[-1][0]
        return (inputs, context, weights.flatten(0, 1)), after

    def _run(self, x: Float[Tensor, "n t d"], past: list[LSTMState]) -> tuple[Float[Tensor, "n t d"], list[LSTMState]]:
        """Advance by all positions at once, layer by layer; only a network without attention can do this."""
        after: list[LSTMState] = []
        for index, layer in enumerate(self._decoder()):
            x, state = run_lstm(layer, x if index == 0 else self.dropout(x), past[index])
            after.append(state)
        return x, after

    @torch.no_grad()
    def traced(self, src: Int[Tensor, "b s"], tgt_in: Int[Tensor, "b t"]) -> Trace:
        """See `EncoderDecoder`; the trace has one head of cross-attention, or none."""
        _, state = self.hidden_states(tgt_in, self.encode(src))
        return Trace([], [], [] if state.attention is None else [state.attention.float()[:, None]])

    def predict_and_align(
        self, src: Int[Tensor, "b s"], tgt_in: Int[Tensor, "b t"]
    ) -> tuple[Float[Tensor, "b t v"], Float[Tensor, "b t s"]]:
        """See `EncoderDecoder`; a network without attention is refused."""
        logits, state = self.decode(tgt_in, self.encode(src))
        if state.attention is None:
            message = "this model has no attention (model.attention=none)"
            raise UserError(f"{message}: leave out alignments, or train a model with model.attention=additive")
        return logits, state.attention.float()

    def layers(self) -> list[nn.Module]:
        """See `EncoderDecoder`; in the decoder only attention needs much memory: t · s · d numbers."""
        attention = self.decoder_attention
        return [*self.encoder_layers, *([] if attention is None else [attention])]

    def _decoder(self) -> Iterable[nn.LSTM]:
        return cast("Iterable[nn.LSTM]", self.decoder_layers)

    def _embed(self, ids: Int[Tensor, "n t"], side: Side) -> Float[Tensor, "n t d"]:
        """Return scaled embeddings, as in the Transformer: the output projection shares the targets' matrix."""
        return self.dropout(self.embedding_of(side)(ids) * math.sqrt(self.config.d_model))
