import itertools
import logging
import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seq2seq.engine import Engine
from seq2seq.errors import UserError
from seq2seq.model.packed import PackedLinear
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import BOS, EOS
from seq2seq.translator import MAX_SOURCE_TOKENS, Text, Translator


@dataclass(frozen=True)
class EchoState:
    src: Tensor  # (n, s)
    position: int = 0

    def reorder(self, rows, counts):
        return replace(self, src=self.src[rows])


class EchoModel(nn.Module):
    """Translates every text into itself; has room for so many padded source tokens times beam."""

    def __init__(self, vocab_size, room=10**9, error="CUDA out of memory. Tried to allocate 2 GiB"):
        super().__init__()
        self.vocab_size, self.room, self.error = vocab_size, room, error
        self.shapes = []
        self.modes = []

    def encode(self, src):
        self.shapes.append(tuple(src.shape))
        self.modes.append(self.training)
        if src.numel() > self.room:
            raise RuntimeError(self.error)
        return EchoState(src)

    def decode(self, tgt_in, state):
        logits = torch.zeros(len(tgt_in), 1, self.vocab_size)
        expected = state.src[:, min(state.position, state.src.shape[1] - 1)]
        logits[torch.arange(len(tgt_in)), 0, torch.where(expected == 0, EOS, expected)] = 30.0
        return logits, replace(state, position=state.position + 1)


@pytest.fixture
def echo(tokenizer):
    model = EchoModel(tokenizer.vocab_size)
    return Translator(model, tokenizer, search=SearchConfig(beam=3, batch_tokens=300))


@pytest.fixture(scope="module")
def translator(bundle_folder):
    return Translator.load(bundle_folder, "cpu")


TEXTS = [
    "The cat drank the milk.",
    "Ella ve.",
    "A dog sees a blue ball!",
    "¿Quién quiere la leche?",
    "niños",
    "a, b, c, d, e",
]


def test_translations_come_in_the_order_of_their_texts_whatever_the_lengths(echo):
    assert echo.translate(TEXTS * 5) == TEXTS * 5
    assert len(echo._engine.model.shapes) > 1


def test_texts_without_words_give_empty_lines_and_the_model_never_sees_them(echo):
    assert echo.translate(["", "Ella ve.", "  \t", "\u200b", "niños", "\n"]) == ["", "Ella ve.", "", "", "niños", ""]
    assert [rows for rows, _ in echo._engine.model.shapes] == [2]
    assert echo.translate([]) == []
    assert echo.translate_nbest([""], 3)[0][0].text == ""


def test_line_ends_within_a_text_count_as_spaces(echo):
    assert echo.translate(["The cat\ndrank\r\nthe milk.\u2028 Ella ve."]) == ["The cat drank the milk. Ella ve."]


def test_a_long_text_is_translated_in_pieces_with_one_warning(echo, caplog):
    sentence = "The cat drank the milk, a dog sees a blue ball."
    text = " ".join([sentence] * 40)
    tokens = len(echo.tokenizer.encode([text])[0])
    assert tokens > MAX_SOURCE_TOKENS
    assert echo.translate(["Ella ve.", text, "niños"]) == ["Ella ve.", text, "niños"]
    (warning,) = caplog.messages
    assert warning == f"line 2 has {tokens} tokens, more than {MAX_SOURCE_TOKENS}: translated in 40 pieces"
    assert max(length for _, length in echo._engine.model.shapes) == len(echo.tokenizer.encode([sentence])[0]) + 1


def test_a_text_longer_than_what_was_trained_on_is_translated_by_sentences(tokenizer, caplog):
    model, sentences = EchoModel(tokenizer.vocab_size), ["The cat drank the milk.", "Ella ve la leche, un perro."]
    text, lengths = " ".join(sentences), [len(ids) for ids in tokenizer.encode([*sentences, " ".join(sentences)])]
    for trained_length, expected in (
        (None, lengths[2:]),
        (lengths[2], lengths[2:]),
        (lengths[2] - 1, lengths[:2]),
        (1, lengths[:2]),  # a sentence is not cut
    ):
        model.shapes.clear()
        translator = Translator(
            model, tokenizer, search=SearchConfig(beam=1, batch_tokens=1), trained_length=trained_length
        )
        assert translator.translate([text]) == [text]
        assert sorted(length - 1 for _, length in model.shapes) == sorted(expected)
    translator.translate([Text(text, phrases=["leche"])])
    assert model.shapes[-1][1] == lengths[2] + 1  # a phrase could belong into any sentence
    assert not caplog.messages


