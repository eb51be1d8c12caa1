"""Callbacks that show and log training: loss, speed, time left, and translations of the validation set."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, cast

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, Timer

from seq2seq.data.batching import Batch
from seq2seq.evaluation.metrics import bleu
from seq2seq.progress import bar, is_shown
from seq2seq.settings.search import SearchConfig
from seq2seq.settings.training import TrainingConfig
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.training.checkpoints import ends_update, validates_now
from seq2seq.training.module import TranslationModule, metric_of
from seq2seq.translate.translator import Translator

log = logging.getLogger(__name__)


class Meter(Callback):
    """Logs loss, speed, time, learning rate and gradient norm, and draws the progress bar or writes log lines.

    It logs after every `every` updates, and before each validation, also the validation at the end of a run.
    """

    def __init__(self, every: int, validate_every: int, budget: Timer, updates_per_epoch: float | None = None) -> None:
        self.every, self.validate_every, self.budget = every, validate_every, budget
        self.updates_per_epoch = updates_per_epoch
        self._bar, self._text = ExitStack(), ""  # the text that the bar shows after the number of the update
        self._shown = 0.0  # progress of the run that the bar shows
        self._nll, self._tokens = torch.zeros(()), torch.zeros(())
        self._since = 0.0
        self._counted_before = 0.0  # tokens that an earlier process counted; this process spent no time on them
        self._start = (0.0, 0.0)  # progress and seconds of the run when this process started or resumed it

    def state_dict(self) -> dict[str, Any]:
        """Return the loss and the tokens since the last log entry, summed over all ranks."""
        totals = torch.stack((self._nll, self._tokens))
        if torch.distributed.is_initialized():
            torch.distributed.all_reduce(totals)
        return {"nll": totals[0].clone(), "tokens": totals[1].clone()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the loss and the tokens, so that the next log entry counts the updates before the interruption."""
        self._nll, self._tokens = state_dict["nll"], state_dict["tokens"]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the counts at zero or continue the restored ones; show the progress bar."""
        self._start = cast(TranslationModule, pl_module).progress, self.budget.time_elapsed()
        restored = self._nll, self._tokens  # of all ranks
        self._reset(pl_module)
        if trainer.is_global_zero:
            self._nll, self._tokens = (total.to(pl_module.device) for total in restored)
            self._counted_before = float(self._tokens)
        self._shown = self._start[0]
        self._advance = self._bar.enter_context(bar("training", 1.0, done=self._shown))

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Add the batch to the counts; log if a log entry is due."""
        module = cast(TranslationModule, pl_module)
        assert module.last_nll is not None
        assert module.last_tokens is not None
        self._nll += module.last_nll
        self._tokens += module.last_tokens
        if not ends_update(trainer, batch_idx):
            return
        if trainer.global_step % self.every == 0 or validates_now(trainer, self.validate_every):
            self._log(trainer, module)
        self._advance(module.progress - self._shown, f"update {trainer.global_step:,}{self._text}")
        self._shown = module.progress

    def _log(self, trainer: L.Trainer, module: TranslationModule) -> None:
        totals = torch.stack((self._nll, self._tokens))
        if trainer.world_size > 1:
            torch.distributed.all_reduce(totals)
        nll, tokens = totals.tolist()
        module.require_finite()
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        speed = (tokens - self._counted_before) / (time.monotonic() - self._since)
        seconds = self.budget.time_elapsed()
        values = {"loss": nll / tokens, "seconds": seconds, "tokens_per_second": speed, "learning_rate": rate}
        if module.grad_norm is not None:
            values["grad_norm"] = float(module.grad_norm)
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)
        epoch = f" (epoch {trainer.global_step / self.updates_per_epoch:.1f})" if self.updates_per_epoch else ""
        self._text = f" loss {values['loss']:.3f} {speed:,.0f} tokens/s"
        if trainer.is_global_zero and not is_shown():
            left = self._left(module.progress, seconds)
            log.info("update %d%s%s, ETA %s", trainer.global_step, epoch, self._text, left)
        self._reset(module)

    def _left(self, progress: float, seconds: float) -> timedelta:
        """Return the time left at this process's pace; an earlier process may have had a slower or busier machine."""
        done, spent = progress - self._start[0], seconds - self._start[1]
        return timedelta(seconds=round(spent * (1 - progress) / max(done, 1e-9)))

    def _reset(self, module: L.LightningModule) -> None:
        self._nll = torch.zeros((), device=module.device)
        self._tokens = torch.zeros((), device=module.device)
        self._counted_before = 0.0
        self._since = time.monotonic()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Exclude the validation's time from the speed."""
        self._reset(pl_module)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Close the bar."""
        self._bar.close()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Close the bar before the error is printed."""
        self._bar.close()


