"""A whole run: data → training → weights → bundle → scores, in one folder."""

import functools
import logging
import os
import platform
import socket
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import lightning as L
import torch
from torch.utils.checkpoint import checkpoint

from seq2seq.data.clean import drop_table
from seq2seq.data.dataset import PreparedData
from seq2seq.data.loading import first_batches, mixture_table, training_feed, validation_loaders
from seq2seq.data.prepare import corpus_digests, open_prepared, prepare_folder
from seq2seq.device import prepare, tf32_products
from seq2seq.errors import UserError, is_out_of_memory, shorten
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.progress import console
from seq2seq.settings.config import Config
from seq2seq.training.auto_values import batches_an_update, resolve_numbers
from seq2seq.training.callbacks import Budget, Patience, StoppedValidationError, make_callbacks
from seq2seq.training.checkpoints import Checkpoints
from seq2seq.training.finetune import make_model
from seq2seq.training.finish_run import TrainingEnd, complete_run, save_best
from seq2seq.training.module import TranslationModule
from seq2seq.training.processes import choose_precision, rank, share_folder
from seq2seq.training.replay import CudaRecorder, recording_obstacle
from seq2seq.training.report import summary_table
from seq2seq.training.run_files import best_value
from seq2seq.training.run_folder import PLANS, describe_run, point_latest
from seq2seq.training.run_state import is_done
from seq2seq.training.trainer import make_trainer

log = logging.getLogger(__name__)
_Kind = TypeVar("_Kind", bound=L.Callback)


def train(
    config: Config,
    folder: Path,
    checkpoint: Path | None = None,
    named: Collection[str] = (),
    callbacks: Sequence[L.Callback] = (),
) -> float | None:
    """Train, or continue from a checkpoint, and complete the run's folder.

    named are the keys that the command line names, for the table that is shown first; callbacks are the user's. Return
    the best validation's value of training.monitor (None if nothing was validated), by which a search compares runs.
    """
    if rank() > 0:
        logging.getLogger("seq2seq").setLevel(logging.WARNING)  # the first process logs
    L.seed_everything(config.seed, verbose=False)
    show = console().print if rank() == 0 else lambda _: None
    text = share_folder("text", lambda: prepare_folder(config.data, config.tokenizer))
    data = open_prepared(config.data, text)
    show(drop_table(data.report))
    if (table := mixture_table(config, data)) is not None:
        show(table)
    ruled, updates_per_epoch = resolve_numbers(config, folder, data)
    if config.trainer.overfit_batches:
        data = first_batches(config, data)
        updates_per_epoch = config.trainer.overfit_batches / batches_an_update(config)
    if checkpoint is not None and is_done(config, folder, checkpoint):  # again: max_steps is a number now
        return best_value(folder, config.training.monitor)
    record = describe_run(config, corpus_digests(config.data) if rank() == 0 else {})  # process 0 writes it
    module = make_module(config, data, resumed=checkpoint is not None)
    own = make_callbacks(config, folder, data, record, updates_per_epoch)
    trainer = make_trainer(config, folder, [*own, *callbacks])
    prepare(trainer.strategy.root_device)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    show(summary_table(config, data, (named, ruled), updates_per_epoch, parameters, hardware(trainer)))
    if config.trainer.fast_dev_run:
        fit(trainer, module, config, data, None)
        log.info("%d updates and a validation were tried without an error; nothing is kept", trainer.global_step)
        return None
    if rank() == 0:
        point_latest(folder)
    callback_of(trainer, Checkpoints).on_best = lambda: save_best(
        config, folder, data, training_end(trainer, updates_per_epoch)
    )
    fit(trainer, module, config, data, checkpoint)
    best = best_value(folder, config.training.monitor) if trainer.is_global_zero else None
    best = trainer.strategy.broadcast(best)  # a search continues alike in all processes
    if trainer.is_global_zero:
        complete_run(config, folder, data, training_end(trainer, updates_per_epoch))
    return best


