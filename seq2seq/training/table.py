"""metrics.csv as a run that may be killed at any moment needs it: the old rows stay, whatever is written."""

import csv
from pathlib import Path

from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter


class Table(ExperimentWriter):
    """Lightning's writer, which would remove the file of the run so far, and rewrite it in place for a new column."""

    def _check_log_dir_exists(self) -> None:
        """Go on in the file that is there, under its columns."""
        path = Path(self.metrics_file_path)
        lines = path.read_text().splitlines() if path.exists() else []
        self.metrics_keys = [name for name in lines[0].split(",") if name] if lines else []

    def _rewrite_with_new_header(self, fieldnames: list[str]) -> None:
        """Add columns: in a draft, which then takes the file's name."""
        path = Path(self.metrics_file_path)
        draft = path.with_suffix(".tmp")
        with path.open(newline="") as old, draft.open("w", newline="") as new:
            writer = csv.DictWriter(new, fieldnames)
            writer.writeheader()
            writer.writerows(csv.DictReader(old))
        draft.replace(path)


def continued_table(folder: Path) -> CSVLogger:
    """A logger that goes on in the folder's metrics.csv, or begins it."""
    logger = CSVLogger(folder, name="", version="", flush_logs_every_n_steps=1)
    logger._experiment = Table(logger.log_dir)
    return logger
