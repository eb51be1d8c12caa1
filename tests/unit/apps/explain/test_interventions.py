"""Interventions change a copy of the model as they say, and leave the model itself as it is."""

import copy
import math
from typing import Any

import pytest
import torch

from seq2seq.apps.explain.explanation import explain, make_subject, require_transformer
from seq2seq.apps.explain.interventions import Interventions, changed, contrast, rank_heads
from seq2seq.model.build import build_model
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig
from seq2seq.translate.translator import Translator
from tests.refusing import refuses
from tests.unit.apps.explain.conftest import GOLDEN
from tests.unit.searches import NEEDS_COMPILER

SRC, TGT = torch.tensor([[5, 6, 7, 8, 3]]), torch.tensor([[2, 9, 10, 11]])
SENTENCE, TARGET = "The black cat drank the milk.", "El gato negro bebió la leche."


@pytest.fixture
def translator(golden: Translator) -> Translator:
    torch.manual_seed(3)
    config = ModelConfig(d_model=16, num_heads=4, d_ff=24, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0)
    model = build_model(config, golden.tokenizer.source.vocab_size).eval()
    for parameter in model.parameters():  # larger weights than the initial ones, so that each change shows
        torch.nn.init.normal_(parameter, std=0.5)
    return Translator(model, golden.tokenizer)


@pytest.fixture
def model(translator: Translator) -> Transformer:
    return require_transformer(translator)[1]


def change(translator: Translator, *without: str, average: Any = (), temperature: float = 1.0) -> Transformer:
    """Return the changed copy of a translator's model."""
    return require_transformer(changed(translator, Interventions(without, average, temperature), SENTENCE))[1]


def output(model: Transformer) -> torch.Tensor:
    with torch.no_grad():
        return model.logits(model(SRC, TGT))


@pytest.mark.parametrize("part", ["encoder", "decoder", "cross"])
def test_a_head_that_is_off_has_zeros_in_the_output_projection(translator, model, part):
    by_hand = copy.deepcopy(model)
    layer = (by_hand.encoder_layers if part == "encoder" else by_hand.decoder_layers)[1]
    getattr(layer, "cross_attention" if part == "cross" else "self_attention").out_proj.weight.data[:, 8:12] = 0
    expected = output(by_hand)
    assert torch.allclose(output(change(translator, f"{part}.2.head.3")), expected, atol=1e-6)
    assert not torch.allclose(output(model), expected, atol=1e-3)


def test_a_layer_that_is_off_has_no_head(translator: Translator) -> None:
    layer = output(change(translator, "cross.1"))
    assert torch.equal(output(change(translator, *(f"cross.1.head.{head}" for head in (1, 2, 3, 4)))), layer)
    without_source = output(change(translator, "cross"))
    assert torch.equal(output(change(translator, "cross.1", "cross.2")), without_source)
    assert not torch.equal(layer, without_source)


def test_an_averaged_head_takes_the_same_of_all_that_it_may_see(translator: Translator, model: Transformer) -> None:
    trace = change(translator, average=("decoder.1.head.2", "cross.2.head.1")).traced(SRC, TGT)
    even = torch.tril(torch.ones(4, 4)) / torch.arange(1, 5)[:, None]
    assert torch.allclose(trace.decoder[0][0, 1], even, atol=1e-6)
    assert torch.allclose(trace.cross[1][0, 0], torch.full((4, 5), 0.2), atol=1e-6)
    assert torch.equal(trace.decoder[0][0, 0], model.traced(SRC, TGT).decoder[0][0, 0])


@pytest.mark.parametrize("relevance", ["query_key", "shared"])
@pytest.mark.parametrize("temperature", [0.5, 4.0])
def test_the_temperature_divides_the_scores(golden: Translator, relevance: str, temperature: float) -> None:
    torch.manual_seed(3)
    config = ModelConfig(d_model=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, relevance=relevance)
    model = build_model(config, golden.tokenizer.source.vocab_size).eval()
    torch.nn.init.normal_(model.embedding.weight)
    usual = model.traced(SRC, TGT).encoder[0]
    weights = change(Translator(model, golden.tokenizer), temperature=temperature).traced(SRC, TGT).encoder[0]
    assert torch.allclose(weights, (usual.log() / temperature).softmax(-1), atol=1e-5)


