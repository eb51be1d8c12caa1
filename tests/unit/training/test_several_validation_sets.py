"""A run with several validation sets: what is logged, and that the means decide which checkpoint is best."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from resuming import small_config

from seq2seq.settings.config import Config
from seq2seq.text.prepare import prepare
from seq2seq.training import monitor
from seq2seq.training.report import draw_curves
from seq2seq.training.run import train
from seq2seq.training.run_files import best_validation, read_metrics


@pytest.fixture
def config(tmp_path: Path) -> Config:
    config = small_config(tmp_path)
    lines = (tmp_path / "held.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "own.tsv").write_text("".join(lines[:5]), encoding="utf-8")
    (tmp_path / "general.tsv").write_text("".join(lines[5:]), encoding="utf-8")
    config.trainer.max_steps = 8
    return config


def validations(config: Config, folder: Path, files: list[str]) -> list[dict[str, str]]:
    config.data.validation = files
    (folder / "checkpoints").mkdir(parents=True)
    train(config, folder)
    return [row for row in read_metrics(folder) if row["val_loss"]]


def test_each_set_is_logged_and_the_means_decide(
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(monitor, "bleu", lambda lines, references, language: 10.0 * len(references))
    config.training.bleu_sentences = 4
    folder = tmp_path / "several"
    rows = validations(config, folder, ["own.tsv", "general.tsv"])
    assert [(row["val_bleu/own"], row["val_bleu/general"], row["val_bleu"]) for row in rows] == [
        ("40.0", "30.0", "35.0")
    ] * 2
    assert [row["step"] for row in rows] == ["4", "8"]
    for row in rows:
        own, general = (float(row[f"val_loss/{name}"]) for name in ("own", "general"))
        assert float(row["val_loss"]) == pytest.approx((own + general) / 2, rel=1e-5)
        assert row["val_loss/own"] != row["val_loss/general"]
    best = best_validation(rows, "loss")
    assert best is not None
    assert best.loss == min(float(row["val_loss"]) for row in rows)
    names = sorted(path.name for path in (folder / "checkpoints").glob("best-*"))
    assert names == [f"best-step=000000{row['step']}-val_loss={float(row['val_loss']):.2f}.ckpt" for row in rows]
    losses = [float(rows[0][key]) for key in ("val_loss", "val_loss/own", "val_loss/general")]
    told = "update 4: validation loss {:.3f}, BLEU 35.0, the means of own {:.3f}, 40.0; general {:.3f}, 30.0"
    assert told.format(*losses) in caplog.text
    assert "by loss, the mean over own and general" in " ".join(capsys.readouterr().err.replace("│", " ").split())


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
    mean = "mean over the validation sets"
    assert drawn == [
        *(("training", [5.0]), (mean, [3.0, 3.0]), ("own", [2.0, 1.0]), ("general", [4.0, 5.0])),
        *((mean, [20.0, 21.0]), ("own", [30.0, 40.0]), ("general", [10.0, 2.0])),
    ]


def test_the_loss_of_each_set_is_what_the_set_alone_has(config: Config, tmp_path: Path) -> None:
    both = validations(config, tmp_path / "both", ["own.tsv", "general.tsv"])
    for name in ("own", "general"):
        alone = validations(config, tmp_path / name, [f"{name}.tsv"])
        for row, one in zip(both, alone, strict=True):
            assert float(row[f"val_loss/{name}"]) == pytest.approx(float(one["val_loss"]), rel=1e-5)
            assert row[f"val_bleu/{name}"] == one["val_bleu"]
        assert not any("/" in column for column in alone[0])  # one set is logged as ever


def test_without_bleu_the_mean_loss_decides_and_is_told(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    config.training.bleu_sentences = 0
    rows = validations(config, tmp_path / "x", ["own.tsv", "general.tsv"])
    losses = [float(rows[0][key]) for key in ("val_loss", "val_loss/own", "val_loss/general")]
    assert "update 4: validation loss {:.3f}, the means of own {:.3f}; general {:.3f}\n".format(*losses) in caplog.text
    assert float(rows[0]["val_loss"]) == pytest.approx(
        (float(rows[0]["val_loss/own"]) + float(rows[0]["val_loss/general"])) / 2, rel=1e-5
    )
    assert list((tmp_path / "x" / "checkpoints").glob("best-*"))


def test_prepared_sets_reach_the_table_in_their_order(config: Config) -> None:
    config.data.validation = ["general.tsv", "own.tsv"]
    assert list(prepare(config.data, config.tokenizer).validation_sets) == ["general", "own"]


def test_a_validation_that_was_due_is_made_on_resume_of_all_sets(config: Config, tmp_path: Path) -> None:
    straight = validations(config, tmp_path / "straight", ["own.tsv", "general.tsv"])
    (tmp_path / "resumed" / "checkpoints").mkdir(parents=True)
    name = "checkpoints/step=0000004.ckpt"  # written before the validation
    train(config, tmp_path / "resumed", Path(shutil.copy(tmp_path / "straight" / name, tmp_path / "resumed" / name)))
    resumed = [row for row in read_metrics(tmp_path / "resumed") if row["val_loss"]]
    columns = [name for name in straight[0] if name.startswith("val_")]
    assert [[row[name] for name in columns] for row in resumed] == [[row[name] for name in columns] for row in straight]
