from unittest.mock import Mock

import lightning as L
import pytest
import torch

from seq2seq.device import prepare, tf32_products
from seq2seq.training.run import hardware


def test_a_gpu_never_takes_cudnns_attention() -> None:
    try:
        prepare(torch.device("cuda"))
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


@pytest.mark.parametrize(("device", "precision"), [("cuda", "high"), ("cpu", "highest")])
def test_training_on_a_gpu_multiplies_float32_in_tf32_and_nothing_else_does(device: str, precision: str) -> None:
    with tf32_products(torch.device(device)):
        assert torch.get_float32_matmul_precision() == precision
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize(("kind", "description"), [("cuda", "2 × A GPU"), ("cpu", "CPU cores")])
def test_the_hardware_is_what_the_run_uses(kind: str, description: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "A GPU")
    trainer = Mock(spec=L.Trainer, world_size=2)
    trainer.strategy.root_device = torch.device(kind)
    assert description in hardware(trainer)
