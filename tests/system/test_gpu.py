"""What a GPU computes, beside what the CPU computes: every test is skipped where there is no GPU.

SEQ2SEQ_TEST_DEVICE=cpu rehearses the tests of translating on the CPU.
"""

import os
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

from benchmarks.ours import Updates
from seq2seq.data.batching import Batch, collate
from seq2seq.device import prepare
from seq2seq.model.build import build_model
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.training.module import TranslationModule
from seq2seq.training.replay import Computation, CudaRecorder, Recorder
from seq2seq.translate.translator import Translator
from seq2seq.translate.types import Text
from tests.toy import write_corpus

DEVICE = os.environ.get("SEQ2SEQ_TEST_DEVICE", "cuda")  # of the tests of translating
REASON, HAS_NO_GPU = "there is no GPU to compare with", not torch.cuda.is_available()
pytestmark = pytest.mark.slow
needs_gpu = pytest.mark.skipif(HAS_NO_GPU, reason=REASON)
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


@needs_gpu
@pytest.mark.parametrize("style", STYLES)
def test_a_gpu_computes_the_loss_and_the_gradients_of_the_cpu(style: str) -> None:
    expected, found = gradients(style, "cpu"), gradients(style, "cuda")
    assert_close(found[0], expected[0], rtol=1e-5, atol=0)
    assert distance(found, expected) < 1e-5
    halved = gradients(style, "cuda", torch.bfloat16)
    assert_close(halved[0], expected[0], rtol=1e-2, atol=0)
    assert distance(halved, expected) < 3e-2


SEARCHES: list[dict[str, Any]] = [
    {"beam": 1},
    {"beam": 5, "early_stopping": True},
    {"beam": 3, "min_length": 12, "max_length": 14},
    {"beam": 3, "no_repeat_ngram": 2, "min_length": 9},
    {"beam": 3, "banned": ["gato", "la leche"]},
    {"sampling": True, "top_k": 9, "top_p": 0.9, "temperature": 0.8, "seed": 3},
]
TEXTS: list[dict[str, Any]] = [{}, {"prefix": "El perro"}, {"phrases": ("manzana",), "prefix": "La"}]


@pytest.mark.skipif(DEVICE == "cuda" and HAS_NO_GPU, reason=REASON)
@pytest.mark.parametrize("search", SEARCHES, ids=str)
@pytest.mark.parametrize("text", TEXTS, ids=str)
def test_a_gpu_finds_the_translations_of_the_cpu(search: dict[str, Any], text: dict[str, Any]) -> None:
    """And the next best ones, with their scores; a search with phrases is of one kind."""
    if "phrases" in text and {"sampling", "early_stopping"} & search.keys():
        search = {"beam": 4}
    cpu, gpu = (Translator.load(GOLDEN / "bundle", device, torch.float32) for device in ("cpu", DEVICE))
    count, texts = min(search.get("beam", 3), 3), [Text(source, **text) for source in SOURCES]
    expected, found = (model.translate_nbest(texts, count, **search) for model in (cpu, gpu))
    about = [[(best.text, pytest.approx(best.score, abs=1e-4)) for best in of_text] for of_text in expected]
    assert [[(best.text, best.score) for best in of_text] for of_text in found] == about


@needs_gpu
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


def failing(compute: Computation) -> Computation:
    """Record a computation that waits for the GPU, which no recording can."""
    return CudaRecorder()(lambda: (Tensor.item(compute()[0]), compute())[1])


@needs_gpu
@pytest.mark.parametrize("recorder", [CudaRecorder(), failing], ids=["recorded", "failed"])
def test_recorded_updates_are_the_plain_ones_with_dropout(recorder: Recorder, caplog: Any) -> None:
    """Also after a recording that failed in the middle, as when memory runs out."""
    plain, recorded = (losses_of_updates(one) for one in (None, recorder))
    assert recorded == pytest.approx(plain, rel=2e-2)
    assert len(caplog.messages) == (recorder is failing)


def losses_of_updates(recorder: Recorder | None) -> list[float]:
    torch.manual_seed(0)
    config = ModelConfig(d_model=64, num_encoder_layers=2, num_decoder_layers=2, dropout=0.1, **STYLES["modern"])
    training = TrainingConfig(max_tokens=512, learning_rate=1e-3)
    module = TranslationModule(build_model(config, VOCABULARY), training, recorder=recorder).cuda()
    updates, rng = Updates(module, "bf16-mixed"), np.random.default_rng(0)
    batch = Batch(
        *(ids.cuda() for ids in collate([(rng.integers(4, VOCABULARY, 9), rng.integers(4, VOCABULARY, 7))] * 9))
    )
    return [float(updates.update(batch)) for seed in range(10) if torch.manual_seed(seed)]


def run(workdir: Path, program: str, *arguments: str) -> str:
    """Return what the program logs."""
    command = [sys.executable, str(REPOSITORY / program), *arguments]
    result = subprocess.run(command, cwd=workdir, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stderr
