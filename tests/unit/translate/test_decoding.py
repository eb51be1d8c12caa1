"""What `Translator` can be asked for beside a plain translation."""

import math

import pytest
import torch
from sacrebleu import sentence_chrf

from seq2seq.errors import UserError
from seq2seq.search.types import Source
from seq2seq.text.glossary import Glossary
from seq2seq.text.tokenizer import BOS, EOS
from seq2seq.text.words import align_words
from seq2seq.translate.engine import Engine
from seq2seq.translate.segmenter import MAX_SOURCE_TOKENS, Segmenter
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import Text
from tests.refusing import refuses
from tests.unit.conftest import GOLDEN

TEXTS = ["The cat drank the milk.", "Ella ve.", "A dog sees a blue ball!", "¿Quién quiere la leche?", "niños"]


def ids_of(translator, text):
    return translator.tokenizer.source.encode([text])[0]


def words_of(translation) -> str:
    return " ".join("".join(translation.tokens).replace("▁", " ").split())


@pytest.mark.slow
def test_phrases_and_the_terms_of_a_glossary_appear_and_banned_phrases_do_not(translator):
    texts = [Text(text, phrases=["una bola azul"]) for text in TEXTS]
    for (best,) in translator.translate_nbest(texts, 1, max_length=12):
        assert "una bola azul" in words_of(best)
    glossary = Glossary([("milk", "niños"), ("ball", "leche")])
    results = translator.translate_nbest(TEXTS, 1, glossary=glossary, max_length=12)
    assert "niños" in words_of(results[0][0])
    assert "leche" in words_of(results[2][0])
    assert results[1][0].text == translator.translate(TEXTS[1:2], max_length=12)[0]
    trained = Translator.load(GOLDEN, "cpu")
    source = ["The cat sees the milk."]
    assert trained.translate(source) == ["El gato ve la leche."]
    for phrase in ("gato", "la leche"):
        (other,) = trained.translate(source, banned=[phrase])
        assert f" {phrase} " not in f" {other.removesuffix('.')} "  # of whole words; "ggato" is another


def test_impossible_requests_are_refused(translator):
    with pytest.raises(UserError, match=r"phrases of \d+ tokens do not fit into 3: raise max_length"):
        translator.translate([Text("Ella ve.", phrases=["una bola azul, la leche"])], max_length=3)
    with pytest.raises(UserError, match="no translation that begins, contains and leaves out"):
        translator.translate([Text("Ella ve.", phrases=["la leche"])], banned=["la leche"], max_length=20)
    with pytest.raises(UserError, match=r"line 1 has \d+ tokens: too many for a text with phrases to appear in it"):
        translator.translate([Text("Ella ve la leche. " * 80, phrases=["bola"])])
    for glossary, changes, named in (
        (None, {"sampling": True, "early_stopping": True}, "sampling and early_stopping"),
        (Glossary([("cat", "gato")]), {"early_stopping": True}, "phrases and early_stopping"),
    ):
        with pytest.raises(UserError, match=f"{named} do not go together: leave out all but one"):
            translator.translate(["Ella ve."], glossary=glossary, **changes)
    for text, banned in ((Text("Ella ve.", phrases=[" "]), []), (Text("Ella ve."), [""])):
        refuses(r"the phrase '.*' is empty: leave it out", translator.translate, [text], banned=banned)


def tokens_of(translations):
    return [[one.tokens for one in best] for best in translations]


@pytest.mark.slow
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


@pytest.mark.slow
def test_every_setting_reaches_the_search(translator):
    longer = translator.translate_nbest(TEXTS, 1, max_length=12, min_length=10, no_repeat_ngram=1)
    assert all(10 <= len(set(best.tokens)) == len(best.tokens) for (best,) in longer)
    ratio = translator.translate_nbest(TEXTS, 1, max_length_ratio=0.0, max_length_offset=12, min_length_ratio=0.9)
    for text, (best,) in zip(TEXTS, ratio, strict=True):
        assert len(best.tokens) >= min(12, int(0.9 * len(ids_of(translator, text))))


