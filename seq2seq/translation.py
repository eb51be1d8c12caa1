"""The inputs and outputs of a translator: texts, requests, the pieces that a model sees, and translations."""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seq2seq.errors import UserError
from seq2seq.search.hypothesis import Hypothesis
from seq2seq.search_engine import Forced, Source
from seq2seq.settings.checks import require_at_least
from seq2seq.settings.search import SearchConfig, require_one_kind
from seq2seq.text.glossary import Glossary
from seq2seq.text.segments import align_words, number_words, split_text
from seq2seq.text.tokenizer import EOS
from seq2seq.text.vocabulary import Side, Tokenizers

MAX_SOURCE_TOKENS = 200  # the longest piece of a text that a model sees

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Text:
    """A text to translate, with the first words and the phrases that its translation must have.

    Raises:
        UserError: text or prefix is no string, or phrases is no list of strings.
    """

    text: str
    prefix: str = ""  # text that the translation begins with
    phrases: Sequence[str] = ()  # phrases that the translation contains

    def __post_init__(self) -> None:
        for name in ("text", "prefix"):
            require_string(getattr(self, name), name)
        require_strings(self.phrases, "phrases")


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """What to search for each text.

    Raises:
        UserError: a value has the wrong type, n_best is not between 1 and the beam, or the settings and the glossary
            ask for two kinds of search.
    """

    settings: SearchConfig
    n_best: int = 1  # translations of each text: at most the beam; with sampling, the number of samples
    banned: Sequence[str] = ()  # phrases that no translation contains
    glossary: Glossary | None = None  # terms and the translations that they must have
    align: bool = False  # whether every translation gets an alignment

    def __post_init__(self) -> None:
        if not isinstance(self.n_best, int):
            raise UserError(f"n_best={self.n_best!r} is of type {type(self.n_best).__name__}: give a whole number")
        if not isinstance(self.glossary, Glossary | None):
            told = _with_type(self.glossary)
            raise UserError(f'glossary is {told}: give Glossary([("term", "translation"), …])')
        object.__setattr__(self, "banned", tuple(require_strings(self.banned, "banned")))  # an iterator is read once
        require_at_least("n_best", self.n_best, 1)
        beam = self.settings.beam
        if self.candidates > beam and not self.settings.sampling:
            name = "n_best" if self.n_best == self.candidates else "mbr"
            raise UserError(f"{name}={self.candidates} needs a beam of at least as many (beam={beam}), or sampling")
        require_one_kind(self.settings, has_phrases=self.glossary is not None)

    @property
    def candidates(self) -> int:
        """Number of hypotheses that are searched for each text, to return the n best of them."""
        return max(self.n_best, self.settings.mbr)


@dataclass(frozen=True)
class Translation:
    """One translation of one text."""

    text: str
    score: float  # sum of log-probabilities, EOS included (nats)
    normalised_score: float  # score / length^α, length counting EOS (nats)
    tokens: list[str]  # subword pieces
    alignment: list[tuple[int, int]] | None = None  # source word, target word, from 0; None: not asked for
    parts: tuple[str, ...] = ()  # translations of the pieces that the text was translated in


@dataclass(frozen=True)
class Reading:
    """The model's scores of a given translation."""

    score: float  # sum of log-probabilities, EOS included (nats)
    normalised_score: float  # score / length^α, length counting EOS (nats)
    tokens: list[str]  # subword pieces, </s> last
    log_probs: list[float]  # of each (nats)
    alignment: list[tuple[int, int]] | None  # source word, target word, from 0; None: not asked for


@dataclass(frozen=True)
class Piece:
    """The unit that the model translates: a text or, if the text is too long, a sentence or a part of a sentence."""

    text_index: int
    text: str
    source: Source
    first_word: int = 0  # number of the piece's first word in the whole text, from 0
    is_first: bool = True  # whether the piece is the first of its text


Spelt = tuple[Hypothesis, str]  # a hypothesis and its text


def require_iterable(texts: object, name: str) -> Iterable[Any]:
    """Return texts if it is an iterable of texts, and refuse anything else; messages call it `name`.

    Raises:
        UserError: texts is a single string, or cannot be iterated over.
    """
    if isinstance(texts, str):
        raise UserError(f"{name} is one string ({texts[:20]!r}…): give a list of them, [text]")
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise UserError(f"{name} is {_with_type(texts)}: give a list of strings")
    return texts


def require_strings(texts: object, name: str) -> list[str]:
    """Return the strings of an iterable as a list; messages call the iterable `name`.

    Raises:
        UserError: texts is a single string, cannot be iterated over, or has an item that is no string.
    """
    listed = list(require_iterable(texts, name))
    for index, text in enumerate(listed):
        require_string(text, f"{name}[{index}]")
    return listed


def require_string(text: object, name: str) -> None:
    """Refuse a value that is no string; the message calls the value `name`.

    Raises:
        UserError: text is no string.
    """
    if not isinstance(text, str):
        raise UserError(f"{name} is {_with_type(text)}: give a string")


def _with_type(value: object) -> str:
    return f"{value!r:.40} (of type {type(value).__name__})"


def _as_text(text: object, number: int) -> Text:
    if isinstance(text, Text):
        return text
    if not isinstance(text, str):
        raise UserError(f"text {number} is {_with_type(text)}: give a string or a Text")
    return Text(text)


