"""What a model attends to in given translations, by hand-written attention and by a trained model."""

import copy
import dataclasses
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from saved_runs import write_recurrent_bundle
from torch.testing import assert_close

from seq2seq.apps.explain import analysis
from seq2seq.apps.explain.analysis import find_focus
from seq2seq.apps.explain.explanation import (
    MAX_SUBWORDS,
    PARTS,
    Word,
    explain,
    explain_subject,
    head_statistics,
    make_subject,
    over_words,
    words_of,
)
from seq2seq.model.build import build_model
from seq2seq.model.decoders import Ensemble
from seq2seq.search.types import TokenScores
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import BOS, EOS, UNK, Tokenizer
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import Translation
from tests.refusing import refuses

TEXT = "The cat sees a blue ball."


def test_the_explanation_is_of_the_models_best_translation(translator):
    (best,) = translator.translate_nbest([TEXT], 1)[0]
    explanation = explain(translator, TEXT)
    assert explanation.subject.translated
    assert (explanation.subject.source, explanation.subject.target) == (TEXT, best.text)
    assert explanation.to_plain()["pieces"]["target_out"] == [*best.tokens, "</s>"]
    assert sum(explanation.log_probs) == pytest.approx(best.score, rel=1e-4)


def test_search_settings_change_the_explained_translation(untrained):
    short = explain(untrained, TEXT, settings=untrained.request(max_length=2, beam=1).settings)
    assert short.subject.target == untrained.translate([TEXT], max_length=2, beam=1)[0]
    assert short.subject.target != untrained.translate([TEXT])[0]


def test_the_ids_of_a_subject_are_kept_although_its_text_has_others(golden):
    usual = make_subject(golden, TEXT, "El gato.")
    letters = golden.tokenizer.target.ids(["▁", *"El", "▁", *"gato."])
    subject = dataclasses.replace(usual, tgt_in=[usual.tgt_in[0], *letters], tgt_out=[*letters, EOS])
    explanation = explain_subject(golden, subject)
    assert explanation.subject is subject
    assert explanation.attention["cross"][0].shape[1] == len(explanation.log_probs) == len(letters) + 1
    assert len(letters) + 1 > len(usual.tgt_out)


def test_a_given_translation_is_explained_unchanged(translator):
    explanation = explain(translator, TEXT, "El gato ve una bola azul.")
    assert not explanation.subject.translated
    (reading,) = translator.score([TEXT], ["El gato ve una bola azul."], align=True)
    assert explanation.to_plain()["pieces"]["target_out"] == reading.tokens
    assert explanation.log_probs == pytest.approx(reading.log_probs)
    assert explanation.alignment == reading.alignment


def test_plain_values_are_the_models_weights_in_the_documented_shapes(translator):
    explanation = explain(translator, TEXT)
    subject, plain = explanation.subject, json.loads(json.dumps(explanation.to_plain()))
    trace = translator.engine.model.traced(torch.tensor([subject.src]), torch.tensor([subject.tgt_in]))
    source, target = (len(plain["words"][side]) for side in ("source", "target"))
    words = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    for part in PARTS:
        weights = torch.cat(getattr(trace, part))
        assert_close(torch.tensor(plain["attention"][part]), weights, atol=5.1e-5, rtol=0)
        by_word = torch.tensor(plain["by_word"][part])
        assert by_word.shape == (*weights.shape[:2], *words[part])
        assert_close(by_word.sum(-1), torch.ones(by_word.shape[:-1]), atol=1e-2, rtol=0)
        assert [len(layer) for layer in plain["heads"][part]] == [weights.shape[1]] * len(weights)
        assert set(plain["heads"][part][0][0]) == {"entropy", "distance", "diagonal"}
    assert (plain["version"], plain["architecture"]) == (1, "transformer")
    assert plain["pieces"]["target_in"] == ["<s>", *plain["pieces"]["target_out"][:-1]]
    assert len(plain["log_probs"]) == len(subject.tgt_out)
    numbers = re.findall(r"\d[^,\]]*", json.dumps(plain["attention"]))
    assert all(re.fullmatch(r"[01]\.\d{1,4}", number) for number in numbers)


