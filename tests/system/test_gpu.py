"""What a GPU computes, beside what the CPU computes: every test is skipped where there is no GPU."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_run import BASE, validated
from torch import Tensor
from torch.testing import assert_close

from seq2seq.data.batching import Batch, collate
from seq2seq.device import prepare
from seq2seq.model.build import build_model
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.training.module import TranslationModule
from seq2seq.translate.translator import Translator
from tests.toy import write_corpus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU to compare with"),
]
REPOSITORY = Path(__file__).parents[2]
GOLDEN = REPOSITORY / "tests" / "golden"
SOURCES = ["The cat sees the milk.", "The cow brings an apple.", "The bird wants a ball.", "A dog?", "€ 5 → ñ"]
VOCABULARY = 60
SIZES: dict[str, Any] = {"num_heads": 4, "d_ff": 128}
MODERN = {"norm_position": "pre", "norm": "rmsnorm", "activation": "swiglu", "positions": "rotary"}
STYLES = {
    "vaswani": SIZES,
    "modern": SIZES | MODERN,
    "recurrent": {"architecture": "recurrent", "attention": "additive"},
}


def gradients(style: str, device: str, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Return the loss and the gradients of one batch, computed on device."""
    prepare(torch.device(device))
    torch.manual_seed(0)
    config = ModelConfig(d_model=64, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0, **STYLES[style])
    model = build_model(config, VOCABULARY)
    module = TranslationModule(model, TrainingConfig(max_tokens=512)).to(device).train()
    rng = np.random.default_rng(0)
    pairs = [(rng.integers(4, VOCABULARY, s), rng.integers(4, VOCABULARY, t)) for s, t in ((5, 9), (30, 4), (8, 17))]
    batch = Batch(*(ids.to(device) for ids in collate(pairs)))
    with torch.autocast(device, torch.bfloat16, enabled=dtype == torch.bfloat16):
        loss = module.training_step(batch, 0)
    loss.backward()
    return [one.detach().cpu().double() for one in (loss, *(p.grad for p in model.parameters() if p.grad is not None))]


def distance(found: list[Tensor], expected: list[Tensor]) -> float:
    """Return the length of the difference of all gradients, as a share of the length of the expected ones."""
    flat = [torch.cat([one.flatten() for one in values[1:]]) for values in (found, expected)]
    return float((flat[0] - flat[1]).norm() / flat[1].norm())


@pytest.mark.parametrize("style", STYLES)
def test_a_gpu_computes_the_loss_and_the_gradients_of_the_cpu(style: str) -> None:
    expected, found = gradients(style, "cpu"), gradients(style, "cuda")
    assert_close(found[0], expected[0], rtol=1e-5, atol=0)
    assert distance(found, expected) < 1e-5
    halved = gradients(style, "cuda", torch.bfloat16)
    assert_close(halved[0], expected[0], rtol=1e-2, atol=0)
    assert distance(halved, expected) < 3e-2


def test_a_gpu_finds_the_translations_of_the_cpu() -> None:
    cpu, gpu = (Translator.load(GOLDEN / "bundle", device, torch.float32) for device in ("cpu", "cuda"))
    for beam, is_early in ((1, False), (5, False), (5, True)):
        translations = [model.translate(SOURCES, beam=beam, early_stopping=is_early) for model in (cpu, gpu)]
        assert translations[0] == translations[1]


@pytest.mark.parametrize("setting", ["trainer.replay=false", "trainer.replay=true"])
def test_a_run_on_a_gpu_resumes_and_learns_what_a_run_on_the_cpu_learns(setting: str, tmp_path: Path) -> None:
    workdir = write_corpus(tmp_path)
    settings = (*BASE, "model.dropout=0", "trainer.precision=32-true", "training.schedule=constant")
    on_gpu = ("name=gpu", "trainer=gpu", setting)
    run(workdir, "train.py", *settings, "name=cpu", "trainer=cpu")
    logs = run(workdir, "train.py", *settings, *on_gpu, "trainer.max_steps=10")
    logs += run(workdir, "train.py", "resume=runs/gpu", "trainer.max_steps=20")
    assert "updates are not recorded" not in logs
    cpu, gpu = (validated(workdir / "runs" / name) for name in ("cpu", "gpu"))
    assert cpu.keys() <= gpu.keys()
    for step in cpu:
        assert float(gpu[step]) == pytest.approx(float(cpu[step]), rel=1e-3)  # TF32 has 10 bits of mantissa
    run(workdir, "translate.py", "--model", "runs/gpu", "--device", "cuda", "The cat has a ball.")


def run(workdir: Path, program: str, *arguments: str) -> str:
    """Return what the program logs."""
    command = [sys.executable, str(REPOSITORY / program), *arguments]
    result = subprocess.run(command, cwd=workdir, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stderr