@pytest.mark.slow
def test_scores_equal_those_of_decoding_token_by_token(translator):
    model, engine = translator.engine.model, translator.engine
    assert isinstance(engine, Engine)
    targets = ["El gato bebió la leche.", "", "Un perro", "¿Qué?", "niños"]
    results = translator.score(TEXTS, targets, align=True, batch_tokens=20)
    for text, target, scored in zip(TEXTS, targets, results, strict=True):
        state, last, score = model.encode(torch.tensor([[*ids_of(translator, text), EOS]])), BOS, []
        for token in [*ids_of(translator, target), EOS]:
            logits, state = model.decode(torch.tensor([[last]]), state)
            score.append(logits[0, 0].log_softmax(-1)[token].item())
            last = token
        assert scored.log_probs == pytest.approx(score, abs=1e-4)
        assert scored.score == pytest.approx(math.fsum(score), abs=1e-3)
        assert [word for _, word in scored.alignment] == list(range(len(target.split())))
        assert all(0 <= word < len(text.split()) for word, _ in scored.alignment)
    assert translator.score(TEXTS[:1], targets[:1])[0].alignment is None


@pytest.mark.slow
def test_alignments_in_batches_are_those_of_one_by_one(translator):
    texts = [*TEXTS, "", Text("A dog.", prefix="El gato ve")]
    results = translator.translate_nbest(texts, 2, align=True)
    small = translator.translate_nbest(texts, 2, align=True, batch_tokens=60)
    for text, best, same in zip(texts, results, small, strict=True):
        alone = translator.translate_nbest([text], 2, align=True)[0]
        alignments = [[translation.alignment for translation in n_best] for n_best in (best, same, alone)]
        assert alignments[0] == alignments[1] == alignments[2]
    assert results[5][0].alignment == []
    assert len({tuple(translation.alignment) for best in results for translation in best}) > 3
    assert translator.translate_nbest(texts, 1)[0][0].alignment is None


@pytest.mark.slow
def test_a_long_text_is_aligned_segment_by_segment_whatever_the_memory(translator, monkeypatch):
    score = Engine._score

    def observed(self, sources, targets, *rest):
        longest = max(len(ids) + 1 for ids in [*sources, *targets])
        assert longest <= MAX_SOURCE_TOKENS + 1
        if len(sources) * longest > room:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return score(self, sources, targets, *rest)

    sentences = [f"The{i} cat{i} drank{i}. A{i} dog{i} sees{i}! Ella{i} {'niños' * 90}{i}." for i in range(5)]
    text = " ".join(sentences)
    room, more = 10**9, {"max_length": 5, "beam": 1, "align": True}
    monkeypatch.setattr(Engine, "_score", observed)
    (translation,) = translator.translate_nbest([text], 1, **more)[0]
    words, tokens = text.split(), translator.tokenizer.target.tokens
    segments, alignment = Segmenter(translator.tokenizer, None).segments([Text(text)]), iter(translation.alignment)
    for segment, part in zip(segments, translation.parts, strict=True):
        (((_, scores),),) = translator.engine.score([segment.source.ids], [part.ids], 1, align=True)
        for source, _ in align_words(tokens(segment.source.ids), tokens(part.ids), scores.attention):
            assert segment.text.split()[source] in words[next(alignment)[0]]
    assert next(alignment, None) is None
    room = 250  # tokens
    assert translator.translate_nbest([text], 1, **more)[0][0].alignment == translation.alignment


def test_no_text_is_repeated_among_the_n_best(translator):
    settings = translator.request(n_best=3).settings
    batches = translator.engine.search([Source(ids_of(translator, text)) for text in TEXTS], settings, 3)
    decode = translator.tokenizer.target.decode
    texts = {index: decode([hypothesis.ids for hypothesis in best]) for batch in batches for index, best in batch}
    assert any(len(set(best)) < 3 for best in texts.values())  # the search spells a text in several ways
    for index, best in enumerate(translator.translate_nbest(TEXTS, 3)):
        assert [translation.text for translation in best] == list(dict.fromkeys(texts[index]))
    samples = translator.translate_nbest(TEXTS, 8, sampling=True, max_length=1, top_k=2)
    assert all(len(best) == 8 for best in samples)


def test_an_engine_that_only_searches_cannot_align(translator):
    class Searcher:
        def search(self, *arguments, **options):
            return translator.engine.search(*arguments, **options)

    searcher = Translator(Searcher(), translator.tokenizer, search=translator.search)
    assert searcher.translate(TEXTS) == translator.translate(TEXTS)
    refuses("cannot score given translations: use the pytorch engine", searcher.translate_nbest, TEXTS, 1, align=True)
