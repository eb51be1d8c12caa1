"""Lightning's Trainer for a run: devices, strategy, precision, loggers."""

import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L

from seq2seq.data.dataset import PreparedData
from seq2seq.settings.checks import CALLBACKS, part_of
from seq2seq.settings.config import Config
from seq2seq.training.callbacks import make_callbacks
from seq2seq.training.kept_checkpoints import DurableIO
from seq2seq.training.loggers import make_loggers
from seq2seq.training.processes import make_strategy, uses_gpu
from seq2seq.training.replay import records_updates


def make_trainer(
    config: Config,
    folder: Path,
    data: PreparedData,
    record: Mapping[str, Any],
    updates_per_epoch: float | None = None,
    callbacks: Sequence[L.Callback] = (),
) -> L.Trainer:
    """Return Lightning's Trainer with this run's callbacks and loggers; its checkpoints hold the record.

    With updates_per_epoch the log counts epochs; callbacks are the user's.
    """
    settings = config.trainer
    own = [part_of(CALLBACKS, name)(config) for name in settings.callbacks]
    for message in (".*does not have many workers.*", ".*treespec, LeafSpec.*", ".*number of training batches.*"):
        warnings.filterwarnings("ignore", message)
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # the launcher logs here that a process has died, before it kills the others
    logging.getLogger("lightning.fabric.strategies.launchers.subprocess_script").setLevel(logging.INFO)
    trainer = L.Trainer(
        accelerator="cuda" if uses_gpu(settings) else "cpu",
        devices=settings.devices,
        num_nodes=settings.num_nodes,
        strategy=make_strategy(settings, is_recorded=records_updates(config)),
        precision=settings.precision,  # type: ignore[arg-type]
        max_epochs=-1,  # `Budget` ends training
        accumulate_grad_batches=config.training.accumulate,
        val_check_interval=settings.validate_every * config.training.accumulate,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        log_every_n_steps=settings.log_every,
        callbacks=[*make_callbacks(config, folder, data, record, updates_per_epoch), *own, *callbacks],
        plugins=[DurableIO()],
        logger=make_loggers(config, folder),
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    # In each batch Lightning asks all ranks for a SIGTERM and waits for the device; `Budget` asks once an update
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
    return trainer