def training_end(trainer: L.Trainer, updates_per_epoch: float) -> TrainingEnd:
    """Return how training ended, or how far it is."""
    budget = callback_of(trainer, Budget)
    return TrainingEnd(
        updates=trainer.global_step,
        epochs=trainer.global_step / updates_per_epoch,
        seconds=budget.time_elapsed(),
        is_out_of_patience=any(c.is_out for c in trainer.callbacks if isinstance(c, Patience)),  # type: ignore[attr-defined]
        stopped_by=budget.stopped_by,
        best=callback_of(trainer, Checkpoints).kept.best(),
        hardware=hardware(trainer),
        device=trainer.strategy.root_device,
    )


def make_module(config: Config, data: PreparedData, *, resumed: bool) -> TranslationModule:
    """Return the Lightning module that trains the model."""
    model = make_model(config, data.tokenizer.sizes, resumed=resumed)
    if config.training.activation_checkpointing:
        recompute_layers(model)
    vocabulary = data.tokenizer.digest[:16]
    return TranslationModule(
        model,
        config.training,
        seed=config.seed,
        vocabulary=vocabulary,
        is_bf16=choose_precision(config.trainer) == "bf16-mixed",
        recorder=CudaRecorder() if recording_obstacle(config) is None else None,
        validation_sets=list(data.validation_sets),
    )


def fit(
    trainer: L.Trainer, module: TranslationModule, config: Config, data: PreparedData, checkpoint: Path | None
) -> None:
    """Train until the budget is spent."""
    rank = {"rank": trainer.global_rank, "world_size": trainer.world_size}
    pin = trainer.strategy.root_device.type == "cuda"
    plans = Path(trainer.default_root_dir) / f"{PLANS}{socket.gethostname()}"
    training = training_feed(config, data, **rank, pin=pin, plans=plans)
    validation = validation_loaders(config, data, **rank)
    try:
        with closing(training), tf32_products(trainer.strategy.root_device):
            trainer.fit(module, training, validation, ckpt_path=checkpoint, weights_only=True)
    except StoppedValidationError:
        return
    except (UserError, OSError):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise UserError(
                f"training.max_tokens={config.training.max_tokens} needs more memory than there is: begin again with "
                "half of it and twice training.accumulate, trainer.replay=false, "
                "training.activation_checkpointing=true or a smaller model"
            ) from error
        if config.trainer.detect_anomaly and "returned nan" in str(error):
            raise UserError(f"{shorten(error)} The warning above names the lines that computed it") from error
        if checkpoint is not None and callback_of(trainer, Budget).start_time() is None:  # training had not begun
            raise UserError(
                f"{checkpoint} cannot be resumed from ({type(error).__name__}: {shorten(error)}): it is forged, or "
                "of another version; restore it from a copy, or move it away to resume from the one before"
            ) from error
        raise


def callback_of(trainer: L.Trainer, kind: type[_Kind]) -> _Kind:
    """Return the trainer's callback of a class."""
    return next(c for c in trainer.callbacks if isinstance(c, kind))  # type: ignore[attr-defined]


def hardware(trainer: L.Trainer) -> str:
    """Return a description of the devices that the trainer computes on."""
    device = trainer.strategy.root_device
    if device.type == "cuda":
        return f"{trainer.world_size} × {torch.cuda.get_device_name(device)}"
    return f"{os.cpu_count()} CPU cores ({platform.machine()}, {torch.backends.cpu.get_cpu_capability()})"


def recompute_layers(model: EncoderDecoder) -> None:
    """Keep only each layer's input for the backward pass, which computes the layer again (Chen et al. 2016).

    The same dropout is drawn again, so gradients are the same; validation and search do not change.
    """
    for layer in model.layers():
        layer.forward = functools.partial(_forward, layer.forward)


def _forward(forward: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*arguments, **named)
    return checkpoint(forward, *arguments, use_reentrant=False, **named)
