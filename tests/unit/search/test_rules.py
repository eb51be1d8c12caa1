import pytest
import torch

from seq2seq.search.beam import BeamSearch
from seq2seq.search.driver import SearchTask
from seq2seq.search.greedy import GreedySearch
from seq2seq.search.rules import BannedPhrases, ForcedPrefix, MinimumLength, NoRepeatNgram, RepetitionPenalty
from seq2seq.settings.search import SearchConfig

BOS, EOS = 2, 3
BANNED = (0, BOS)
LIMIT = 5


def search(model, tables, rules, *, beam, n_best=None):
    task = make_task([LIMIT] * len(tables), rules, beam, beam if n_best is None else n_best)
    return (GreedySearch if beam == 1 else BeamSearch)(task).run(model.step, model.start(tables))


def make_task(limits, rules, beam, n_best=1):
    return SearchTask(
        settings=SearchConfig(beam=beam),
        bos=BOS,
        eos=EOS,
        max_lengths=limits,
        device="cpu",
        n_best=n_best,
        banned=BANNED,
        rules=rules,
    )


def ngrams(ids, size):
    return [tuple(ids[start : start + size]) for start in range(len(ids) - size + 1)]


def contains(ids, phrase):
    return tuple(phrase) in ngrams(ids, len(phrase))


ALLOWED = {  # rules for sentences 0 and 1, and what they allow
    "minimum": (lambda: [MinimumLength(torch.tensor([3, 1]), EOS)], lambda ids, s: len(ids) >= (3, 1)[s]),
    "bigrams": (lambda: [NoRepeatNgram(2)], lambda ids, s: len(set(ngrams(ids, 2))) == len(ngrams(ids, 2))),
    "unigrams": (lambda: [NoRepeatNgram(1)], lambda ids, s: len(set(ids)) == len(ids)),
    "trigrams": (lambda: [NoRepeatNgram(3)], lambda ids, s: len(set(ngrams(ids, 3))) == len(ngrams(ids, 3))),
    "banned": (
        lambda: [BannedPhrases([[4], [1, 5, 1], [5, 5]])],
        lambda ids, s: not any(contains(ids, phrase) for phrase in ([4], [1, 5, 1], [5, 5])),
    ),
    "prefix": (lambda: [ForcedPrefix([[5, 1, 1], []])], lambda ids, s: ids[:3] == [5, 1, 1] or s == 1),
    "all": (
        lambda: [NoRepeatNgram(2), BannedPhrases([[5, 4]]), MinimumLength(torch.tensor([2, 2]), EOS)],
        lambda ids, s: len(ids) >= 2 and not contains(ids, [5, 4]) and len(set(ngrams(ids, 2))) == len(ids) - 1,
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_a_wide_beam_finds_exactly_what_the_rule_allows(table_model, name):
    rules, is_allowed = ALLOWED[name]
    model = table_model(6)
    found = search(model, [31, 32], rules(), beam=400)
    for sentence, best in enumerate(found):
        everything = model.all_sequences((31, 32)[sentence], LIMIT, 1.0, BANNED)
        assert [one.ids for one in best] == [ids for ids in everything if is_allowed(ids, sentence)]
        for one in best[:20]:
            assert one.score == pytest.approx(model.score((31, 32)[sentence], one.ids), abs=1e-4)


def test_repeated_tokens_cost_the_penalty_in_the_ranking_and_not_in_the_scores(table_model):
    model, penalty = table_model(6), 1.7
    (found,) = search(model, [33], [RepetitionPenalty(penalty)], beam=400)

    def penalised(ids):
        tokens, score = (BOS, *ids, EOS), 0.0
        for place in range(1, len(tokens)):
            log_prob = model.logits(33, tokens[:place]).log_softmax(-1)[tokens[place]].item()
            score += log_prob * (penalty if tokens[place] in tokens[1:place] else 1.0)
        return score

    assert len(found) == len(model.all_sequences(33, LIMIT, 1.0, BANNED))
    for one in found:
        assert one.score == pytest.approx(model.score(33, one.ids), abs=1e-4)
        assert one.normalised_score == pytest.approx(one.score / (len(one.ids) + 1), abs=1e-6)
    values = [penalised(one.ids) / (len(one.ids) + 1) for one in found]
    assert values == pytest.approx(sorted(values, reverse=True), abs=1e-5)
    assert any(penalised(one.ids) < one.score - 0.1 for one in found)


@pytest.mark.parametrize("beam", [1, 3])
def test_with_rules_sentences_together_come_out_as_alone(table_model, beam):
    model, tables = table_model(8), [31, 32, 33, 34]
    shortest, prefixes = [3, 0, 5, 1], [[6], [], [5, 7, 1], [1, 1]]

    def rules(shortest, prefixes):
        free = [RepetitionPenalty(1.3), NoRepeatNgram(2), BannedPhrases([[5, 4], [7, 6, 1]])]
        return [*free, MinimumLength(torch.tensor(shortest), EOS), ForcedPrefix(prefixes)]

    together = search(model, tables, rules(shortest, prefixes), beam=beam)
    alone = [
        search(model, [table], rules([least], [prefix]), beam=beam)[0]
        for table, least, prefix in zip(tables, shortest, prefixes, strict=True)
    ]
    assert together == alone
    assert all(together)


def test_greedy_search_obeys_rules_as_a_beam_of_one_does(table_model):
    model = table_model(7)
    rules = [NoRepeatNgram(1), ForcedPrefix([[6], [], [5, 4], []]), MinimumLength(torch.tensor([3, 3, 3, 0]), EOS)]
    greedy = GreedySearch(make_task([6] * 4, rules, 1)).run(model.step, model.start([1, 2, 3, 4]))
    beam = BeamSearch(make_task([6] * 4, rules, 1)).run(model.step, model.start([1, 2, 3, 4]))
    assert greedy == beam
    assert greedy[0][0].ids[0] == 6


def test_rules_that_leave_nothing_leave_no_hypothesis(table_model):
    found = search(table_model(6), [1], [BannedPhrases([[1], [4], [5]]), MinimumLength(torch.tensor([2]), EOS)], beam=3)
    assert found == [[]]


def test_what_is_forced_need_not_obey_the_rules_for_what_is_free(table_model):
    model, rules = table_model(6), [NoRepeatNgram(1), BannedPhrases([[4]])]
    forced, free = search(model, [34, 35], [ForcedPrefix([[4, 5, 5], []], rules)], beam=400)
    assert sorted(one.ids for one in forced) == [[4, 5, 5], [4, 5, 5, 1]]
    expected = [
        ids for ids in model.all_sequences(35, LIMIT, 1.0, BANNED) if 4 not in ids and len(set(ids)) == len(ids)
    ]
    assert [one.ids for one in free] == expected
    assert search(model, [34], [ForcedPrefix([[4, 5, 5]]), *rules], beam=400) == [[]]


def test_senseless_rules_are_refused():
    with pytest.raises(ValueError, match="size=0 must be at least 1"):
        NoRepeatNgram(0)
    with pytest.raises(ValueError, match=r"penalty=0\.0 must be positive"):
        RepetitionPenalty(0.0)
    with pytest.raises(ValueError, match=r"phrases=\[\[4\], \[\]\]: every phrase needs a token"):
        BannedPhrases([[4], []])
