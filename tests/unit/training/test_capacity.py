from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from resuming import run

from seq2seq.data.dataset import Pairs
from seq2seq.settings import rules
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.trainer import TrainerConfig
from seq2seq.settings.training import ModifiersConfig, TrainingConfig
from seq2seq.training import auto_values
from seq2seq.training.auto_values import ON_CPU, resolve_max_tokens
from seq2seq.training.module import TranslationModule
from tests.refusing import refuses

MODEL = ModelConfig(d_model=8, num_heads=2, d_ff=16, num_encoder_layers=1, num_decoder_layers=1)


def make_pairs(longest: int) -> Pairs:
    """Ten pairs with a longest side of `longest` tokens, the end mark included."""
    lengths = np.array([[7, 7]] * 9 + [[longest - 1, longest - 1]], np.int32)
    return Pairs(np.zeros(int(lengths.sum()), np.int32), lengths)


def settings(**training: object) -> Config:
    return Config(
        model=MODEL,
        training=TrainingConfig(max_tokens="auto", learning_rate=1e-3, **training),  # type: ignore[arg-type]
        trainer=TrainerConfig(accelerator="cpu", precision="32-true"),
    )


def test_a_gpus_batches_follow_from_its_memory_and_the_model() -> None:
    base = partial(rules.max_tokens, parameters=60_000_000, layers=12, values=16 * 512 + 3 * 2048)
    assert [base(gigabytes * 10**9) for gigabytes in (1, 8, 16, 80, 10**6)] == [512, 2048, 8192, 32_768, 131_072]
    assert base(80 * 10**9, kept=512) == 131_072
    need = 2 * (24 * 60_000_000 + 4 * 12 * 14_336 * 8192)
    assert (base(need), base(need - 10)) == (8192, 4096)


@pytest.mark.parametrize(
    ("changes", "pairs", "expected"),
    [({}, 10**6, 131_072), ({"r_drop": 5.0}, 10**6, 65_536), ({}, 100_000, 16_000), ({}, 10, 512)],
)
def test_a_gpu_has_at_least_fifty_updates_an_epoch(changes, pairs, expected, monkeypatch):
    monkeypatch.setattr(auto_values, "uses_gpu", lambda trainer: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (80 * 10**9, 80 * 10**9))
    config = settings(**changes)
    resolve_max_tokens(config, Pairs(np.zeros(0, np.int32), np.full((pairs, 2), 7, np.int32)), (30, None))
    assert config.training.max_tokens == expected


@pytest.mark.parametrize(("longest", "expected"), [(20, ON_CPU), (1500, 1500)])
def test_a_cpu_gets_small_batches_that_hold_the_longest_pair(longest: int, expected: int) -> None:
    config = settings()
    before = torch.get_rng_state()
    resolve_max_tokens(config, make_pairs(longest), (30, None))
    assert torch.equal(torch.get_rng_state(), before)
    assert config.training.max_tokens == expected


def test_text_whose_longest_pair_is_not_known_yet_gets_room_for_it() -> None:
    config = settings(modifiers=ModifiersConfig(share=0.1))
    config.data = DataConfig(max_length=2000)
    resolve_max_tokens(config, make_pairs(20), (30, None))
    assert config.training.max_tokens == 2001


def test_a_run_without_enough_memory_says_what_needs_less(config, data, tmp_path, monkeypatch):
    full = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    monkeypatch.setattr(TranslationModule, "training_step", lambda *_: full())
    refuses(r"^training.max_tokens=\d+ needs more memory .* half of it and twice", run, config, data, tmp_path)
