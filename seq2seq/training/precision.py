"""Which precision training computes in where the settings leave it open."""

import torch

from seq2seq.settings.trainer import TrainerConfig


def choose_precision(config: TrainerConfig) -> str:
    """`trainer.precision`, with `auto` made `bf16-mixed` where the device multiplies bf16 matrices, else `32-true`.

    A CPU without such instructions imitates them, a hundred times slower than float32.
    """
    if config.precision != "auto":
        return config.precision
    is_gpu = config.accelerator == "gpu" or (config.accelerator == "auto" and torch.cuda.is_available())
    return "bf16-mixed" if (_gpu_has_bf16() if is_gpu else _cpu_has_bf16()) else "32-true"


def _gpu_has_bf16() -> bool:
    """Since compute capability 8.0 (Ampere); a GPU that is missing is told of later."""
    return not torch.cuda.is_available() or torch.cuda.get_device_capability() >= (8, 0)


def _cpu_has_bf16() -> bool:
    capabilities = getattr(torch.cpu, "get_capabilities", None)
    if capabilities is None:  # PyTorch 2.9
        return torch.cpu._is_avx512_bf16_supported()
    found = capabilities()
    return any(found.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
