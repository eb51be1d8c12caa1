"""Import a Marian model in Hugging Face's layout, such as the OPUS-MT models, as a bundle with the same scores."""

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seq2seq.apps.exchange import huggingface_files as layout
from seq2seq.apps.exchange.export import read_card
from seq2seq.apps.exchange.huggingface import FIELDS, model_config
from seq2seq.errors import UserError, shorten
from seq2seq.model.build import build_without_values
from seq2seq.model.transformer import Transformer
from seq2seq.settings.bundle import ARCHITECTURE, CARD, CONFIG, BundleConfig, config_from_plain, is_hub_name
from seq2seq.settings.data import cache_root
from seq2seq.settings.missing_packages import require_package
from seq2seq.settings.search import SearchConfig
from seq2seq.storage.cache import cached_folder, digest_files
from seq2seq.text.tokenizer import EOS, PAD
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.bundle import Bundle, example, require_new, save_bundle

with require_package("huggingface"):
    import huggingface_hub
    from huggingface_hub.errors import StrictDataclassError
    from transformers import GenerationConfig, MarianConfig

log = logging.getLogger(__name__)
_FORMAT = 2  # version of cached imports: raise it when the same files give a different bundle
_IDS = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
_REQUIRED = {  # required values: transformers' Marian or this project has no code for others
    "is_encoder_decoder": True,
    "tie_word_embeddings": True,
    "static_position_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "add_bias_logits": False,
    "quantization_config": None,
}
_SEARCH = {"num_beams": "beam", "length_penalty": "length_penalty", "no_repeat_ngram_size": "no_repeat_ngram"}
_NO_WARNING = (  # settings of a search that are imported, change no translation, or that our search sets differently
    *_SEARCH, *_IDS, "bad_words_ids", "suppress_tokens", "renormalize_logits", "forced_bos_token_id",
    "forced_eos_token_id", "bos_token_id", "transformers_version", "_from_model_config", "max_length", "use_cache",
    "early_stopping", "num_return_sequences", "return_dict_in_generate", "output_attentions", "output_hidden_states",
    "output_scores", "output_logits",
)  # fmt: skip
_FACTORS = (  # settings of a search that change nothing at 1
    "temperature", "top_p", "typical_p", "repetition_penalty", "encoder_repetition_penalty", "num_beam_groups",
    "guidance_scale",
)  # fmt: skip


def import_huggingface(source: str, folder: Path, revision: str | None = None) -> Bundle:
    """Write a Marian model as a bundle into a new or empty folder, and return it; an error leaves no partial bundle.

    source is a folder that `save_pretrained` wrote, or a name on the Hugging Face hub, where revision is a branch, tag
    or commit.
    """
    require_new(folder)
    files = fetch(source, revision)
    bundle = read_huggingface(files)
    save_bundle(folder, bundle, _card(bundle, files, source, revision), is_new=True)
    return bundle


def cached_import(source: str, cache: str | None) -> Path:
    """Return the folder of a Marian model's bundle in the cache; import the model first if the cache lacks it.

    cache is the setting data.cache.
    """
    files = fetch(source)
    names = (CONFIG, *layout.FILES, layout.WEIGHTS, layout.PICKLED)
    digests = [*digest_files(path for name in names if (path := files / name).is_file()), str(_FORMAT)]
    name = re.sub(r"[^\w.-]", "_", files.resolve().name if Path(source).is_dir() else source, flags=re.ASCII)[:100]
    key = "-".join((name, *(digest[:8] for digest in digests)))

    def build(draft: Path) -> None:
        bundle = read_huggingface(files)
        save_bundle(draft, bundle, _card(bundle, files, source))

    return cached_folder(cache_root(cache), key, build)


def fetch(source: str, revision: str | None = None) -> Path:
    """Return `source` if it is a local folder; else fetch the model from the Hugging Face hub and return its folder."""
    if Path(source).is_dir():
        if revision is not None:
            raise UserError(f"{source} is a folder, which has no revision {revision}: leave out --revision")
        return Path(source)
    if not is_hub_name(source):
        raise UserError(
            f"{source} is no folder, and no name on the Hugging Face hub, such as Helsinki-NLP/opus-mt-en-es"
        )
    folder, names = Path(), [CONFIG, CARD, *layout.FILES]
    try:
        for weights in (layout.WEIGHTS, layout.PICKLED):
            names.append(weights)
            folder = Path(huggingface_hub.snapshot_download(source, revision=revision, allow_patterns=[*names]))
            if (folder / layout.WEIGHTS).exists():
                break
    except Exception as error:  # raised by the hub's client, by its HTTP library or by the disk
        raise UserError(
            f"{source} is no folder here, and the Hugging Face hub does not give it ({shorten(error)}): where the hub "
            f"cannot be reached, run `hf download {source} --local-dir FOLDER` elsewhere and give FOLDER"
        ) from error
    return folder


