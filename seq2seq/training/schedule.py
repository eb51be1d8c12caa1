"""The learning rate as a plain function of how far training is; no state, so nothing to restore."""

import math

from seq2seq.config import TrainingConfig


def learning_rate(config: TrainingConfig, step: int, progress: float) -> float:
    """The rate for update number `step` (from 0).

    It rises linearly over warmup_steps updates, and then falls: with 1/√step (Vaswani et al. 2017, §5.3), or along
    half a cosine (Loshchilov & Hutter 2017, eq. 5) or a line to final_rate · peak at progress 1. progress is the share
    of the run's budget that is spent, of updates or of time, whichever is further.
    """
    warmup = min(1.0, (step + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    return config.learning_rate * warmup * _decay(config, step, min(1.0, progress))


def _decay(config: TrainingConfig, step: int, progress: float) -> float:
    if config.schedule == "inverse_sqrt":
        return math.sqrt(max(config.warmup_steps, 1) / max(step + 1, config.warmup_steps, 1))
    if config.schedule == "cosine":
        return config.final_rate + (1 - config.final_rate) * (1 + math.cos(math.pi * progress)) / 2
    if config.schedule == "linear":
        return 1 - (1 - config.final_rate) * progress
    return 1.0
