"""Beam search for hypotheses that contain given phrases; knows ids and an opaque state, never a model.

Dynamic beam allocation (Post & Vilar 2018): continuations are sorted into banks by the number of phrase tokens that
they still miss, and the banks share the beam, so that likely words do not crowd out an unlikely phrase. Unlike in the
paper, every bank chooses from all continuations, and a broken phrase falls back to the longest suffix of its tokens
that is also its prefix (Knuth-Morris-Pratt). A hypothesis lives only while the missing phrases, one after another, fit
within its limit, and ends only when no phrase is missing; so some hypothesis always gets all phrases. A sentence leaves
the batch when no live hypothesis can enter its n best.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from seq2seq.device import on_host, tensor_on
from seq2seq.errors import UserError
from seq2seq.search.beam import BeamSearch
from seq2seq.search.driver import INF, NextTokens, Partial, Search, SearchTask, require_numbers
from seq2seq.search.sampling import SampleSearch
from seq2seq.settings.search import require_one_kind

Phrase = tuple[int, ...]


@dataclass(frozen=True)
class Progress:
    """The phrases of its sentence that a hypothesis still misses, and the tokens of these phrases that it has begun."""

    missing: tuple[Phrase, ...]
    begun: tuple[int, ...]  # for each missing phrase, the number of its first tokens that the hypothesis ends with

    @classmethod
    def start(cls, phrases: Sequence[Sequence[int]]) -> "Progress":
        """Return the progress of an empty hypothesis without phrases that others contain as often as they are given."""
        given = Counter(map(tuple, phrases))
        within = Counter[Phrase]()
        for one in sorted(given, key=len, reverse=True):  # an inner phrase counts once, also in nested ones
            within[one] = sum(max(given[it] - within[it], 0) for it in given if one != it and _within(one, it))
        missing = tuple(chain.from_iterable([one] * count for one, count in given.items() if count > within[one]))
        return cls(missing, (0,) * len(missing))

    @cached_property
    def needed(self) -> int:
        """Tokens still missing, if the phrase with the most tokens begun is finished first and the others follow."""
        return sum(map(len, self.missing)) - max(self.begun, default=0)

    @cached_property
    def steps(self) -> dict[int, "Progress"]:
        """The progress after each token of the missing phrases; every other token leads to `broken_off`."""
        return {token: self._after(token) for token in sorted(set(chain(*self.missing)))}

    @cached_property
    def broken_off(self) -> "Progress":
        """The progress with the same missing phrases, none of them begun."""
        return Progress(self.missing, (0,) * len(self.missing)) if any(self.begun) else self

    def _after(self, token: int) -> "Progress":
        tails = [(*phrase[:count], token) for phrase, count in zip(self.missing, self.begun, strict=True)]
        begun = [_overlap(tail, phrase) for tail, phrase in zip(tails, self.missing, strict=True)]
        each = enumerate(zip(self.missing, begun, strict=True))  # of equal phrases, a token finishes the first
        left = [(phrase, n % len(phrase)) for i, (phrase, n) in each if n < len(phrase) or phrase in self.missing[:i]]
        return Progress(tuple(phrase for phrase, _ in left), tuple(count for _, count in left))


def _within(inner: Phrase, outer: Phrase) -> bool:
    return any(outer[start : start + len(inner)] == inner for start in range(len(outer)))


def _overlap(tail: Phrase, phrase: Phrase) -> int:
    """Return the length of the longest suffix of tail that is a prefix of phrase."""
    return next(count for count in range(len(tail), -1, -1) if tail[len(tail) - count :] == phrase[:count])


@dataclass(kw_only=True, slots=True)
class _Partial(Partial):
    """A hypothesis with its progress."""

    progress: Progress


class ConstrainedBeamSearch(Search[_Partial]):
    """Finds each sentence's best hypotheses that contain all its phrases, best first.

    For a sentence without phrases, the result is the same as of `BeamSearch`. A beam greater than the number of the
    phrases' tokens has room for every bank; a smaller beam makes hypotheses begin their phrases early. Phrases with
    tokens that are never produced leave a sentence none.
    """

    def __init__(self, task: SearchTask) -> None:
        """Begin a search, or refuse phrases that do not fit into a sentence's limit.

        Raises:
            UserError: the phrases of a sentence need more tokens than its hypotheses may have.
        """
        starts = list(map(Progress.start, task.phrases))
        for start, limit in zip(starts, task.max_lengths, strict=True):
            if start.needed > limit:
                message = (
                    f"phrases of {start.needed} tokens do not fit into {limit}: raise max_length, or ask for fewer"
                )
                raise UserError(message)
        super().__init__(task, [[_Partial([], number, progress=start)] for number, start in enumerate(starts)])

    def advance(self, next_tokens: NextTokens) -> None:
        """Choose each sentence's continuations from the banks."""
        live, eos, log_probs = list(chain(*self.live.values())), self.task.eos, next_tokens.log_probs
        wanted = [(partial.row, token) for partial in live for token in (eos, *partial.progress.steps)]
        # so many that the best k are among them besides EOS and the tokens of phrases
        most = min(self.settings.beam + 1 + max(len(partial.progress.steps) for partial in live), log_probs.shape[1])
        at = tensor_on(self.task.device, wanted).unbind(1)
        tables = on_host(log_probs[at], *log_probs.topk(most))
        require_numbers(tables[1])
        scores, values, tokens = (table.tolist() for table in tables)
        of_wanted = dict(zip(wanted, scores, strict=True))
        for number, of_sentence in self.live.items():
            continuations: list[_Partial] = []
            for partial in of_sentence:
                steps = {eos: partial.progress, **partial.progress.steps}
                best = zip(tokens[partial.row], values[partial.row], strict=True)
                others = [(token, value, partial.progress.broken_off) for token, value in best if token not in steps]
                chosen = [(token, of_wanted[partial.row, token], progress) for token, progress in steps.items()]
                continuations += [
                    _Partial([*partial.ids, token], partial.row, partial.score + value, progress=progress)
                    for token, value, progress in (*chosen, *others[: self.settings.beam])
                ]
            self._choose(number, continuations)

    def _choose(self, number: int, continuations: list[_Partial]) -> None:
        """Choose among all continuations: the banks take places in turn, those that miss the fewest tokens first."""
        eos, alpha, beam = self.task.eos, self.alpha, self.settings.beam
        room = self.task.max_lengths[number] - self.length
        banks: dict[int, list[_Partial]] = {}
        for partial in sorted(continuations, key=lambda partial: partial.score, reverse=True):
            if partial.score > -INF and partial.progress.needed <= (0 if partial.ids[-1] == eos else room):
                banks.setdefault(partial.progress.needed, []).append(partial)
        turns = sorted((turn, needed) for needed, bank in banks.items() for turn in range(len(bank)))
        ended, live = self.ended[number], list[_Partial]()
        for needed, count in Counter(needed for _, needed in turns[:beam]).items():
            ended = [*ended, *(partial for partial in banks[needed][:count] if partial.ids[-1] == eos)]
            live += [partial for partial in banks[needed] if partial.ids[-1] != eos][:count]
        self.ended[number] = sorted(ended, key=lambda partial: partial.value(alpha), reverse=True)[:beam]
        self.live[number] = [] if self._is_done(live, number) else live

    def _is_done(self, live: list[_Partial], number: int) -> bool:
        """Return whether no live hypothesis can enter the n best: log-probabilities are never positive."""
        ended, alpha = self.ended[number], self.alpha
        if not live or len(ended) < self.task.n_best:
            return not live
        bound = max(partial.score for partial in live) / (self.task.max_lengths[number] + 1) ** alpha
        return self.settings.beam == 1 or bound <= ended[self.task.n_best - 1].value(alpha)


def make_search(task: SearchTask) -> Search[Any]:
    """Return the search that the task's settings and phrases ask for; a beam of 1 is greedy search."""
    has_phrases = any(task.phrases)
    require_one_kind(task.settings, has_phrases=has_phrases)
    if task.settings.sampling:
        return SampleSearch(task)
    return ConstrainedBeamSearch(task) if has_phrases else BeamSearch(task)
