"""Codes of languages and their English names, as other programs write and show them."""

import re

NAMES = {
    **{"ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German"},
    **{"el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque"},
    **{"fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "he": "Hebrew", "hi": "Hindi"},
    **{"hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian"},
    **{"lv": "Latvian", "nb": "Norwegian", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian"},
    **{"ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sv": "Swedish", "th": "Thai", "tr": "Turkish"},
    **{"uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese"},
}


def base_language(code: str) -> str:
    """Return the language of a code in lower case, without script and region: en for EN, en-US and en_GB.UTF-8."""
    return re.split(r"[-_.]", code.strip().lower())[0]


def language_name(code: str) -> str:
    """Return the English name of a language, such as Portuguese for pt-BR; of an unknown one, the code."""
    return NAMES.get(base_language(code), code)
