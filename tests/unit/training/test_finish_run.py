"""The end of a run: the weights that are shipped, and what is written about them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import LightningModule, Trainer
from resuming import run, small_config

from seq2seq.data.dataset import PreparedData
from seq2seq.data.prepare import prepare
from seq2seq.errors import StoppedError, UserError
from seq2seq.evaluation.error_analysis import Translated
from seq2seq.settings.config import Config
from seq2seq.training import finish_run
from seq2seq.training.checkpoints import Checkpoints
from seq2seq.training.finish_run import TrainingEnd, complete_run, keep_translations, read_translations, shipped_bundle
from seq2seq.training.run import train, training_end
from seq2seq.training.run_files import list_checkpoints, read_metrics
from seq2seq.training.run_state import step_of
from seq2seq.translate.bundle import load_bundle

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_end")]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    config = small_config(tmp_path)
    config.training.ema_decay, config.training.optimizer = 0.0, "adamw"
    config.training.learning_rate, config.training.schedule = 0.3, "constant"  # the loss soon rises
    return config


def results(config: Config, folder: Path, weights: str, checkpoint: Path | None = None) -> dict[str, Any]:
    config.training.final_weights = weights
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / "results.json").unlink(missing_ok=True)  # as if the run had been killed during its tests
    train(config, folder, checkpoint)
    return json.loads((folder / "results.json").read_text())


def test_the_validation_loss_is_that_of_the_shipped_weights(config: Config, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    last = results(config, folder, "last")
    losses = {int(row["step"]): float(row["val_loss"]) for row in read_metrics(folder) if row["val_loss"]}
    best = min(losses, key=losses.__getitem__)
    assert best < max(losses)
    assert last["validation_loss"] == pytest.approx(losses[max(losses)], abs=1e-4)
    newest = list_checkpoints(folder / "checkpoints")[-1]
    of_best = results(config, folder, "best", newest)
    assert of_best["validation_loss"] == pytest.approx(losses[best], abs=1e-4)
    assert of_best["weights"] == [f"best-step={best:07d}-val_loss={losses[best]:.2f}.ckpt"]
    assert f"Validation loss: {of_best['validation_loss']} nats" in (folder / "model" / "README.md").read_text()
    average = results(config, folder, "average", newest)
    assert len(average["weights"]) == 2
    assert average["validation_loss"] not in (last["validation_loss"], of_best["validation_loss"])


def test_kept_translations_are_read_again(tmp_path: Path) -> None:
    texts = {"news": ["Un gato.", "", "¿El perro?"], "talks": ["Una pelota."]}
    tests = {name: [("A text.", "Un texto.")] * len(lines) for name, lines in texts.items()}
    keep_translations(tmp_path, texts, tests)
    assert (tmp_path / "translations" / "news.txt").read_text(encoding="utf-8") == "Un gato.\n\n¿El perro?\n"
    assert read_translations(tmp_path) == [
        Translated(name, ["A text."] * len(lines), lines, ["Un texto."] * len(lines)) for name, lines in texts.items()
    ]


def test_after_a_signal_the_model_is_written_without_a_measurement(config, tmp_path, monkeypatch):
    """A cluster gives little time between its signal and the end."""
    data, folder = prepare(config.data, config.tokenizer), tmp_path / "run"
    run(config, data, folder)
    monkeypatch.setattr(finish_run, "validation_loss", lambda *_: pytest.fail("it takes time"))
    end = TrainingEnd(11, 1.0, 1.0, False, "SIGTERM", [], "a machine", torch.device("cpu"))
    with pytest.raises(StoppedError, match=r"stopped by SIGTERM after update 11: a usable model is in .*run/model"):
        complete_run(config, folder, data, end)
    unfinished = "on a machine, seed 1. The run is not finished: these are the weights after update 11.\n"
    assert unfinished in (folder / "model" / "README.md").read_text()
    assert not (folder / "results.json").exists()


def test_while_a_run_trains_its_model_has_the_best_weights_but_a_complete_one_stays(config, tmp_path, monkeypatch):
    """The loss soon rises, so the best weights are none of the last; a complete run is extended in the end."""
    folder, data = tmp_path / "run", prepare(config.data, config.tokenizer)
    config.trainer.validate_every = 2
    models, on_validation_end = dict[int, bytes](), Checkpoints.on_validation_end

    def note(self: Checkpoints, trainer: Trainer, module: LightningModule) -> None:
        on_validation_end(self, trainer, module)
        models[trainer.global_step] = (folder / "model/model.safetensors").read_bytes()
        if "not finished" in (folder / "model/README.md").read_text():
            bundle, names = shipped_bundle(config, folder, data, training_end(trainer, 1.0), "best")
            assert f"after update {step_of(Path(names[0]))}." in (folder / "model/README.md").read_text()
            weights = load_bundle(folder / "model").model.state_dict()
            assert all(torch.equal(value, weights[name]) for name, value in bundle.model.state_dict().items())

    monkeypatch.setattr(Checkpoints, "on_validation_end", note)
    results(config, folder, "last")
    assert 1 < len(set(models.values())) < len(models)
    assert "not finished" not in (folder / "model/README.md").read_text()
    models.clear()
    config.trainer.max_steps, config.training.learning_rate = 19, 1e-3
    before = (folder / "model/model.safetensors").read_bytes()
    train(config, folder, list_checkpoints(folder / "checkpoints")[-1])
    assert set(models.values()) == {before}
    assert (folder / "model/model.safetensors").read_bytes() != before


def shipped(config: Config, data: PreparedData, folder: Path, best: list[Path]) -> list[str]:
    end = TrainingEnd(11, 1.0, 1.0, False, None, best, "", torch.device("cpu"))
    return shipped_bundle(config, folder, data, end, config.training.final_weights)[1]


def test_a_damaged_best_checkpoint_is_left_out_with_a_warning(config, tmp_path, caplog):
    config.training.final_weights = "best"
    data, folder = prepare(config.data, config.tokenizer), tmp_path / "run"
    run(config, data, folder)
    best = sorted((folder / "checkpoints").glob("best-*"))[:2]
    assert shipped(config, data, folder, best) == [best[0].name]
    for number, (path, instead) in enumerate(zip(best, [best[1].name, "step=0000011.ckpt"], strict=True)):
        content = path.read_bytes()
        path.unlink()  # it is a second name of a file
        path.write_bytes(content[: len(content) // 2])
        assert shipped(config, data, folder, best) == [instead], number
    assert f"{best[0]} is damaged" in caplog.text
    for path in (folder / "checkpoints").glob("step=*.ckpt"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match=r"all checkpoints in .* are damaged: restore one from a copy"):
        shipped(config, data, folder, best)


def test_the_end_calibrates_and_probes_the_shipped_model(config, tmp_path, monkeypatch):
    """Eight validation pairs teach nothing; here they are enough."""
    config.training.probes = 9
    facts = results(config, tmp_path / "few", "last")
    assert facts["confidence"] == {}
    assert load_bundle(tmp_path / "few" / "model").config.calibration is None
    monkeypatch.setattr("seq2seq.training.final_scores.LEAST", 8)
    monkeypatch.setattr("seq2seq.training.calibration.LEAST", 8)
    monkeypatch.setattr("seq2seq.training.calibration.LEAST_OF_EACH", 0)
    folder = tmp_path / "run"
    facts = results(config, folder, "last")
    (name,) = facts["confidence"]
    assert facts["confidence"][name]["translations"] == 8
    assert load_bundle(folder / "model").config.calibration is not None
    assert {family["probes"] for family in facts["robustness"].values()} == {1}
    card = (folder / "model" / "README.md").read_text()
    assert "◆" in card.partition("## Confidence")[2].partition("## Unusual texts")[0]
    assert "| CAPITALS | 1 | " in card
    assert "| single words | 1 | " in card
