"""Numbers for settings that say `auto`, and the table that shows them."""

import io
from collections.abc import Collection
from functools import partial
from pathlib import Path
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
import torch
from resuming import run
from rich.console import Console

from seq2seq.data.dataset import Pairs, PreparedData
from seq2seq.settings import rules
from seq2seq.settings.compose import compose
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig
from seq2seq.settings.loading import load_config
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import ModifiersConfig, TrainerConfig, TrainingConfig
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.training import auto_values
from seq2seq.training.auto_values import ON_CPU, max_tokens, resolve_numbers
from seq2seq.training.module import TranslationModule
from seq2seq.training.report import summary_table
from tests.refusing import refuses


def pairs(count: int) -> Pairs:
    """Sentence pairs of nine tokens a side."""
    return Pairs(np.full(18 * count, 5, np.int32), np.full((count, 2), 9, np.int32))


def prepared(count: int) -> PreparedData:
    source, target = (MagicMock(spec=Tokenizer, vocab_size=4000) for _ in range(2))
    source.decode.return_value, target.decode.return_value = ["The [red] ball."], ["La pelota [roja]."]
    vocabulary = Tokenizers(source, target, is_shared=True)
    report = {"files": [{"name": "text/mine.tsv"}]}
    return PreparedData(vocabulary, pairs(count), pairs(5), [], {"t": []}, report, Path())


def settled(folder: Path, count: int = 20_480, **trainer: object) -> tuple[Config, frozenset[str], float]:
    config = compose(["data=files"])
    config.model = ModelConfig(d_model=256, num_heads=4, dropout=rules.AUTO)
    config.trainer = TrainerConfig(accelerator="cpu", precision="32-true", **trainer)  # type: ignore[arg-type]
    return config, *resolve_numbers(config, folder, prepared(count))


def test_a_run_that_names_nothing_gets_numbers_by_its_text_and_model(tmp_path: Path) -> None:
    config, ruled, epoch = settled(tmp_path)
    # 204,800 positions are 201 batches of 1,024 (ten positions a pair, so that a batch has 4 positions left)
    assert epoch == 201
    assert (config.model.dropout, config.training.max_tokens, config.training.learning_rate) == (0.3, 1024, 1e-3)
    assert (config.trainer.max_steps, config.training.warmup_steps, config.trainer.validate_every) == (4100, 410, 164)
    assert ruled == {
        *("training.optimizer", "training.max_tokens", "training.learning_rate", "training.warmup_steps"),
        *("trainer.max_steps", "trainer.validate_every", "tokenizer.vocab_size", "model.dropout"),
    }


def test_the_numbers_are_in_the_runs_config_for_resuming(tmp_path: Path) -> None:
    config, *_ = settled(tmp_path)
    again = load_config(str(tmp_path), [])
    assert (again.training, again.trainer) == (config.training, config.trainer)
    assert again.tokenizer.vocab_size == "auto"


def test_what_is_named_stays_and_the_rate_follows_the_positions_of_an_update(tmp_path: Path) -> None:
    config, ruled, _ = settled(tmp_path, max_steps=77, validate_every=7)
    assert (config.trainer.max_steps, config.trainer.validate_every, config.training.warmup_steps) == (77, 7, 7)
    assert "trainer.max_steps" not in ruled
    assert settled(tmp_path, devices=4, num_nodes=100)[0].training.learning_rate == 2e-3


def test_with_a_time_limit_the_warm_up_waits_for_the_time(tmp_path: Path) -> None:
    config, ruled, epoch = settled(tmp_path, max_time="00:00:05:00")
    assert config.training.warmup_steps == load_config(str(tmp_path), []).training.warmup_steps == "auto"
    assert "0.001 after a warm-up of a tenth of the run, then linear" in printed(config, epoch, ((), ruled))


def test_epochs_are_counted_in_updates_and_whatever_ends_first_counts(tmp_path: Path) -> None:
    assert settled(tmp_path, max_epochs=3)[0].trainer.max_steps == 3 * 201
    assert settled(tmp_path, max_epochs=3, max_steps=100)[0].trainer.max_steps == 100
    assert settled(tmp_path, max_epochs=3, devices=2)[0].trainer.max_steps == 302


