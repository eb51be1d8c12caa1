"""The interface of engines for a translator: sources in, hypotheses out, as plain numbers; knows no text, no tensor."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from seq2seq.search.hypothesis import Hypothesis
from seq2seq.settings.search import SearchConfig

Phrases = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Source:
    """A text to translate; all ids are without EOS."""

    ids: list[int]
    prefix: Sequence[int] = ()  # the translation begins with these ids
    phrases: Phrases = ()  # the translation contains all of these phrases
    key: int = 0  # samples depend on the seed and this key


@dataclass(frozen=True)
class Forced:
    """The model's scores of a given translation."""

    log_probs: list[float]  # of every token, EOS last (nats)
    attention: list[list[float]] | None  # from target to source tokens, EOS last; None: not asked for


def length_limits(sources: Sequence[Source], settings: SearchConfig) -> list[tuple[int, int]]:
    """Return the least and the most tokens of each source's translation, EOS not counted."""
    limits = []
    for source in sources:
        longest = max(_share(source, settings.max_length_ratio, settings.max_length_offset), len(source.prefix))
        limits.append((min(_share(source, settings.min_length_ratio, settings.min_length), longest), longest))
    return limits


def _share(source: Source, ratio: float, more: int) -> int:
    return int(round(len(source.ids) * ratio + more, 6))  # rounded first: 100 * 0.29 is 28.999999999999996


@runtime_checkable
class SearchEngine(Protocol):
    """A program that finds translations, such as `seq2seq.engine.Engine`."""

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
class ReadingEngine(SearchEngine, Protocol):
    """An engine that also scores given translations."""

    @property
    def can_align(self) -> bool:
        """Whether the engine can return attention, from which words are aligned."""
        ...

    def force(
        self, sources: Sequence[list[int]], targets: Sequence[list[int]], batch_tokens: int, *, watch: bool = False
    ) -> Iterator[list[tuple[int, Forced]]]:
        """Score given translations; yields (index, scores) by batch; see `Engine.force`."""
        ...
