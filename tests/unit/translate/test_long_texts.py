"""A text that is too long for the model: its segments, its tag, and the scores and words of its translation."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
import torch
from echo import EchoModel, EchoState, echo_translator
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from seq2seq.search.types import Hypothesis, TokenScores
from seq2seq.settings.data import TokenizerConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import EOS, Tokenizer, train_tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.segmenter import MAX_SOURCE_TOKENS, STRETCH, Segmenter, split_to_match
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import Text
from tests.thin import thin
from tests.unit.conftest import GOLDEN, SENTENCES

SENTENCE = "The cat drank the milk, a dog sees a blue ball."
LONG = ["The cat sees the milk.", "The cow brings an apple.", "A dog?", "The bird wants a ball."]


def segments_of(tokenizer: Tokenizer, text: str, trained_length: int | None) -> list[str]:
    (segments,) = Segmenter(Tokenizers.joint(tokenizer), trained_length).segments([Text(text)])
    return [segment.masked.text for segment in segments]


@pytest.mark.slow
@pytest.mark.parametrize("trained_length", [None, 100, 30])
def test_every_sentence_is_translated_on_its_own(tokenizer, caplog, trained_length):
    sentences = ["The cat drank the milk.", "Ella ve la leche, un perro."]
    text, lengths = " ".join(sentences), [len(ids) for ids in tokenizer.encode([*sentences, " ".join(sentences)])]
    translator = echo_translator(tokenizer, beam=1, trained_length=trained_length)
    engine: Any = translator.engine
    model = engine.model
    assert translator.translate([text], batch_tokens=1) == [text]
    assert sorted(length - 1 for _, length in model.shapes) == sorted(lengths[:2])
    model.shapes.clear()
    translator.translate([Text(text, phrases=["leche"])], beam=4)
    assert model.shapes == [(1, lengths[2] + 1)]  # a phrase could belong to any sentence
    assert not caplog.messages


def test_a_sentence_somewhat_longer_than_what_was_trained_on_stays_whole_and_a_longer_one_is_cut_at_clauses(tokenizer):
    clauses = ["a dog sees a blue ball,", "ella ve la leche;", "un perro bebió la leche,", "the cat drank the milk."]
    sentence = " ".join(clauses)
    (length,) = map(len, tokenizer.encode([sentence]))
    least = next(number for number in range(length) if int(STRETCH * number) >= length)
    for trained_length in range(least, length + 1):
        assert segments_of(tokenizer, sentence, trained_length) == [sentence]
    parts = segments_of(tokenizer, sentence, least - 1)
    assert len(parts) > 1
    assert all(part[-1] in ",;." for part in parts)  # at clauses
    parts = segments_of(tokenizer, sentence, 6)
    assert " ".join(parts) == sentence  # at spaces
    assert max(map(len, tokenizer.encode(parts))) <= STRETCH * 6


@pytest.fixture(scope="module")
def tagging() -> Tokenizers:
    config = TokenizerConfig(vocab_size=310, user_symbols=["<2es>", "<2fr>"])
    return Tokenizers.joint(train_tokenizer(SENTENCES, config))


@pytest.mark.slow
@pytest.mark.parametrize("tags", ["<2es>", "<2fr> <2es>"])
def test_the_tag_of_a_text_begins_every_segment(tagging, tags):
    (beginning,) = tagging.source.encode([tags])
    assert tagging.source.tokens(beginning)[:2] == ["▁", tags.split()[0]]
    for trained_length in (None, 10):
        texts = [Text(f"{tags} {' '.join([SENTENCE] * 9)}"), Text(SENTENCE)]
        tagged, plain = Segmenter(tagging, trained_length).segments(texts)
        with_tag = [segment.source.ids for segment in tagged]
        assert len(with_tag) > 8
        assert all(ids[: len(beginning)] == beginning for ids in with_tag)
        assert all(ids.count(beginning[-1]) == 1 for ids in with_tag)
        assert not any(set(beginning[1::2]) & set(segment.source.ids) for segment in plain)


@pytest.mark.parametrize("search", [{"beam": 2}, {"beam": 1}, {"sampling": True}], ids=str)
def test_no_search_produces_a_tag(tagging, search):
    """The model of this test would translate a text into itself."""
    assert "<2" not in "".join(echo_translator(tagging.source, **search).translate(["<2es> Ella ve.", "niños <2fr>"]))


def test_a_tag_fits_into_the_segments_that_it_begins_and_is_none_of_its_own(tagging):
    for text in ("<2es> " + "niños " * 30, "<2es> " + "a" * 60, "<2es><2fr>" + "a" * 60, "<2es> " * 20 + SENTENCE):
        (segments,) = Segmenter(tagging, 12).segments([Text(text)])
        assert len(segments) > 1
        assert max(len(segment.source.ids) for segment in segments) <= 12 * STRETCH
        assert text.count("<2") > 2 or not any("<2" in segment.masked.text for segment in segments)


class Diagonal:
    """Translates a text into itself without its tag; every token attends to itself."""

    can_align = True

    def __init__(self, tags: Collection[int]) -> None:
        self.tags = tags

    def search(self, sources, settings, n_best, banned=(), *, on_step=None):
        for number, source in enumerate(sources):
            start = max((index + 1 for index, token in enumerate(source.ids) if token in self.tags), default=0)
            yield [(number, [Hypothesis(source.ids[start:], 0.0, 0.0)])]

    def score(self, sources, targets, batch_tokens, *, align=False):
        for index, (src, tgt) in enumerate(zip(sources, targets, strict=True)):
            attention = torch.eye(len(src))[len(src) - len(tgt) :].tolist()
            yield [(index, TokenScores([0.0] * (len(tgt) + 1), attention))]


@pytest.mark.parametrize("trained_length", [None, 20, 10])
def test_words_of_a_long_text_with_a_tag_keep_their_numbers(tagging, trained_length):
    engine = Diagonal(tagging.source.user_symbols.values())
    translator = Translator(engine, tagging, trained_length=trained_length)
    for repeated in (3, 9):
        text = " ".join(["<2es>", *[SENTENCE] * repeated])
        (translation,) = translator.translate_nbest([text], 1, align=True)[0]
        assert translation.text == text.removeprefix("<2es> ")
        assert translation.alignment == [(word + 1, word) for word in range(len(translation.text.split()))]


@pytest.mark.slow
@pytest.mark.parametrize("trained_length", thin([None, 20], [20]))
def test_a_long_text_and_its_own_translation_have_the_score_of_the_search(trained_length):
    golden = Translator.load(GOLDEN, "cpu")
    engine: Any = golden.engine
    translator = Translator(engine, golden.tokenizer, search=golden.search, trained_length=trained_length)
    text = " ".join(LONG * 12)
    assert len(golden.tokenizer.source.encode([text])[0]) > MAX_SOURCE_TOKENS
    (translation,) = translator.translate_nbest([text], 1, align=True)[0]
    (segments,) = Segmenter(golden.tokenizer, trained_length).segments([Text(text)])
    parts = split_to_match(translation.text, [len(segment.source.ids) for segment in segments])
    assert len(parts) == 48
    # the search and the score read the same tokens
    assert golden.tokenizer.target.encode(parts) == [list(part.ids) for part in translation.parts]
    (scored,) = translator.score([text], [translation.text], align=True)
    assert scored.score == pytest.approx(translation.score, abs=1e-3)
    assert scored.normalised_score == pytest.approx(translation.normalised_score, abs=1e-5)
    assert scored.alignment == translation.alignment
    (eos,) = golden.tokenizer.target.tokens([EOS])
    assert [token for token in scored.tokens if token != eos] == translation.tokens


def test_any_translation_of_a_long_text_can_be_scored():
    translator, text = Translator.load(GOLDEN, "cpu"), " ".join(LONG * 12)
    for translation in ("", "Un perro.", "El gato ve la leche. " * 80):
        (scored,) = translator.score([text], [translation], align=True)
        assert len(scored.tokens) == len(scored.log_probs)
        assert [word for _, word in scored.alignment or []] == list(range(len(translation.split())))


WORDS = st.lists(st.sampled_from(["la", "leche", "ve", "gato", "perro."]), max_size=40)


@given(WORDS, st.lists(st.integers(1, 100), min_size=1, max_size=12))
def test_a_translation_is_cut_into_as_many_parts_as_its_source_and_no_word_is_lost(words, sizes):
    parts = split_to_match(" ".join(words), sizes)
    assert len(parts) == len(sizes)
    assert " ".join(parts).split() == words
    assert all(parts[: len(words)])  # no part is empty while others have words to give


def test_sentences_go_to_the_segments_of_like_lengths():
    parts = ["Sí. No.", "Ella ve la leche de un gato.", "Ella no."]
    assert split_to_match(" ".join(parts), [10, 40, 10]) == parts
    assert split_to_match("uno dos tres cuatro cinco", [10, 50]) == ["uno", "dos tres cuatro cinco"]


KINDS = {
    "greedy": {"beam": 1},
    "beam": {"beam": 4},
    "early stopping": {"beam": 3, "early_stopping": True},
    "sampling": {"sampling": True, "seed": 3},
    "rules": {"beam": 3, "no_repeat_ngram": 3, "min_length": 1},
}
PREFIXES = ["La bola es az", "Un", "¿Qu", "n", "niños", "La le", "x日", "El gato ve la l", "e", "-", "San José, "]


class Repeating(EchoModel):
    """Likes to write one token, and then to end."""

    def __init__(self, vocab_size: int, token: int) -> None:
        super().__init__(vocab_size)
        self.token = token

    def hidden_states(self, tgt_in: Tensor, state: EchoState) -> tuple[Tensor, EchoState]:
        hidden = torch.zeros(len(tgt_in), 1, self.vocab_size)
        hidden[:, 0, EOS] = torch.where(tgt_in[:, 0] == self.token, 60.0, -60.0)
        hidden[:, 0, self.token] = 30.0
        return hidden, replace(state, position=state.position + 1)


def liking(tokenizer: Tokenizer, subword: str) -> Translator:
    (token,) = (number for number in range(tokenizer.vocab_size) if tokenizer.tokens([number]) == [subword])
    model = Repeating(tokenizer.vocab_size, token)
    return Translator(model, Tokenizers.joint(tokenizer), search=SearchConfig(beam=4, max_length_offset=20))


@pytest.mark.parametrize("kind", thin(KINDS, ["beam", "sampling"]))
def test_a_prefix_stands_as_it_is_and_the_model_goes_on_after_it(tokenizer: Tokenizer, kind: str) -> None:
    translator = liking(tokenizer, "▁azul")
    for prefix, expected in (
        ("La bola es az", "La bola es az azul"),
        ("La bola es azul", "La bola es azul"),
        ("La bola es ", "La bola es azul"),
        ("La bola es", "La bola es azul"),
        ("", "azul"),
    ):
        assert translator.translate([Text("The ball", prefix)], **KINDS[kind]) == [expected]
    assert liking(tokenizer, "s").translate([Text("The ball", "La bola")], **KINDS[kind]) == ["La bolas"]


@pytest.mark.parametrize("rules", [{"no_repeat_ngram": 1}, {"banned": ["gato"]}, {"banned": ["o", "t", "at"]}], ids=str)
def test_rules_change_no_word_of_a_prefix_not_even_the_last_one(tokenizer, rules):
    prefix = "El gato El gato"
    (translation,) = liking(tokenizer, "▁azul").translate([Text("The cat", prefix)], **rules)
    assert translation.startswith(prefix)


@pytest.mark.parametrize("kind", thin(KINDS, ["beam"]))
def test_a_prefix_fits_into_any_limit(translator, kind):
    texts = [Text("The cat.", prefix) for prefix in PREFIXES]
    for prefix, translation in zip(PREFIXES, translator.translate(texts, max_length=1, **KINDS[kind]), strict=True):
        assert translation.startswith(prefix.strip())
