"""The search and the rules that settings ask for."""

from collections.abc import Callable, Sequence

from jaxtyping import Int
from torch import Tensor

from seq2seq.config import SearchConfig
from seq2seq.errors import UserError
from seq2seq.search.beam import BeamSearch, Coverage
from seq2seq.search.constraints import ConstrainedBeamSearch
from seq2seq.search.diverse import DiverseBeamSearch
from seq2seq.search.driver import Search, SearchRequest
from seq2seq.search.greedy import GreedySearch
from seq2seq.search.rules import BannedPhrases, ForcedPrefix, MinimumLength, NoRepeatNgram, RepetitionPenalty, Rule
from seq2seq.search.sampling import SampleSearch
from seq2seq.search.step import Step


def require_one_kind(settings: SearchConfig, *, has_phrases: bool) -> None:
    """Refuse kinds of search that cannot be had together.

    Raises:
        UserError: the settings ask for two.
    """
    kinds = {"sampling": settings.sampling, "phrases": has_phrases}
    kinds |= {"groups": settings.groups > 1, "coverage_penalty": settings.coverage_penalty > 0}
    if not settings.coverage_penalty:
        kinds |= {"early_stopping": settings.early_stopping}
    wanted = [name for name, is_wanted in kinds.items() if is_wanted]
    if len(wanted) > 1:
        raise UserError(f"{' and '.join(wanted)} do not go together: leave out all but one")


def require_steps(settings: SearchConfig) -> None:
    """Refuse a search whose steps cannot be shown.

    Raises:
        UserError: the settings ask for no plain beam search.
    """
    if settings.sampling or settings.groups > 1 or settings.coverage_penalty or settings.mbr:
        raise UserError("only a plain beam search has steps to show: no sampling, groups, coverage_penalty or mbr")


def make_rules(
    settings: SearchConfig,
    shortest: Int[Tensor, " b"],
    *,
    prefixes: Sequence[Sequence[int]],
    banned: Sequence[Sequence[int]],
    eos: int,
) -> list[Rule]:
    """What is asked for and nothing else; a forced prefix stands above all others.

    Args:
        settings: of the search.
        shortest: tokens that each sentence's translation has at least.
        prefixes: ids that each begins with; may be empty.
        banned: sequences of ids that appear in none.
        eos: token that ends one.
    """
    rules: list[Rule] = []
    if settings.repetition_penalty != 1:
        rules.append(RepetitionPenalty(settings.repetition_penalty))
    if settings.no_repeat_ngram:
        rules.append(NoRepeatNgram(settings.no_repeat_ngram))
    if banned:
        rules.append(BannedPhrases(banned))
    if bool(shortest.any()):
        rules.append(MinimumLength(shortest, eos))
    return [ForcedPrefix(prefixes, rules)] if any(prefixes) else rules


def make_search(
    settings: SearchConfig,
    request: SearchRequest,
    n_best: int,
    *,
    phrases: Sequence[Sequence[Sequence[int]]],
    keys: Sequence[int],
    coverage: Coverage | None,
    watcher: Callable[[Step], object] | None,
) -> Search:
    """Make the search that settings ask for; each sentence has phrases of its own, and a key that samples depend on."""
    if settings.sampling:
        return SampleSearch(
            request,
            samples=n_best,
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            seed=settings.seed,
            keys=keys,
        )
    beam = settings.beam
    if any(phrases):
        return ConstrainedBeamSearch(request, phrases=phrases, beam=beam, n_best=n_best)
    if settings.groups > 1:
        groups, diversity = settings.groups, settings.diversity
        return DiverseBeamSearch(request, beam=beam, groups=groups, diversity=diversity, n_best=n_best)
    if beam == 1 and watcher is None and coverage is None:
        return GreedySearch(request)
    early = settings.early_stopping
    return BeamSearch(request, beam=beam, n_best=n_best, coverage=coverage, early_stopping=early, watcher=watcher)