@pytest.mark.slow
def test_a_long_text_without_sentence_ends_loses_nothing(echo):
    word = "niños" * 500
    assert echo.translate([word])[0].replace(" ", "") == word


def test_a_stream_is_translated_in_order_holding_one_chunk_at_a_time(echo):
    taken = itertools.count()
    lines = (f"niños {next(taken)}" for _ in range(10))
    stream = echo.stream(lines, echo.search, chunk=4)
    assert [next(stream)[0].text for _ in range(3)] == ["niños 0", "niños 1", "niños 2"]
    assert next(taken) == 4
    assert len(list(stream)) == 7


def test_warnings_of_a_stream_name_the_line_of_the_whole_stream(echo, caplog):
    long = "la leche " * 200
    list(echo.stream(iter(["a", "b", "c", "d", long]), echo.search, chunk=2))
    assert caplog.messages[0].startswith("line 5 has ")


def test_progress_counts_every_text_once(echo):
    advances = []
    texts = [*TEXTS, "", "la leche. " * 100, ""]
    list(echo.stream(iter(texts), echo.search, chunk=4, on_progress=advances.append))
    assert sum(advances) == len(texts)
    assert len(advances) > 3


def test_what_on_progress_raises_ends_the_work(echo: Translator):
    calls = []

    def leave(count: int) -> None:
        calls.append(count)
        if len(calls) == 2:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        echo.translate_nbest(["a b c"] * 4, 1, on_progress=leave, batch_tokens=8)
    assert len(calls) == 2


def test_memory_that_runs_out_beside_another_search_is_there_again_after_it(echo: Translator):
    model: Any = echo._engine.model  # type: ignore[union-attr]
    texts = ["la leche"] * 6
    found: list[list[str]] = []

    def search_inside(count: int) -> None:
        if not found and model.shapes:  # between two steps
            model.room = 20  # what the outer search leaves
            found.append(echo.translate(texts))
            model.room = 10**9

    echo.translate_nbest(["la leche"], 1, on_progress=search_inside)
    assert found == [texts]
    before = len(model.shapes)
    echo.translate(texts)
    assert len(model.shapes) == before + 1  # one batch again


def test_a_batch_holds_at_most_batch_tokens_with_padding_times_beam(echo):
    echo.translate(TEXTS * 5, batch_tokens=120, beam=4)
    shapes = echo._engine.model.shapes
    assert all(rows * length * 4 <= 120 or rows == 1 for rows, length in shapes)
    assert sum(rows for rows, _ in shapes) == len(TEXTS) * 5


def test_running_out_of_memory_halves_the_batch_and_changes_no_translation(tokenizer, caplog):
    model = EchoModel(tokenizer.vocab_size, room=60)
    translator = Translator(model, tokenizer, search=SearchConfig(beam=2, batch_tokens=1000))
    assert translator.translate(TEXTS * 6) == TEXTS * 6
    assert caplog.messages
    assert all(message.startswith("out of memory: going on with batches of ") for message in caplog.messages)
    sizes = [rows for rows, length in model.shapes]
    assert sizes[1] == sizes[0] // 2
    first_that_fits = next(i for i, (rows, length) in enumerate(model.shapes) if rows * length <= 60)
    assert all(rows * length <= 60 for rows, length in model.shapes[first_that_fits:])  # it does not grow again


