"""Interventions do what they say, and leave no trace."""

import contextlib
import copy
from collections.abc import Callable

import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.explain.explanation import explain
from seq2seq.explain.interventions import Interventions, changed, intervene, rank_heads
from seq2seq.explain.subject import require_engine
from seq2seq.model.build import build_model
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig
from seq2seq.translator import Translator
from tests.unit.explain.conftest import GOLDEN
from tests.unit.searches import NEEDS_COMPILER

SRC, TGT = torch.tensor([[5, 6, 7, 8, 3]]), torch.tensor([[2, 9, 10, 11]])
SENTENCE, TARGET = "The black cat drank the milk.", "El gato negro bebió la leche."


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(3)
    config = ModelConfig(d_model=16, num_heads=4, d_ff=24, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0)
    built = build_model(config, 20).eval()
    for parameter in built.parameters():  # larger weights than the initial ones, so that each change shows
        torch.nn.init.normal_(parameter, std=0.5)
    assert isinstance(built, Transformer)
    return built


def output(model: Transformer) -> torch.Tensor:
    with torch.no_grad():
        return model.logits(model(SRC, TGT))


def zeroed(model: Transformer, change: Callable[[Transformer], None]) -> torch.Tensor:
    """Return the output of a copy whose weights were changed by hand."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        change(other)
    return output(other)


def off_by_hand(part: str, layer: int, channels: slice) -> Callable[[Transformer], None]:
    def change(model: Transformer) -> None:
        stack = model.encoder_layers if part == "encoder" else model.decoder_layers
        attention = getattr(stack[layer], "cross_attention" if part == "cross" else "self_attention")
        attention.out_proj.weight[:, channels] = 0

    return change


@pytest.mark.parametrize("part", ["encoder", "decoder", "cross"])
def test_a_head_that_is_off_has_zeros_in_the_output_projection(model: Transformer, part: str) -> None:
    expected = zeroed(model, off_by_hand(part, 1, slice(8, 12)))
    usual = output(model)
    with intervene(model, f"{part}.2.head.3"):
        assert torch.allclose(output(model), expected, atol=1e-6)
    assert not torch.allclose(usual, expected, atol=1e-3)


def test_a_layer_that_is_off_has_no_head(model: Transformer) -> None:
    with intervene(model, "cross.1"):
        whole = output(model)
    with intervene(model, *(f"cross.1.head.{head}" for head in (1, 2, 3, 4))):
        assert torch.equal(output(model), whole)
    with intervene(model, "cross"):
        without_source = output(model)
    with intervene(model, "cross.1", "cross.2"):
        assert torch.equal(output(model), without_source)


def test_an_averaged_head_takes_the_same_of_all_that_it_may_see(model: Transformer) -> None:
    with intervene(model, average=["decoder.1.head.2", "cross.2.head.1"]):
        trace = model.traced(SRC, TGT)
    even = torch.tril(torch.ones(4, 4)) / torch.arange(1, 5)[:, None]
    assert torch.allclose(trace.decoder[0][0, 1], even, atol=1e-6)
    assert torch.allclose(trace.cross[1][0, 0], torch.full((4, 5), 0.2), atol=1e-6)
    usual = model.traced(SRC, TGT)
    assert torch.equal(trace.decoder[0][0, 0], usual.decoder[0][0, 0])


@pytest.mark.parametrize("relevance", ["query_key", "shared"])
@pytest.mark.parametrize("temperature", [0.5, 4.0])
def test_the_temperature_divides_the_scores(relevance: str, temperature: float) -> None:
    torch.manual_seed(3)
    config = ModelConfig(d_model=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, relevance=relevance)
    model = build_model(config, 20).eval()
    torch.nn.init.normal_(model.embedding.weight)
    usual = model.traced(SRC, TGT).encoder[0]
    with intervene(model, temperature=temperature):
        found = model.traced(SRC, TGT).encoder[0]
    assert torch.allclose(found, (usual.log() / temperature).softmax(-1), atol=1e-5)


def test_without_the_mask_the_decoder_looks_ahead(model: Transformer) -> None:
    with intervene(model, "mask"):
        ahead = model.traced(SRC, TGT).decoder[0][0, 0]
    assert (ahead[0, 1:] > 0).all()
    assert (model.traced(SRC, TGT).decoder[0][0, 0][0, 1:] == 0).all()


def test_without_positions_the_encoder_knows_no_order(model: Transformer) -> None:
    order = torch.tensor([3, 1, 4, 0, 2])
    with intervene(model, "positions"):
        memory = model.encode(SRC).memory[0].keys
        permuted = model.encode(SRC[:, order]).memory[0].keys
    assert torch.allclose(memory[:, :, order], permuted, atol=1e-5)
    assert not torch.allclose(model.encode(SRC).memory[0].keys, memory, atol=1e-2)


def test_a_hidden_piece_is_seen_by_nobody(model: Transformer) -> None:
    other = SRC.clone()
    other[0, 2] = 13
    with intervene(model, hidden=[2]):
        trace = model.traced(SRC, TGT)
        same, of_other = output(model), model.logits(model(other, TGT))
    assert all((layer[..., 2] == 0).all() for layer in [*trace.encoder, *trace.cross])
    assert torch.allclose(same, of_other, atol=1e-5)  # whatever stands there


def test_nothing_is_left_when_the_block_ends(model: Transformer) -> None:
    before, usual, config = copy.deepcopy(model.state_dict()), output(model), model.config
    changes = ("encoder", "positions", "mask")
    with contextlib.suppress(RuntimeError), intervene(model, *changes, average=["cross"], temperature=3.0, hidden=[1]):
        assert not torch.equal(output(model), usual)
        raise RuntimeError
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert model.config is config
    assert "source_mask" not in vars(model)
    assert torch.equal(output(model), usual)


def test_blocks_within_one_another_end_one_by_one(model: Transformer) -> None:
    with intervene(model, "cross.1", hidden=[1]):
        outer = output(model)
        with intervene(model, "encoder.1", hidden=[2]):
            trace = model.traced(SRC, TGT)
            assert all((layer[..., [1, 2]] == 0).all() for layer in trace.encoder)
        assert torch.equal(output(model), outer)
    assert not torch.equal(output(model), outer)


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
        (["cross.0"], [], 1.0, r"^cross.0: this model has layers 1 to 2 there$"),
        (["cross.1.head.5"], [], 1.0, r"^cross.1.head.5: this model has heads 1 to 4$"),
        (["encoder.1"], ["head.2"], 1.0, r"^'head.2' names nothing to change: give encoder.2.head.3, "),
        ([], ["mask"], 1.0, r"^'mask' names nothing to change: give encoder.2.head.3, decoder.1 or cross$"),
        (["encoder.\u0661"], [], 1.0, r"names nothing to change"),
        (["source.1"], [], 1.0, r"^'source.1' names nothing to change"),
        ([], [], 0.0, r"^the temperature 0 must be from 0.001 to 1000$"),
        ([], [], 1e-320, r"^the temperature 9.99989e-321 must be from 0.001 to 1000$"),
        ([], [], float("inf"), r"^the temperature inf must be from 0.001 to 1000$"),
        ([], [], float("nan"), r"^the temperature nan must be from 0.001 to 1000$"),
    ],
)
def test_a_wrong_name_changes_nothing(
    model: Transformer, names: list[str], average: list[str], temperature: float, message: str
) -> None:
    usual = output(model)
    with pytest.raises(UserError, match=message), intervene(model, *names, average=average, temperature=temperature):
        pass
    assert torch.equal(output(model), usual)


def test_an_lstm_has_no_heads_to_change() -> None:
    config = ModelConfig(architecture="recurrent", d_model=8, num_encoder_layers=1, num_decoder_layers=1)
    with pytest.raises(UserError, match=r"interventions are for Transformers"), intervene(build_model(config, 20)):
        pass


def test_a_changed_translator_searches_and_reads_with_the_changes(golden: Translator) -> None:
    usual = golden.translate([SENTENCE])
    blind = changed(golden, Interventions(without=["cross"]))
    one, other = (blind.translate([text])[0][:8] for text in (SENTENCE, "A dog sees a ball."))
    assert one == other != usual[0][:8]
    assert golden.translate([SENTENCE]) == usual
    _, model = require_engine(golden)
    _, other = require_engine(blind)
    assert other is not model
    word = changed(golden, Interventions(without=["source.3"]), SENTENCE)
    maps = explain(word, SENTENCE, TARGET).by_word
    assert all((layer[:, :, 2] == 0).all() for part in ("encoder", "cross") for layer in maps[part])
    with pytest.raises(UserError, match=r"^source.7: the sentence has words 1 to 6$"):
        changed(golden, Interventions(without=["source.7"]), SENTENCE)


def test_heads_are_ranked_by_the_score_of_a_translation_without_them(golden: Translator) -> None:
    ranked = rank_heads(golden, [(SENTENCE, TARGET), ("The ball is blue.", "La bola es azul.")])
    losses = [one.loss for one in ranked]
    assert losses == sorted(losses, reverse=True)
    _, model = require_engine(golden)
    assert len(ranked) == 3 * model.config.num_heads
    best = ranked[0]
    name = f"{best.part}.{best.layer + 1}.head.{best.head + 1}"
    pairs = [(SENTENCE, TARGET), ("The ball is blue.", "La bola es azul.")]

    def mean(translator: Translator) -> float:
        scores = [explain(translator, *pair).log_probs for pair in pairs]
        return sum(map(sum, scores)) / sum(map(len, scores))

    without = changed(golden, Interventions(without=[name]))
    assert best.loss == pytest.approx(mean(golden) - mean(without), abs=1e-5)
    with pytest.raises(UserError, match="is empty"):
        rank_heads(golden, [("", TARGET)])
