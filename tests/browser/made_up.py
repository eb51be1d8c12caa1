"""An explanation, walks and beams without a model: small, of the shape that the viewer reads, consistent in itself."""

import math
from typing import Any

import torch
from torch import Tensor

LAYERS, HEADS, WIDTH = 2, 3, 12
SOURCE = ["▁The", "▁black", "▁cat", "▁d", "rank", "▁milk", ".", "</s>"]
TARGET = ["▁El", "▁gato", "▁negro", "▁be", "bió", "▁leche", ".", "</s>"]
WORDS = {  # text and pieces
    "source": {"The": [0], "black": [1], "cat": [2], "drank": [3, 4], "milk.": [5, 6], "</s>": [7]},
    "target": {"El": [0], "gato": [1], "negro": [2], "bebió": [3, 4], "leche.": [5, 6], "</s>": [7]},
}
Plain = dict[str, Any]


def explanation(source: str = "The black cat drank milk.", target: str = "El gato negro bebió leche.") -> Plain:
    """Two layers of three heads, their weights drawn at random, the decoder's masked."""
    generator = torch.Generator().manual_seed(3)
    s, t = len(SOURCE), len(TARGET)
    sizes = {"encoder": (s, s), "decoder": (t, t), "cross": (t, s)}
    attention = {}
    for part, size in sizes.items():
        scores = 2 * torch.randn(LAYERS, HEADS, *size, generator=generator)
        if part == "decoder":
            scores.masked_fill_(torch.ones(size, dtype=torch.bool).triu(1), -math.inf)
        attention[part] = scores.softmax(-1)
    src = list(WORDS["source"].values())
    tgt_out = list(WORDS["target"].values())
    tgt_in = [[0], *([i + 1 for i in pieces] for pieces in tgt_out[:-1])]
    sides = {"encoder": (src, src), "decoder": (tgt_in, tgt_in), "cross": (tgt_out, src)}
    return {
        "version": 1,
        "source": source,
        "target": target,
        "translated": True,
        "architecture": "transformer",
        "pieces": {"source": SOURCE, "target_in": ["<s>", *TARGET[:-1]], "target_out": TARGET},
        "words": {
            side: [{"text": text, "pieces": pieces} for text, pieces in words.items()] for side, words in WORDS.items()
        },
        "attention": {part: _rounded(weights) for part, weights in attention.items()},
        "by_word": {part: _rounded(_by_word(attention[part], *groups)) for part, groups in sides.items()},
        "heads": {part: [[_statistics(head) for head in layer] for layer in attention[part]] for part in attention},
        "alignment": [[0, 0], [2, 1], [1, 2], [3, 3], [4, 4]],
        "log_probs": [-0.5] * t,
    }


def walk(part: str = "decoder", *, layer: int = 0, head: int = 1) -> Plain:
    """One attention, computed here from random vectors."""
    generator = torch.Generator().manual_seed(4)
    rows = SOURCE if part == "encoder" else ["<s>", *TARGET[:-1]]
    columns = rows if part != "cross" else SOURCE
    channels = WIDTH // HEADS
    embedding, position = torch.randn(2, len(rows), WIDTH, generator=generator)
    x = embedding + position
    memory = x if part != "cross" else torch.randn(len(columns), WIDTH, generator=generator)
    q_proj, k_proj, v_proj = torch.randn(3, WIDTH, channels, generator=generator)
    queries, keys, values = x @ q_proj, memory @ k_proj, memory @ v_proj
    scores = queries @ keys.T
    mask = torch.ones(len(rows), len(columns), dtype=torch.bool)
    mask = mask.tril() if part == "decoder" else mask
    scaled = (scores / math.sqrt(channels)).masked_fill(~mask, -math.inf)
    weights = scaled.softmax(-1)
    mixture = weights @ values
    joined = torch.randn(len(rows), WIDTH, generator=generator)
    joined[:, head * channels : (head + 1) * channels] = mixture
    numbers = {"queries": queries, "keys": keys, "values": values, "scores": scores, "weights": weights}
    wide = {"embedding": embedding, "position": position, "input": x, "joined": joined, "output": joined.flip(1)}
    return {
        **{"part": part, "layer": layer, "head": head, "rows": rows, "columns": columns},
        **{"d_model": WIDTH, "channels": channels, "mask": mask.tolist(), "mixture": _rounded(mixture)},
        **{name: _rounded(number) for name, number in numbers.items()},
        **{name: _rounded(number[:, :8]) for name, number in wide.items()},
        "scaled": [[None if score == -math.inf else score for score in row] for row in _rounded(scaled)],
    }


def beams() -> Plain:
    """Three steps of a beam of two: one hypothesis ends in the second and one in the third."""
    rows = [
        [
            (1, None, "▁El", "El", -0.2, "kept"),
            (2, None, "▁La", "La", -1.9, "kept"),
            (3, None, "▁A", "A", -3, "dropped"),
        ],
        [(4, 1, "▁gato", "El gato", -0.4, "kept"), (5, 1, "</s>", "El", -2.5, "finished")],
        [(6, 4, "</s>", "El gato", -0.5, "finished"), (7, 4, "▁negro", "El gato negro", -2.9, "dropped")],
    ]
    names = ("id", "parent", "piece", "text", "score", "fate")
    steps = [[{**dict(zip(names, values, strict=True)), "log_prob": -0.2} for values in row] for row in rows]
    return {
        "source": "The cat",
        "beam": 2,
        "length_penalty": 1.0,
        "steps": [{"candidates": step} for step in steps],
        "result": [
            {"id": 6, "text": "El gato", "normalised_score": -0.1667},
            {"id": 5, "text": "El", "normalised_score": -1.25},
        ],
    }


def _rounded(numbers: Tensor) -> Any:
    return (numbers.double() * 1e4).round().div(1e4).tolist()


def _by_word(weights: Tensor, queries: list[list[int]], keys: list[list[int]]) -> Tensor:
    rows = torch.stack([weights[:, :, pieces].mean(2) for pieces in queries], 2)
    return torch.stack([rows[..., pieces].sum(-1) for pieces in keys], 3)


def _statistics(head: Tensor) -> dict[str, float]:
    rows, columns = torch.meshgrid(torch.arange(head.shape[0]), torch.arange(head.shape[1]), indexing="ij")
    return {
        "entropy": round(float(torch.special.entr(head).sum(1).mean()), 4),
        "distance": round(float((head * (rows - columns).abs()).sum(1).mean()), 4),
        "diagonal": round(float(head.diagonal().mean()), 4),
    }
