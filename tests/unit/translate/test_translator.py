import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from echo import TEXTS

from seq2seq.errors import UserError
from seq2seq.model.build import build_model
from seq2seq.settings.bundle import Calibration
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.bundle import load_bundle, save_bundle
from seq2seq.translate.segmenter import MAX_SOURCE_TOKENS
from seq2seq.translate.translator import Translator
from tests.refusing import refuses


def test_translations_come_in_the_order_of_their_texts_whatever_the_lengths(echo):
    assert echo.translate(TEXTS * 5) == TEXTS * 5
    assert len(echo.engine.model.shapes) > 1


def test_texts_without_words_give_empty_lines_and_the_model_never_sees_them(echo):
    assert echo.translate(["", "Ella ve.", "  \t", "\u200b", "niños", "\n"]) == ["", "Ella ve.", "", "", "niños", ""]
    assert [rows for rows, _ in echo.engine.model.shapes] == [2]
    assert echo.translate([]) == []
    assert echo.translate_nbest([""], 3)[0][0].text == ""


def test_line_ends_within_a_text_count_as_spaces(echo):
    assert echo.translate(["The cat\ndrank\r\nthe milk.\u2028 Ella ve."]) == ["The cat drank the milk. Ella ve."]


@pytest.mark.slow
def test_a_long_text_is_translated_in_segments_with_one_warning(echo, caplog):
    sentence = "The cat drank the milk, a dog sees a blue ball."
    text = " ".join([sentence] * 40)
    tokens = len(echo.tokenizer.source.encode([text])[0])
    assert tokens > MAX_SOURCE_TOKENS
    assert echo.translate(["Ella ve.", text, "niños"]) == ["Ella ve.", text, "niños"]
    (warning,) = caplog.messages
    assert warning == f"line 2 has {tokens} tokens, more than {MAX_SOURCE_TOKENS}: cut into 40 segments"
    assert max(length for _, length in echo.engine.model.shapes) == len(echo.tokenizer.source.encode([sentence])[0]) + 1


def test_a_stream_is_translated_in_order_holding_one_chunk_at_a_time(echo):
    taken = itertools.count()
    lines = (f"niños {next(taken)}" for _ in range(10))
    stream = echo.stream(lines, echo.request(), chunk=4)
    assert [next(stream)[0].text for _ in range(3)] == ["niños 0", "niños 1", "niños 2"]
    assert next(taken) == 4
    assert len(list(stream)) == 7


@pytest.mark.slow
def test_warnings_of_a_stream_name_the_line_of_the_whole_stream(echo, caplog):
    long = "la leche " * 200
    list(echo.stream(iter(["a", "b", "c", "d", long]), echo.request(beam=1), chunk=2))
    assert caplog.messages[0].startswith("line 5 has ")


@pytest.mark.slow
def test_progress_counts_every_text_once(echo):
    advances = []
    texts = [*TEXTS, "", "niños" * 500, ""]
    list(echo.stream(iter(texts), echo.request(beam=1), chunk=4, on_progress=advances.append))
    assert sum(advances) == len(texts)
    assert len(advances) > 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_length": 0}, "max_length=0 must be at least 1"),
        ({"temperature": math.inf}, "search.temperature=inf must be at most 1000000"),
        ({"top_p": 0.0}, r"search.top_p=0.0 must be in \(0, 1\]"),
        ({"top_p": math.nan}, r"search.top_p=nan must be in \(0, 1\]"),
        ({"beam": 1, "mbr": 2}, r"mbr=2 needs a beam of at least as many \(beam=1\), or sampling"),
    ],
)
def test_settings_out_of_range_are_refused(echo, settings, message):
    refuses(message, echo.translate, TEXTS, **settings)
    refuses(r"n_best=4 needs a beam of at least as many \(beam=3\)", echo.translate_nbest, TEXTS, 4)


def test_a_gpu_that_is_not_there_is_refused_before_anything_is_read(monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="device cuda is asked for but no CUDA device is there: use cpu or install"):
        Translator.load(tmp_path, "cuda")


def test_a_loaded_bundle_brings_its_settings_and_languages(translator):
    assert translator.search == SearchConfig(beam=3, max_length_ratio=0.5, max_length_offset=4, batch_tokens=300)
    assert (translator.src_lang, translator.tgt_lang, translator.device.type) == ("en", "es", "cpu")


def test_a_calibrated_translation_is_as_sure_as_its_least_sure_segment(echo):
    first, second = "The cat drank the milk.", "A dog sees a blue ball, niños."
    assert echo.translate_nbest([first], 1)[0][0].confidence is None
    echo.calibration = Calibration(1.0, 2.0, 0.125, 0.25)
    (whole,), (joined,), (empty,) = echo.translate_nbest([first, f"{first} {second}", ""], 1)
    (part,) = whole.parts
    assert whole.confidence == echo.calibration.confidence(whole.score, len(part.ids) + 1)
    assert empty.confidence is None
    of_parts = [echo.calibration.confidence(one.score, len(one.ids) + 1) for one in joined.parts]
    assert len(of_parts) == 2
    assert joined.confidence == min(of_parts)


def test_an_ensemble_has_no_confidence(bundle_folder, tmp_path):
    bundle = load_bundle(bundle_folder)
    bundle.config.calibration = Calibration(1.0, 2.0, 0.125, 0.25)
    save_bundle(tmp_path / "model", bundle, card="")
    assert Translator.load(tmp_path / "model").calibration == bundle.config.calibration
    assert Translator.load([tmp_path / "model"] * 2).calibration is None


@pytest.mark.slow
@pytest.mark.parametrize("compiles", ["off", "auto"])
def test_several_threads_may_use_one_translator(tokenizer, compiles):
    config = ModelConfig(d_model=24, num_heads=3, d_ff=40, num_encoder_layers=1, num_decoder_layers=1, dropout=0.5)
    model = build_model(config, tokenizer.vocab_size).train()
    translator = Translator(model, Tokenizers.joint(tokenizer), compiles=compiles)

    def translate(text):
        (best,) = translator.translate_nbest([text], 2, max_length=5, align=True)
        return [(translation.tokens, translation.alignment, translation.score) for translation in best]

    expected = [translate(text) for text in TEXTS[:3]]
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: [translate(text) for text in TEXTS[:3]], range(4)))
    assert results == [expected] * 4
    assert not model.training
