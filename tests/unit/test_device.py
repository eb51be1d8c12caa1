from unittest.mock import Mock

import lightning as L
import pytest
import torch

from seq2seq.device import prepare, tensor_on, tf32_products
from seq2seq.engine import Engine
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig
from seq2seq.training.run import hardware


@pytest.mark.parametrize(("device", "switched"), [("cuda", [False]), ("cpu", [])])
def test_a_gpu_never_takes_cudnns_attention(device: str, switched: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", asked.append)
    prepare(torch.device(device))
    assert asked == switched
    model = Transformer(ModelConfig(d_model=8, num_heads=2, d_ff=8), 8)
    Engine(model, torch.device(device), torch.float32)
    assert asked == switched * 2


@pytest.mark.parametrize(("device", "precision"), [("cuda", "high"), ("cpu", "highest")])
def test_training_on_a_gpu_multiplies_float32_in_tf32_and_nothing_else_does(device: str, precision: str) -> None:
    with tf32_products(torch.device(device)):
        assert torch.get_float32_matmul_precision() == precision
    assert torch.get_float32_matmul_precision() == "highest"


def test_numbers_come_to_the_device_as_they_are() -> None:
    assert tensor_on("cpu", [3, 1]).tolist() == [3, 1]
    assert tensor_on(torch.device("cpu"), [0.25], torch.double).dtype == torch.double
    assert tensor_on("meta", [[1, 2]]).shape == (1, 2)


@pytest.mark.parametrize(("kind", "told"), [("cuda", "2 × A GPU"), ("cpu", "CPU cores")])
def test_the_hardware_is_what_the_run_uses(kind: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "A GPU")
    trainer = Mock(spec=L.Trainer, world_size=2)
    trainer.strategy.root_device = torch.device(kind)
    assert told in hardware(trainer)
