import pytest
import torch

from seq2seq.device import prepare, tf32_products


def test_a_gpu_takes_neither_cudnns_attention_nor_its_tf32() -> None:
    before = torch.backends.cudnn.allow_tf32
    try:
        prepare(torch.device("cuda"))
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert not torch.backends.cudnn.allow_tf32
        with tf32_products(torch.device("cuda")):
            assert torch.backends.cudnn.allow_tf32
        assert not torch.backends.cudnn.allow_tf32
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
        torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize(("device", "precision"), [("cuda", "high"), ("cpu", "highest")])
def test_training_on_a_gpu_multiplies_float32_in_tf32_and_nothing_else_does(device: str, precision: str) -> None:
    with tf32_products(torch.device(device)):
        assert torch.get_float32_matmul_precision() == precision
    assert torch.get_float32_matmul_precision() == "highest"
