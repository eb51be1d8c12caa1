"""Models by any name that users know: a run, a bundle, a folder in Hugging Face's layout, a name on the hub."""

from pathlib import Path

from seq2seq.settings.bundle import is_hub_name, is_huggingface
from seq2seq.settings.missing_packages import require_package


def imported(source: str, cache: str | None, what: str) -> str:
    """Return the run or bundle that source names; a model in Hugging Face's layout is imported into the cache first.

    Args:
        source: a run, a bundle, a folder that `save_pretrained` wrote, or a name on the Hugging Face hub.
        cache: the setting data.cache.
        what: the subject of the error if the extra `huggingface` is not installed.
    """
    if not is_hub_name(source) and not is_huggingface(Path(source)):
        return source
    with require_package("huggingface", what):
        from seq2seq.apps.exchange.huggingface_import import cached_import
    return str(cached_import(source, cache))
