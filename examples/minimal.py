"""The Transformer, its training and its search in one file, to be read from top to bottom.

    python examples/minimal.py                                          # train on the bundled corpus, then translate
    python examples/minimal.py --model data/model "The ball is blue."   # translate with a trained model

The package `seq2seq` computes the same, with the same names of parameters (tests/unit/test_minimal.py compares both).
Comments give shapes: b sentences, s source positions, t target positions, d channels (d_model), h heads, c = d / h
channels of a head, v subwords of the vocabulary. Masks are True where a query may attend.
"""

import argparse
import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

PAD, UNK, BOS, EOS = 0, 1, 2, 3  # padding, an unknown subword, the begin and the end of a sentence
CORPUS = Path(__file__).parents[1] / "data" / "bundled"
Pair = tuple[Tensor, ...]  # the ids of a source (s) and of its target (t), each with EOS
Batch = list[Tensor]  # sources (b, s) and their targets (b, t), padded


# --- Data: pairs to batches -------------------------------------------------------------------------------------------
def make_batches(pairs: Sequence[Pair], max_tokens: int, rng: np.random.Generator) -> list[Batch]:
    """Cut pairs of similar lengths into batches of at most max_tokens positions a side, padding included."""
    shuffled = [pairs[i] for i in rng.permutation(len(pairs))]
    batches, width = list[list[Pair]]([[]]), 0
    for pair in sorted(shuffled, key=lambda pair: (len(pair[1]), len(pair[0]))):
        width = max(width, *map(len, pair))
        if width * (len(batches[-1]) + 1) > max_tokens:
            batches.append([])
            width = max(map(len, pair))
        batches[-1].append(pair)
    order = rng.permutation(len(batches))
    return [[pad_sequence(list(side), True, PAD) for side in zip(*batches[i], strict=True)] for i in order]


# --- The Transformer (Vaswani et al. 2017), with pre-norm, rotary positions and SwiGLU: ids to logits -----------------
class Config(NamedTuple):
    """Sizes of the network."""

    vocab_size: int = 2000
    d_model: int = 128
    num_heads: int = 4
    d_ff: int = 512
    num_encoder_layers: int = 3
    num_decoder_layers: int = 3
    dropout: float = 0.1