class TranslationValidation(Callback):
    """Translates a sample of each validation set with the Translator that users call, and logs BLEU.

    With several sets, it also logs the mean of their losses and the mean of their BLEU; every set has the same weight.
    Early stopping and the choice of the best checkpoint use these means.
    """

    def __init__(
        self,
        sets: Mapping[str, Sequence[tuple[str, str]]],
        tokenizer: Tokenizers,
        training: TrainingConfig,
        search: SearchConfig,
        *,
        language: str = "",
        trained_length: int | None = None,
    ) -> None:
        """Translate samples of the sets with the settings of training and search; language is the targets'."""
        self.names, self.language = list(sets), language
        self.pairs = [pair for pairs in sets.values() for pair in pairs]
        self.samples = [_sample(pairs, training.bleu_sentences) for pairs in sets.values()]
        self.tokenizer, self.search, self.shown = tokenizer, search, training.sample_translations
        self.trained_length = trained_length

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Translate with the weights that are validated (the average, if weights are averaged), and log the scores."""
        losses = self._losses(trainer)
        if len(losses) > 1:
            pl_module.log("val_loss", sum(losses) / len(losses), batch_size=1)
        translated = self._translate(trainer, pl_module) if any(self.samples) else []
        values = [
            bleu(lines, [tgt for _, tgt in pairs], self.language)
            for lines, pairs in zip(translated, self.samples, strict=bool(translated))
        ]
        for number, value in enumerate(values):
            pl_module.log(metric_of("bleu", self.names, number), value, batch_size=1, rank_zero_only=False)
        if len(values) > 1:
            pl_module.log("val_bleu", sum(values) / len(values), batch_size=1, rank_zero_only=False)
        if trainer.is_global_zero and not trainer.sanity_checking:
            self._report(trainer.global_step, losses, values)
            for pairs, lines in zip(self.samples, translated, strict=bool(translated)):
                for (source, reference), translation in list(zip(pairs, lines, strict=True))[: self.shown]:
                    log.info("  %s → %s   (reference: %s)", source, translation, reference)

    def translator(self, trainer: L.Trainer, pl_module: L.LightningModule) -> Translator:
        """Return a translator with the module's present weights, in the precision of the training."""
        is_bf16 = pl_module.device.type != "cpu" and str(trainer.precision).startswith("bf16")
        return Translator(
            cast(TranslationModule, pl_module).model,
            self.tokenizer,
            search=self.search,
            device=pl_module.device,
            dtype=torch.bfloat16 if is_bf16 else torch.float32,  # on the CPU, the compiled search is float32
            trained_length=self.trained_length,
        )

    def _translate(self, trainer: L.Trainer, pl_module: L.LightningModule) -> list[list[str]]:
        """Return the translations of each set's sample; the ranks share the work."""
        translator = self.translator(trainer, pl_module)
        rank, ranks = trainer.global_rank, trainer.world_size
        with bar("validating", sum(len(pairs[rank::ranks]) for pairs in self.samples), "sentences") as advance:
            own = [
                [best.text for best, *_ in translator.translate_nbest([src for src, _ in part], 1, on_progress=advance)]
                for part in (pairs[rank::ranks] for pairs in self.samples)
            ]
        if ranks == 1:
            return own
        of_ranks: list[list[list[str]]] = [[]] * ranks
        torch.distributed.all_gather_object(of_ranks, own)
        return [
            [of_ranks[i % ranks][number][i // ranks] for i in range(len(self.samples[number]))]
            for number in range(len(self.samples))
        ]

    def _losses(self, trainer: L.Trainer) -> list[float]:
        keys = [metric_of("loss", self.names, number) for number in range(len(self.names))]
        return [float(trainer.callback_metrics.get(key, math.nan)) for key in keys]

    def _report(self, update: int, losses: Sequence[float], values: Sequence[float]) -> None:
        """Log the means of losses and BLEU, and those of each set; values are empty without BLEU."""
        columns = [[f"{loss:.3f}" for loss in losses], [f"{value:.1f}" for value in values]]
        each = [", ".join(row) for row in zip(*filter(None, columns), strict=True)]
        sets = ", the means of " + "; ".join(map(" ".join, zip(self.names, each, strict=True)))
        mean_bleu = f", BLEU {sum(values) / len(values):.1f}" if values else ""
        mean_loss = sum(losses) / len(losses)
        log.info("update %d: validation loss %.3f%s%s", update, mean_loss, mean_bleu, sets if len(losses) > 1 else "")


def _sample(pairs: Sequence[tuple[str, str]], size: int) -> list[tuple[str, str]]:
    """Return `size` pairs that are spread evenly over all pairs; all pairs if there are fewer."""
    count = min(size, len(pairs))
    return [pairs[i * len(pairs) // count] for i in range(count)]
