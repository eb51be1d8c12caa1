"""Which language a text is in; knows no corpora.

The extra package py3langid, whose model comes with it, tells languages. English is told from Spanish without it too.
"""

import re
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any

from seq2seq.errors import UserError
from seq2seq.extras import missing
from seq2seq.settings.data import DataConfig

_PACKAGE = "py3langid"
_JUDGED = 200  # characters; a shorter sample is not judged
_FUNCTION_WORDS = {  # frequent ones that the other language does not have
    "en": r"the|of|and|to|is|was|with|that|this|it|you|they|are|not|have|my|your|what|for|she|his",
    "es": r"el|la|los|las|de|que|en|un|una|con|por|para|del|es|su|se|lo|como|está|qué|le",
}


class LanguageCheck:
    """Tells pairs of which a side is, with confidence, in another language than it should be."""

    def __init__(self, config: DataConfig) -> None:
        """Load the model.

        Raises:
            UserError: the package is missing, or does not know one of the languages.
        """
        identifier_version()
        identifier = _load_identifier()
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


def seem_to_be(texts: Iterable[str], other: str, expected: str) -> bool:
    """Say whether texts as a whole are in the language `other` rather than in the expected one.

    English and Spanish are told apart by their function words, other pairs by py3langid. False where the texts are
    short or in neither language, the package is missing, or does not know the languages: only a clear answer counts.
    """
    text = " ".join(texts)
    languages = [language.partition("-")[0] for language in (other, expected)]
    if len(text) < _JUDGED or languages[0] == languages[1]:
        return False
    if set(languages) <= set(_FUNCTION_WORDS):
        found, wanted = (re.findall(rf"\b(?:{_FUNCTION_WORDS[one]})\b", text.lower()) for one in languages)
        return len(set(found)) >= 3 and len(found) > 2 * len(wanted)
    try:
        identifier = _load_identifier()
    except ModuleNotFoundError:
        return False
    if not set(languages) <= set(identifier.labels):
        return False
    identifier.set_languages(languages)
    return identifier.classify(text)[0] == languages[0]


def _load_identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def identifier_version() -> str:
    """Name the package and its version, on which the judgement depends.

    Raises:
        UserError: it is not installed.
    """
    try:
        return f"{_PACKAGE} {metadata.version(_PACKAGE)}"
    except metadata.PackageNotFoundError as error:
        raise missing("langid", "data.language_filter=true", _PACKAGE) from error
