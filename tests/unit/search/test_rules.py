import pytest

from seq2seq.search.rules import BannedPhrases, ForcedPrefix, NoRepeatNgram
from tests.unit.search import tasks
from tests.unit.search.tasks import EOS, KINDS, TableModel, contains, ids_of

LIMIT, TABLES = 4, [31, 32]


def search(tables, rules, **arguments):
    return tasks.search(TableModel(6), tables, [LIMIT] * len(tables), rules=rules, **arguments)


def has_repeats(ids, size):
    ngrams = [tuple(ids[start : start + size]) for start in range(len(ids) - size + 1)]
    return len(set(ngrams)) < len(ngrams)


ALLOWED = {  # rules for sentences 0 and 1, and what they allow
    "bigrams": ([NoRepeatNgram(2)], lambda ids, s: not has_repeats(ids, 2)),
    "unigrams": ([NoRepeatNgram(1)], lambda ids, s: not has_repeats(ids, 1)),
    "trigrams": ([NoRepeatNgram(3)], lambda ids, s: not has_repeats(ids, 3)),
    "banned": (
        [BannedPhrases([[4], [1, 5, 1], [5, 5]])],
        lambda ids, s: not any(contains(ids, phrase) for phrase in ([4], [1, 5, 1], [5, 5])),
    ),
    "prefix": ([ForcedPrefix([[5, 1, 1], []])], lambda ids, s: ids[:3] == [5, 1, 1] or s == 1),
    "two": (
        [NoRepeatNgram(2), BannedPhrases([[5, 4]])],
        lambda ids, s: not contains(ids, [5, 4]) and not has_repeats(ids, 2),
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_a_wide_beam_finds_exactly_what_the_rule_allows(name):
    rules, is_allowed = ALLOWED[name]
    for sentence, best in enumerate(search(TABLES, rules, beam=200)):
        everything = TableModel(6).all_sequences(TABLES[sentence], LIMIT)
        assert ids_of(best) == [ids for ids in everything if is_allowed(ids, sentence)]


@pytest.mark.parametrize("kind", KINDS)
def test_rules_that_leave_nothing_leave_no_hypothesis(kind):
    rules = [BannedPhrases([[token] for token in range(6) if token != EOS])]
    results = search([1, 2, 3], rules, min_lengths=[2, 0, 2], **KINDS[kind])
    assert [set(map(tuple, ids_of(best))) for best in results] == [set(), {()}, set()]


def test_forced_tokens_need_not_obey_the_rules_for_free_tokens():
    rules = [NoRepeatNgram(1), BannedPhrases([[4]])]
    forced, free = search([34, 35], [ForcedPrefix([[4, 5, 5], []], rules)], beam=200)
    assert sorted(ids_of(forced)) == [[4, 5, 5], [4, 5, 5, 1]]
    everything = TableModel(6).all_sequences(35, LIMIT)
    assert ids_of(free) == [ids for ids in everything if 4 not in ids and not has_repeats(ids, 1)]
    assert search([34], [ForcedPrefix([[4, 5, 5]]), *rules], beam=200) == [[]]
