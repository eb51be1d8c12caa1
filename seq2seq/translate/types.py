"""What goes into an engine and a translator, and what comes out; loads no PyTorch.

A translator gets texts (`Text`, `SearchRequest`) and returns translations (`Translation`, `ScoredTranslation`). Its
engine gets ids (`Source`) and returns hypotheses and scores (`Hypothesis`, `TokenScores`).
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from seq2seq.errors import UserError
from seq2seq.search.types import Hypothesis, Phrases, Source, TokenScores
from seq2seq.settings.checks import IntOrAuto, check_ranges
from seq2seq.settings.search import SearchConfig, require_one_kind
from seq2seq.text.glossary import Glossary

T = TypeVar("T")


@runtime_checkable
class SearchEngine(Protocol):
    """A program that finds translations, such as `seq2seq.translate.engine.Engine`."""

    def search(
        self,
        sources: Sequence[Source],
        settings: SearchConfig,
        n_best: int,
        banned: Phrases = (),
        *,
        on_step: Callable[[], object] | None = None,
    ) -> Iterator[list[tuple[int, list[Hypothesis]]]]:
        """Search every source's n best translations; yields (source index, hypotheses) by batch; see `Engine.search`.

        An engine whose steps cannot be interrupted calls on_step before every batch.
        """
        ...


@runtime_checkable
class ScoringEngine(SearchEngine, Protocol):
    """An engine that also scores given translations."""

    @property
    def can_align(self) -> bool:
        """Whether the engine can return attention, from which words are aligned."""
        ...

    def score(
        self,
        sources: Sequence[list[int]],
        targets: Sequence[list[int]],
        batch_tokens: IntOrAuto,
        *,
        align: bool = False,
    ) -> Iterator[list[tuple[int, TokenScores]]]:
        """Score given translations; yields (index, scores) by batch; see `Engine.score`."""
        ...


@dataclass(frozen=True)
class Text:
    """A text to translate, with the first words and the phrases that its translation must have.

    Raises:
        UserError: phrases is one string.
    """

    text: str
    prefix: str = ""  # text that the translation begins with; spaces at its end are dropped
    phrases: Sequence[str] = ()  # phrases that the translation contains

    def __post_init__(self) -> None:
        refuse_string(self.phrases, "phrases")


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """What to search for each text."""

    settings: SearchConfig
    n_best: int = 1  # translations of each text: at most the beam; with sampling, the number of samples
    banned: Sequence[str] = ()  # phrases that no translation contains
    glossary: Glossary | None = None  # terms and the translations that they must have
    align: bool = False  # whether every translation gets an alignment

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_best", operator.index(self.n_best))
        object.__setattr__(self, "banned", tuple(refuse_string(self.banned, "banned")))  # an iterator is read once
        check_ranges("", self, n_best=(1, 10_000))
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
    tokens: list[str]  # subwords
    alignment: list[tuple[int, int]] | None = None  # source word, target word, from 0; None: not asked for
    parts: tuple[Hypothesis, ...] = ()  # the hypotheses of the segments that the text was translated in
    part_texts: tuple[str, ...] = ()  # their texts, with symbols in place of the strings that stay the same
    # probability that it is acceptable (docs/evaluation.md), of several segments the least; None: the model is not
    # calibrated, or the text has no words
    confidence: float | None = None


@dataclass(frozen=True)
class ScoredTranslation:
    """The model's scores of a given translation."""

    score: float  # sum of log-probabilities, EOS included (nats)
    normalised_score: float  # score / length^α, length counting EOS (nats)
    tokens: list[str]  # subwords, </s> last in every segment
    log_probs: list[float]  # of each (nats)
    alignment: list[tuple[int, int]] | None  # source word, target word, from 0; None: not asked for


def refuse_string(texts: Iterable[T], name: str) -> Iterable[T]:
    """Return texts, but not one string, which would be taken as a list of its letters; messages call it `name`."""
    if isinstance(texts, str):
        raise UserError(f"{name} is one string ({texts[:20]!r}…): give a list of them, [text]")
    return texts
