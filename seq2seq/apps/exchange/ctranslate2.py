"""Export a bundle as a CTranslate2 model with the same scores, or as a package of Argos Translate with such a model.

CTranslate2 supports every style of this project: LayerNorm and RMSNorm, before or after the sublayer; every activation;
our sinusoidal positions; rotary positions in encoder and decoder; linear maps with and without biases.

A package, which LibreTranslate also serves, is a zip archive of one folder: metadata.json, a SentencePiece model, a
CTranslate2 model, a model card (https://github.com/argosopentech/argos-translate, version 1.11).
"""

import json
import shutil
import tempfile
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seq2seq.apps.exchange.export import require_agreement, require_exportable, write_card
from seq2seq.data.languages import language_name
from seq2seq.errors import UserError
from seq2seq.model.decoders import Example
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.layers import DecoderLayer, EncoderLayer, FeedForward, GatedFeedForward
from seq2seq.model.positions import sinusoidal
from seq2seq.settings.bundle import CARD, CONFIG, SETTINGS, read_config
from seq2seq.settings.missing_packages import require_package
from seq2seq.storage.atomic import replacing
from seq2seq.text.vocabulary import FILE, Tokenizers, tokenizer_files, write_files
from seq2seq.translate.bundle import example, load_bundle, replaced_folder, require_new
from seq2seq.translate.ctranslate2_engine import MAX_POSITIONS, settings_of

with require_package("ctranslate2"):
    import ctranslate2
    from ctranslate2.specs import Activation, TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec

QUANTIZATIONS = ("float32", "float16", "int8")
_ACTIVATIONS = {
    "relu": Activation.RELU,
    "gelu": Activation.GELU,
    "swish": Activation.SWISH,
    "swiglu": Activation.SWISH,  # the activation of the gate
}
USAGE = """```python
import ctranslate2, sentencepiece

source = sentencepiece.SentencePieceProcessor("FOLDER/SOURCE")
target = sentencepiece.SentencePieceProcessor("FOLDER/TARGET")
translator = ctranslate2.Translator("FOLDER")
result = translator.translate_batch([source.encode("EXAMPLE", out_type=str)], beam_size=5)
print(target.decode(result[0].hypotheses[0]))
```
"""
SUFFIX = ".argosmodel"
_ARGOS_USAGE = """```
python -c "import argostranslate.package; argostranslate.package.install_from_path('{file}')"
argos-translate --from {src} --to {tgt} "{text}"
```
"""
_VERSION = "1.0"  # of the package, and the oldest Argos Translate that reads it


def export_ctranslate2(bundle: Path, folder: Path, quantization: str = "float32") -> None:
    """Export a bundle to CTranslate2, into a new or empty folder; an error leaves no partial export.

    quantization is one of QUANTIZATIONS; int8 is the fastest on the CPU.
    """
    require_new(folder)
    if quantization not in QUANTIZATIONS:
        raise UserError(f"quantization={quantization} is not known: choose one of {', '.join(QUANTIZATIONS)}")
    loaded = load_bundle(bundle)
    spec = to_spec(loaded.model, loaded.tokenizer)
    spec.validate()
    require_agreement("CTranslate2", loaded, partial(_scores, spec, loaded.tokenizer))
    spec.optimize(quantization)
    names = list(loaded.tokenizer.files)[:2]
    usage = USAGE.replace("SOURCE", names[0]).replace("TARGET", names[-1])
    with replaced_folder(folder) as draft:
        spec.save(str(draft))
        shutil.copyfile(bundle / CONFIG, draft / SETTINGS)
        write_files(draft, loaded.tokenizer)
        write_card(bundle, draft, "ctranslate2", usage.replace("EXAMPLE", example(loaded.config.src_lang)))


def to_spec(network: EncoderDecoder, tokenizer: Tokenizers) -> TransformerSpec:
    """Return CTranslate2's description of the network, with its weights and its vocabularies."""
    model = require_exportable(network)
    config = model.config
    options: dict[str, Any] = {
        "num_heads": config.num_heads,
        "pre_norm": config.norm_position == "pre",
        "rms_norm": config.norm == "rmsnorm",
        "ffn_glu": config.activation == "swiglu",
        "activation": _ACTIVATIONS[config.activation],
        "rotary_dim": 0 if config.positions == "rotary" else None,  # 0: all channels
        "rotary_interleave": False,
    }
    encoder: Any = TransformerEncoderSpec(config.num_encoder_layers, **options)
    decoder: Any = TransformerDecoderSpec(config.num_decoder_layers, **options)
    embeddings = [_array(embedding.weight) for embedding in model.embeddings()]
    decoder.embeddings.weight = decoder.projection.weight = embeddings[0]
    encoder.embeddings[0].weight = embeddings[-1]
    encoder.scale_embeddings = decoder.scale_embeddings = config.scale_embedding
    if model.output_bias is not None:
        decoder.projection.bias = _array(model.output_bias)
    if config.positions == "sinusoidal":
        table = _array(sinusoidal(0, MAX_POSITIONS, config.d_model, torch.device("cpu")))
        encoder.position_encodings.encodings = decoder.position_encodings.encodings = table
    if config.norm_position == "pre":
        _norm(encoder.layer_norm, model.encoder_norm)
        _norm(decoder.layer_norm, model.decoder_norm)
    layers = [*model.encoder_layers, *model.decoder_layers]
    for layer_spec, layer in zip([*encoder.layer, *decoder.layer], layers, strict=True):
        _layer(layer_spec, layer)
    spec: Any = TransformerSpec(encoder, decoder)
    source, target = (side.tokens(range(side.vocab_size)) for side in (tokenizer.source, tokenizer.target))
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    for key, value in settings_of(tokenizer).items():
        setattr(spec.config, key, value)
    norms = (module for module in model.modules() if isinstance(module, nn.LayerNorm | nn.RMSNorm))
    spec.config.layer_norm_epsilon = next(norms).eps
    return spec


