"""What the viewer reads of a small untrained model, and beams of a search that fit on a screen."""

from functools import cache
from pathlib import Path
from typing import Any

import torch

from seq2seq.apps.explain.page import assemble
from seq2seq.model.build import build_model
from seq2seq.settings.model import ModelConfig
from seq2seq.translate.bundle import load_bundle
from seq2seq.translate.translator import Translator

BUNDLE = Path(__file__).parents[2] / "data" / "model"  # its vocabulary has whole words
SOURCE, TARGET = "The black cat drank milk.", "El gato negro bebió leche."
Plain = dict[str, Any]


@cache
def _translator() -> Translator:
    """An untrained model of two layers of three heads, with wide scores, so that weights differ."""
    tokenizer = load_bundle(BUNDLE).tokenizer
    config = ModelConfig(d_model=12, num_heads=3, d_ff=16, num_encoder_layers=2, num_decoder_layers=2)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = build_model(config, tokenizer.target.vocab_size).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.8)
    return Translator(model, tokenizer)


def _data(head: int) -> Plain:
    return assemble(_translator(), SOURCE, TARGET, head=(0, head), with_beams=False).data


def explanation(source: str = SOURCE, target: str = TARGET) -> Plain:
    """The explanation of a sentence, under other texts if they are given; each piece has the log-probability -0.5."""
    plain = _data(1)["explanation"]
    log_probs = [-0.5] * len(plain["log_probs"])
    return plain | {"source": source, "target": target, "translated": True, "log_probs": log_probs}


def walk(part: str = "decoder", *, head: int = 1) -> Plain:
    """The steps of a head of a part's first layer."""
    return next(walk for walk in _data(head)["walks"] if walk["part"] == part)


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