def test_memory_runs_out_in_the_first_lines_of_a_long_file_only(tokenizer, caplog):
    model = EchoModel(tokenizer.vocab_size, room=60)
    translator = Translator(model, tokenizer, search=SearchConfig(beam=2, batch_tokens=1000))
    found = translator.stream(TEXTS * 30, translator.settings(), chunk=len(TEXTS) * 6)
    assert next(found)[0].text == TEXTS[0]
    warnings, shapes = len(caplog.messages), len(model.shapes)
    assert warnings > 0
    assert [best[0].text for best in found] == (TEXTS * 30)[1:]
    assert translator.translate(TEXTS * 6, beam=3) == TEXTS * 6
    assert len(caplog.messages) == warnings
    assert len(model.shapes) > shapes
    assert all(rows * length <= 60 for rows, length in model.shapes[shapes:])


def test_a_single_text_that_does_not_fit_is_the_users_to_solve(tokenizer):
    translator = Translator(EchoModel(tokenizer.vocab_size, room=5), tokenizer, search=SearchConfig(beam=2))
    with pytest.raises(UserError, match=r"a text of \d+ tokens does not fit into the memory of cpu: use"):
        translator.translate(TEXTS)


def test_other_errors_of_the_model_are_not_taken_for_memory(tokenizer):
    translator = Translator(EchoModel(tokenizer.vocab_size, room=5, error="shapes do not match"), tokenizer)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        translator.translate(TEXTS)


@pytest.mark.parametrize("was_training", [True, False])
def test_dropout_is_off_while_translating_and_as_before_afterwards(tokenizer, was_training):
    model = EchoModel(tokenizer.vocab_size).train(was_training)
    Translator(model, tokenizer).translate(TEXTS)
    assert set(model.modes) == {False}
    assert model.training is was_training


def test_a_model_that_computes_nan_is_reported(tokenizer):
    model = EchoModel(tokenizer.vocab_size)
    model.decode = lambda tgt_in, state: (torch.full((len(tgt_in), 1, tokenizer.vocab_size), torch.nan), state)
    for beam in (1, 3):
        with pytest.raises(UserError, match=r"not numbers \(NaN\): its weights are damaged"):
            Translator(model, tokenizer).translate(TEXTS, beam=beam, max_length=4)


def test_coverage_of_a_source_that_is_not_attended_to_is_refused(tokenizer):
    config = ModelConfig(
        d_model=24, num_heads=3, d_ff=40, num_encoder_layers=1, num_decoder_layers=1, cross_attention="none"
    )
    translator = Translator(Transformer(config, tokenizer.vocab_size), tokenizer)
    assert len(translator.translate(TEXTS, max_length=4)) == len(TEXTS)
    with pytest.raises(UserError, match="coverage_penalty is for models that attend to the source, and this one does"):
        translator.translate(TEXTS, coverage_penalty=0.2, max_length=4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam": 0}, "search.beam=0 must be at least 1"),
        ({"length_penalty": -1.0}, "search.length_penalty=-1.0 must be at least 0"),
        ({"max_length": 0}, "max_length=0 must be at least 1"),
        ({"batch_tokens": 0}, "search.batch_tokens=0 must be at least 1"),
        ({"temperature": math.inf}, "search.temperature=inf must be greater than 0 and finite"),
        ({"diversity": math.inf}, "search.diversity=inf must be finite"),
        ({"top_p": 0.0}, r"search.top_p=0.0 must be in \(0, 1\]"),
        ({"top_k": -1}, "search.top_k=-1 must be at least 0"),
        ({"beam": 5, "groups": 2}, "search.beam=5 must be a multiple of search.groups=2"),
    ],
)
def test_settings_out_of_range_are_refused(echo, settings, message):
    with pytest.raises(UserError, match=message):
        echo.translate(TEXTS, **settings)


def test_more_translations_than_the_beam_holds_are_refused(echo):
    with pytest.raises(UserError, match=r"n_best=4 needs a beam of at least as many \(beam=3\)"):
        echo.translate_nbest(TEXTS, 4)


def test_one_string_instead_of_a_list_is_refused(echo):
    with pytest.raises(UserError, match=r"texts is one string \('Ella ve.'…\): give a list of them, \[text\]"):
        echo.translate("Ella ve.")


def test_a_gpu_that_is_not_there_is_refused_before_anything_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="device cuda is asked for but no CUDA device is there: use cpu or install"):
        Translator.load(tmp_path, "cuda")
    with pytest.raises(UserError, match="device 'tpu' is not known: use cpu, cuda, cuda:N or auto"):
        Translator.load(tmp_path, "tpu")