def _card(bundle: Bundle, files: Path, source: str, revision: str | None = None) -> str:
    """Return the bundle's model card, with the licence that the source's card names."""
    head = re.match(r"---\n(.*?)\n---\n", read_card(files), re.DOTALL)
    licence = re.search(r"^license:\s+(?:- )?([\w.-]+)$", head[1], re.MULTILINE) if head else None
    licence_line = f"license: {licence[1]}\n" if licence else ""
    config, model, name = bundle.config, bundle.config.model, source.rstrip("/").rpartition("/")[2]
    origin = f"`{name}`{f', revision {revision}' if revision else ''}"
    size = sum(parameter.numel() for parameter in bundle.model.parameters())
    layers = f"{model.num_encoder_layers} + {model.num_decoder_layers} layers of width {model.d_model}"
    return f"""---
language: [{config.src_lang}, {config.tgt_lang}]
{licence_line}pipeline_tag: translation
library_name: seq2seq
tags: [translation, transformer]
---

# {name}: {config.src_lang}→{config.tgt_lang} translation

A Transformer of {size:,} parameters, imported from {origin}, which is in Hugging Face's layout. Licence,
training text and scores are those of the source.

```
seq2seq translate --model FOLDER "{example(config.src_lang)}"
```

## Network

{layers}, {model.num_heads} heads, {model.activation}.
"""


def read_huggingface(folder: Path) -> Bundle:
    """Read a Marian model from a folder that `save_pretrained` wrote, without executing any code in it."""
    values, marian = _read_config(folder)
    if (folder / layout.GENERATION).exists():
        generation = layout.read_json(folder / layout.GENERATION)
    else:  # an older model: config.json has the settings of the search
        known = sorted(GenerationConfig().to_dict().keys() & values.keys())
        generation = {"decoder_start_token_id": marian.decoder_start_token_id, **{key: values[key] for key in known}}
    tokenizer = layout.read_tokenizers(folder, generation, is_shared=marian.share_encoder_decoder_embeddings)
    ids = tokenizer.target.original_ids
    for key, token in (("pad_token_id", PAD), ("eos_token_id", EOS)):
        if getattr(marian, key) != ids[token]:
            message = f"{key}={getattr(marian, key)}, but the vocabulary says {ids[token]}"
            raise UserError(f"{folder / CONFIG} has {message}: the files belong to different models")
    config, state = model_config(folder / CONFIG, marian), layout.read_weights(folder)
    if (layers := config.num_encoder_layers + config.num_decoder_layers) > len(state):
        raise UserError(f"{folder}: {len(state)} weights are no {layers} layers, which {CONFIG} wants")
    layout.drop_fixed_positions(folder, state, config.d_model)
    layout.drop_tied_copies(folder, state, is_shared=tokenizer.is_shared)
    config.output_bias = layout.BIAS in state and bool(state[layout.BIAS].any())
    model = build_without_values(config, *tokenizer.sizes)
    assert isinstance(model, Transformer)
    layout.require_weights(folder, state, model)
    model.load_state_dict(layout.from_marian_weights(state, model, tokenizer), assign=True)
    search = _search_config(folder / layout.GENERATION, generation, tokenizer)
    return Bundle(model.eval(), tokenizer, BundleConfig(config, search, *_languages(folder / layout.SETTINGS)))


def _read_config(folder: Path) -> tuple[dict[str, Any], MarianConfig]:
    """Return the values of config.json, and transformers' form of those that are imported."""
    path = folder / CONFIG
    values = layout.read_json(path)
    if str(values.get("architecture")).startswith(ARCHITECTURE):
        raise UserError(f"{folder} is a model of this program: use it as it is")
    if (kind := values.get("model_type")) != "marian":
        raise UserError(f"{path} has model_type={kind!r:.40}: only marian models, such as OPUS-MT's, can be imported")
    for key, needed in _REQUIRED.items():
        if values.get(key, needed) != needed:
            raise UserError(f"{path} has {key}={values[key]!r:.40}: only {key}={needed} can be imported")
    keys = {*_IDS, "share_encoder_decoder_embeddings", *(key for names in FIELDS.values() for key in names)}
    try:
        return values, MarianConfig.from_dict({key: values[key] for key in sorted(keys & values.keys())})
    except (StrictDataclassError, AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {shorten(error)}") from error


def _search_config(path: Path, generation: Mapping[str, Any], tokenizer: Tokenizers) -> SearchConfig:
    """Return the search settings of generation_config.json, with our defaults for missing ones; errors use the path."""
    if (forced := generation.get("forced_bos_token_id")) is not None:
        raise UserError(shorten(f"{path} has forced_bos_token_id={forced!r}: only models without it can be imported"))
    eos = tokenizer.target.original_ids[EOS]
    if generation.get("eos_token_id", eos) not in (None, eos, [eos]):
        raise UserError(shorten(f"{path} has eos_token_id={generation['eos_token_id']!r}, the vocabulary {eos}"))
    lost = [
        f"{key}={value!r}"
        for key, value in generation.items()
        if key not in _NO_WARNING
        and value not in (None, False, 0, [], {}, "")
        and not (key in _FACTORS and value == 1 and value is not True)
    ]
    if lost:
        log.warning("%s: not taken over: %s", path.name, shorten(", ".join(lost)))
    try:
        values = {ours: generation.get(key) for key, ours in _SEARCH.items()}
        return config_from_plain(SearchConfig, {key: value for key, value in values.items() if value is not None})
    except UserError as error:
        raise UserError(f"{path} asks for a search that is not known here: {shorten(error)}") from error


def _languages(path: Path) -> tuple[str, str]:
    """Return the source and target languages that tokenizer_config.json names, by default en and es."""
    settings = layout.read_json(path) if path.exists() else {}
    languages = settings.get("source_lang") or "en", settings.get("target_lang") or "es"
    for language in languages:
        if not (isinstance(language, str) and re.fullmatch(r"[\w+-]{1,40}", language)):
            raise UserError(shorten(f"{path} names a language {language!r}: it is damaged"))
    return languages
