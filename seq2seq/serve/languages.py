"""Languages by name, and which one a text is in; knows no requests."""

from collections.abc import Callable
from typing import TypedDict


class Detection(TypedDict):
    """A language that a text may be in."""

    confidence: float  # percent
    language: str  # code


Detect = Callable[[str], list[Detection]]  # likeliest first

_NAMES = {
    **{"ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German"},
    **{"el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque"},
    **{"fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "he": "Hebrew", "hi": "Hindi"},
    **{"hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian"},
    **{"lv": "Latvian", "nb": "Norwegian", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian"},
    **{"ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sv": "Swedish", "th": "Thai", "tr": "Turkish"},
    **{"uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese"},
}


def language_name(code: str) -> str:
    """English name of a language by its code, or the code where there is none here."""
    return _NAMES.get(code.partition("-")[0], code)
