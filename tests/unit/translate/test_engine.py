"""Batches, memory and precision of the engine, as a translator uses them."""

import math
from typing import Any

import pytest
import torch
from echo import TEXTS, echo_translator
from sacrebleu import sentence_chrf

from seq2seq.errors import UserError, is_out_of_memory
from seq2seq.search.types import Source, length_limits
from seq2seq.settings.search import SearchConfig
from seq2seq.text.glossary import Glossary
from seq2seq.text.tokenizer import BOS, EOS
from seq2seq.translate.engine import Engine
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import Text
from tests.refusing import refuses
from tests.unit.conftest import GOLDEN
from tests.unit.searches import random_model


def test_a_search_inside_another_needs_only_the_memory_that_the_other_leaves(echo: Translator):
    model: Any = echo.engine.model  # type: ignore[union-attr]
    translations: list[list[str]] = []

    def search_inside(count: int) -> None:
        if not translations and model.shapes:  # between two steps
            model.room = 20  # what the outer search leaves
            translations.append(echo.translate(TEXTS[4:] * 3))
            model.room = 10
            refuses("does not fit into the memory of cpu", echo.translate, TEXTS)

    echo.translate_nbest(["la leche"], 1, on_progress=search_inside)
    assert translations == [TEXTS[4:] * 3]


def test_a_batch_holds_at_most_batch_tokens_with_padding_times_beam(echo):
    echo.translate(TEXTS * 5, batch_tokens=120, beam=4)
    shapes = echo.engine.model.shapes
    assert all(rows * length * 4 <= 120 or rows == 1 for rows, length in shapes)
    assert sum(rows for rows, _ in shapes) == len(TEXTS) * 5


def test_running_out_of_memory_halves_the_batch_and_changes_no_translation(tokenizer, caplog):
    translator = echo_translator(tokenizer, room=60, beam=2, batch_tokens=1000)
    model: Any = translator.engine.model  # type: ignore[union-attr]
    assert translator.translate(TEXTS * 6) == TEXTS * 6
    assert caplog.messages
    assert all(message.startswith("out of memory: going on with batches of ") for message in caplog.messages)
    assert model.shapes[1][0] == model.shapes[0][0] // 2
    fits = [rows * length <= 60 for rows, length in model.shapes]
    assert all(fits[fits.index(True) :])  # batches grow too little to fail again


@pytest.mark.slow
def test_a_shortage_of_memory_makes_later_batches_smaller_but_not_for_good(tokenizer, caplog):
    translator = echo_translator(tokenizer, room=60, beam=1, batch_tokens=240)
    model: Any = translator.engine.model  # type: ignore[union-attr]
    texts = ["la leche"] * 100
    translator.translate(texts)
    warnings = len(caplog.messages)
    assert translator.translate(texts[:40], beam=2) == texts[:40]
    assert len(caplog.messages) == warnings
    model.room = 10**9
    for _ in range(100):
        translator.translate(texts[:1])
    model.shapes.clear()
    translator.translate(texts)
    assert max(rows * length for rows, length in model.shapes) > 100


def test_a_single_text_that_does_not_fit_is_the_users_to_solve(tokenizer):
    with pytest.raises(UserError, match=r"a text of \d+ tokens does not fit into the memory of cpu: split it"):
        echo_translator(tokenizer, room=5, beam=2).translate(TEXTS)
    with pytest.raises(RuntimeError, match="shapes do not match"):  # another error of the model
        echo_translator(tokenizer, room=5, error="shapes do not match").translate(TEXTS)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_model_can_be_trained_after_it_has_translated(positions):
    model = random_model(positions=positions)
    assert list(
        Engine(model, "cpu", compiles="off").search(
            [Source([5, 6])], SearchConfig(max_length_ratio=0.0, max_length_offset=5), 1
        )
    )
    model.decode(torch.tensor([[BOS]]), model.encode(torch.tensor([[5, 6, 7, EOS]])))[0].sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_limits_by_a_ratio_are_those_of_its_decimals() -> None:
    settings = SearchConfig(max_length_ratio=0.29, max_length_offset=1, min_length_ratio=0.57, min_length=2)
    sources = [Source([5] * 100), Source([5] * 100, prefix=[6] * 40), Source([])]
    assert 100 * 0.29 < 29
    assert length_limits(sources, settings) == [(30, 30), (40, 40), (1, 1)]
    assert length_limits(sources[:1], SearchConfig(min_length_ratio=0.57)) == [(57, 220)]


