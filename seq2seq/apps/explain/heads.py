"""Find the attention heads of a Transformer."""

from seq2seq.apps.explain.sentence import require_engine
from seq2seq.errors import UserError
from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.transformer import Transformer
from seq2seq.translate.engine import Engine
from seq2seq.translate.translator import Translator

PARTS = ("encoder", "decoder", "cross")  # self-attention of the encoder and of the decoder, and cross-attention


def require_transformer(translator: Translator) -> tuple[Engine, Transformer]:
    """Return the engine and its only model, which has heads."""
    engine, model = require_engine(translator)
    if not isinstance(model, Transformer):
        raise UserError(f"only a Transformer has heads: this is model.architecture={model.config.architecture}")
    return engine, model


def find_heads(
    model: Transformer, part: str, layer: int | None, head: int | None, *, name: str, first: int = 0
) -> list[tuple[MultiHeadAttention, list[int]]]:
    """Return the attention modules of a part's layers, each with the numbers (from 0) of its selected heads.

    Args:
        model: the model.
        part: "encoder", "decoder" or "cross".
        layer: number of the only layer; None: all layers.
        head: number of the only head in each layer; None: all heads.
        name: what the user named, for errors.
        first: number of the first layer and of the first head.
    """
    if part not in PARTS:
        raise UserError(f"part={part!r} is not known: choose from {', '.join(PARTS)}")
    layers = model.encoder_layers if part == "encoder" else model.decoder_layers
    attentions = [getattr(block, "cross_attention" if part == "cross" else "self_attention") for block in layers]
    if layer is not None:
        if not first <= layer < first + len(attentions):
            raise UserError(f"{name}: this model has layers {first} to {first + len(attentions) - 1} there")
        attentions = [attentions[layer - first]]
    num_heads = model.config.num_heads
    if head is not None and not first <= head < first + num_heads:
        raise UserError(f"{name}: this model has heads {first} to {first + num_heads - 1}")
    return [(attention, list(range(num_heads)) if head is None else [head - first]) for attention in attentions]
