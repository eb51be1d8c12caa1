"""Which language a text is in, by the extra package py3langid, whose model comes with it; knows no corpora."""

from collections.abc import Callable
from importlib import metadata

from seq2seq.config import DataConfig
from seq2seq.errors import UserError

_PACKAGE = "py3langid"


class LanguageCheck:
    """Tells pairs of which a side is, with confidence, in another language than it should be."""

    def __init__(self, config: DataConfig) -> None:
        """Load the model.

        Raises:
            UserError: the package is missing, or does not know one of the languages.
        """
        identifier_version()
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self._classify: Callable[[str], tuple[str, float]] = identifier.classify
        self._languages = tuple(language.partition("-")[0] for language in (config.src_lang, config.tgt_lang))
        self._shortest, self._confidence = config.language_characters, config.language_confidence
        for key, language in zip(("src_lang", "tgt_lang"), self._languages, strict=True):
            if language not in identifier.labels:
                raise UserError(
                    f"data.{key}={language} is no language that {_PACKAGE} knows: set data.language_filter=false"
                )

    def fit(self, src: str, tgt: str) -> bool:
        """Say whether neither side is surely in another language; short sides are not judged."""
        return not any(map(self._is_other, (src, tgt), self._languages))

    def _is_other(self, text: str, language: str) -> bool:
        if len(text) < self._shortest:
            return False
        found, confidence = self._classify(text)
        return found != language and confidence >= self._confidence


def identifier_version() -> str:
    """Name the package and its version, on which the judgement depends.

    Raises:
        UserError: it is not installed.
    """
    try:
        return f"{_PACKAGE} {metadata.version(_PACKAGE)}"
    except metadata.PackageNotFoundError as error:
        raise UserError(
            f"data.language_filter=true needs the package {_PACKAGE}: pip install 'seq2seq[langid]'"
        ) from error
