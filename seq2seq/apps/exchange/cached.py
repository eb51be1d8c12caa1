"""Imports and exports that the cache keeps, so that any command takes models by any name that users know."""

from hashlib import sha256
from pathlib import Path

import seq2seq
from seq2seq.settings.bundle import CONFIG, WEIGHTS, is_hub_name, is_huggingface
from seq2seq.settings.data import cache_root
from seq2seq.settings.missing_packages import require_package
from seq2seq.storage.cache import cached_folder, digest_files
from seq2seq.text.vocabulary import tokenizer_files


def cached_export(bundle: Path, quantization: str, cache: str | None) -> Path:
    """Return the folder of a bundle's export in the cache; export the bundle first if the cache lacks it.

    An export is made, and compared, anew after every change of the model's code. cache is the setting data.cache.
    """
    with require_package("ctranslate2"):
        import ctranslate2

    def build(draft: Path) -> None:
        from seq2seq.apps.exchange.ctranslate2 import export_ctranslate2

        export_ctranslate2(bundle, draft, quantization)

    digests = digest_files(bundle / name for name in (CONFIG, WEIGHTS, *tokenizer_files(bundle)))
    code = digest_files(sorted(Path(seq2seq.__file__).parent.glob("model/**/*.py")))
    parts = (digest[:16] for digest in (*digests, sha256("".join(code).encode()).hexdigest()))
    key = "-".join(("ctranslate2", ctranslate2.__version__, quantization, *parts))
    return cached_folder(cache_root(cache), key, build)


def imported(source: str, cache: str | None, what: str) -> str:
    """Return the run or bundle that source names; a Marian model in a folder or on the hub is imported into the cache.

    cache is the setting data.cache; what is the subject of the error if the extra `huggingface` is not installed.
    """
    if not is_hub_name(source) and not is_huggingface(Path(source)):
        return source
    with require_package("huggingface", what):
        from seq2seq.apps.exchange.huggingface_import import cached_import
    return str(cached_import(source, cache))
