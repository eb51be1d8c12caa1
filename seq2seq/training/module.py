"""What happens in one update: loss, global normalisation, clipping, optimizer. Knows no files and no search."""

import logging
from dataclasses import asdict
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.batching import Batch
from seq2seq.text.tokenizer import PAD
from seq2seq.training.compiled import compile_forward, widen
from seq2seq.training.loss import cross_entropy
from seq2seq.training.r_drop import r_drop_loss
from seq2seq.training.schedule import learning_rate
from seq2seq.training.sharding import full, own_part

log = logging.getLogger(__name__)
KEEPS_WIDTHS = ("cpu",)  # elsewhere the kernels of attention want widths that 8 divides


class TranslationModule(L.LightningModule):
    """Trains an encoder-decoder on `Batch`es.

    An update's gradient is that of the loss per target token over all its micro-batches and ranks together: each
    micro-batch adds its sum, and one division by the global count comes before clipping.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        config: TrainingConfig,
        *,
        seed: int = 0,
        vocabulary: str = "",
        is_compiled: bool = False,
    ) -> None:
        """Train model; seed decides dropout, vocabulary is the tokenizer's hash, which a checkpoint must share.

        With is_compiled, training's forward passes run as compiled kernels.

        Raises:
            UserError: R-Drop is asked for and there is no dropout.
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
        self._compiled = compile_forward(model) if is_compiled else None
        self.progress = 0.0  # share of the run's budget spent; set by the Budget callback
        self._tokens: Tensor | None = None  # target tokens since the last update, on this rank
        self.last_nll: Tensor | None = None  # of the last micro-batch: nats, summed
        self.last_tokens: Tensor | None = None
        self.grad_norm: Tensor | None = None  # of the last update's gradient per token, before clipping

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """The micro-batch's summed smoothed loss, over a constant that `configure_gradient_clipping` undoes."""
        compute = self._r_drop_loss if self.config.r_drop else self._loss
        loss, self.last_nll, self.last_tokens = compute(batch, self.config.label_smoothing)
        self._tokens = self.last_tokens if self._tokens is None else self._tokens + self.last_tokens
        return loss / self.config.max_tokens

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Log the loss per target token (nats), unsmoothed."""
        _, nll, tokens = self._loss(batch, 0.0)
        self.log("step", float(self.global_step))  # the row that Lightning logs validation in
        # Lightning halves the ranks' summed weights in their own type: whole numbers would be rounded.
        weight: Any = float(tokens)
        self.log("val_loss", nll / tokens, batch_size=weight, sync_dist=True, prog_bar=False)

    def _loss(self, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
        batch = self._widened(batch)
        hidden = self._hidden_states(batch.src, batch.tgt_in)
        return cross_entropy(hidden, self.model.embedding.weight, batch.tgt_out, pad=PAD, smoothing=smoothing)

    def _hidden_states(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        if self._compiled is None or not self.training:
            return self.model(src, tgt_in)
        return self._compiled(src, tgt_in)

    def _widened(self, batch: Batch) -> Batch:
        """The batch with more padding, for a Transformer on a GPU; a recurrent network would take steps over it."""
        if batch.src.device.type in KEEPS_WIDTHS or self.model.config.architecture != "transformer":
            return batch
        return Batch(*map(widen, batch))

    def _r_drop_loss(self, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
        """As `_loss`, with both passes as one batch: dropout draws for each of its rows."""
        batch = self._widened(batch)
        hidden = self._hidden_states(batch.src.repeat(2, 1), batch.tgt_in.repeat(2, 1))
        weight, alpha = self.model.embedding.weight, self.config.r_drop
        loss, nll, _, tokens = r_drop_loss(hidden, weight, batch.tgt_out, pad=PAD, alpha=alpha, smoothing=smoothing)
        return loss, nll, tokens

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what the weights are worth nothing without."""
        checkpoint["belongs_to"] = self._identity()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse another model's or vocabulary's weights; without a running average now, take the weights themselves.

        Of a run that had one, those are what the optimizer's state belongs to, and what a run that never had one has.

        Raises:
            UserError: the checkpoint was written with other sizes or another tokenizer.
        """
        theirs = asdict(ModelConfig()) | checkpoint.get("belongs_to", {})  # older ones lack settings that came later
        identity = self._identity()
        for key in identity | theirs:
            ours = identity.get(key)
            if theirs.get(key) != ours:
                raise UserError(
                    f"the checkpoint was written with another {key} ({theirs.get(key)}, now {ours}): "
                    "restore the settings and the training texts of that time, or start a new run"
                )
        if self.config.ema_decay == 0 and "current_model_state" in checkpoint:
            log.warning("training.ema_decay=0: going on from the weights themselves, without their running average")
            checkpoint["state_dict"] = checkpoint["current_model_state"]

    def _identity(self) -> dict[str, Any]:
        config = self.config
        tuned = {"training.freeze": list(config.freeze)} if config.freeze else {}
        if config.lora_rank:
            adapters = (config.lora_rank, config.lora_alpha, *config.lora_targets)
            tuned |= {"training.lora_rank, lora_alpha and lora_targets": list(map(str, adapters))}
        return {**asdict(self.model.config), "vocabulary": self.vocabulary, **tuned}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW (Loshchilov & Hutter 2019), fused; biases, norms and embeddings are not decayed."""
        config = self.config
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        embedding = self.model.embedding.weight
        decayed = [p for p in parameters if p.ndim > 1 and p is not embedding]
        others = [p for p in parameters if p.ndim <= 1 or p is embedding]
        groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
        groups = [group for group in groups if group["params"]]  # frozen ones are in neither
        betas = (config.betas[0], config.betas[1])
        return torch.optim.AdamW(groups, lr=config.learning_rate, betas=betas, eps=config.eps, fused=True)

    def on_train_start(self) -> None:
        """Let the optimizer of a resumed run, which has come with its settings of then, follow those of now."""
        groups = [group for optimizer in self.trainer.optimizers for group in optimizer.param_groups]
        for group, now in zip(groups, self.configure_optimizers().param_groups, strict=True):
            group |= {key: now[key] for key in ("betas", "eps", "weight_decay")}

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Set the learning rate of the update that this batch belongs to, and the random numbers of its dropout.

        Both follow from the batch's place among those of all ranks alone, so that a resumed run needs no state of them
        and another number of ranks draws the same.
        """
        place = [self.seed, self.global_step, batch_idx * self.trainer.world_size + self.global_rank]
        torch.manual_seed(int(np.random.SeedSequence(place).generate_state(1)[0]))
        rate = learning_rate(self.config, self.global_step, self.progress)
        for optimizer in self.trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate

    def configure_gradient_clipping(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Make the summed gradient one per target token and clip its norm, in one pass over it."""
        assert self._tokens is not None
        tokens, ranks = self._tokens.clone(), self.trainer.world_size
        if ranks > 1:
            torch.distributed.all_reduce(tokens)
        self._tokens = None
        # Undoes training_step's constant, Lightning's mean over micro-batches and DDP's mean over ranks.
        per_token = self.config.max_tokens * self.trainer.accumulate_grad_batches * ranks / tokens
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = full(torch.nn.utils.get_total_norm(gradients)) * per_token
        self.grad_norm = norm
        clip = self.config.clip_norm
        scale = per_token * (clip / norm.clamp(min=clip)) if clip else per_token
        torch._foreach_mul_([own_part(gradient) for gradient in gradients], scale)  # pyright: ignore[reportPrivateImportUsage]

    def require_finite(self) -> None:
        """Stop before a broken update can be saved.

        Raises:
            UserError: the last update's gradient was infinite or not a number.
        """
        if self.grad_norm is not None and not bool(torch.isfinite(self.grad_norm)):
            raise UserError(
                f"the loss is not a number at update {self.global_step}: training stops, the last checkpoint is good. "
                "Lower training.learning_rate, raise training.warmup_steps, or use trainer.precision=32-true"
            )
