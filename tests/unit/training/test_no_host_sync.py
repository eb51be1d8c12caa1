"""Nothing in an update asks for a value that a GPU would compute: checked without one, on tensors without values."""

from collections.abc import Iterator
from typing import cast

import lightning as L
import pytest
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)

from seq2seq.config import ModelConfig, TrainingConfig
from seq2seq.model.positions import rotations, sinusoidal
from seq2seq.model.transformer import Transformer
from seq2seq.text.batching import Batch
from seq2seq.training import loss
from seq2seq.training.module import TranslationModule


@pytest.fixture(autouse=True)
def _no_tensor_of_another_mode() -> Iterator[None]:
    for is_after in (False, True):
        for remembers in (sinusoidal, rotations):
            remembers.cache_clear()
        if not is_after:
            yield


class OneDevice:
    """What the module asks of its trainer."""

    world_size = accumulate_grad_batches = 1


def update(config: ModelConfig) -> TranslationModule:
    """A whole update."""
    module = TranslationModule(
        Transformer(config, 30).train(), TrainingConfig(ema_decay=0.9, max_tokens=4096, learning_rate=1e-3)
    )
    module.trainer = cast(L.Trainer, OneDevice())
    optimizer = module.configure_optimizers()
    assert isinstance(optimizer, torch.optim.Optimizer)
    batch = Batch(*(torch.ones(4, length, dtype=torch.int64) for length in (5, 7, 7)))
    with torch.autocast("cpu", torch.bfloat16):
        computed = module.training_step(batch, 0)
    computed.backward()
    module.configure_gradient_clipping(optimizer)
    optimizer.step()
    return module


@pytest.mark.parametrize("changes", [{}, {"norm_position": "pre", "activation": "swiglu", "positions": "rotary"}])
def test_an_update_asks_the_device_for_no_value(changes: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "LEAVES_OUT_PADDING", ())  # as on a GPU
    config = ModelConfig(d_model=16, num_heads=2, d_ff=32, num_encoder_layers=1, num_decoder_layers=1, **changes)  # type: ignore[arg-type]
    with FakeTensorMode():
        module = update(config)
    assert isinstance(module.grad_norm, FakeTensor)


def test_the_check_notices_what_waits() -> None:
    config = ModelConfig(d_model=16, num_heads=2, d_ff=32, num_encoder_layers=1, num_decoder_layers=1)
    with FakeTensorMode(), pytest.raises((DataDependentOutputException, DynamicOutputShapeException)):
        update(config)  # leaves padding out, as on the CPU