def rotate(x: Tensor) -> Tensor:
    """Rotate pairs of channels of x (b, h, t, c) by angles proportional to the position (Su et al. 2021, eq. 34).

    The product of a rotated query and a rotated key depends on their distance, so attention knows the order.
    """
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2])[:, None] * 10_000.0 ** -(torch.arange(half) / half)  # (t, c/2), in radians
    left, right = x.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Return softmax(Q Kᵀ / √c) V: for each query, the mean of the values, weighted by relevance (eq. 1)."""
    relevance = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])  # (b, h, t, s)
    return relevance.masked_fill(~mask, -math.inf).softmax(-1) @ values  # (b, h, t, c)


class MultiHeadAttention(nn.Module):
    """Attends in h subspaces (§3.2.2)."""

    def __init__(self, config: Config, *, is_rotary: bool) -> None:
        super().__init__()
        self.num_heads, self.is_rotary, d = config.num_heads, is_rotary, config.d_model
        self.q_proj, self.k_proj = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.v_proj, self.out_proj = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Return, for each position of x (b, t, d), what it finds relevant in the memory (b, s, d)."""
        projected = self.q_proj(x), self.k_proj(memory), self.v_proj(memory)
        queries, keys, values = (y.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for y in projected)
        if self.is_rotary:
            queries, keys = rotate(queries), rotate(keys)
        return self.out_proj(attend(queries, keys, values, mask).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU: (swish(x W) ⊙ x V) W₂ (Shazeer 2020, eq. 6)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = round(config.d_ff * 2 / 3 / 8) * 8  # three matrices of this width cost as much as two of width d_ff
        self.gate, self.up = (nn.Linear(config.d_model, width, bias=False) for _ in range(2))
        self.down = nn.Linear(width, config.d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Transform every position by itself."""
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Residual(nn.Module):
    """A residual connection around a sublayer, with the norm before the sublayer (Xiong et al. 2020)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(config.d_model), nn.Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Add to x what the sublayer makes of it."""
        return x + self.dropout(sublayer(self.norm(x)))


class EncoderLayer(nn.Module):
    """Self-attention over the whole source, then feed-forward (§3.1)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self_attention, self.self_residual = MultiHeadAttention(config, is_rotary=True), Residual(config)
        self.feed_forward, self.feed_forward_residual = FeedForward(config), Residual(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the source positions (b, s, d) after this layer."""
        x = self.self_residual(x, lambda y: self.self_attention(y, y, mask))
        return self.feed_forward_residual(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention over the target so far, cross-attention to the source, then feed-forward (§3.1)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self_attention, self.self_residual = MultiHeadAttention(config, is_rotary=True), Residual(config)
        self.cross_attention, self.cross_residual = MultiHeadAttention(config, is_rotary=False), Residual(config)
        self.feed_forward, self.feed_forward_residual = FeedForward(config), Residual(config)

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """Return the target positions (b, t, d) after this layer; memory is the encoded source."""
        x = self.self_residual(x, lambda y: self.self_attention(y, y, mask))
        x = self.cross_residual(x, lambda y: self.cross_attention(y, memory, memory_mask))
        return self.feed_forward_residual(x, self.feed_forward)


class Transformer(nn.Module):
    """Encoder and decoder around one matrix of embeddings, which is also the output projection (§3.4)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(config.d_model), nn.LayerNorm(config.d_model)
        for matrix in (parameter for parameter in self.parameters() if parameter.ndim == 2):
            nn.init.normal_(matrix, std=0.02)

    def embed(self, ids: Tensor) -> Tensor:
        """Return the vectors of ids, times √d (§3.4)."""
        return self.dropout(self.embedding(ids) * math.sqrt(self.embedding.embedding_dim))

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """Read the source (b, s); return the memory (b, s, d) and its mask (b, 1, 1, s), which leaves out padding."""
        x, mask = self.embed(src), (src != PAD)[:, None, None, :]
        for layer in self.encoder_layers:
            x = layer(x, mask)
        return self.encoder_norm(x), mask

    def decode(self, tgt_in: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """Return the logits (b, t, v) of the token after each token of tgt_in (b, t)."""
        x, t = self.embed(tgt_in), tgt_in.shape[1]
        causal_mask = torch.ones(t, t, dtype=torch.bool).tril()  # no position sees later ones (§3.2.3)
        for layer in self.decoder_layers:
            x = layer(x, causal_mask, memory, memory_mask)
        return self.decoder_norm(x) @ self.embedding.weight.T

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Return the logits (b, t, v) of a whole batch at once, as in training."""
        return self.decode(tgt_in, *self.encode(src))


# --- Training: batches to weights ------------------------------------------------------------------------------------
def smoothed_loss(logits: Tensor, tgt_out: Tensor, smoothing: float = 0.1) -> Tensor:
    """Return the cross-entropy (nats per token) with a share `smoothing` of each target spread over the vocabulary."""
    is_token = tgt_out != PAD
    log_probs = logits[is_token].log_softmax(-1)  # (target tokens, v)
    right = log_probs.gather(1, tgt_out[is_token][:, None])
    return -(1 - smoothing) * right.mean() - smoothing * log_probs.mean()


def train(model: Transformer, batches: Iterable[Batch], updates: int, warmup: float, peak_rate: float) -> None:
    """Update the weights by AdamW; the learning rate rises to its peak during the warm-up, then falls to zero."""
    optimizer = torch.optim.AdamW(model.train().parameters(), betas=(0.9, 0.98), eps=1e-9, weight_decay=0)
    for step, (src, tgt_out) in enumerate(islice(batches, updates)):
        tgt_in = nn.functional.pad(tgt_out[:, :-1], (1, 0), value=BOS)  # (b, t): the token before each token
        for group in optimizer.param_groups:
            group["lr"] = peak_rate * min((step + 1) / warmup, (updates - step) / (updates - warmup))
        loss = smoothed_loss(model(src, tgt_in), tgt_out)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        if (step + 1) % 100 == 0:
            print(f"update {step + 1:,} of {updates:,}: loss {loss.item():.2f}", flush=True)


# --- Search: a source to its best target ------------------------------------------------------------------------------
class Hypothesis(NamedTuple):
    """A target so far, or a finished one, which ends with EOS."""

    score: float  # sum of log-probabilities (nats)
    ids: list[int]

    def value(self, alpha: float) -> float:
        """Return score / length^α, by which hypotheses of different lengths are compared."""
        return self.score / len(self.ids) ** alpha


@torch.no_grad()
def beam_search(
    model: Transformer, src: list[int], max_length: int, beam: int = 5, alpha: float = 1.0, early_stopping: bool = False
) -> list[int]:
    """Return the ids of the best target, at most max_length of them, without EOS; beam is at least 2.

    A live hypothesis is dropped when it cannot win: scores only fall, so its value stays below score / (longest
    length)^α. Early stopping ends the search, not exactly, when the best live one is worse than `beam` ended ones now.
    """
    memory, memory_mask = model.eval().encode(torch.tensor([src]))  # (1, s, d): all hypotheses share it
    live, ended = [Hypothesis(0.0, [])], list[Hypothesis]()
    while live:
        logits = model.decode(torch.tensor([[BOS, *one.ids] for one in live]), memory, memory_mask)[:, -1]
        log_probs = logits.log_softmax(-1)  # (live hypotheses, v)
        log_probs[:, [PAD, UNK, BOS]] = -math.inf
        if len(live[0].ids) == max_length:
            log_probs[:, EOS + 1 :] = -math.inf  # only EOS is left
        scores = torch.tensor([[one.score] for one in live], dtype=torch.double) + log_probs
        best, cells = scores.flatten().topk(2 * beam)  # at most `beam` of these end, so `beam` others go on
        candidates = [
            Hypothesis(score, [*live[cell // scores.shape[1]].ids, cell % scores.shape[1]])
            for score, cell in zip(best.tolist(), cells.tolist(), strict=True)
        ]
        ended += [one for one in candidates[:beam] if one.ids[-1] == EOS]
        ended = sorted(ended, key=lambda one: one.value(alpha), reverse=True)[:beam]
        live = [one for one in candidates if one.ids[-1] != EOS][:beam]
        if ended:
            live = [one for one in live if one.score > ended[0].value(alpha) * (max_length + 1) ** alpha]
        if early_stopping and len(ended) == beam and live and live[0].value(alpha) <= ended[-1].value(alpha):
            break
    return ended[0].ids[:-1]


def load(folder: Path) -> tuple[Transformer, SentencePieceProcessor]:
    """Read a model that the package has trained with `model/style=modern`."""
    values = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    sizes = {"vocab_size": values["vocab_size"], **values["model"]}
    model = Transformer(Config(*(sizes[name] for name in Config._fields)))
    model.load_state_dict({name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()})
    return model, SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))


def train_on_corpus(updates: int) -> tuple[Transformer, SentencePieceProcessor]:
    """Train a vocabulary of subwords for both languages (Kudo 2018), and a model, on the bundled corpus."""
    texts = ((CORPUS / f"{name}.train.tsv").read_text(encoding="utf-8") for name in ("grammar", "everyday"))
    src, tgt = zip(*(line.split("\t") for text in texts for line in text.splitlines()), strict=True)
    config, subwords, rng = Config(), io.BytesIO(), np.random.default_rng(1)
    SentencePieceTrainer.train(
        sentence_iterator=iter(src + tgt), model_writer=subwords, vocab_size=config.vocab_size, minloglevel=2,
        pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS,
    )  # fmt: skip
    tokenizer, model = SentencePieceProcessor(model_proto=subwords.getvalue()), Transformer(config)
    encoded = (map(torch.tensor, tokenizer.encode(list(side), add_eos=True)) for side in (src, tgt))
    pairs = list(zip(*encoded, strict=True))
    batches = chain.from_iterable(make_batches(pairs, max_tokens=1024, rng=rng) for _ in count())
    train(model, batches, updates, warmup=updates / 10, peak_rate=2e-3)
    return model, tokenizer


def main() -> None:
    """Train a model, or load one; translate."""
    parser = argparse.ArgumentParser(description="Train a Transformer, or load one, and translate.")
    parser.add_argument("sentences", nargs="*", default=["The ball is blue.", "The black cat drank the milk."])
    parser.add_argument("--model", type=Path, help="folder of a trained model; without it, one is trained")
    parser.add_argument("--updates", type=int, default=1000, help="updates of training (default: 1000)")
    arguments = parser.parse_args()
    model, tokenizer = load(arguments.model) if arguments.model else train_on_corpus(arguments.updates)
    for sentence in arguments.sentences:
        src = tokenizer.encode(sentence, add_eos=True)
        print(tokenizer.decode(beam_search(model, src, max_length=2 * len(src) + 20)))


if __name__ == "__main__":
    main()