def test_without_the_mask_the_decoder_looks_ahead(translator: Translator, model: Transformer) -> None:
    ahead = change(translator, "mask").traced(SRC, TGT).decoder[0][0, 0]
    assert (ahead[0, 1:] > 0).all()
    assert (model.traced(SRC, TGT).decoder[0][0, 0][0, 1:] == 0).all()


def test_without_positions_the_encoder_knows_no_order(translator: Translator, model: Transformer) -> None:
    order, orderless = torch.tensor([3, 1, 4, 0, 2]), change(translator, "positions")
    memory = orderless.encode(SRC).memory[0].keys
    permuted = orderless.encode(SRC[:, order]).memory[0].keys
    assert torch.allclose(memory[:, :, order], permuted, atol=1e-5)
    assert not torch.allclose(model.encode(SRC).memory[0].keys, memory, atol=1e-2)


def test_no_position_attends_to_a_hidden_word(translator: Translator) -> None:
    (subwords,) = translator.tokenizer.source.encode(["The"])
    hidden = range(len(subwords), len(translator.tokenizer.source.encode(["The black"])[0]))
    src = torch.tensor([translator.tokenizer.source.encode([SENTENCE])[0]])
    other = src.clone()
    other[0, hidden] = 13
    blind = change(translator, "source.2")
    trace = blind.traced(src, TGT)
    assert all((layer[..., hidden] == 0).all() for layer in [*trace.encoder, *trace.cross])
    logits = [blind.logits(blind(ids, TGT)) for ids in (src, other)]
    assert torch.allclose(logits[0], logits[1], atol=1e-5)  # the hidden subwords do not matter


def test_the_unchanged_translator_stays_as_it_was_to_the_bit(translator: Translator, model: Transformer) -> None:
    before, usual, config = copy.deepcopy(model.state_dict()), output(model), model.config
    changes = ("encoder", "cross.1.head.2", "positions", "mask", "source.2")
    other = change(translator, *changes, average=("cross",), temperature=3.0)
    assert not torch.equal(output(other), usual)
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert model.config is config
    assert torch.equal(output(model), usual)


def test_a_changed_translator_can_be_changed_again(translator: Translator) -> None:
    first = changed(translator, Interventions(["cross.1", "source.2"]), SENTENCE)
    outer = output(require_transformer(first)[1])
    second = change(first, "encoder.1", "source.3")
    assert torch.equal(output(second), output(change(translator, "cross.1", "source.2", "encoder.1", "source.3")))
    assert torch.equal(output(require_transformer(first)[1]), outer)
    assert not torch.equal(output(second), outer)


@pytest.mark.slow
@NEEDS_COMPILER
def test_a_compiled_search_is_changed_like_any_other() -> None:
    changes = Interventions(without=["source.3"])
    usual, compiled = (Translator.load(GOLDEN, "cpu", compiles=compiles) for compiles in ("off", "on"))
    expected = changed(usual, changes, SENTENCE).translate([SENTENCE])
    assert changed(compiled, changes, SENTENCE).translate([SENTENCE]) == expected


@pytest.mark.parametrize(
    ("names", "average", "temperature", "message"),
    [
        (["encoder.3"], [], 1.0, r"^encoder.3: this model has layers 1 to 2 there$"),
        (["cross.1.head.5"], [], 1.0, r"^cross.1.head.5: this model has heads 1 to 4$"),
        (["encoder.1"], ["head.2"], 1.0, r"^'head.2' names nothing to change: give encoder.2.head.3, "),
        ([], ["mask"], 1.0, r"^'mask' names nothing to change: give encoder.2.head.3, decoder.1 or cross$"),
        (["encoder.\u0661"], [], 1.0, r"names nothing to change"),
        (["source.1"], [], 1.0, r"^source.1: the sentence has words 1 to 0$"),
        ([], [], 0.0, r"^the temperature 0 must be from 0.001 to 1000$"),
        ([], [], float("nan"), r"^the temperature nan must be from 0.001 to 1000$"),
    ],
)
def test_a_wrong_name_is_refused_and_changes_nothing(translator, model, names, average, temperature, message):
    usual = output(model)
    refuses(message, changed, translator, Interventions(names, average, temperature))
    assert torch.equal(output(model), usual)