def test_numbers_follow_the_text_the_model_and_the_batch() -> None:
    sizes = [rules.vocab_size(pairs) for pairs in (100, 20_000, 108_000, 576_000, 2_000_000, 10**9)]
    assert sizes == [2000, 4000, 8000, 16_000, 32_000, 32_000]
    assert [rules.dropout(pairs) for pairs in (100, 20_000, 108_000)] == [0.3, 0.3, 0.1]
    rate = partial(rules.learning_rate, is_pre_norm=False)
    assert [rate(width, 1024) for width in (128, 256, 512, 1024)] == [1.4e-3, 1e-3, 7.1e-4, 5e-4]
    assert [rate(256, batch) for batch in (512, 25_000, 400_000)] == [1e-3, 1e-3, 2e-3]
    assert rules.learning_rate(128, 1024, is_pre_norm=True) == 2.8e-3
    assert [rules.optimizer(is_pre_norm=is_pre_norm) for is_pre_norm in (False, True)] == ["adamw", "muon"]
    steps = [rules.max_steps(positions, 1024) for positions in (10, 200_000, 1_200_000, 14_000_000)]
    assert steps == [200, 4000, 9900, 33_700]
    assert rules.max_steps(1_200_000, 4 * 1024) == 4900
    assert [rules.validate_every(updates) for updates in (7, 300, 4000, 10**6)] == [7, 100, 160, 5000]
    assert [rules.warmup_steps(updates) for updates in (3, 4000, 10**6)] == [1, 400, 4000]


def printed(config: Config, epoch: float, decided: tuple[Collection[str], Collection[str]]) -> str:
    table = summary_table(config, prepared(20_480), decided, epoch, 1_000, "2 CPU cores")
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_one_table_says_what_the_run_is_and_who_decided(tmp_path: Path) -> None:
    config, ruled, epoch = settled(tmp_path)
    decided = {"data", "data.train", "training.schedule"}, ruled
    lines = {line.split("│")[1].strip(): line for line in printed(config, epoch, decided).splitlines() if "│" in line}
    for name, text, who in (
        ("text", "mine.tsv", "you"),
        ("pairs", "en→es: 20,480 to train on, 5 to validate, t 0", "you"),
        ("example", "The [red] ball. → La pelota [roja].", "you"),
        ("vocabulary", "4,000 subwords, unigram", "rule"),
        ("model", "1,000 parameters", "conf/"),
        ("dropout", "0.3", "rule"),
        ("device", "2 CPU cores, 32-true", "conf/"),
        ("batch", "1,024 positions an update; 201 updates an epoch", "rule"),
        ("learning rate", "adamw, 0.001 after 410 updates of warm-up, then linear", "you + rule"),
        ("ends", "after 4,100 updates (20.4 epochs), or after 8 validations without improvement", "rule"),
        ("validation", "every 164 updates, by bleu", "rule"),
    ):
        assert text in lines[name]
        assert lines[name].rstrip(" │").endswith(who), name


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
    of_seven = Pairs(np.zeros(0, np.int32), np.full((pairs, 2), 7, np.int32))
    assert max_tokens(settings(**changes), of_seven, (30, None)) == expected


@pytest.mark.parametrize(("longest", "expected"), [(20, ON_CPU), (1500, 1500)])
def test_a_cpu_gets_small_batches_that_hold_the_longest_pair(longest: int, expected: int) -> None:
    before = torch.get_rng_state()
    assert max_tokens(settings(), make_pairs(longest), (30, None)) == expected
    assert torch.equal(torch.get_rng_state(), before)


def test_text_whose_longest_pair_is_not_known_yet_gets_room_for_it() -> None:
    config = settings(modifiers=ModifiersConfig(share=0.1))
    config.data = DataConfig(max_length=2000)
    assert max_tokens(config, make_pairs(20), (30, None)) == 2001


def test_a_run_without_enough_memory_says_what_needs_less(config, data, tmp_path, monkeypatch):
    full = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    monkeypatch.setattr(TranslationModule, "training_step", lambda *_: full())
    refuses(r"^training.max_tokens=\d+ needs more memory .* half of it and twice", run, config, data, tmp_path)
