from functools import partial
from importlib import import_module

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from seq2seq.data.batching import Batch
from seq2seq.model.build import build_model
from seq2seq.model.transformer import Transformer
from seq2seq.search.types import Source
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.tokenizer import EOS, PAD
from seq2seq.training.loss import cross_entropy
from seq2seq.training.module import TranslationModule
from seq2seq.translate.engine import Engine

pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")

from benchmarks import huggingface
from benchmarks.__main__ import COMMANDS
from benchmarks.command import options_of
from benchmarks.data import drawn_pairs, epochs_of
from benchmarks.ours import Updates
from benchmarks.race import race
from seq2seq.apps.exchange.huggingface import to_marian

VOCAB = 30
CONFIG = ModelConfig(d_model=24, num_heads=3, d_ff=40, num_encoder_layers=1, num_decoder_layers=2, dropout=0.1)


@pytest.fixture
def model() -> Transformer:
    """A model whose every weight matters, those that start as zeros or ones too."""
    torch.manual_seed(3)
    model = build_model(CONFIG, VOCAB)
    assert isinstance(model, Transformer)
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model.eval()


@pytest.fixture
def batch() -> Batch:
    return next(iter(epochs_of(drawn_pairs(20, VOCAB, seed=1), max_tokens=120, seed=4)))


def test_both_losses_of_the_same_weights_are_equal(model: Transformer, batch: Batch):
    total, _, tokens = cross_entropy(
        model(batch.src, batch.tgt_in), model.embedding.weight, batch.tgt_out, pad=PAD, smoothing=0.1
    )
    assert_close(huggingface.mean_loss(to_marian(model), batch, smoothing=0.1), total / tokens)


@pytest.mark.slow
def test_both_exact_beam_searches_find_the_same_translations_at_the_same_scores(model: Transformer, batch: Batch):
    torch.manual_seed(3)  # of dropout, whatever ran before
    updates = Updates(TranslationModule(model, TrainingConfig(max_tokens=120, learning_rate=3e-3)))
    for _ in range(250):  # so that translations end before the limit
        updates.update(batch)
    limit = batch.tgt_out.shape[1] + 5
    settings = SearchConfig(beam=4, length_penalty=1.0, max_length_ratio=0.0, max_length_offset=limit)
    sources = [row[: row.index(EOS)] for row in batch.src.tolist()]
    engine = Engine(model, torch.device("cpu"), torch.float32)
    batches = engine.search([Source(ids) for ids in sources], settings, n_best=1)
    ours = {index: hypotheses[0] for batch in batches for index, hypotheses in batch}
    options = huggingface.EXACT | {"return_dict_in_generate": True, "output_scores": True}
    theirs = huggingface.generate(to_marian(model), sources, beam=4, max_length=limit, **options)
    ended = [index for index, row in enumerate(theirs.sequences.tolist()) if EOS in row]
    assert len(ended) >= 4
    for index in ended:
        row = theirs.sequences[index].tolist()
        assert ours[index].ids == row[1 : row.index(EOS)]
        assert ours[index].normalised_score == pytest.approx(float(theirs.sequences_scores[index]), abs=1e-4)


def test_in_a_race_everyone_does_every_block_in_turns():
    done: list[str] = []

    def run(name: str, block: int) -> str:
        done.append(f"{name}{block}")
        return f"{name}{block} of {len(done)}"

    runs = {name: partial(run, name) for name in "ab"}
    result = race(runs, [1, 2], work=10, rounds=2, device=torch.device("cpu"))
    warm_up, raced = done[:2], done[2:]
    assert warm_up == ["a1", "b1"]
    assert raced == ["a1", "b1", "b2", "a2", "a1", "b1", "b2", "a2"]
    assert result.outputs == {"a": ["a1 of 7", "a2 of 10"], "b": ["b1 of 8", "b2 of 9"]}
    assert result.ratio("a", "a").median == 1
    assert result.rate("a").median == pytest.approx(np.median([10 / seconds for seconds in result.seconds["a"]]))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_options_and_their_comments(name: str):
    assert options_of(import_module(f"benchmarks.{name}").Plan)
