"""From texts to the segments that a model translates, and from hypotheses to translations."""

import itertools
import logging
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from seq2seq.errors import UserError
from seq2seq.search.types import Hypothesis, Source, TokenScores
from seq2seq.settings.bundle import Calibration
from seq2seq.text.glossary import Glossary
from seq2seq.text.masks import SYMBOL, Masked
from seq2seq.text.normalise import one_line
from seq2seq.text.sentences import number_words, sentence_ends, split_text
from seq2seq.text.tokenizer import EOS, Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.text.words import align_words
from seq2seq.translate.types import ScoredTranslation, Text, Translation

MAX_SOURCE_TOKENS = 200  # the longest segment that a model gets
STRETCH = 1.5  # a sentence may have this many times trained_length tokens (docs/decoding.md)

log = logging.getLogger(__name__)
Alignment = list[tuple[int, int]]


@dataclass(frozen=True)
class Segment:
    """The unit that the model translates: a sentence, or a part of a sentence that is too long."""

    masked: Masked  # its text, with symbols in place of the strings that stay the same
    source: Source
    tag_length: int = 0  # leading ids of the text's tag, which is not in this segment's text
    is_first: bool = True  # whether the segment is the first of its text


class Segmenter:
    """Cuts and encodes texts for one model.

    Every sentence is a segment. A sentence of more than 1.5 × trained_length tokens (`BundleConfig.trained_length`), or
    more than MAX_SOURCE_TOKENS, is cut at clauses, or else at spaces. A text with required phrases is never cut.
    """

    def __init__(self, tokenizer: Tokenizers, trained_length: int | None) -> None:
        self._tokenizer = tokenizer
        self._longest = min(int(STRETCH * (trained_length or MAX_SOURCE_TOKENS)), MAX_SOURCE_TOKENS)

    def segments(
        self, texts: Sequence[Text], glossary: Glossary | None = None, first_line: int = 1
    ) -> list[list[Segment]]:
        """Return the segments of each text, in order; a text without tokens has none.

        first_line is the number of the first text; warnings name these numbers, and samples depend on them.
        """
        by_text, target = list[list[Segment]](), self._tokenizer.target
        whole = [self._tokenizer.find_strings(text.text) for text in texts]
        read = [text.text if masked.is_spelt else masked.text for text, masked in zip(texts, whole, strict=True)]
        encoded = self._tokenizer.source.encode(read)
        for line, (text, masked, ids) in enumerate(zip(texts, whole, encoded, strict=True), start=first_line):
            parts, tag_length = self._cut(masked, ids, line, has_phrases=bool(text.phrases))
            segments: list[Segment] = []
            for number, (part, part_ids) in enumerate(parts):
                terms = glossary.translations(part.text) if glossary else []
                phrases = [*dict.fromkeys(phrase for phrase in text.phrases if phrase not in terms), *terms]
                required = encode_phrases([part.in_model(part.apply(phrase)) for phrase in phrases], target)
                begun = part.in_model(part.apply(text.prefix)) if number == 0 else ""
                prefix = target.encode([begun])[0] if begun else []
                source = Source(part_ids, prefix, required, key=(line << 16) + number)
                segments.append(Segment(part, source, tag_length, number == 0))
            by_text.append(segments)
        return by_text

    def _cut(
        self, masked: Masked, ids: list[int], line: int, *, has_phrases: bool
    ) -> tuple[list[tuple[Masked, list[int]]], int]:
        """Return a text's segments with their ids, and the number of leading ids that are the text's tag."""
        side = self._tokenizer.source
        most = len(masked.strings) if masked.is_spelt else len(side.mask_ids)
        if has_phrases and len(masked.strings) > most:
            masked = masked.part(masked.text, most)
            (ids,) = side.encode([masked.text])
        is_short = len(ids) <= self._longest and len(masked.strings) <= most and not sentence_ends(masked.text)
        if is_short or (has_phrases and len(ids) <= MAX_SOURCE_TOKENS):
            return ([(masked, ids)] if ids else []), 0
        if has_phrases:
            raise UserError(f"line {line} has {len(ids)} tokens: too many for a text with phrases to appear in it")
        tag, words = _split_tag(" ".join(masked.text.split()), side)
        (tag_ids,) = side.encode([tag])
        if not words or len(tag_ids) >= self._longest:
            tag_ids, words = [], f"{tag} {words}".strip()
        limit = self._longest - len(tag_ids)

        def lengths(texts: Sequence[str]) -> list[int]:
            """Count tokens; more strings than can be masked count as too many tokens."""
            rows, cost = side.encode(list(map(masked.in_model, texts))), limit / most if masked.strings else 0
            return [max(len(row), int(cost * text.count("⟨"))) for row, text in zip(rows, texts, strict=True)]

        parts = [masked.part(part, most) for part in split_text(words, limit, lengths)]
        if sum(len(part.strings) for part in parts) < len(masked.strings):  # a symbol was cut
            if masked.is_spelt:  # a string is too long for the model
                return self._cut(Masked(masked.restore(masked.text)), ids, line, has_phrases=False)
            parts = [masked.part(words, most)]
        rows = side.encode([part.in_model(part.text) for part in parts])
        encoded = [(part, [*tag_ids, *ids]) for part, ids in zip(parts, rows, strict=True) if ids]
        if len(ids) > MAX_SOURCE_TOKENS:
            message = "line %d has %d tokens, more than %d: cut into %d segments"
            log.warning(message, line, len(ids), MAX_SOURCE_TOKENS, len(encoded))
        return encoded, len(tag_ids)


