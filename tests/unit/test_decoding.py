"""What `Translator` can be asked for beside a plain translation."""

import math
from pathlib import Path

import pytest
import torch
from sacrebleu import sentence_chrf

from seq2seq.engine import Engine
from seq2seq.errors import UserError
from seq2seq.glossary import Glossary
from seq2seq.interface import Source, Text
from seq2seq.segments import number_words
from seq2seq.text.tokenizer import BOS, EOS
from seq2seq.translation import MAX_SOURCE_TOKENS, Segmenter
from seq2seq.translator import Translator
from seq2seq.words import align_words

TEXTS = ["The cat drank the milk.", "Ella ve.", "A dog sees a blue ball!", "¿Quién quiere la leche?", "niños"]
GOLDEN = Path(__file__).parents[1] / "golden" / "bundle"


@pytest.fixture(scope="module")
def translator(bundle_folder):
    return Translator.load(bundle_folder, "cpu")


def ids_of(translator, text):
    return translator.tokenizer.source.encode([text])[0]


def test_a_translation_begins_with_its_prefix(translator):
    prefixes = ["La leche", "", "Un perro ve", "¿", "El"]
    texts = [Text(text, prefix) for text, prefix in zip(TEXTS, prefixes, strict=True)]
    found = translator.translate(texts, max_length=12)
    assert all(one.startswith(prefix) for one, prefix in zip(found, prefixes, strict=True))
    assert found[1] == translator.translate(TEXTS, max_length=12)[1]


@pytest.mark.parametrize(
    "changes",
    [{}, {"beam": 1}, {"sampling": True}, {"groups": 2, "beam": 4, "diversity": 0.5}],
)
def test_a_search_may_be_made_between_the_steps_of_another(translator, changes):
    def translate(on_progress=None):
        found = translator.translate_nbest(TEXTS, 1, max_length=6, on_progress=on_progress, **changes)
        return [(one.text, one.score) for (one,) in found]

    between = []
    alone = translate()
    assert translate(lambda count: between.append(translate())) == alone
    assert len(between) > 6
    assert all(found == alone for found in between)


def test_phrases_appear(translator):
    wanted = [Text(text, phrases=["una bola azul"]) for text in TEXTS]
    for (one,) in translator.translate_nbest(wanted, 1, max_length=12):
        assert "una bola azul" in " ".join("".join(one.tokens).replace("▁", " ").split())


@pytest.mark.parametrize("word", ["gato", "la leche"])
def test_banned_phrases_do_not_appear(word):
    """A trained model's: the untrained one of these tests would not write a word of any text."""
    trained = Translator.load(GOLDEN, "cpu")
    assert trained.translate(["The cat sees the milk."]) == ["El gato ve la leche."]
    (other,) = trained.translate(["The cat sees the milk."], banned=[word])
    assert f" {word} " not in f" {other.removesuffix('.')} "  # of whole words; "ggato" is another


def test_a_glossary_asks_for_the_terms_of_each_text(translator):
    glossary = Glossary([("milk", "niños"), ("ball", "leche")])
    found = translator.translate_nbest(TEXTS, 1, glossary=glossary, max_length=12)
    texts = ["".join(one.tokens).replace("▁", " ") for (one,) in found]
    assert " niños" in texts[0]
    assert " leche" in texts[2]
    (free,) = translator.translate_nbest(TEXTS[1:2], 1, max_length=12)[0]
    assert (found[1][0].text, found[1][0].score) == (free.text, pytest.approx(free.score))


def test_what_cannot_be_had_is_told(translator):
    with pytest.raises(UserError, match=r"phrases of \d+ tokens do not fit into 3: raise max_length"):
        translator.translate([Text("Ella ve.", phrases=["una bola azul, la leche"])], max_length=3)
    with pytest.raises(UserError, match="no translation that begins, contains and leaves out"):
        translator.translate([Text("Ella ve.", phrases=["la leche"])], banned=["la leche"], max_length=20)
    with pytest.raises(UserError, match=r"line 1 has \d+ tokens: too many for a text with phrases to appear in it"):
        translator.translate([Text("Ella ve la leche. " * 80, phrases=["bola"])])
    for glossary, changes, named in (
        (None, {"sampling": True, "groups": 3}, "sampling and groups"),
        (None, {"groups": 3, "early_stopping": True}, "groups and early_stopping"),
        (Glossary([("cat", "gato")]), {"early_stopping": True}, "phrases and early_stopping"),
    ):
        with pytest.raises(UserError, match=f"{named} do not go together: leave out all but one"):
            translator.translate(["Ella ve."], glossary=glossary, **changes)
    for wanted, banned in ((Text("Ella ve.", phrases=[" "]), []), (Text("Ella ve."), [""])):
        with pytest.raises(UserError, match=r"the phrase '.*' is empty: leave it out"):
            translator.translate([wanted], banned=banned)
    with pytest.raises(
        UserError, match=r"there is no search setting beams \(did you mean beam\?\): choose from beam, length_penalty"
    ):
        translator.translate(["Ella ve."], beams=3)