def make_pieces(
    texts: Sequence[str | Text],
    tokenizer: Tokenizers,
    first_line: int,
    glossary: Glossary | None,
    trained_length: int | None = None,
) -> list[Piece]:
    """Return the encoded pieces of texts: the sentences of a text that is too long for the model, else the whole text.

    A text is too long if it has more tokens than trained_length (`BundleConfig.trained_length`) or MAX_SOURCE_TOKENS.
    Sentences of more than MAX_SOURCE_TOKENS are cut further. A text without tokens has no piece. A text with phrases
    stays whole. first_line is the number of the first text; warnings name these numbers, and samples depend on them.

    Raises:
        UserError: a text is neither a string nor a Text, a phrase is empty, or a text with phrases has more than
            MAX_SOURCE_TOKENS tokens.
    """
    wants = [_as_text(text, number) for number, text in enumerate(texts, start=first_line)]
    pieces, side, marks = [], tokenizer.source, set(tokenizer.source.user_symbols.values())
    for index, (want, ids) in enumerate(zip(wants, side.encode([want.text for want in wants]), strict=True)):
        line, parts, ids_of_parts, first_words = first_line + index, [want.text], [ids], [0]
        is_too_long = len(ids) > MAX_SOURCE_TOKENS
        if is_too_long or (trained_length is not None and len(ids) > trained_length and not want.phrases):
            whole = " ".join(want.text.split())
            parts = split_text(whole, MAX_SOURCE_TOKENS, lambda some: [len(one) for one in side.encode(some)])
            ids_of_parts, first_words = side.encode(parts), number_words(whole, parts)
            if ids[0] in marks:  # such as a target language, which applies to every part
                ids_of_parts[1:] = [[ids[0], *one] for one in ids_of_parts[1:]]
            if want.phrases:
                raise UserError(f"line {line} has {len(ids)} tokens: too many for a text with phrases to appear in it")
            if is_too_long:
                log.warning(
                    "line %d has %d tokens, more than %d: translated in %d pieces",
                    *(line, len(ids), MAX_SOURCE_TOKENS, len(parts)),
                )
        for part, (text, part_ids) in enumerate(zip(parts, ids_of_parts, strict=True)):
            if part_ids:
                phrases = [*want.phrases, *(glossary.translations(text) if glossary else ())]
                prefix = tokenizer.target.encode([want.prefix])[0] if part == 0 and want.prefix else []
                key = (line << 16) + part
                source = Source(part_ids, prefix, encode_phrases(phrases, tokenizer.target), key=key)
                pieces.append(Piece(index, text, source, first_words[part], part == 0))
    return pieces


def encode_phrases(phrases: Sequence[str], tokenizer: Side) -> list[list[int]]:
    """Encode phrases.

    Raises:
        UserError: a phrase is empty.
    """
    encoded = tokenizer.encode(list(phrases))
    for phrase, ids in zip(phrases, encoded, strict=True):
        if not ids:
            raise UserError(f"the phrase {phrase!r} is empty: leave it out, or give words")
    return encoded


def join(parts: Sequence[Sequence[Spelt]], tokenizer: Side, alpha: float) -> list[Translation]:
    """Return a text's translations: the i-th translation joins the i-th hypotheses of the text's pieces."""
    if not parts:
        return [Translation("", 0.0, 0.0, [])]
    translations = []
    for rank in range(max(len(part) for part in parts)):
        chosen = [part[min(rank, len(part) - 1)] for part in parts]
        score = sum(hypothesis.score for hypothesis, _ in chosen)
        normalised = chosen[0][0].normalised_score
        if len(chosen) > 1:
            normalised = score / sum(len(hypothesis.ids) + 1 for hypothesis, _ in chosen) ** alpha
        tokens = [token for hypothesis, _ in chosen for token in tokenizer.tokens(hypothesis.ids)]
        texts = tuple(text for _, text in chosen)
        translations.append(Translation(" ".join(filter(None, texts)), score, normalised, tokens, parts=texts))
    return translations


def join_alignments(
    pieces: Sequence[Piece], translations: Sequence[str], alignments: Iterator[list[tuple[int, int]]]
) -> list[tuple[int, int]]:
    """Return the alignment of a text, joined from the alignments of its pieces, which the iterator yields."""
    joined, words_before = [], 0
    for piece, translation in zip(pieces, translations, strict=True):
        joined += [(piece.first_word + source, words_before + target) for source, target in next(alignments)]
        words_before += len(translation.split())
    return joined


def least_risky(candidates: Sequence[Translation]) -> list[Translation]:
    """Return the candidates by their mean chrF against all others, best first (minimum Bayes risk)."""
    from seq2seq.evaluation.mbr import minimum_bayes_risk  # slow to import, and rarely needed

    _, utilities = minimum_bayes_risk([candidate.text for candidate in candidates])
    order = sorted(range(len(candidates)), key=lambda index: utilities[index], reverse=True)
    return [candidates[index] for index in order]


def make_reading(
    src: Sequence[int], tgt: Sequence[int], forced: Forced, tokenizer: Tokenizers, alpha: float
) -> Reading:
    """Return the scores of a translation, with an alignment of words if there is attention."""
    score, tokens = math.fsum(forced.log_probs), [*tokenizer.target.tokens(tgt), *tokenizer.target.tokens([EOS])]
    alignment = None
    if forced.attention is not None:
        alignment = align_words(tokenizer.source.tokens(src), tokenizer.target.tokens(tgt), forced.attention)
    return Reading(score, score / len(tokens) ** alpha, tokens, forced.log_probs, alignment)
