"""Settings of where a run's numbers are shown, besides its metrics.csv: `logger`."""

from dataclasses import dataclass

from seq2seq.settings.checks import require


@dataclass(kw_only=True)
class LoggerConfig:
    """Where a run's numbers are shown, besides its metrics.csv, which is always written."""

    tensorboard: bool = False  # write TensorBoard events into the run's folder
    wandb: bool = False  # log to Weights & Biases
    mlflow: bool = False  # log to MLflow
    project: str = "seq2seq"  # the project in Weights & Biases, the experiment in MLflow

    def __post_init__(self) -> None:
        require(bool(self.project.strip()), "logger.project is empty: give the project's name")
