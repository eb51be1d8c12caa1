"""The learning rate as a plain function of how far training is; no state, so nothing to restore."""

import math

from seq2seq.settings.training import TrainingConfig


def learning_rate(config: TrainingConfig, step: int, progress: float) -> float:
    """The rate for update number `step` (from 0).

    It rises linearly over warmup_steps updates to its peak, and then falls: with 1/√step (Vaswani et al. 2017, §5.3),
    or along half a cosine (Loshchilov & Hutter 2017, eq. 5) or a line to final_rate · peak at progress 1. progress is
    the share of the run's budget that is spent, of updates or of time, whichever is further.
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    return config.learning_rate * _decay(config, step, min(1.0, progress))


def _decay(config: TrainingConfig, step: int, progress: float) -> float:
    """Return the share of the peak after the warm-up; it begins at 1."""
    if config.schedule == "inverse_sqrt":
        return math.sqrt(max(config.warmup_steps, 1) / (step + 1))
    if config.schedule == "constant":
        return 1.0
    warmup = progress * config.warmup_steps / max(step, 1)  # its share of the budget, if updates take equally long
    fallen = (progress - warmup) / (1 - warmup) if warmup < 1 else 1.0
    fall = (1 - math.cos(math.pi * fallen)) / 2 if config.schedule == "cosine" else fallen
    return 1 - (1 - config.final_rate) * fall
