"""Makes the search and the rules that settings ask for."""

from collections.abc import Sequence

from jaxtyping import Int
from torch import Tensor

from seq2seq.search.beam import BeamSearch
from seq2seq.search.constraints import ConstrainedBeamSearch
from seq2seq.search.diverse import DiverseBeamSearch
from seq2seq.search.driver import Search, SearchTask
from seq2seq.search.greedy import GreedySearch
from seq2seq.search.rules import BannedPhrases, ForcedPrefix, MinimumLength, NoRepeatNgram, RepetitionPenalty, Rule
from seq2seq.search.sampling import SampleSearch
from seq2seq.settings.search import SearchConfig


def make_rules(
    settings: SearchConfig,
    shortest: Int[Tensor, " b"],
    *,
    prefixes: Sequence[Sequence[int]],
    banned: Sequence[Sequence[int]],
    eos: int,
) -> list[Rule]:
    """Return the rules that the settings and the other arguments ask for; a forced prefix overrides all other rules.

    Args:
        settings: settings of the search.
        shortest: minimum number of tokens of each sentence's translation.
        prefixes: ids that each translation begins with; may be empty.
        banned: sequences of ids that no translation contains.
        eos: token that ends a translation.
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


def make_search(task: SearchTask) -> Search:
    """Return the search that the task's settings and phrases ask for."""
    if task.settings.sampling:
        return SampleSearch(task)
    if any(task.phrases):
        return ConstrainedBeamSearch(task)
    if task.settings.groups > 1:
        return DiverseBeamSearch(task)
    if task.settings.beam == 1 and task.coverage is None and task.watcher is None:
        return GreedySearch(task)
    return BeamSearch(task)
