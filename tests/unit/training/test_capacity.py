import numpy as np
import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.trainer import TrainerConfig
from seq2seq.settings.training import NoiseConfig, TrainingConfig
from seq2seq.text.batching import Batch
from seq2seq.text.dataset import Pairs
from seq2seq.training.automatic import ON_CPU, Trial, largest, resolve_max_tokens

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


@pytest.mark.parametrize(
    ("limit", "expected"), [(700, 512), (768, 768), (1000, 768), (1024, 1024), (5000, 4096), (10**9, 12_288)]
)
def test_the_largest_that_fits_is_a_power_of_two_or_one_and_a_half(limit: int, expected: int) -> None:
    assert largest(lambda tokens: tokens <= limit, 512, 13_000) == expected


def test_a_memory_too_small_for_one_batch_is_refused() -> None:
    with pytest.raises(UserError, match=r"not even 512 positions a batch fit.*activation_checkpointing=true"):
        largest(lambda tokens: False, 512, 4096)


def test_a_trial_tries_long_and_typical_sentences_and_takes_running_out_of_memory_for_no() -> None:
    trial = Trial(settings(), (30, None), torch.device("cpu"), widths=(64, 8), available=1e9)
    tried: list[tuple[int, ...]] = []
    update = trial.update

    def limited(batch: Batch) -> None:
        tried.append(tuple(batch.src.shape))
        if batch.src.numel() > 600:
            raise torch.OutOfMemoryError("CUDA out of memory")
        update(batch)

    trial.update = limited  # type: ignore[method-assign]
    assert trial.fits(512)
    assert not trial.fits(1024)
    assert tried == [(8, 64), (64, 8), (16, 64)]


def test_copies_of_the_weights_take_their_share() -> None:
    plain, averaged = (
        Trial(settings(**changes), (30, None), torch.device("cpu"), widths=(4,), available=1e9)
        for changes in ({}, {"ema_decay": 0.9, "final_weights": "ema"})
    )
    parameters = sum(p.numel() for p in plain.module.parameters())
    assert plain.available - averaged.available == 4 * parameters


@pytest.mark.parametrize(("longest", "expected"), [(20, ON_CPU), (1500, 1500)])
def test_a_cpu_gets_small_batches_that_hold_the_longest_pair(longest: int, expected: int) -> None:
    config = settings()
    before = torch.get_rng_state()
    resolve_max_tokens(config, make_pairs(longest), (30, None))
    assert torch.equal(torch.get_rng_state(), before)
    assert config.training.max_tokens == expected


def test_text_whose_longest_pair_is_not_known_yet_gets_room_for_it() -> None:
    config = settings(noise=NoiseConfig(typos=0.1))
    config.data = DataConfig(max_length=2000)
    resolve_max_tokens(config, make_pairs(20), (30, None))
    assert config.training.max_tokens == 2001


@pytest.mark.skipif(not torch.cuda.is_available(), reason="measures a GPU's memory")
def test_what_a_gpu_is_found_to_hold_it_holds() -> None:
    device = torch.device("cuda", 0)
    trial = Trial(settings(), (30, None), device, widths=(64, 8), available=2**28)
    assert 512 <= largest(trial.fits, 512, 2**22) < 2**22
    assert trial.peak() > 2**27
