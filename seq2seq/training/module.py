"""One update: loss, global normalisation, clipping, learning rate, optimizer. Knows no files and no search."""

import logging
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor

from seq2seq.data.batching import Batch
from seq2seq.errors import UserError
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.checks import OPTIMIZER, SCHEDULE, part_of, registered
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.rules import AUTO, LONGEST_WARMUP, WARMUP
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.tokenizer import PAD
from seq2seq.training.loss import cross_entropy, r_drop_loss
from seq2seq.training.muon import MuonAdamW
from seq2seq.training.replay import Recorder, Replay

log = logging.getLogger(__name__)


class TranslationModule(L.LightningModule):
    """Trains an encoder-decoder on `Batch`es.

    An update's gradient is the gradient of the loss per target token, over all micro-batches and ranks together: each
    micro-batch adds the gradient of its summed loss, and the total is divided by the global number of tokens once,
    before clipping.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        config: TrainingConfig,
        *,
        seed: int = 0,
        vocabulary: str = "",
        is_bf16: bool = False,
        recorder: Recorder | None = None,
        validation_sets: Sequence[str] = (),
    ) -> None:
        """Train model; seed decides dropout, vocabulary is the tokenizer's hash, equal in all checkpoints of a run.

        With several validation_sets, each set's loss is logged under its name; `TranslationValidation` logs the mean.
        With is_bf16, Muon multiplies in bfloat16. With a recorder, each shape's forward and backward pass is recorded
        once and then replayed.
        """
        super().__init__()
        if config.r_drop and not any((model.config.dropout, model.config.attention_dropout, model.config.ffn_dropout)):
            raise UserError(
                f"training.r_drop={config.r_drop} compares two dropouts, but model.dropout, model.attention_dropout "
                "and model.ffn_dropout are 0: raise one, or leave out training.r_drop"
            )
        self.seed, self.vocabulary = seed, vocabulary
        self.model = model
        self.config = config
        self.validation_sets = list(validation_sets)
        self._muon_dtype = torch.bfloat16 if is_bf16 else torch.float32
        self._recorder = recorder
        self._replay: Replay | None = None
        self.progress = 0.0  # share of the run's budget spent; set by the Budget callback
        self._tokens: Tensor | None = None  # target tokens since the last update, on this rank
        self.last_nll: Tensor | None = None  # of the last micro-batch: nats, summed
        self.last_tokens: Tensor | None = None
        self.grad_norm: Tensor | None = None  # of the last update's gradient per token, before clipping

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return the summed smoothed loss, divided by a constant that `configure_gradient_clipping` removes.

        With a recorder, also add the gradients.
        """
        if self._replay is not None and self._tokens is None:  # the first batch of an update
            self._replay.clear()
        loss, self.last_nll, self.last_tokens = (self._replay or self._losses)(batch)
        self._tokens = self.last_tokens if self._tokens is None else self._tokens + self.last_tokens
        return loss

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        compute = self._r_drop_loss if self.config.r_drop else self.loss
        loss, nll, tokens = compute(batch, self.config.label_smoothing)
        return loss / self.config.max_tokens, nll, tokens

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Add the gradients, unless `training_step` has."""
        if self._replay is None:
            loss.backward(*args, **kwargs)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        """Remove the last update's gradients, unless `training_step` sets them to zero."""
        if self._replay is None:
            optimizer.zero_grad()

    def validation_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Log the unsmoothed loss per target token (nats) of validation set number `dataloader_idx`."""
        _, nll, tokens = self.loss(batch, 0.0)
        if dataloader_idx == 0:
            self.log("step", float(self.global_step), add_dataloader_idx=False)  # Lightning logs at this step
        # Lightning averages the weights over the ranks in the weights' own type, which would round integers.
        weight: Any = float(tokens)
        name = metric_of("loss", self.validation_sets, dataloader_idx)
        self.log(name, nll / tokens, batch_size=weight, sync_dist=True, prog_bar=False, add_dataloader_idx=False)

    def loss(self, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return the summed smoothed loss, the summed unsmoothed loss (nats), and the number of target tokens."""
        hidden = self.model(batch.src, batch.tgt_in)
        weight, bias = self.model.embedding.weight, self.model.output_bias
        return cross_entropy(hidden, weight, batch.tgt_out, pad=PAD, smoothing=smoothing, bias=bias)

    def _r_drop_loss(self, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
        """Return what `loss` returns, for R-Drop; one batch holds both passes, as dropout differs between rows."""
        hidden = self.model(batch.src.repeat(2, 1), batch.tgt_in.repeat(2, 1))
        weight, bias, alpha = self.model.embedding.weight, self.model.output_bias, self.config.r_drop
        loss, nll, _, tokens = r_drop_loss(
            hidden, weight, batch.tgt_out, pad=PAD, alpha=alpha, smoothing=smoothing, bias=bias
        )
        return loss, nll, tokens

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Save what `on_load_checkpoint` compares: the model's settings, the vocabulary's hash, and the optimizer."""
        self.require_finite()
        checkpoint["belongs_to"] = self._identity()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse the weights of another model or vocabulary; drop a running average that is switched off now.

        Training then continues from the weights themselves: the optimizer's state belongs to them, and a run that never
        had an average has no other weights.
        """
        newer = {**asdict(ModelConfig()), "training.optimizer": "adamw"}  # settings that older checkpoints lack
        theirs = newer | checkpoint.get("belongs_to", {})
        identity = self._identity()
        for key in identity | theirs:
            ours = identity.get(key)
            if theirs.get(key) != ours:
                message = f"the checkpoint was written with another {key} ({theirs.get(key)}, now {ours}): restore"
                raise UserError(f"{message} the settings and the training texts of that time, or start a new run")
        if self.config.ema_decay == 0 and "current_model_state" in checkpoint:
            log.warning("training.ema_decay=0: going on from the weights themselves, without their running average")
            checkpoint["state_dict"] = checkpoint["current_model_state"]

    def _identity(self) -> dict[str, Any]:
        own = {"training.optimizer": self.config.optimizer, "vocabulary": self.vocabulary}
        return {**asdict(self.model.config), **own}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return fused AdamW (Loshchilov & Hutter 2019) or Muon; biases, norms and embeddings have no weight decay."""
        config = self.config
        parameters = list(self.model.parameters())
        embeddings = {id(embedding.weight) for embedding in self.model.embeddings()}
        decayed = [p for p in parameters if p.ndim > 1 and id(p) not in embeddings]
        others = [p for p in parameters if p.ndim <= 1 or id(p) in embeddings]
        groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
        if config.optimizer in registered(OPTIMIZER):
            return part_of(OPTIMIZER, config.optimizer)(groups, config)
        betas = (config.betas[0], config.betas[1])
        settings: dict[str, Any] = {"lr": config.learning_rate, "betas": betas, "eps": config.eps, "fused": True}
        if config.optimizer == "adamw":
            return torch.optim.AdamW(groups, **settings)
        groups = [{**group, "muon": (is_muon := group["params"] is decayed), "fused": not is_muon} for group in groups]
        return MuonAdamW(groups, self._muon_dtype, **settings)

    def start_replay(self) -> None:
        """With a recorder, record and replay from now on; the weights are on their device."""
        if self._recorder is not None:
            trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            self._replay = Replay(self._losses, trained, self._recorder)

    def on_train_end(self) -> None:
        """Free the recordings' memory."""
        self._replay = None

    def on_train_start(self) -> None:
        """Replace the optimizer settings that a resumed run loaded from its checkpoint by the current settings."""
        self.start_replay()
        groups = [group for optimizer in self.trainer.optimizers for group in optimizer.param_groups]
        for group, now in zip(groups, self.configure_optimizers().param_groups, strict=True):
            group |= {key: value for key, value in now.items() if key not in ("params", "lr")}

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Set the learning rate of this batch's update, and the random seed of this batch's dropout.

        The seed depends only on the batch's position among the batches of all ranks: a resumed run needs no state for
        the seed, and another number of ranks draws the same numbers.
        """
        position = [self.seed, self.global_step, batch_idx * self.trainer.world_size + self.global_rank]
        torch.manual_seed(int(np.random.SeedSequence(position).generate_state(1)[0]))
        rate = learning_rate(self.config, self.global_step, self.progress)
        for optimizer in self.trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Divide the summed gradient by the number of target tokens and clip its norm, in one pass.

        On the CPU, refuse a gradient that is not a number; a GPU would be waited for, so `Meter` and saves ask for it.
        """
        assert self._tokens is not None
        tokens, ranks = self._tokens.clone(), self.trainer.world_size
        if ranks > 1:
            torch.distributed.all_reduce(tokens)
            if self._replay is not None:  # else DDP has summed the gradients
                torch.distributed.all_reduce(self._replay.gradients)
        self._tokens = None
        # Removes training_step's constant, Lightning's mean over micro-batches and DDP's mean over ranks.
        batches = self.trainer.accumulate_grad_batches * ranks if self._replay is None else 1
        per_token = self.config.max_tokens * batches / tokens
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients) * per_token
        self.grad_norm = norm
        if norm.device.type == "cpu":
            self.require_finite(is_applied=False)
        clip = self.config.clip_norm
        scale = per_token * (clip / norm.clamp(min=clip)) if clip else per_token
        torch._foreach_mul_(gradients, scale)  # pyright: ignore[reportPrivateImportUsage]

    def require_finite(self, *, is_applied: bool = True) -> None:
        """Check that the last gradient, which the optimizer has or has not applied, is finite: none is saved broken."""
        if self.grad_norm is not None and not bool(torch.isfinite(self.grad_norm)):
            update = self.global_step + (not is_applied)
            raise UserError(
                f"the loss is not a number at update {update}: training stops, the last checkpoint is good. "
                "Lower training.learning_rate, raise training.warmup_steps, or use trainer.precision=32-true"
            )


