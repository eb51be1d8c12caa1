"""Import a Marian model in Hugging Face's layout, such as the OPUS-MT models, as a bundle with the same scores."""

import re
from pathlib import Path

from seq2seq.bundle import Bundle, example, save_bundle
from seq2seq.cache import cached_folder, digest_files
from seq2seq.errors import UserError, in_short
from seq2seq.exchange.export import require_new
from seq2seq.exchange.huggingface_reading import MOST_BYTES, read_huggingface
from seq2seq.exchange.huggingface_tokenizers import FILES
from seq2seq.exchange.huggingface_weights import PICKLED, WEIGHTS
from seq2seq.extras import needing
from seq2seq.settings.bundle import CARD, CONFIG, is_hub_name, read_bounded
from seq2seq.settings.data import cache_root

with needing("huggingface"):
    import huggingface_hub

_FORMAT = 2  # version of cached imports: raise it when the same files give a different bundle


def import_huggingface(source: str, folder: Path, revision: str | None = None) -> Bundle:
    """Write a Marian model as a bundle, and return the bundle; an error leaves no partial bundle.

    Args:
        source: a folder that `save_pretrained` wrote, or a name on the Hugging Face hub.
        folder: the bundle's folder, new or empty.
        revision: branch, tag or commit on the hub; None: the newest.

    Raises:
        UserError: the source cannot be fetched or is damaged; the model has a setting that this project does not
            support (the message names it); the folder is not empty; or the folder cannot be written.
    """
    require_new(folder)
    origin = fetch(source, revision)
    bundle = read_huggingface(origin)
    save_bundle(folder, bundle, _card(source, revision, origin, bundle))
    return bundle


def cached_import(source: str, cache: str | None) -> Path:
    """Return the folder of a Marian model's bundle in the cache; import the model first if the cache lacks it.

    cache is the setting data.cache.

    Raises:
        UserError: for the reasons of `import_huggingface`.
    """
    origin = fetch(source)
    names = (CONFIG, *FILES, WEIGHTS, PICKLED)
    digests = [*digest_files(path for name in names if (path := origin / name).is_file()), str(_FORMAT)]
    name = re.sub(r"[^\w.-]", "_", origin.resolve().name if Path(source).is_dir() else source)
    key = "-".join((name, *(digest[:8] for digest in digests)))
    return cached_folder(cache_root(cache), key, lambda draft: _import_into(draft, source, origin))


def _import_into(draft: Path, source: str, origin: Path) -> None:
    bundle = read_huggingface(origin)
    save_bundle(draft, bundle, _card(source, None, origin, bundle))


def fetch(source: str, revision: str | None = None) -> Path:
    """Return `source` if it is a local folder; otherwise fetch the model from the Hugging Face hub, return its folder.

    Raises:
        UserError: there is neither a folder nor a model on the hub with this name, the hub cannot be reached, or a
            revision is given for a folder.
    """
    if Path(source).is_dir():
        if revision is not None:
            raise UserError(f"{source} is a folder, which has no revision {revision}: leave out --revision")
        return Path(source)
    if not is_hub_name(source):
        raise UserError(
            f"{source} is no folder, and no name on the Hugging Face hub, such as Helsinki-NLP/opus-mt-en-es"
        )
    wanted = [CONFIG, CARD, *FILES, WEIGHTS]
    try:
        folder = Path(huggingface_hub.snapshot_download(source, revision=revision, allow_patterns=wanted))
        if not (folder / WEIGHTS).exists():
            folder = Path(
                huggingface_hub.snapshot_download(source, revision=revision, allow_patterns=[*wanted, PICKLED])
            )
    except Exception as error:  # raised by the hub's client, by its HTTP library or by the disk
        raise UserError(
            f"{source} is no folder here, and the Hugging Face hub does not give it ({in_short(error)}): where the hub "
            f"cannot be reached, run `hf download {source} --local-dir FOLDER` elsewhere and give FOLDER"
        ) from error
    return folder


def _card(source: str, revision: str | None, origin: Path, bundle: Bundle) -> str:
    """Return the bundle's model card, with the licence that the source's card names."""
    text = read_bounded(origin / CARD, MOST_BYTES).decode(errors="replace") if (origin / CARD).is_file() else ""
    head = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    licence = re.search(r"^license:\s+(?:- )?([\w.-]+)$", head[1], re.MULTILINE) if head else None
    config, model, name = bundle.config, bundle.config.model, source.rstrip("/").rpartition("/")[2]
    size = sum(parameter.numel() for parameter in bundle.model.parameters())
    lines = [
        "---",
        f"language: [{config.src_lang}, {config.tgt_lang}]",
        *([f"license: {licence[1]}"] if licence else []),
        "pipeline_tag: translation",
        "library_name: seq2seq",
        "tags: [translation, transformer]",
        "---",
        "",
        f"# {name}: {config.src_lang}→{config.tgt_lang} translation",
        "",
        f"A Transformer of {size:,} parameters, imported from `{name}`{f', revision {revision}' if revision else ''}, "
        "which is in Hugging Face's layout. Licence, training text and scores are those of the source.",
        "",
        "```",
        f'seq2seq translate --model FOLDER "{example(config.src_lang)}"',
        "```",
        "",
        "## Network",
        "",
        f"{model.num_encoder_layers} + {model.num_decoder_layers} layers of width {model.d_model}, "
        f"{model.num_heads} heads, {model.activation}.",
        "",
    ]
    return "\n".join(lines)