def test_words_are_the_texts_words_and_cover_every_piece_once(translator):
    plain = explain(translator, "¿Quién quiere  la leche, niños?", "The cat drank.").to_plain()
    assert [word["text"] for word in plain["words"]["source"]] == ["¿Quién", "quiere", "la", "leche,", "niños?", "</s>"]
    assert [word["text"] for word in plain["words"]["target"]] == ["The", "cat", "drank.", "</s>"]
    for side, pieces in (("source", "source"), ("target", "target_out")):
        covered = [number for word in plain["words"][side] for number in word["pieces"]]
        assert covered == list(range(len(plain["pieces"][pieces])))


def test_letters_made_of_byte_pieces_form_one_word(translator):
    (word, _) = explain(translator, "日本", "x").subject.words()["encoder"][0]
    assert word.text == "日本"
    assert len(word.subwords) > 5


def test_a_piece_without_text_is_shown_as_a_piece_without_control_characters(golden, monkeypatch):
    tokenizer = golden.tokenizer.target
    marks = [Word("<s>", [0]), Word("<unk>", [1]), Word("</s>", [2])]
    assert words_of([BOS, UNK, EOS], tokenizer, {0, 2}) == marks
    monkeypatch.setattr(tokenizer, "tokens", lambda ids: ["\x1b[2J\x9b"])
    assert words_of([UNK], tokenizer, set()) == [Word("?[2J?", [0])]


def test_over_words_sums_over_keys_and_averages_over_queries():
    weights = torch.tensor([[[0.1, 0.2, 0.7], [0.5, 0.3, 0.2], [1.0, 0.0, 0.0]]])
    asking = [Word("a", [0, 1]), Word("b", [2])]
    asked = [Word("x", [0]), Word("y", [1, 2])]
    assert_close(over_words(weights, asking, asked), torch.tensor([[[0.3, 0.7], [1.0, 0.0]]]))


def test_the_alignment_follows_the_cross_attention_over_words(golden):
    explanation = explain(golden, TEXT)
    aligning = explanation.aligning()
    assert aligning is not None
    strongest = aligning[:-1, :-1].argmax(-1).tolist()
    assert explanation.alignment == [(source, target) for target, source in enumerate(strongest)]
    assert explanation.alignment == golden.translate_nbest([TEXT], 1, align=True)[0][0].alignment


def test_the_last_layer_but_one_aligns(untrained):
    explanation = explain(untrained, TEXT)
    assert_close(explanation.aligning(), explanation.by_word["cross"][0].mean(0))


@pytest.mark.parametrize("text", ["", "  \t", "\u200b"])
def test_an_empty_sentence_is_refused(golden, text):
    refuses("the sentence is empty: give one with words", explain, golden, text)
    refuses("the target is empty: give one with words", explain, golden, TEXT, text)


@pytest.mark.slow
def test_the_error_for_a_long_text_names_the_limit(golden):
    long = "leche " * MAX_SUBWORDS
    limit = MAX_SUBWORDS - 1
    refuses(rf"the sentence has \d+ subwords, and attention is shown for at most {limit}: sh", explain, golden, long)
    refuses(r"the target has \d+ subwords", explain, golden, TEXT, long)
    settings = SearchConfig(min_length=MAX_SUBWORDS, max_length_offset=MAX_SUBWORDS + 5, beam=1)
    refuses(r"the model's translation has \d+ subwords", explain, golden, TEXT, settings=settings)
    text = "x"
    while len(golden.tokenizer.source.encode([text])[0]) < limit:
        text += "x"
    assert len(explain(golden, text, "x").subject.src) == MAX_SUBWORDS


def test_ensembles_and_other_engines_are_refused(golden):
    model = golden.engine.model
    both = Translator(Ensemble([model, model]), golden.tokenizer)
    refuses("several models together have no one attention to show: give a single --model", explain, both, TEXT)
    other = Translator(SimpleNamespace(search=iter), golden.tokenizer)  # pyright: ignore[reportArgumentType]
    refuses("this engine shows no attention: use the pytorch engine", explain, other, TEXT)


def test_an_empty_translation_is_explained_by_its_end_of_sentence(golden, monkeypatch):
    monkeypatch.setattr(golden, "stream", lambda *_: iter([[Translation("", -1.0, -1.0, [])]]))
    plain = explain(golden, TEXT).to_plain()
    assert plain["pieces"]["target_in"] == ["<s>"]
    assert plain["words"]["target"] == [{"text": "</s>", "pieces": [0]}]
    assert (len(plain["log_probs"]), plain["alignment"]) == (1, [])
    assert plain["by_word"]["decoder"] == [[[[1.0]]] * 4]