def metric_of(measure: str, sets: Sequence[str], number: int) -> str:
    """Return the name under which the loss or BLEU of a validation set is logged; a single set needs no name."""
    return f"val_{measure}/{sets[number]}" if len(sets) > 1 else f"val_{measure}"


def learning_rate(config: TrainingConfig, step: int, progress: float) -> float:
    """Return the learning rate for update number `step` (from 0), without state, so that nothing has to be restored.

    The rate rises linearly to its peak over warmup_steps updates, or, if they are `auto`, over a tenth of the run, at
    most 4,000 updates. Then it stays constant or falls: with 1/√step (Vaswani et al. 2017, §5.3), or along half a
    cosine (Loshchilov & Hutter 2017, eq. 5) or a line to final_rate · peak at progress 1. progress is the spent share
    of the run's updates or of its time, whichever is larger.
    """
    if config.warmup_steps == AUTO:
        risen = max(progress / WARMUP, (step + 1) / LONGEST_WARMUP)
    else:
        risen = (step + 1) / max(config.warmup_steps, 1)
    return config.learning_rate * (risen if risen <= 1 else _decay(config, step, min(1.0, progress)))


def _decay(config: TrainingConfig, step: int, progress: float) -> float:
    """Return the learning rate after the warm-up, as a share of its peak."""
    if config.schedule == "constant":
        return 1.0
    if config.schedule in registered(SCHEDULE):
        return float(part_of(SCHEDULE, config.schedule)(step, progress))
    is_auto = config.warmup_steps == AUTO
    steps = min(WARMUP / progress * step, LONGEST_WARMUP) if is_auto else config.warmup_steps
    if config.schedule == "inverse_sqrt":
        return math.sqrt(max(steps, 1) / (step + 1))
    warmup = progress * steps / max(step, 1)  # its share of the budget, if all updates take equally long
    fallen = (progress - warmup) / (1 - warmup) if warmup < 1 else 1.0
    fall = (1 - math.cos(math.pi * fallen)) / 2 if config.schedule == "cosine" else fallen
    return 1 - (1 - config.final_rate) * fall
