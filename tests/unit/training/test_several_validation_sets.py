"""A run with several validation sets: what is logged, and that the means decide which checkpoint is best."""

import contextlib
import io
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from resuming import small_config

from seq2seq.progress import console
from seq2seq.settings.config import Config
from seq2seq.training import progress_log
from seq2seq.training.report import draw_curves
from seq2seq.training.run import train
from seq2seq.training.run_files import best_validation, read_metrics

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, quick_end: None) -> Config:
    folder = tmp_path_factory.mktemp("text")
    config = small_config(folder)
    lines = (folder / "held.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "own.tsv").write_text("".join(lines[:5]), encoding="utf-8")
    (folder / "general.tsv").write_text("".join(lines[5:]), encoding="utf-8")
    config.trainer.max_steps = 8
    config.training.bleu_sentences = 4
    config.data.validation = ["own.tsv", "general.tsv"]
    return config


@pytest.fixture(scope="module")
def straight(config: Config, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A run with two sets whose BLEU is 40 and 30: its folder, its log, and what it printed."""
    folder = tmp_path_factory.mktemp("straight")
    output, log = io.StringIO(), io.StringIO()
    handler = logging.StreamHandler(log)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(output):
        patch.setenv("COLUMNS", "200")
        console.cache_clear()
        patch.setattr(progress_log, "bleu", lambda lines, references, language: 10.0 * len(references))
        logger = logging.getLogger("seq2seq")
        logger.addHandler(handler)
        patch.setattr(logger, "level", logging.INFO)
        validations(config, folder)
        logger.removeHandler(handler)
    console.cache_clear()
    return folder, log.getvalue(), output.getvalue()


def validations(config: Config, folder: Path, checkpoint: Path | None = None) -> list[dict[str, str]]:
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    train(config, folder, checkpoint)
    return validated(folder)


def validated(folder: Path) -> list[dict[str, str]]:
    return [row for row in read_metrics(folder) if row["val_loss"]]


def means_line(row: dict[str, str], bleu: tuple[str, str, str]) -> str:
    """The line of the log about a validation, with or without BLEU."""
    losses = [f"{float(row[key]):.3f}" for key in ("val_loss", "val_loss/own", "val_loss/general")]
    mean, own, general = (f"{loss}{value}" for loss, value in zip(losses, bleu, strict=True))
    return f"update {row['step']}: validation loss {mean}, the means of own {own}; general {general}\n"


def test_each_set_is_logged_and_the_means_decide(straight: tuple[Path, str, str]) -> None:
    folder, log, output = straight
    rows = validated(folder)
    names = ("step", "val_bleu/own", "val_bleu/general", "val_bleu")
    assert [tuple(row[name] for name in names) for row in rows] == [(step, "40.0", "30.0", "35.0") for step in "48"]
    for row in rows:
        own, general = (float(row[f"val_loss/{name}"]) for name in ("own", "general"))
        assert float(row["val_loss"]) == pytest.approx((own + general) / 2, rel=1e-5)
        assert row["val_loss/own"] != row["val_loss/general"]
    best = best_validation(rows, "loss")
    assert best is not None
    assert best.loss == min(float(row["val_loss"]) for row in rows)
    names = sorted(path.name for path in (folder / "checkpoints").glob("best-*"))
    assert names == [f"best-step=000000{row['step']}-val_loss={float(row['val_loss']):.2f}.ckpt" for row in rows]
    assert means_line(rows[0], (", BLEU 35.0", ", 40.0", ", 30.0")) in log
    assert "by loss, the mean over own and general" in " ".join(output.replace("│", " ").split())


def test_the_picture_has_a_curve_of_each_set_and_of_the_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metrics.csv").write_text(
        "step,loss,val_loss,val_loss/own,val_loss/general,val_bleu,val_bleu/own,val_bleu/general\n"
        "2,5.0,,,,,,\n2,,3.0,2.0,4.0,20.0,30.0,10.0\n4,,3.0,1.0,5.0,21.0,40.0,2.0\n"
    )
    drawn: list[tuple[str, list[float]]] = []
    plot = Axes.plot

    def recorded(axis: Axes, x: list[int], y: list[float], *, label: str, **style: Any) -> Any:
        drawn.append((label, list(y)))
        return plot(axis, x, y, label=label, **style)

    monkeypatch.setattr(Axes, "plot", recorded)
    draw_curves(tmp_path)
    assert drawn == [
        *(("loss", [5.0]), ("val_loss", [3.0, 3.0]), ("val_loss/own", [2.0, 1.0]), ("val_loss/general", [4.0, 5.0])),
        *(("val_bleu", [20.0, 21.0]), ("val_bleu/own", [30.0, 40.0]), ("val_bleu/general", [10.0, 2.0])),
    ]


def test_the_loss_of_each_set_is_what_the_set_alone_has(config, straight, tmp_path, monkeypatch):
    monkeypatch.setattr(config.data, "validation", ["general.tsv"])
    alone = validations(config, tmp_path)
    for row, of_one in zip(validated(straight[0]), alone, strict=True):
        assert float(row["val_loss/general"]) == pytest.approx(float(of_one["val_loss"]), rel=1e-5)
    assert not any("/" in column for column in alone[0]), "one set is logged as ever"


def test_a_validation_that_was_due_is_made_on_resume_of_all_sets_also_without_bleu(
    config: Config,
    straight: tuple[Path, str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(config.training, "bleu_sentences", 0)
    (tmp_path / "checkpoints").mkdir()
    name = "checkpoints/step=0000004.ckpt"  # written before the validation
    rows = validations(config, tmp_path, Path(shutil.copy(straight[0] / name, tmp_path / name)))
    columns = ("step", "val_loss", "val_loss/own", "val_loss/general")
    assert [[row[name] for name in columns] for row in rows] == [
        [row[name] for name in columns] for row in validated(straight[0])
    ]
    assert means_line(rows[0], ("", "", "")) in caplog.text
    assert list((tmp_path / "checkpoints").glob("best-*"))
