"""Export a bundle as a Hugging Face `MarianMTModel` with the same scores; convert between the two networks.

The two networks differ in their position vectors: ours alternate sine and cosine from channel to channel; Marian's hold
all sines and then all cosines. The conversion therefore reorders the residual stream's channels in every weight that
reads or writes that stream. Channels within an attention head or a feed-forward network keep their order. An imported
tokenizer's ids have another order in Hugging Face's files, so the conversion reorders the rows of the embeddings.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from seq2seq.bundle import Bundle, example, load_bundle
from seq2seq.errors import UserError
from seq2seq.exchange.export import new_folder, require_exportable, write_card
from seq2seq.exchange.huggingface_tokenizers import MAX_POSITIONS, write_tokenizers
from seq2seq.extras import needing
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig
from seq2seq.text.tokenizer import BOS, EOS, PAD
from seq2seq.text.vocabulary import Tokenizers

with needing("huggingface"):
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

PUBLISHED = {  # values of the published style, and others that Marian supports
    "norm": ("layernorm",),
    "norm_position": ("post",),
    "activation": ("relu", "gelu", "swish"),
    "positions": ("sinusoidal",),
}
USAGE = """```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
batch = tokenizer(["EXAMPLE"], return_tensors="pt", padding=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```

FOLDER is where this file lies. The lines work in transformers 4 and 5 (`pipeline("translation")` is gone from 5). Texts
are expected in Unicode NFC, with single spaces and no invisible characters.
"""


def export_huggingface(bundle: Path, folder: Path) -> None:
    """Export a bundle to transformers: model, tokenizer and search settings; an error leaves no partial export.

    Args:
        bundle: the bundle's folder.
        folder: the export's folder, new or empty.

    Raises:
        UserError: the model is not of the published style (model/style=vaswani), the only one that transformers has;
            the bundle is damaged; the folder is not empty; or the folder cannot be written.
    """
    loaded = load_bundle(bundle)
    model = to_marian(loaded.model, tokenizer=loaded.tokenizer)
    model.generation_config = _generation(loaded)
    with new_folder(folder) as draft:
        model.save_pretrained(draft)
        write_tokenizers(draft, loaded.tokenizer, loaded.config.src_lang, loaded.config.tgt_lang)
        write_card(bundle, draft, "transformers", USAGE.replace("EXAMPLE", example(loaded.config.src_lang)))


def _generation(bundle: Bundle) -> GenerationConfig:
    """Return the bundle's search settings for transformers, without the limit by the source's length.

    transformers has no such limit. Its only exact search, `early_stopping="never"`, runs up to the maximum length for
    every text, so the exported settings do not use it.
    """
    search, ids = bundle.config.search, bundle.tokenizer.target.original_ids
    return GenerationConfig(
        num_beams=search.beam,
        length_penalty=search.length_penalty,
        no_repeat_ngram_size=search.no_repeat_ngram,
        suppress_tokens=[ids[token] for token in bundle.tokenizer.unproducible],
        renormalize_logits=bundle.tokenizer.renormalises,
        max_length=MAX_POSITIONS,
        pad_token_id=ids[PAD],
        bos_token_id=ids[bundle.tokenizer.start],
        eos_token_id=ids[EOS],
        decoder_start_token_id=ids[bundle.tokenizer.start],
        forced_eos_token_id=ids[EOS],
    )


class Pairing(NamedTuple):
    """A weight's two names, its axis along the residual stream, and the side whose ids number its rows."""

    ours: str
    marian: str
    axis: int | None
    ids: Literal["source", "target"] | None = None


@torch.no_grad()
def to_marian(network: EncoderDecoder, attention: str = "sdpa", tokenizer: Tokenizers | None = None) -> MarianMTModel:
    """Return a MarianMTModel that computes the same logits, on the same device and in evaluation mode.

    With an imported tokenizer, the MarianMTModel uses the ids that the tokenizer was imported with.

    Raises:
        UserError: the model is not a Transformer, is an ablation, or is not of the published style.
    """
    model = require_exportable(network)
    marian = MarianMTModel(marian_config(model.config, model.vocab_size, attention, tokenizer, model.source_vocab_size))
    weights, state = model.state_dict(), marian.state_dict()
    channels, ids = channel_order(model.config.d_model), _id_orders(tokenizer)
    for pair in pairings(model.config, is_shared=model.source_vocab_size is None):
        if pair.ours in weights:
            rows = ids.get(pair.ids)
            ordered = reordered(weights[pair.ours].cpu(), 0, None if rows is None else rows.argsort())
            state[pair.marian].copy_(reordered(ordered, pair.axis, channels))
        else:
            assert pair.ours.endswith(".bias")
            state[pair.marian].zero_()  # our network has no biases, Marian always has them
    if model.output_bias is not None:
        bias, rows = model.output_bias.cpu(), ids.get("target")
        state["final_logits_bias"].copy_(reordered(bias, 0, None if rows is None else rows.argsort())[None])
    marian.to(model.embedding.weight.device)  # type: ignore[arg-type]  (transformers' decorator hides self)
    return marian.eval()


@torch.no_grad()
def from_marian(marian: MarianMTModel, config: ModelConfig) -> Transformer:
    """Return our model with the weights of a MarianMTModel that `marian_config(config)` describes.

    The model is on the CPU and in evaluation mode.
    """
    state = marian.state_dict()
    config = replace(config, output_bias=bool(state["final_logits_bias"].any()))
    model = Transformer(config, marian.config.vocab_size)
    model.load_state_dict(weights_of(state, config))
    return model.eval()