def test_an_lstm_has_no_heads_to_change(golden: Translator) -> None:
    config = ModelConfig(architecture="recurrent", d_model=8, num_encoder_layers=1, num_decoder_layers=1)
    lstm = Translator(build_model(config, golden.tokenizer.source.vocab_size), golden.tokenizer)
    refuses(r"^only a Transformer has heads: this is model.architecture=recurrent$", changed, lstm, Interventions())
    refuses(r"^only a Transformer has heads", rank_heads, lstm, [(SENTENCE, TARGET)])


@pytest.mark.slow
def test_heads_are_ranked_by_the_score_of_a_translation_without_them(golden: Translator) -> None:
    ranked = rank_heads(golden, [(SENTENCE, TARGET), ("The ball is blue.", "La bola es azul.")])
    losses = [worth.loss for worth in ranked]
    assert losses == sorted(losses, reverse=True)
    assert len(ranked) == 3 * require_transformer(golden)[1].config.num_heads
    best = ranked[0]
    assert best.name == f"{best.part}.1.head.{best.head + 1}"
    pairs = [(SENTENCE, TARGET), ("The ball is blue.", "La bola es azul.")]

    def mean(translator: Translator) -> float:
        scores = [explain(translator, *pair).log_probs for pair in pairs]
        return sum(map(sum, scores)) / sum(map(len, scores))

    without = changed(golden, Interventions(without=[best.name]))
    assert best.loss == pytest.approx(mean(golden) - mean(without), abs=1e-5)
    refuses("is empty", rank_heads, golden, [("", TARGET)])


SOURCE, TRANSLATION = "The cat sees the milk.", "El gato ve la leche."


def log_prob(translator: Translator, text: str, words: int, before: int) -> float:
    """Return the log-probability of a text's words after those before them."""
    (scored,) = translator.score([SOURCE], [text])
    starts = [i for i, token in enumerate(scored.tokens) if token.startswith("▁")]
    starts.append(len(scored.tokens) - 1)
    return math.fsum(scored.log_probs[starts[before] : starts[before + words]])


def test_both_words_have_their_log_probability_after_the_words_before(golden: Translator) -> None:
    found = contrast(golden, make_subject(golden, SOURCE, TRANSLATION), 2, "come")
    assert (found.word, found.texts) == (2, ("ve", "come"))
    expected = [log_prob(golden, f"El gato {word} la", 1, 2) for word in ("ve", "come")]
    assert found.log_probs == pytest.approx(expected, abs=1e-4)


def test_evidence_is_what_a_hidden_word_takes_away(golden: Translator) -> None:
    found = contrast(golden, make_subject(golden, SOURCE, TRANSLATION), 1, "perro")
    assert len(found.evidence) == len(SOURCE.split())
    cat = found.evidence[1]
    hidden = changed(golden, Interventions(["source.2"]), SOURCE)
    without = [log_prob(hidden, f"El {word} ve", 1, 1) for word in ("gato", "perro")]
    assert cat.drops == pytest.approx([a - b for a, b in zip(found.log_probs, without, strict=True)], abs=1e-4)
    for rank in range(2):
        assert 0.5 < sum(one.looks[rank] for one in found.evidence) < 1  # the rest is the end mark's


def test_what_is_no_word_is_refused(golden: Translator) -> None:
    subject = make_subject(golden, SOURCE, TRANSLATION)
    refuses("word=5: the translation has words 0 to 4", contrast, golden, subject, 5, "come")
    refuses("'un gato' is not one word: give a single one", contrast, golden, subject, 1, "un gato")
    refuses("the other word is empty: give one with words", contrast, golden, subject, 1, " ")