ERRORS = [
    (MemoryError(), True),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
    (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
    (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"), False),
]


@pytest.mark.parametrize(("error", "expected"), ERRORS, ids=str)
def test_errors_of_all_libraries_are_known_that_mean_a_lack_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


SOURCES = ["The cat drank the milk.", "Ella ve.", "A dog sees a blue ball!", "¿Quién quiere la leche?", "niños"]


def ids_of(translator, text):
    return translator.tokenizer.source.encode([text])[0]


def words_of(translation) -> str:
    return " ".join("".join(translation.tokens).replace("▁", " ").split())


@pytest.mark.slow
def test_phrases_and_the_terms_of_a_glossary_appear_and_banned_phrases_do_not(translator):
    texts = [Text(text, phrases=["una bola azul"]) for text in SOURCES]
    for (best,) in translator.translate_nbest(texts, 1, max_length=12):
        assert "una bola azul" in words_of(best)
    glossary = Glossary([("milk", "niños"), ("ball", "leche")])
    results = translator.translate_nbest(SOURCES, 1, glossary=glossary, max_length=12)
    assert "niños" in words_of(results[0][0])
    assert "leche" in words_of(results[2][0])
    assert results[1][0].text == translator.translate(SOURCES[1:2], max_length=12)[0]
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
    first = translator.translate_nbest(SOURCES, 4, seed=3, **settings)
    assert tokens_of(first) == tokens_of(translator.translate_nbest(SOURCES, 4, seed=3, batch_tokens=10, **settings))
    assert tokens_of(first) != tokens_of(translator.translate_nbest(SOURCES, 4, seed=4, **settings))
    assert len({one.text for one in first[0]}) > 1
    one_by_one = list(translator.stream(SOURCES, translator.request(n_best=4, seed=3, **settings), chunk=1))
    assert tokens_of(one_by_one) == tokens_of(first)


def test_minimum_bayes_risk_chooses_the_sample_most_like_the_others(translator):
    settings = {"sampling": True, "max_length": 8, "seed": 5}
    samples = translator.translate_nbest(SOURCES, 6, **settings)
    for (chosen,), candidates in zip(translator.translate_nbest(SOURCES, 1, mbr=6, **settings), samples, strict=True):
        texts = [one.text for one in candidates]
        utilities = [sum(sentence_chrf(text, [other]).score for other in texts) for text in texts]
        assert chosen.text == texts[max(range(6), key=utilities.__getitem__)]


@pytest.mark.slow
def test_scores_equal_those_of_decoding_token_by_token(translator):
    model, engine = translator.engine.model, translator.engine
    assert isinstance(engine, Engine)
    targets = ["El gato bebió la leche.", "", "Un perro", "¿Qué?", "niños"]
    results = translator.score(SOURCES, targets, align=True, batch_tokens=20)
    for text, target, scored in zip(SOURCES, targets, results, strict=True):
        state, last, score = model.encode(torch.tensor([[*ids_of(translator, text), EOS]])), BOS, []
        for token in [*ids_of(translator, target), EOS]:
            logits, state = model.decode(torch.tensor([[last]]), state)
            score.append(logits[0, 0].log_softmax(-1)[token].item())
            last = token
        assert scored.log_probs == pytest.approx(score, abs=1e-4)
        assert scored.score == pytest.approx(math.fsum(score), abs=1e-3)
        assert [word for _, word in scored.alignment] == list(range(len(target.split())))
        assert all(0 <= word < len(text.split()) for word, _ in scored.alignment)
    assert translator.score(SOURCES[:1], targets[:1])[0].alignment is None


@pytest.mark.slow
def test_alignments_in_batches_are_those_of_one_by_one(translator):
    texts = [*SOURCES, "", Text("A dog.", prefix="El gato ve")]
    results = translator.translate_nbest(texts, 2, align=True)
    small = translator.translate_nbest(texts, 2, align=True, batch_tokens=60)
    for text, best, same in zip(texts, results, small, strict=True):
        alone = translator.translate_nbest([text], 2, align=True)[0]
        alignments = [[translation.alignment for translation in n_best] for n_best in (best, same, alone)]
        assert alignments[0] == alignments[1] == alignments[2]
    assert results[5][0].alignment == []
    assert len({tuple(translation.alignment) for best in results for translation in best}) > 3
    assert translator.translate_nbest(texts, 1)[0][0].alignment is None


def test_no_text_is_repeated_among_the_n_best(translator):
    settings = translator.request(n_best=3).settings
    batches = translator.engine.search([Source(ids_of(translator, text)) for text in SOURCES], settings, 3)
    decode = translator.tokenizer.target.decode
    texts = {index: decode([hypothesis.ids for hypothesis in best]) for batch in batches for index, best in batch}
    assert any(len(set(best)) < 3 for best in texts.values())  # the search spells a text in several ways
    for index, best in enumerate(translator.translate_nbest(SOURCES, 3)):
        assert [translation.text for translation in best] == list(dict.fromkeys(texts[index]))
    samples = translator.translate_nbest(SOURCES, 8, sampling=True, max_length=1, top_k=2)
    assert all(len(best) == 8 for best in samples)


def test_an_engine_that_only_searches_cannot_align(translator):
    class Searcher:
        def search(self, *arguments, **options):
            return translator.engine.search(*arguments, **options)

    searcher = Translator(Searcher(), translator.tokenizer, search=translator.search)
    assert searcher.translate(SOURCES) == translator.translate(SOURCES)
    refuses("cannot score given translations: use the pytorch engine", searcher.translate_nbest, SOURCES, 1, align=True)
