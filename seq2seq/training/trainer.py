"""Lightning's Trainer for a run: devices, strategy, precision, loggers."""

import json
import logging
import os
import secrets
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path

import lightning as L
from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter
from lightning.pytorch.profilers import AdvancedProfiler, PyTorchProfiler, SimpleProfiler

from seq2seq.errors import UserError, shorten
from seq2seq.settings.config import Config, flatten
from seq2seq.training.checkpoints import DurableIO
from seq2seq.training.processes import make_strategy, rank, uses_gpu
from seq2seq.training.replay import recording_obstacle
from seq2seq.training.run_files import read_table, rewrite, write_text

_PROFILERS = {"simple": SimpleProfiler, "advanced": AdvancedProfiler, "pytorch": PyTorchProfiler}


def make_loggers(config: Config, folder: Path) -> list[Logger]:
    """Return the run's loggers, metrics.csv first; Weights & Biases and MLflow only in the first process."""
    loggers: list[Logger] = [continued_table(folder)]  # only the first process writes to it
    if config.logger.tensorboard:
        threading.excepthook = _print_unless_raised_again
        loggers.append(TensorBoardLogger(folder, name="", version=""))
    if rank() > 0:
        return loggers
    path = folder / "loggers.json"
    try:
        ids = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:
        raise UserError(f"{path} cannot be read: delete it, and the run is logged as a new one") from error
    for name, make in (("wandb", _wandb), ("mlflow", _mlflow)):
        if getattr(config.logger, name):
            logger = make(config, folder, ids.get(name))
            loggers.append(logger)
            ids[name] = logger.version
            write_text(path, json.dumps(ids, indent=2) + "\n")
    return loggers


def _print_unless_raised_again(failure: threading.ExceptHookArgs) -> None:
    """Print a thread's exception, except that of TensorBoard's writer, which the training thread raises again."""
    if type(failure.thread).__name__ != "_AsyncWriterThread":
        threading.__excepthook__(failure)


class Wandb(WandbLogger):
    """Lightning's logger, but it closes the logged run, which the next run of a sweep would otherwise continue."""

    def finalize(self, status: str) -> None:
        """Close the logged run, which has begun."""
        super().finalize(status)
        self.experiment.finish(exit_code=int(status != "success"))


def _wandb(config: Config, folder: Path, known: str | None) -> Logger:
    """Return a Weights & Biases logger, which is online unless WANDB_MODE says otherwise."""
    from wandb import Error, Settings

    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # otherwise wandb sends crash reports, also offline
    logger = Wandb(
        save_dir=folder,
        name=folder.name,
        version=known or secrets.token_hex(4),
        project=config.logger.project,
        config=flatten(config),
        settings=Settings(console="off", quiet=True),
    )
    logger._wandb_init.pop("anonymous", None)  # wandb warns of this option, which Lightning always gives
    try:
        _ = logger.experiment  # starts or continues the logged run
    except Error as error:
        advice = "run `wandb login`, or set the environment's WANDB_MODE=offline"
        raise UserError(f"logger=wandb: Weights & Biases cannot be used ({shorten(error)}): {advice}") from error
    return logger


def _mlflow(config: Config, folder: Path, known: str | None) -> Logger:
    """Return an MLflow logger for the server of MLFLOW_TRACKING_URI, by default for the run's folder."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        uri = (folder.resolve() / "mlruns").as_uri()
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 requires it before it writes files
    from mlflow.exceptions import MlflowException

    logging.getLogger("lightning.pytorch.loggers.mlflow").setLevel(logging.ERROR)  # "Experiment … not found"
    try:
        logger = MLFlowLogger(config.logger.project, folder.name, uri, run_id=known)
        if known:
            logger.experiment.update_run(known, status="RUNNING")
        else:
            logger.log_hyperparams(flatten(config))
    except (MlflowException, OSError) as error:
        raise UserError(f"logger=mlflow: {uri} cannot be used ({shorten(error)})") from error
    return logger


class Table(ExperimentWriter):
    """Lightning's writer, but it continues the file on resume, and does not rewrite it in place for a new column."""

    def _check_log_dir_exists(self) -> None:
        """Continue an existing file with its columns."""
        self.metrics_keys = [name for name in read_table(Path(self.metrics_file_path))[0] if name]

    def _rewrite_with_new_header(self, fieldnames: list[str]) -> None:
        """Add columns in a draft, which then replaces the file."""
        path = Path(self.metrics_file_path)
        rewrite(path, fieldnames, read_table(path)[1])


def continued_table(folder: Path) -> CSVLogger:
    """Return a logger that continues or starts the folder's metrics.csv."""
    logger = CSVLogger(folder, name="", version="", flush_logs_every_n_steps=1)
    logger._experiment = Table(logger.log_dir)  # CSVLogger takes no other writer
    return logger


def make_trainer(config: Config, folder: Path, callbacks: Sequence[L.Callback]) -> L.Trainer:
    """Return Lightning's Trainer with callbacks and this run's loggers."""
    settings = config.trainer
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
        strategy=make_strategy(settings, is_recorded=recording_obstacle(config) is None),
        precision=settings.precision,  # type: ignore[arg-type]
        max_epochs=-1,  # `Budget` ends training
        accumulate_grad_batches=config.training.accumulate,
        val_check_interval=settings.validate_every * config.training.accumulate,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        log_every_n_steps=settings.log_every,
        callbacks=list(callbacks),
        plugins=[DurableIO()],
        logger=make_loggers(config, folder) if not settings.fast_dev_run else False,
        fast_dev_run=settings.fast_dev_run * config.training.accumulate,
        detect_anomaly=settings.detect_anomaly,
        profiler=_PROFILERS[settings.profiler](folder, "profile") if settings.profiler != "none" else None,
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    # In each batch Lightning asks all ranks for a SIGTERM and waits for the device; `Budget` asks once an update
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
    return trainer