def with_text(segment: Segment, text: str, tokenizers: Tokenizers) -> Segment:
    """Return a segment with another text, which has symbols of the segment, after the same tag."""
    masked = replace(segment.masked, text=one_line(text))
    (ids,) = tokenizers.source.encode([masked.in_model(masked.text)])
    tag = segment.source.ids[: segment.tag_length]
    return replace(segment, masked=masked, source=replace(segment.source, ids=[*tag, *ids] if ids else []))


def _split_tag(text: str, side: Tokenizer) -> tuple[str, str]:
    """Return a text's leading tags, such as `<2es>`, which apply to every segment, and the rest of the text."""
    rest = text
    while tag := next((symbol for symbol in side.user_symbols if rest.startswith(symbol)), None):
        rest = rest.removeprefix(tag).lstrip()
    return text[: len(text) - len(rest)].strip(), rest


def encode_phrases(phrases: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Encode phrases."""
    encoded = tokenizer.encode(list(phrases))
    for phrase, ids in zip(phrases, encoded, strict=True):
        if not ids:
            raise UserError(f"the phrase {phrase!r} is empty: leave it out, or give words")
    return encoded


def join(
    segments: Sequence[Segment],
    parts: Sequence[Sequence[tuple[Hypothesis, str]]],
    tokenizer: Tokenizer,
    alpha: float,
    calibration: Calibration | None = None,
) -> list[Translation]:
    """Return a text's translations: the i-th translation joins the i-th hypotheses of the text's segments.

    The texts of the hypotheses have symbols, in whose place the translations have the strings.
    """
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
        restored = (segment.masked.restore(text) for segment, (_, text) in zip(segments, chosen, strict=True))
        text, (hypotheses, texts) = " ".join(filter(None, restored)), zip(*chosen, strict=True)
        confidence = calibration and min(calibration.confidence(one.score, len(one.ids) + 1) for one in hypotheses)
        translations.append(
            Translation(text, score, normalised, tokens, parts=hypotheses, part_texts=texts, confidence=confidence)
        )
    return translations


def without_repeats(translations: Iterable[Translation]) -> list[Translation]:
    """Return the translations whose text no earlier one has: subwords can spell a text in several ways."""
    unlike: dict[str, Translation] = {}
    for translation in translations:
        unlike.setdefault(translation.text, translation)
    return list(unlike.values())


def least_risky(candidates: Sequence[Translation]) -> list[Translation]:
    """Return the candidates by their mean chrF against all others, best first (minimum Bayes risk)."""
    from seq2seq.evaluation.metrics import expected_utilities  # slow to import, and rarely needed

    utilities = expected_utilities([candidate.text for candidate in candidates])
    order = sorted(range(len(candidates)), key=lambda index: utilities[index], reverse=True)
    return [candidates[index] for index in order]


def align_text(
    segments: Sequence[Segment], hypotheses: Sequence[Sequence[int]], scores: Sequence[TokenScores],
    text: str, tokenizer: Tokenizers, texts: Sequence[str] | None = None,
) -> Alignment:  # fmt: skip
    """Return the alignment of words between a text and its translation, from the attention of each segment.

    texts are the segments' translations, with symbols, some of which their ids (hypotheses) may lack; None: they lack
    none.
    """
    joined, words_before = [], 0
    first_words = [0] * len(segments)
    if len(segments) > 1 or any(segment.tag_length for segment in segments):
        masked = tokenizer.find_strings(text)
        unmasked = [one_line(segment.masked.restore(segment.masked.text)) for segment in segments]
        first_words = number_words(one_line(masked.restore(masked.text)), unmasked)
    decoded = tokenizer.target.decode(list(map(list, hypotheses)))
    for i, (segment, token_scores) in enumerate(zip(segments, scores, strict=True)):
        masked, rows = segment.masked, [row[segment.tag_length :] for row in token_scores.attention or []]
        source = tokenizer.source.tokens(segment.source.ids[segment.tag_length :])
        target = tokenizer.target.tokens(hypotheses[i])
        read, translation = masked.in_model(masked.text), texts[i] if texts else masked.from_model(decoded[i])
        numbers = _number_words(masked, decoded[i], translation)
        joined += [
            (first_words[i] + masked.word_number(read, src), words_before + numbers[tgt])
            for src, tgt in align_words(source, target, rows)
            if tgt < len(numbers)  # a subword that is a mere space is no word
        ]
        words_before += len(masked.restore(translation).split())
    return joined


def _number_words(masked: Masked, decoded: str, translation: str) -> list[int]:
    """Return the number that each word of a decoded translation has in the translation with all strings.

    Return none if the translation has other words: a text of mere strings is its own translation.
    """
    added = set(masked.lost(masked.from_model(decoded)))

    def as_decoded(match: re.Match[str]) -> str:
        return match[0] if match[1] in added else masked.in_model(match[0])

    written = SYMBOL.sub(as_decoded, translation)
    bare = [SYMBOL.sub(lambda match: "" if match[1] in added else match[0], word) for word in written.split()]
    if "".join(bare) != "".join(decoded.split()):
        return []
    words = [number for number, word in enumerate(bare) for _ in word]  # of each character
    starts = itertools.accumulate((len(word) for word in decoded.split()), initial=0)
    return [masked.word_number(written, words[start]) for start, _ in zip(starts, decoded.split(), strict=False)]


def split_to_match(translation: str, sizes: Sequence[int]) -> list[str]:
    """Cut a translation into as many parts as its source has segments, whose sizes (tokens) are given.

    Sentence for sentence if there are as many; else at those ends of sentences, or of words if sentences are too few,
    that keep the parts' shares of the translation nearest to the sizes' shares of the source (least squares), as
    lengths of sentences and their translations go together (Gale & Church 1993).
    """
    if len(sizes) <= 1:
        return [translation]
    units = split_text(" ".join(translation.split()), len(translation) + 1, lambda texts: [0] * len(texts))
    if len(units) < len(sizes):
        units = translation.split()
    if len(units) <= len(sizes):
        return [*units, *[""] * (len(sizes) - len(units))]
    shares, total, wanted = [0.0], sum(map(len, units)), sum(sizes)
    for unit in units:
        shares.append(shares[-1] + len(unit) / total)
    costs, choices, reached = [0.0] + [math.inf] * len(units), [], 0.0
    for size in sizes:  # costs[n]: of the best cut of the first n units so far
        reached += size / wanted
        best, before, choice = [math.inf], 0, [0]
        for end in range(1, len(units) + 1):
            before = end - 1 if costs[end - 1] < costs[before] else before
            best.append(costs[before] + (shares[end] - reached) ** 2)
            choice.append(before)
        costs = best
        choices.append(choice)
    ends = [len(units)]
    for choice in reversed(choices):
        ends.append(choice[ends[-1]])
    return [" ".join(units[start:end]) for start, end in itertools.pairwise(reversed(ends))]


def scored_translation(
    scores: Sequence[TokenScores],
    hypotheses: Sequence[Sequence[int]],
    alignment: Alignment | None,
    tokenizer: Tokenizer,
    alpha: float,
) -> ScoredTranslation:
    """Return the scores of a translation, joined from those of its segments; hypotheses are the segments' ids."""
    log_probs = [value for of_segment in scores for value in of_segment.log_probs]
    tokens = [token for ids in hypotheses for token in tokenizer.tokens([*ids, EOS])]
    score = math.fsum(log_probs)
    normalised = score / len(tokens) ** alpha if tokens else 0.0
    return ScoredTranslation(score, normalised, tokens, log_probs, alignment)