def tokens_of(translations):
    return [[one.tokens for one in best] for best in translations]


def test_samples_depend_on_seed_and_line_only(translator):
    settings = {"sampling": True, "temperature": 1.5, "max_length": 8}
    first = translator.translate_nbest(TEXTS, 4, seed=3, **settings)
    assert tokens_of(first) == tokens_of(translator.translate_nbest(TEXTS, 4, seed=3, batch_tokens=10, **settings))
    assert tokens_of(first) != tokens_of(translator.translate_nbest(TEXTS, 4, seed=4, **settings))
    assert len({one.text for one in first[0]}) > 1
    one_by_one = list(translator.stream(TEXTS, translator.request(n_best=4, seed=3, **settings), chunk=1))
    assert tokens_of(one_by_one) == tokens_of(first)


def test_minimum_bayes_risk_chooses_the_sample_most_like_the_others(translator):
    settings = {"sampling": True, "max_length": 8, "seed": 5}
    samples = translator.translate_nbest(TEXTS, 6, **settings)
    for (chosen,), candidates in zip(translator.translate_nbest(TEXTS, 1, mbr=6, **settings), samples, strict=True):
        texts = [one.text for one in candidates]
        utilities = [sum(sentence_chrf(text, [other]).score for other in texts) for text in texts]
        assert chosen.text == texts[max(range(6), key=utilities.__getitem__)]
    with pytest.raises(UserError, match=r"mbr=6 needs a beam of at least as many \(beam=3\), or sampling"):
        translator.translate(TEXTS, mbr=6)


def test_every_setting_reaches_the_search(translator):
    plain = translator.translate_nbest(TEXTS, 1, max_length=12)
    longer = translator.translate_nbest(TEXTS, 1, max_length=12, min_length=11)
    assert all(len(one.tokens) >= 11 for (one,) in longer)
    unlike = translator.translate_nbest(TEXTS, 1, max_length=12, min_length=10, no_repeat_ngram=1)
    assert all(len(set(one.tokens)) == len(one.tokens) for (one,) in unlike)
    many = translator.translate_nbest(TEXTS, 3, max_length=12, min_length=6)
    for changes in ({"repetition_penalty": 4.0}, {"groups": 3, "diversity": 9.0}):
        changed = translator.translate_nbest(TEXTS, 3, max_length=12, min_length=6, **changes)
        assert changed != many
    ratio = translator.translate_nbest(TEXTS, 1, max_length_ratio=0.0, max_length_offset=12, min_length_ratio=0.9)
    for text, (one,) in zip(TEXTS, ratio, strict=True):
        assert len(one.tokens) >= min(12, int(0.9 * len(ids_of(translator, text))))
    assert len(plain) == len(TEXTS)


def test_scores_of_given_translations_are_those_of_the_search(translator):
    engine, settings = translator.engine, translator.request(length_penalty=0.6, max_length=9).settings
    sources = [Source(ids_of(translator, text)) for text in TEXTS]
    found = dict(one for batch in engine.search(sources, settings, 3) for one in batch)
    pairs = [(sources[index].ids, one) for index, best in found.items() for one in best]
    scores = dict(one for batch in engine.score([i for i, _ in pairs], [h.ids for _, h in pairs], 50) for one in batch)
    for index, (_, one) in enumerate(pairs):
        score = sum(scores[index].log_probs)
        assert score == pytest.approx(one.score, abs=1e-4)
        assert score / len(scores[index].log_probs) ** 0.6 == pytest.approx(one.normalised_score, abs=1e-4)
    assert len(pairs) > 10