def weights_of(
    state: Mapping[str, Tensor], config: ModelConfig, tokenizer: Tokenizers | None = None
) -> dict[str, Tensor]:
    """Return our weights, on the CPU in float32, made from the weights of a Marian model.

    With an imported tokenizer, the rows of `state` follow the ids that it was imported with.

    Raises:
        KeyError: a weight is missing.
    """
    channels, ids = channel_order(config.d_model).argsort(), _id_orders(tokenizer)
    weights = {}
    for pair in pairings(config, is_shared=tokenizer is None or tokenizer.is_shared):
        ordered = reordered(state[pair.marian].cpu().float(), 0, ids.get(pair.ids))
        weights[pair.ours] = reordered(ordered, pair.axis, channels)
    if config.output_bias:
        weights["output_bias"] = reordered(state["final_logits_bias"].cpu().float()[0], 0, ids.get("target"))
    return weights


def _id_orders(tokenizer: Tokenizers | None) -> dict[str | None, Tensor]:
    """Return, by side, the ids of Hugging Face's files in the order of our ids."""
    if tokenizer is None:
        return {}
    return {side: torch.tensor(getattr(tokenizer, side).original_ids) for side in ("source", "target")}


def marian_config(
    config: ModelConfig,
    vocab_size: int,
    attention: str = "sdpa",
    tokenizer: Tokenizers | None = None,
    source_vocab_size: int | None = None,
) -> MarianConfig:
    """Return transformers' configuration of our network.

    attention is transformers' name for the kernel: "sdpa" (its default: PyTorch's fused kernel) or "eager" (separate
    operations). With an imported tokenizer, the ids are those that it was imported with. source_vocab_size is the size
    of a separate source vocabulary; None: both sides share one vocabulary.

    Raises:
        UserError: the network is not of the published style, the only style that Marian has.
    """
    for key, values in PUBLISHED.items():
        value = getattr(config, key)
        if value not in values:
            message = f"model.{key}={value}: a Marian model can only have {' or '.join(values)}"
            raise UserError(f"{message} (train with model/style=vaswani)")
    start = BOS if tokenizer is None else tokenizer.start
    ids = range(vocab_size) if tokenizer is None else tokenizer.target.original_ids
    return MarianConfig(
        vocab_size=vocab_size if source_vocab_size is None else source_vocab_size,
        decoder_vocab_size=vocab_size,
        share_encoder_decoder_embeddings=source_vocab_size is None,
        d_model=config.d_model,
        encoder_layers=config.num_encoder_layers,
        decoder_layers=config.num_decoder_layers,
        encoder_attention_heads=config.num_heads,
        decoder_attention_heads=config.num_heads,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.d_ff,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        activation_dropout=config.ffn_dropout,
        activation_function=config.activation,
        scale_embedding=config.scale_embedding,
        max_position_embeddings=MAX_POSITIONS,
        pad_token_id=ids[PAD],
        bos_token_id=ids[start],
        eos_token_id=ids[EOS],
        decoder_start_token_id=ids[start],
        forced_eos_token_id=None,
        attn_implementation=attention,  # type: ignore[call-arg]  (taken by the base class)
    )


def channel_order(d_model: int) -> Tensor:
    """Return, for each channel of Marian's residual stream, the number of our channel: even numbers, then odd."""
    return torch.cat((torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)))


def reordered(weights: Tensor, axis: int | None, order: Tensor | None) -> Tensor:
    """Return the weights with one axis in another order; if axis or order is None, return them unchanged."""
    return weights if axis is None or order is None else weights.index_select(axis, order)


def pairings(config: ModelConfig, *, is_shared: bool = True) -> Iterator[Pairing]:
    """Yield every trained weight once; is_shared: both sides have one embedding."""
    if is_shared:
        yield Pairing("embedding.weight", "model.shared.weight", 1, "target")
    else:
        yield Pairing("embedding.weight", "model.decoder.embed_tokens.weight", 1, "target")
        yield Pairing("encoder_embedding.weight", "model.encoder.embed_tokens.weight", 1, "source")
    for index in range(config.num_encoder_layers):
        ours, marian = f"encoder_layers.{index}.", f"model.encoder.layers.{index}."
        yield from _attention(ours + "self_", marian + "self_attn")
        yield from _feed_forward(ours + "feed_forward", marian)
    for index in range(config.num_decoder_layers):
        ours, marian = f"decoder_layers.{index}.", f"model.decoder.layers.{index}."
        yield from _attention(ours + "self_", marian + "self_attn")
        yield from _attention(ours + "cross_", marian + "encoder_attn")
        yield from _feed_forward(ours + "feed_forward", marian)


def _attention(ours: str, marian: str) -> Iterator[Pairing]:
    for projection in ("q_proj", "k_proj", "v_proj"):
        yield from _reads(f"{ours}attention.{projection}", f"{marian}.{projection}")
    yield from _writes(f"{ours}attention.out_proj", f"{marian}.out_proj")
    yield from _writes(f"{ours}residual.norm", f"{marian}_layer_norm")


def _feed_forward(ours: str, marian: str) -> Iterator[Pairing]:
    yield from _reads(f"{ours}.up", f"{marian}fc1")
    yield from _writes(f"{ours}.down", f"{marian}fc2")
    yield from _writes(f"{ours}_residual.norm", f"{marian}final_layer_norm")


def _reads(ours: str, marian: str) -> Iterator[Pairing]:
    """Yield weight and bias of a linear map whose input is the residual stream."""
    yield Pairing(f"{ours}.weight", f"{marian}.weight", 1)
    yield Pairing(f"{ours}.bias", f"{marian}.bias", None)


def _writes(ours: str, marian: str) -> Iterator[Pairing]:
    """Yield weight and bias of a linear map that adds to the residual stream, or of a norm of the stream."""
    yield Pairing(f"{ours}.weight", f"{marian}.weight", 0)
    yield Pairing(f"{ours}.bias", f"{marian}.bias", 0)
