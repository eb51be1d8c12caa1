"""metrics.csv: rows and columns are added to those that are there; a resumed run logs later rows again."""

import csv
import os
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest

from seq2seq.training.run_files import forget_after, read_metrics, read_run
from seq2seq.training.trainer import continued_table


def read(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder after its first row."""
    logger = continued_table(tmp_path)
    logger.log_metrics({"loss": 3.5}, 1)
    return tmp_path


def test_a_resumed_run_adds_rows_and_columns_to_those_that_are_there(folder: Path) -> None:
    logger = continued_table(folder)
    logger.log_metrics({"val_loss": 3.0}, 2)
    logger.log_metrics({"loss": 3.25}, 2)
    assert [row["step"] for row in read(folder)] == ["1", "2", "2"]
    assert [row["loss"] for row in read(folder)] == ["3.5", "", "3.25"]
    assert [row["val_loss"] for row in read(folder)] == ["", "3.0", ""]
    assert [path.name for path in folder.iterdir()] == ["metrics.csv"]


def test_killed_while_a_column_is_added_the_rows_so_far_are_there(folder, monkeypatch):
    before = (folder / "metrics.csv").read_bytes()
    logger = continued_table(folder)

    monkeypatch.setattr(csv.DictWriter, "writerows", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        logger.log_metrics({"val_loss": 3.0}, 1)
    assert (folder / "metrics.csv").read_bytes() == before


TABLES = {  # and the steps that stay on resuming after update 2
    "empty": ("", []),
    "no rows": ("step,loss\n", []),
    "later rows": ("step,loss\n1,3.5\n2,3.4\n3,3.3\n", ["1", "2"]),
    "too many fields": ("step,loss\n1,3.5\n2,3,4,5\n", ["1"]),
    "a field too long": ("step,loss\n1,3.5\n2," + "9" * 200_000 + "\n", ["1"]),
    "truncated": ("step,loss\n1,3.5\n2", ["1"]),
    "a step of too many digits": (f"step,loss\n1,2.0\n{'9' * 5000},1.0\n", ["1"]),
}


@pytest.mark.parametrize("table", TABLES)
def test_later_and_damaged_rows_go_on_resume(tmp_path: Path, table: str) -> None:
    path, (text, steps) = tmp_path / "metrics.csv", TABLES[table]
    path.write_text(text)
    forget_after(path, 2, validated=True)
    assert [row["step"] for row in read_metrics(tmp_path) if row["loss"]] == steps
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


@pytest.mark.parametrize("text", ["", "\r\n"])
def test_a_table_cut_short_before_its_header_begins_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "metrics.csv").write_text(text)
    logger = continued_table(tmp_path)
    logger.log_metrics({"loss": 3.5}, 1)
    assert read(tmp_path) == [{"loss": "3.5", "step": "1"}]


@pytest.mark.parametrize("text", [b"\xff\xfe\0\0", b"step,lo\xffss\n1,3.5\n", b"step,loss\n1,3.5\n2,\xff\n"])
def test_bytes_that_are_no_text_do_not_end_a_resumed_run(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "metrics.csv").write_bytes(text)
    logger = continued_table(tmp_path)
    logger.log_metrics({"val_loss": 3.0}, 3)
    logger.log_metrics({"val_loss": 2.5}, 4)
    assert [row["val_loss"] for row in read_metrics(tmp_path)][-2:] == ["3.0", "2.5"]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
@pytest.mark.parametrize("name", ["metrics.csv", "results.json"])
def test_what_is_no_file_counts_as_absent_in_lists_and_is_named_by_training(tmp_path, make, name):
    make(tmp_path / name)
    assert read_metrics(tmp_path) == []
    assert read_run(tmp_path, "x").state in ("nothing saved", "stopped")
    with pytest.raises(OSError, match=r"no regular file.*metrics.csv") if name == "metrics.csv" else nullcontext():
        forget_after(tmp_path / "metrics.csv", 1, validated=True)