def test_a_model_without_cross_attention_aligns_nothing(golden):
    config = ModelConfig(d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=1)
    blind = build_model(dataclasses.replace(config, cross_attention="none"), golden.tokenizer.source.vocab_size)
    explanation = explain(Translator(blind, golden.tokenizer), TEXT, "El gato ve.")
    assert explanation.alignment == []
    assert not explanation.attention["cross"][0].any()
    assert explanation.heads["cross"][0][0].entropy == 0


def test_ignored_tokens_and_entropy_follow_from_attention() -> None:
    end = [0.0, 0.0, 1.0]  # of the target's </s>, which does not count
    scores = TokenScores([0.0] * 3, [[0.9, 0.1, 0.0], [0.5, 0.0, 0.5], end])
    measures = analysis._measure(scores, 2)
    assert measures.ignored == 0.5  # the second of two gets 0.1 in all
    assert measures.entropy == pytest.approx((0.3251 + 0.6931) / 2, abs=1e-4)


def test_every_line_has_its_own_focus(golden: Translator) -> None:
    sources = ["The cat sees the milk.", "", "A dog.", "The ball is blue and the dog is big."]
    hypotheses = ["El gato ve la leche.", "Nada.", "Un perro.", "La bola es azul y el perro es grande."]
    together = find_focus(golden, sources, hypotheses)
    alone = [find_focus(golden, [src], [tgt])[0] for src, tgt in zip(sources, hypotheses, strict=True)]
    assert together[1] is alone[1] is None
    for in_batch, by_itself in zip(filter(None, together), filter(None, alone), strict=True):
        assert dataclasses.astuple(in_batch) == pytest.approx(dataclasses.astuple(by_itself), abs=1e-5)


def test_a_pair_that_is_too_long_is_not_read(golden: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "MAX_TOKENS", 12)
    measures = find_focus(golden, ["A dog.", "A dog. " * 9], ["Un perro."] * 2)
    assert [pair is None for pair in measures] == [False, True]


def test_an_engine_without_attention_is_refused(golden: Translator) -> None:
    translator = copy.copy(golden)
    translator.engine = SimpleNamespace()  # pyright: ignore[reportAttributeAccessIssue]
    refuses("this model shows no attention to the source", find_focus, translator, ["a"], ["b"])


@pytest.mark.parametrize(("attention", "num_layers"), [("additive", 1), ("none", 0)])
def test_a_recurrent_model_has_at_most_one_head(
    tokenizer: Tokenizer, tmp_path: Path, attention: str, num_layers: int
) -> None:
    model = Translator.load(write_recurrent_bundle(tmp_path, tokenizer, attention), "cpu")
    plain = explain(model, TEXT, "El gato").to_plain()
    assert plain["architecture"] == "recurrent"
    assert [len(plain["attention"][part]) for part in PARTS] == [0, 0, num_layers]
    rows, columns = (len(plain["pieces"][side]) for side in ("target_out", "source"))
    assert len(plain["log_probs"]) == rows
    for (head,) in plain["attention"]["cross"]:
        weights = torch.tensor(head)
        assert weights.shape == (rows, columns)
        assert_close(weights.sum(1), torch.ones(rows), atol=5e-3, rtol=0)
    assert bool(plain["alignment"]) == bool(num_layers)


STRAIGHT = [[1.0, 0, 0, 0, 0, 0], [0, 0, 0, 1.0, 0, 0], [0, 0, 0, 0, 0, 1.0]]  # 3 is the later neighbour of 2.5


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (torch.eye(5).tolist(), (0, 0, 1)),
        ([[0.25] * 4] * 4, (math.log(4), (6 + 4 + 4 + 6) / 16, 0.25)),
        (STRAIGHT, (0, 0.5 / 3, 1)),
        ([[0.5, 0.25, 0.25]], (math.log(2) * 3 / 2, 0.75, 0.5)),  # one target corresponds to the first source position
    ],
)
def test_a_heads_statistics_follow_from_its_weights(weights: list[list[float]], expected: tuple[float, ...]) -> None:
    (statistics,) = head_statistics(torch.tensor([weights]))
    assert dataclasses.astuple(statistics) == pytest.approx(expected)


def test_heads_are_described_one_by_one():
    both = torch.stack((torch.eye(4), torch.full((4, 4), 0.25)))
    assert head_statistics(both) == [*head_statistics(both[:1]), *head_statistics(both[1:])]
