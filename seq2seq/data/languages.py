"""Codes of languages, and texts that are in the wrong one as a whole: swapped corpora, texts given to translate.

Function words tell eight languages apart. Other languages need the extra package py3langid. Text that is in none of
them, such as code, names or an invented language, seems to be in no language.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

from seq2seq.data.formats import Pair, Record
from seq2seq.errors import UserError
from seq2seq.settings.data import DataConfig, base_language

logger = logging.getLogger(__name__)
AnyRecord = TypeVar("AnyRecord", bound=Record)
_SAMPLE = 400  # most pairs of a corpus that are looked at
_CHARACTERS = 1000  # of a side that are looked at
_SHARE = 0.1  # fewest function words per word
_CERTAIN = 0.8  # fewest texts of the language, as a share, if py3langid classifies each text
_FUNCTION_WORDS = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the of and to was that it you they are have my your what she his he we be at has had were did would can "
        "her him me an there about how who when could been some us our but",  # no keywords of programs
        "es": "el la los las de que en un una con por para del es su se lo como está qué y pero muy más me mi te al ha "
        "fue son hay él ella yo tú cuando donde aquí porque también sin ya todo bien eso esa tiene mucho estaba",
        "pt": "os de que do da em um uma com não por para se é ao mais na dos das sem mas muito ele ela eu foi seu sua",
        "ca": "el la els les de que i en un una del amb per és es als més dels em hi ho va vam però com seva aquesta",
        "it": "il la di che è un una per non con del si gli della sono le nel ha ma come più anche i suo questo",
        "fr": "le la les et de des du est une un dans pour pas qui que en au ce il me se je tu vous sur avec où elle",
        "de": "der die und das ist nicht ein zu den mit von ich es sie war in an am im auf er hat dem wir was",
        "nl": "de het een van en is niet dat ik zijn op te met voor in we me hij als was had aan",
    }.items()
}
_NAMES = {"en": "english inglés", "es": "spanish español castellano", "fr": "french", "de": "german", "it": "italian"}
NAMES = {
    **{"ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German"},
    **{"el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque"},
    **{"fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "he": "Hebrew", "hi": "Hindi"},
    **{"hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian"},
    **{"lv": "Latvian", "nb": "Norwegian", "nl": "Dutch", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian"},
    **{"ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sv": "Swedish", "th": "Thai", "tr": "Turkish"},
    **{"uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese"},
}


def seem_to_be(texts: Iterable[str], language: str, other: str) -> bool:
    """Return whether texts as a whole are surely in a language, and not in the other one nor in a third language.

    The result is False if the texts have few function words, as short texts have; and without function words of the
    language here, if py3langid is missing or does not know the language.
    """
    language, other = (code.partition("-")[0] for code in (language, other))
    if language == other:
        return False
    if language not in _FUNCTION_WORDS:
        return _are_classified(list(texts), language)
    counts = Counter(word for text in {*texts} for word in re.findall(r"[^\W\d_]+", text))

    def count(words: frozenset[str]) -> int:
        return sum(counts[word] for word in words)

    words, total = _FUNCTION_WORDS[language], counts.total()
    others = (third for third in _FUNCTION_WORDS.values() if third is not words)
    return (
        len(words & counts.keys()) >= min(6, 3 + total // 20)
        and count(words) >= _SHARE * total
        and all(count(words - third) > 2 * count(third - words) for third in others)
    )


def _are_classified(texts: Sequence[str], language: str) -> bool:
    try:
        identifier = load_identifier()
    except ModuleNotFoundError:
        return False
    of_language = sum(identifier.classify(text)[0] == language for text in texts)
    return language in identifier.labels and of_language >= _CERTAIN * len(texts) > 0


@cache
def load_identifier() -> Any:
    """Load the model of py3langid."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # pyright: ignore[reportMissingTypeStubs]

    identifier: Any = LanguageIdentifier
    return identifier.from_model_file(MODEL_FILE, norm_probs=True)


def warn_of_target(texts: Sequence[str], src_lang: str, tgt_lang: str, hint: str) -> None:
    """Warn, with a hint and an example, if source texts are in the model's target language."""
    if seem_to_be(texts, tgt_lang, src_lang):
        example = next((text for text in texts if seem_to_be([text], tgt_lang, src_lang)), texts[0])
        message = "the texts look like %s, but the model translates %s→%s: %s (the first is %.60r)"
        logger.warning(message, tgt_lang, src_lang, tgt_lang, hint, example)


def check_sides(records: Iterable[AnyRecord], name: str, data: DataConfig) -> Iterator[AnyRecord]:
    """Yield the records of a corpus; warn if it begins with a header or has the same language on both sides.

    Refuse it if its sides are swapped. The languages are those of the first pairs, and of some hundred pairs at equal
    distances.
    """
    pairs, step = list[Pair](), 1
    for number, record in enumerate(records):
        if number % step == 0 and isinstance(record, tuple):
            pairs.append((record[0][:_CHARACTERS], record[1][:_CHARACTERS]))
            if number == 0 and _is_header(pairs[0], data):
                logger.warning("%s begins with a header, %s, which is read as a pair: remove it", name, _show(pairs[0]))
            if len(pairs) == _SAMPLE:
                if step == 1:
                    _check_order(pairs, name, data)  # now, because the end of a large corpus is far
                pairs, step = pairs[::2], 2 * step
        yield record
    langs = _check_order(pairs, name, data)
    if langs[0] is not None and langs[0] == langs[1]:
        message = "%s looks like %s on both sides, as in %s: check the file"
        logger.warning(message, name, langs[0], _show(_median(pairs)))


def _check_order(pairs: Sequence[Pair], name: str, data: DataConfig) -> list[str | None]:
    """Return the language of each side, of the two that the sides should have; refuse swapped sides."""
    src, tgt = data.src_lang, data.tgt_lang
    sides = [[pair[i] for pair in pairs] for i in (0, 1)]
    langs = [next((a for a, b in ((src, tgt), (tgt, src)) if seem_to_be(side, a, b)), None) for side in sides]
    if langs == [tgt, src]:
        order = f"[{src},{tgt}]" if data.is_swapped else f"[{tgt},{src}]"
        raise UserError(
            f"{name} has its sides swapped: {tgt} is the source, {src} the target, as in {_show(_median(pairs))}: "
            f"exchange them, or set data.languages={order} if all files of the run have this order"
        )
    return langs


def _median(pairs: Sequence[Pair]) -> Pair:
    return sorted(pairs, key=lambda pair: len(pair[0]))[len(pairs) // 2]


def _show(pair: Pair) -> str:
    return " → ".join(f"{side[:60]!r}" for side in pair)


def _is_header(pair: Pair, data: DataConfig) -> bool:
    """Return whether the sides of a pair are the names of the two sides or languages, in one order or the other."""
    words = [set(re.findall(r"[^\W\d_]+", side.lower())) - {"text", "sentence", "lang", "language"} for side in pair]
    src, tgt = ({code, *_NAMES.get(code, "").split()} for code in (data.src_lang, data.tgt_lang))
    names = [src | {"source", "src", "original"}, tgt | {"target", "tgt", "trg", "translation"}]
    return any(
        all(side and side <= of for side, of in zip(words, order, strict=True)) for order in (names, names[::-1])
    )


def language_name(code: str) -> str:
    """Return the English name of a language, such as Portuguese for pt-BR; of an unknown one, the code."""
    return NAMES.get(base_language(code), code)
