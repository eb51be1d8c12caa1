import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.search.kinds import make_rules
from seq2seq.search.rules import ForcedPrefix
from seq2seq.settings.search import SearchConfig, require_one_kind, require_steps

NONE = torch.tensor([0, 0])


def names(settings: SearchConfig, shortest=NONE, prefixes=((), ()), banned=()) -> list[str]:
    return [type(rule).__name__ for rule in make_rules(settings, shortest, prefixes=prefixes, banned=banned, eos=3)]


def test_there_is_a_rule_for_what_is_asked_and_no_other():
    assert names(SearchConfig()) == []
    assert names(SearchConfig(repetition_penalty=1.2, no_repeat_ngram=3)) == ["RepetitionPenalty", "NoRepeatNgram"]
    assert names(SearchConfig(), torch.tensor([0, 2]), banned=[[7]]) == ["BannedPhrases", "MinimumLength"]


def test_a_forced_prefix_stands_above_all_others():
    (rule,) = make_rules(SearchConfig(), NONE, prefixes=[(), (5,)], banned=[[7]], eos=3)
    assert isinstance(rule, ForcedPrefix)
    assert [type(inner).__name__ for inner in rule.rules] == ["BannedPhrases"]


def test_two_kinds_of_search_are_named_and_refused():
    require_one_kind(SearchConfig(coverage_penalty=0.2, early_stopping=True), has_phrases=False)
    with pytest.raises(UserError, match="phrases and groups do not go together: leave out all but one"):
        require_one_kind(SearchConfig(groups=5), has_phrases=True)


def test_only_a_plain_beam_search_has_steps():
    require_steps(SearchConfig(early_stopping=True))
    for settings in (SearchConfig(sampling=True), SearchConfig(groups=5), SearchConfig(coverage_penalty=0.2)):
        with pytest.raises(UserError, match="only a plain beam search has steps to show"):
            require_steps(settings)