@pytest.mark.parametrize(
    "changes",
    [
        {"beam": 1},
        {"beam": 4},
        {"beam": 4, "groups": 2},
        {"beam": 4, "phrases": ["leche"]},
    ],
    ids=str,
)
def test_scores_are_the_models_own_whatever_rules_rank_by(translator, changes):
    phrases = changes.pop("phrases", [])
    rules = {"repetition_penalty": 1.2, "length_penalty": 0.6, "max_length": 12, "min_length": 6}
    settings = translator.request(**rules, **changes).settings
    wanted = [Text(text, phrases=phrases) for text in TEXTS]
    n_best = 1 if settings.beam == 1 else 3
    engine = translator.engine
    encoded = [translator.tokenizer.source.encode([text.text, *text.phrases]) for text in wanted]
    sources = [Source(src, phrases=of_text) for src, *of_text in encoded]
    found = dict(one for batch in engine.search(sources, settings, n_best) for one in batch)
    pairs = [(sources[index].ids, one) for index, best in found.items() for one in best]
    scores = dict(one for batch in engine.score([i for i, _ in pairs], [h.ids for _, h in pairs], 50) for one in batch)
    assert any(len(set(one.ids)) < len(one.ids) for _, one in pairs)  # something was repeated and cost more
    for index, (_, one) in enumerate(pairs):
        score = sum(scores[index].log_probs)
        assert one.score == pytest.approx(score, abs=1e-4)
        assert one.normalised_score == pytest.approx(score / (len(one.ids) + 1) ** 0.6, abs=1e-4)


def test_scores_equal_those_of_decoding_token_by_token(translator):
    model, engine = translator.engine.model, translator.engine
    assert isinstance(engine, Engine)
    targets = ["El gato bebió la leche.", "", "Un perro", "¿Qué?", "niños"]
    readings = translator.score(TEXTS, targets, align=True, batch_tokens=20)
    for text, target, reading in zip(TEXTS, targets, readings, strict=True):
        state, last, score = model.encode(torch.tensor([[*ids_of(translator, text), EOS]])), BOS, []
        for token in [*ids_of(translator, target), EOS]:
            logits, state = model.decode(torch.tensor([[last]]), state)
            score.append(logits[0, 0].log_softmax(-1)[token].item())
            last = token
        assert reading.log_probs == pytest.approx(score, abs=1e-4)
        assert reading.score == pytest.approx(math.fsum(score), abs=1e-3)
        assert [word for _, word in reading.alignment] == list(range(len(target.split())))
        assert all(0 <= word < len(text.split()) for word, _ in reading.alignment)
    assert translator.score(TEXTS[:1], targets[:1])[0].alignment is None


def test_alignments_come_in_batches_and_are_those_of_one_by_one(translator, monkeypatch):
    sizes, score = [], Engine._score

    def counting(self, sources, *rest):
        sizes.append(len(sources))
        return score(self, sources, *rest)

    monkeypatch.setattr(Engine, "_score", counting)
    texts = [*TEXTS, "", Text("A dog.", prefix="El gato ve")]
    found = translator.translate_nbest(texts, 2, align=True)
    assert sum(sizes) == sum(map(len, found)) - 1 > len(texts)  # the text without words is not scored
    assert len(sizes) < 3  # of at most the bundle's batch_tokens
    small = translator.translate_nbest(texts, 2, align=True, batch_tokens=60)
    assert len(sizes) > 4
    for text, best, same in zip(texts, found, small, strict=True):
        alone = translator.translate_nbest([text], 2, align=True)[0]
        assert [one.alignment for one in best] == [one.alignment for one in same] == [one.alignment for one in alone]
    assert found[5][0].alignment == []
    assert len({tuple(one.alignment) for best in found for one in best}) > 3
    assert translator.translate_nbest(texts, 1)[0][0].alignment is None


def test_a_text_however_long_is_aligned_segment_by_segment_in_small_batches(translator, monkeypatch):
    shapes, score = [], Engine._score

    def observed(self, sources, targets, *rest):
        longest = max(len(ids) + 1 for ids in [*sources, *targets])
        shapes.append((len(sources), longest))
        if len(sources) * longest > room:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return score(self, sources, targets, *rest)

    sentences = [f"The{i} cat{i} drank{i}. A{i} dog{i} sees{i}! Ella{i} {'niños' * 90}{i}." for i in range(5)]
    texts = ["Ella ve.", " ".join(sentences), "niños"]
    assert len(ids_of(translator, texts[1])) > 1000
    room, more = 10**9, {"max_length": 5, "beam": 1, "align": True}
    monkeypatch.setattr(Engine, "_score", observed)
    found = translator.translate_nbest(texts, 1, **more)
    assert all(rows * longest <= translator.search.batch_tokens or rows == 1 for rows, longest in shapes)
    assert max(longest for _, longest in shapes) <= MAX_SOURCE_TOKENS + 1
    (one,), words, tokens = found[1], texts[1].split(), translator.tokenizer.target.tokens
    assert [word for _, word in one.alignment] == list(range(len(one.text.split())))
    segments, alignment = Segmenter(translator.tokenizer, None).segments([Text(texts[1])]), iter(one.alignment)
    assert len(segments) == len(one.parts) > 15
    for segment, part in zip(segments, one.parts, strict=True):
        (((_, scores),),) = translator.engine.score([segment.source.ids], [part.ids], 1, align=True)
        for source, _ in align_words(tokens(segment.source.ids), tokens(part.ids), scores.attention):
            assert segment.text.split()[source] in words[next(alignment)[0]]
    assert next(alignment, None) is None
    assert len({source for source, _ in one.alignment}) > 5
    shapes.clear()
    room = 250  # tokens
    again = translator.translate_nbest(texts, 1, **more)
    assert [best[0].alignment for best in again] == [best[0].alignment for best in found]
    assert any(rows * longest > room for rows, longest in shapes)


