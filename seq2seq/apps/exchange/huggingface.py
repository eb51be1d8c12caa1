"""Export a bundle as a Hugging Face `MarianMTModel` with the same scores; convert networks and their settings."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from seq2seq.apps.exchange import huggingface_files as layout
from seq2seq.apps.exchange.export import require_agreement, require_exportable, write_card
from seq2seq.errors import UserError, shorten
from seq2seq.model.decoders import Example
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.transformer import Transformer
from seq2seq.settings.bundle import config_from_plain
from seq2seq.settings.missing_packages import require_package
from seq2seq.settings.model import ModelConfig
from seq2seq.text.tokenizer import BOS, EOS, PAD
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.bundle import Bundle, example, load_bundle, replaced_folder, require_new

with require_package("huggingface"):
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

PUBLISHED = {  # values of the published style, and others that Marian supports
    "norm": ("layernorm",),
    "norm_position": ("post",),
    "activation": ("relu", "gelu", "swish"),
    "positions": ("sinusoidal",),
}
FIELDS = {  # our settings of the network, and the settings of MarianConfig that have the same value
    "d_model": ("d_model",),
    "num_heads": ("encoder_attention_heads", "decoder_attention_heads"),
    "d_ff": ("encoder_ffn_dim", "decoder_ffn_dim"),
    "num_encoder_layers": ("encoder_layers",),
    "num_decoder_layers": ("decoder_layers",),
    "dropout": ("dropout",),
    "attention_dropout": ("attention_dropout",),
    "ffn_dropout": ("activation_dropout",),
    "activation": ("activation_function",),
    "scale_embedding": ("scale_embedding",),
}
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}  # transformers' names: ours
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
    """Export a bundle to transformers, into a new or empty folder; an error leaves no partial export."""
    require_new(folder)
    loaded = load_bundle(bundle)
    model = to_marian(loaded.model, tokenizer=loaded.tokenizer)
    require_agreement("Hugging Face's Marian", loaded, partial(_scores, model, loaded.tokenizer))
    model.generation_config = _generation(loaded)
    with replaced_folder(folder) as draft:
        model.save_pretrained(draft)
        layout.write_tokenizers(draft, loaded.tokenizer, loaded.config.src_lang, loaded.config.tgt_lang)
        write_card(bundle, draft, "transformers", USAGE.replace("EXAMPLE", example(loaded.config.src_lang)))


@torch.no_grad()
def _scores(marian: MarianMTModel, sides: Tokenizers, batch: Example) -> Tensor:
    source, target = (torch.tensor(side.original_ids) for side in (sides.source, sides.target))
    src, tgt_in, tgt_out = source[batch.src], target[batch.tgt_in], target[batch.tgt_out]
    logits = marian(input_ids=src, attention_mask=batch.src != PAD, decoder_input_ids=tgt_in).logits
    return logits.log_softmax(-1).gather(-1, tgt_out[:, :, None])[:, :, 0]


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
        max_length=layout.MAX_POSITIONS,
        pad_token_id=ids[PAD],
        bos_token_id=ids[bundle.tokenizer.start],
        eos_token_id=ids[EOS],
        decoder_start_token_id=ids[bundle.tokenizer.start],
        forced_eos_token_id=ids[EOS],
    )


@torch.no_grad()
def to_marian(network: EncoderDecoder, attention: str = "sdpa", tokenizer: Tokenizers | None = None) -> MarianMTModel:
    """Return a MarianMTModel that computes the same logits, on the same device and in evaluation mode.

    With an imported tokenizer, the MarianMTModel uses the ids that the tokenizer was imported with.
    """
    model = require_exportable(network)
    marian = MarianMTModel(marian_config(model.config, model.vocab_size, attention, tokenizer, model.source_vocab_size))
    state = marian.state_dict()
    for name, weight in state.items():
        if name.endswith(".bias"):
            weight.zero_()  # our network may have no biases, Marian always has them
    for name, weight in layout.to_marian_weights(model, tokenizer):
        state[name].copy_(weight)
    marian.to(model.embedding.weight.device)  # type: ignore[arg-type]  (transformers' decorator hides self)
    return marian.eval()


def from_marian(marian: MarianMTModel, config: ModelConfig) -> Transformer:
    """Return our model with the weights of a MarianMTModel that `marian_config(config)` describes.

    The model is on the CPU and in evaluation mode.
    """
    state = marian.state_dict()
    model = Transformer(replace(config, output_bias=bool(state[layout.BIAS].any())), marian.config.vocab_size)
    model.load_state_dict(layout.from_marian_weights(state, model))
    return model.eval()


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
        max_position_embeddings=layout.MAX_POSITIONS,
        pad_token_id=ids[PAD],
        bos_token_id=ids[start],
        eos_token_id=ids[EOS],
        decoder_start_token_id=ids[start],
        forced_eos_token_id=None,
        attn_implementation=attention,  # type: ignore[call-arg]  (taken by the base class)
        **{theirs: getattr(config, ours) for ours, names in FIELDS.items() for theirs in names},
    )


def model_config(path: Path, marian: MarianConfig) -> ModelConfig:
    """Return the network's settings; errors use the path of config.json."""
    settings = {}
    for name, (key, *others) in FIELDS.items():
        settings[name] = getattr(marian, key)
        for other in others:
            if getattr(marian, other) != settings[name]:
                message = f"{key}={settings[name]} and {other}={getattr(marian, other)}"
                raise UserError(f"{path} has {message}: both sides have one model.{name} here")
    if settings["activation"] not in _ACTIVATIONS:
        function = shorten(settings["activation"])
        raise UserError(f"{path} has activation_function={function}: known are {', '.join(_ACTIVATIONS)}")
    settings["activation"] = _ACTIVATIONS[settings["activation"]]
    try:
        return config_from_plain(ModelConfig, settings)
    except UserError as error:
        raise UserError(f"{path} describes no network that is known here: {shorten(error)}") from error
