"""The precision that `auto` stands for follows from what the device multiplies quickly."""

import pytest
import torch
from torch import Tensor

from seq2seq.model.encoder_decoder import DecoderState
from seq2seq.model.transformer import Transformer
from seq2seq.settings.config import Config
from seq2seq.settings.training import TrainerConfig
from seq2seq.training.final_scores import run_translator, translate_tests
from seq2seq.training.processes import choose_precision


def test_a_precision_that_is_named_stays():
    for precision in ("32-true", "bf16-mixed"):
        assert choose_precision(TrainerConfig(precision=precision)) == precision


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx2": True, "avx512_bf16": False, "amx_bf16": False}, "32-true"),
        ({"avx512_bf16": True}, "bf16-mixed"),
        ({"avx512_bf16": False, "amx_bf16": True}, "bf16-mixed"),
        ({"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": False}, "32-true"),
        ({"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": True}, "bf16-mixed"),
        ({"neon": True, "bf16": True}, "bf16-mixed"),
    ],
)
def test_auto_asks_the_cpu(monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool | str], expected: str):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert choose_precision(TrainerConfig(accelerator="cpu")) == expected


def test_auto_asks_the_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for capability, expected in (((7, 5), "32-true"), ((8, 0), "bf16-mixed"), ((9, 0), "bf16-mixed")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda capability=capability: capability)
        for accelerator in ("gpu", "auto"):
            assert choose_precision(TrainerConfig(accelerator=accelerator)) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "dtype"), [("32-true", torch.float32), ("bf16-mixed", torch.bfloat16)])
def test_a_run_in_float32_is_tested_in_float32(monkeypatch, bundle_folder, precision, dtype):
    monkeypatch.setattr("seq2seq.translate.engine.default_dtype", lambda device: torch.bfloat16)  # as on a GPU
    encode, dtypes = Transformer.encode, set()

    def observed(model: Transformer, src: Tensor) -> DecoderState:
        state = encode(model, src)
        dtypes.add(state.memory[0].keys.dtype)
        return state

    monkeypatch.setattr(Transformer, "encode", observed)
    tests = {"test": [("The cat sees.", "El gato ve.")]}
    config = Config(trainer=TrainerConfig(precision=precision))
    translate_tests(run_translator(bundle_folder, config, torch.device("cpu")), tests)
    assert dtypes == {dtype}