def test_an_alignment_belongs_to_the_subwords_that_the_search_chose(translator, monkeypatch):
    scored, score, target = [], Engine._score, translator.tokenizer.target

    def observed(self, sources, targets, *rest):
        scored.extend(zip(map(tuple, sources), map(tuple, targets), strict=True))
        return score(self, sources, targets, *rest)

    monkeypatch.setattr(Engine, "_score", observed)
    found = translator.translate_nbest(TEXTS, 3, align=True)
    pairs = [(text, one) for text, best in zip(TEXTS, found, strict=True) for one in best]
    expected = [(tuple(ids_of(translator, text)), tuple(one.parts[0].ids)) for text, one in pairs]
    assert sorted(scored) == sorted(expected)
    assert all(target.tokens(one.parts[0].ids) == one.tokens for _, one in pairs)
    assert any(target.encode([one.text])[0] != one.parts[0].ids for _, one in pairs)  # subwords that no text becomes


def test_words_of_segments_are_numbered_only_for_an_alignment(translator, monkeypatch):
    calls, text = [], "The cat drank the milk. " * 20
    monkeypatch.setattr("seq2seq.translation.number_words", lambda *args: calls.append(args) or number_words(*args))
    translator.translate([text], max_length=2)
    assert not calls
    translator.translate_nbest([text], 1, max_length=2, align=True)
    assert len(calls) == 1


def test_no_text_is_repeated_among_the_n_best(translator):
    settings = translator.request(n_best=3).settings
    batches = translator.engine.search([Source(ids_of(translator, text)) for text in TEXTS], settings, 3)
    decode = translator.tokenizer.target.decode
    texts = {index: decode([one.ids for one in best]) for batch in batches for index, best in batch}
    assert any(len(set(best)) < 3 for best in texts.values())  # the search spells a text in several ways
    found = translator.translate_nbest(TEXTS, 3)
    assert [[one.text for one in best] for best in found] == [list(dict.fromkeys(texts[i])) for i in range(len(TEXTS))]
    samples = translator.translate_nbest(TEXTS, 8, sampling=True, max_length=1, top_k=2)
    assert all(len(best) == 8 for best in samples)


def test_an_engine_that_only_searches_cannot_align(translator):
    class Searcher:
        def search(self, sources, settings, n_best, banned=(), *, on_step=None):
            return translator.engine.search(sources, settings, n_best, banned)

    searcher = Translator(Searcher(), translator.tokenizer, search=translator.search)
    assert searcher.translate(TEXTS) == translator.translate(TEXTS)
    assert not searcher.can_align
    with pytest.raises(UserError, match="cannot score given translations: use the pytorch engine"):
        searcher.translate_nbest(TEXTS, 1, align=True)


def test_lists_to_score_must_be_equally_long(translator):
    with pytest.raises(UserError, match="5 sources but 1 translations: give one for each"):
        translator.score(TEXTS, ["hola"])


def test_an_ensemble_of_one_model_twice_is_that_model(bundle_folder, translator):
    twice = Translator.load([bundle_folder, bundle_folder], "cpu")
    assert twice.can_align
    for (one,), (other,) in zip(twice.translate_nbest(TEXTS, 1), translator.translate_nbest(TEXTS, 1), strict=True):
        assert one.tokens == other.tokens
        assert one.score == pytest.approx(other.score, abs=1e-4)
    assert twice.score(TEXTS, TEXTS, align=True)[0].alignment == translator.score(TEXTS, TEXTS, align=True)[0].alignment