def test_a_loaded_bundle_brings_its_settings_and_languages(translator):
    assert translator.search == SearchConfig(beam=3, max_length_ratio=0.5, max_length_offset=4, batch_tokens=300)
    assert (translator.src_lang, translator.tgt_lang, translator.device.type) == ("en", "es", "cpu")


@pytest.mark.parametrize("beam", [1, 4])
def test_texts_translated_together_come_out_as_alone(translator, beam):
    together = translator.translate_nbest(TEXTS, beam, beam=beam)
    for text, best in zip(TEXTS, together, strict=True):
        (alone,) = translator.translate_nbest([text], beam, beam=beam)
        assert [one.tokens for one in alone] == [one.tokens for one in best]
        assert [one.score for one in alone] == pytest.approx([one.score for one in best], rel=1e-4)


def test_the_best_of_n_is_the_translation(translator):
    nbest = translator.translate_nbest(TEXTS, 3)
    assert [best[0].text for best in nbest] == translator.translate(TEXTS)
    for best in nbest:
        values = [one.normalised_score for one in best]
        assert values == sorted(values, reverse=True)
        assert len({tuple(one.tokens) for one in best}) == 3


def test_a_score_is_what_the_model_gives_the_translation_all_at_once(translator):
    for text in TEXTS:
        for one in translator.translate_nbest([text], 3, length_penalty=0.5)[0]:
            src = torch.tensor([[*translator.tokenizer.encode([text])[0], EOS]])
            ids = [translator.tokenizer._processor.piece_to_id(token) for token in one.tokens]
            with torch.no_grad():
                logits, _ = translator._engine.model.decode(
                    torch.tensor([[BOS, *ids]]), translator._engine.model.encode(src)
                )
            log_probs = logits[0].log_softmax(-1)[torch.arange(len(ids) + 1), [*ids, EOS]]
            assert one.score == pytest.approx(log_probs.sum().item(), rel=1e-4)
            assert one.normalised_score == pytest.approx(one.score / (len(ids) + 1) ** 0.5)


def test_the_length_limit_is_kept(translator):
    assert {len(best[0].tokens) for best in translator.translate_nbest(TEXTS, 1, max_length=2)} <= {0, 1, 2}


@pytest.mark.slow
def test_the_nbest_of_a_split_text_join_those_of_its_pieces(translator):
    sentences = ["The cat drank the milk."] * 2 + ["Ella ve la leche."] * 60
    joined = translator.translate_nbest([" ".join(sentences)], 2)[0]
    single = translator.translate_nbest(sentences, 2)
    for rank in (0, 1):
        assert joined[rank].text.split() == " ".join(best[rank].text for best in single).split()
        assert joined[rank].score == pytest.approx(sum(best[rank].score for best in single), rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_matrix_products_have_the_precision_asked_for(bundle_folder, dtype):
    translator = Translator.load(bundle_folder, "cpu", dtype=dtype)
    found = set()
    assert isinstance(translator._engine, Engine)
    model = translator._engine.model
    assert isinstance(model, Transformer)
    for module in model.modules():
        if isinstance(module, nn.Linear | PackedLinear):
            module.register_forward_hook(lambda module, inputs, output: found.add(output.dtype))
    translator.translate(TEXTS)
    assert found == {dtype}


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_model_can_be_trained_after_it_has_translated(tokenizer, positions):
    config = ModelConfig(
        d_model=24, num_heads=3, d_ff=40, num_encoder_layers=1, num_decoder_layers=1, positions=positions
    )
    model = Transformer(config, tokenizer.vocab_size)
    Translator(model, tokenizer).translate(TEXTS, max_length=5)
    ids = torch.tensor([[BOS]])
    model.decode(ids, model.encode(torch.tensor([[5, 6, 7, EOS]])))[0].sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_package_offers_the_translator():
    import seq2seq

    assert seq2seq.Translator is Translator
    assert logging.getLogger("seq2seq.translator").level == logging.NOTSET