def _scores(spec: TransformerSpec, sides: Tokenizers, batch: Example) -> Tensor:
    """Return CTranslate2's scores of an example in float32: 8 or 16 bits change the scores of any model."""
    sources = [sides.source.tokens(ids) for ids in batch.sources]
    targets = [sides.target.tokens(ids) for ids in batch.tgt_in[:, 1:].tolist()]
    with tempfile.TemporaryDirectory() as draft:
        spec.save(draft)
        translator = ctranslate2.Translator(draft, "cpu", compute_type="float32", intra_threads=1)
        scored = translator.score_batch(sources, targets, max_input_length=0)
    return torch.tensor([result.log_probs for result in scored])


def _layer(spec: Any, layer: nn.Module) -> None:
    assert isinstance(layer, EncoderLayer | DecoderLayer)
    attention = layer.self_attention
    _linear(spec.self_attention.linear[0], attention.q_proj, attention.k_proj, attention.v_proj)
    _linear(spec.self_attention.linear[1], attention.out_proj)
    _norm(spec.self_attention.layer_norm, layer.self_residual.norm)
    if isinstance(layer, DecoderLayer):
        attention = layer.cross_attention
        _linear(spec.attention.linear[0], attention.q_proj)
        _linear(spec.attention.linear[1], attention.k_proj, attention.v_proj)
        _linear(spec.attention.linear[2], attention.out_proj)
        _norm(spec.attention.layer_norm, layer.cross_residual.norm)
    _feed_forward(spec.ffn, layer.feed_forward)
    _norm(spec.ffn.layer_norm, layer.feed_forward_residual.norm)


def _feed_forward(spec: Any, network: nn.Module) -> None:
    assert isinstance(network, FeedForward | GatedFeedForward)
    if isinstance(network, GatedFeedForward):
        _linear(spec.linear_0, network.gate)
        _linear(spec.linear_0_noact, network.up)
    else:
        _linear(spec.linear_0, network.up)
    _linear(spec.linear_1, network.down)


def _linear(spec: Any, *maps: nn.Linear) -> None:
    """Copy linear maps that share an input as one matrix, with their outputs concatenated."""
    spec.weight = np.concatenate([_array(linear.weight) for linear in maps])
    if maps[0].bias is not None:
        spec.bias = np.concatenate([_array(linear.bias) for linear in maps])


def _norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma = _array(norm.get_parameter("weight"))
    if isinstance(norm, nn.LayerNorm):
        spec.beta = _array(norm.get_parameter("bias"))


def _array(tensor: Tensor) -> np.ndarray:
    """Return a copy of the tensor's values, because CTranslate2 quantises in place."""
    return tensor.detach().float().numpy().copy()


def export_argos(bundle: Path, file: Path, quantization: str = "float32") -> None:
    """Write a package, a new file that ends in .argosmodel; an error leaves no partial file."""
    if file.suffix != SUFFIX:
        raise UserError(f"{file} does not end in {SUFFIX}: give --output NAME{SUFFIX}")
    if file.exists():
        raise UserError(f"{file} is there already: give --output a new file")
    if tokenizer_files(bundle) != [FILE]:
        message = f"{bundle} has a tokenizer for each language, and a package of Argos Translate has one for both"
        raise UserError(f"{message}: train with tokenizer.joint=true, or use `seq2seq export ctranslate2`")
    with tempfile.TemporaryDirectory() as name:
        model = Path(name) / "model"
        export_ctranslate2(bundle, model, quantization)
        _, config = read_config(model / SETTINGS)
        (model / SETTINGS).unlink()
        usage = _ARGOS_USAGE.format(
            file=file.name, src=config.src_lang, tgt=config.tgt_lang, text=example(config.src_lang)
        )
        write_card(bundle, model, "argostranslate", usage)
        metadata = {
            "package_version": _VERSION,
            "argos_version": _VERSION,
            "type": "translate",
            "from_code": config.src_lang,
            "from_name": language_name(config.src_lang),
            "to_code": config.tgt_lang,
            "to_name": language_name(config.tgt_lang),
        }
        root = f"translate-{config.src_lang}_{config.tgt_lang}-{_VERSION.replace('.', '_')}"
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as package:
            package.writestr(f"{root}/metadata.json", json.dumps(metadata, indent=2, ensure_ascii=False))
            package.write(model / FILE, f"{root}/sentencepiece.model")
            package.write(model / CARD, f"{root}/{CARD}")
            for path in sorted(model.iterdir()):
                if path.name not in (FILE, CARD):
                    package.write(path, f"{root}/model/{path.name}")
