"""`baseline=`: a run keeps its test translations, and is compared with those of another run."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from resuming import small_config

from seq2seq.errors import UserError
from seq2seq.evaluation.significance import Comparison, compare
from seq2seq.settings.config import Config
from seq2seq.settings.loading import load_config
from seq2seq.training.baseline import compare_with, keep_translations, read_baseline, read_translations
from seq2seq.training.early_checks import refuse_early
from seq2seq.training.finetune import start_from_bundle
from seq2seq.training.run import train
from seq2seq.training.run_folder import write_config

REFERENCES = {"news": ["El gato.", "", "¿Un perro?"], "talks": ["Una bola."]}
TESTS = {name: [("A text.", text) for text in texts] for name, texts in REFERENCES.items()}
TRANSLATIONS = {"news": ["Un gato.", "", "¿El perro?"], "talks": ["Una pelota."]}


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    folder = tmp_path / "other"
    folder.mkdir()
    keep_translations(folder, TRANSLATIONS, TESTS)
    return folder


def test_kept_translations_are_read_again(baseline: Path) -> None:
    assert read_baseline(str(baseline), REFERENCES) == TRANSLATIONS
    assert (baseline / "translations" / "news.txt").read_text(encoding="utf-8") == "Un gato.\n\n¿El perro?\n"
    assert [(one.name, *one.sources) for one in read_translations(baseline)] == [
        ("news", "A text.", "A text.", "A text."),
        ("talks", "A text."),
    ]
    assert {one.name: one.hypotheses for one in read_translations(baseline)} == TRANSLATIONS
    assert {one.name: one.references for one in read_translations(baseline)} == REFERENCES
    assert read_baseline(None, REFERENCES) == {}
    assert read_baseline("auto", REFERENCES) == {}


def test_only_shared_test_sets_are_compared_and_the_others_named(
    baseline: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = read_baseline(str(baseline), {"talks": REFERENCES["talks"], "novels": ["Nada."]})
    assert found == {"talks": TRANSLATIONS["talks"]}
    assert "has no translations of the test set novels" in caplog.text
    assert "has the test set news, and this run does not: it is not compared" in caplog.text


def test_a_test_set_that_cannot_be_compared_is_named_and_the_others_are_compared(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_on_talks(systems: Any, references: list[list[str]], language: str) -> Comparison:
        if references == [REFERENCES["talks"]]:
            raise UserError("too little memory")
        return compare(systems, references, samples=5, trials=5, language=language)

    monkeypatch.setattr("seq2seq.training.baseline.compare", fail_on_talks)
    assert compare_with(TRANSLATIONS, TRANSLATIONS, REFERENCES, ("before", "after")).keys() == {"news"}
    assert "the test set talks is not compared: too little memory" in caplog.text


def test_other_references_and_damaged_translations_are_refused(baseline: Path) -> None:
    with pytest.raises(UserError, match=r"was tested on another talks: .*talks.reference.txt differs"):
        read_baseline(str(baseline), {"talks": ["Otra cosa."]})
    with pytest.raises(UserError, match="has translations of none of this run's test sets: novels"):
        read_baseline(str(baseline), {"novels": ["Nada."]})
    (baseline / "translations" / "news.txt").write_text("Un gato.\n")
    with pytest.raises(UserError, match=r"news.txt has 1 lines, not 3: it is damaged"):
        read_baseline(str(baseline), REFERENCES)


def test_a_run_without_kept_translations_is_refused_before_anything_else(tmp_path: Path, baseline: Path) -> None:
    refuse_early(Config(baseline=str(baseline)))
    refuse_early(Config())  # auto
    with pytest.raises(UserError, match=r"baseline=absent is no folder: give a complete run's folder"):
        refuse_early(Config(baseline="absent"))
    with pytest.raises(UserError, match=r"has no test translations \(no .*/translations/\*.txt\): give"):
        refuse_early(Config(baseline=str(tmp_path)))


def run(config: Config, name: str, **changes: object) -> Path:
    folder = Path("runs", name)
    (folder / "checkpoints").mkdir(parents=True)
    trainer = replace(config.trainer, max_steps=2, validate_every=2)
    train(replace(config, name=name, trainer=trainer, **changes), folder)
    return folder


def test_a_run_ends_with_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = small_config(tmp_path)
    first = run(config, "first")
    lines = (first / "translations" / "held.txt").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 8
    second = run(config, "second", baseline="runs/first")
    facts = json.loads((second / "results.json").read_text(encoding="utf-8"))
    assert facts["baseline"]["run"] == "runs/first"
    found = facts["baseline"]["tests"]["held"]
    assert found["systems"] == ["runs/first", "runs/second"]
    assert found["metrics"]["bleu"]["systems"][1]["bootstrap_p"] == 1  # the same settings and seed
    assert found["metrics"]["bleu"]["systems"][1]["value"] == facts["scores"]["held"]["bleu"]["value"]
    assert "held: 8 sentences; baseline: runs/first" in " ".join(capsys.readouterr().err.split())


def test_a_seed_that_the_comparison_cannot_use_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = small_config(tmp_path)
    first = run(config, "first")
    monkeypatch.setenv("SACREBLEU_SEED", "abc")
    with pytest.raises(UserError, match="SACREBLEU_SEED is 'abc', which is no seed"):
        run(config, "second", baseline=str(first))
    assert not list(Path("runs/second/checkpoints").iterdir())
    run(config, "third")  # it compares nothing


def tuned(config: Config, first: Path, name: str, **changes: object) -> Path:
    return run(start_from_bundle(replace(config, init=str(first)), []), name, **changes)


def test_a_run_with_an_initial_model_ends_with_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    config = small_config(tmp_path)
    config.training.learning_rate = 1e-2
    first = run(config, "first")
    assert "baseline" not in json.loads((first / "results.json").read_text(encoding="utf-8"))
    kept = (first / "translations" / "held.txt").read_text(encoding="utf-8")
    capsys.readouterr()
    second = tuned(config, first, "second")
    facts = json.loads((second / "results.json").read_text(encoding="utf-8"))
    assert facts["baseline"]["run"] == str((first / "model").resolve())
    found = facts["baseline"]["tests"]["held"]
    assert found["systems"] == ["before", "after"]
    before, after = found["metrics"]["chrf"]["systems"]
    scores = json.loads((first / "results.json").read_text(encoding="utf-8"))["scores"]["held"]
    assert before["value"] == scores["chrf"]["value"] != after["value"]
    assert after["value"] == facts["scores"]["held"]["chrf"]["value"]
    assert (second / "translations" / "held.before.txt").read_text(encoding="utf-8") == kept
    bleu = [one["value"] for one in found["metrics"]["bleu"]["systems"]]
    p_value = found["metrics"]["bleu"]["systems"][1]["randomisation_p"]
    shown = " ".join(capsys.readouterr().err.split())
    assert f"│ held │ {bleu[0]:.1f} │ {bleu[1]:.1f} │ {bleu[1] - bleu[0]:+.1f} │ {p_value:.4f} │" in shown
    card = (second / "model" / "README.md").read_text(encoding="utf-8")
    assert f"\n| held | {bleu[0]:.1f} | {bleu[1]:.1f} | {p_value:.4f} | {before['value']:.1f} | " in card


def test_a_resumed_run_compares_too_and_null_or_another_baseline_replaces_the_initial_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    config = small_config(tmp_path)
    first = run(config, "first")
    silent = tuned(config, first, "silent", baseline=None)
    assert "baseline" not in json.loads((silent / "results.json").read_text(encoding="utf-8"))
    assert not (silent / "translations" / "held.before.txt").exists()
    other = tuned(config, first, "other", baseline=str(silent))
    facts = json.loads((other / "results.json").read_text(encoding="utf-8"))["baseline"]
    assert facts["tests"]["held"]["systems"] == [str(silent), str(other)]
    assert not (other / "translations" / "held.before.txt").exists()

    second = tuned(config, first, "second")
    write_config(start_from_bundle(replace(config, init=str(first), name="second"), []), second)
    (second / "results.json").unlink()
    settings = load_config(str(second), ["trainer.max_steps=3", "trainer.validate_every=3"])
    train(settings, second, second / "checkpoints" / "step=0000002.ckpt")
    facts = json.loads((second / "results.json").read_text(encoding="utf-8"))
    assert (facts["updates"], facts["baseline"]["tests"]["held"]["systems"]) == (3, ["before", "after"])

    shutil.copytree(first, tmp_path / "gone")
    gone = tuned(config, tmp_path / "gone", "third")
    shutil.rmtree(tmp_path / "gone" / "model")
    (gone / "results.json").unlink()
    config = start_from_bundle(replace(config, init=str(first)), [])
    config = replace(config, init=str(tmp_path / "gone" / "model"), name="third")
    config.trainer.max_steps = config.trainer.validate_every = 3
    train(config, gone, gone / "checkpoints" / "step=0000002.ckpt")
    facts = json.loads((gone / "results.json").read_text(encoding="utf-8"))
    assert "baseline" not in facts
    assert "the initial model is not compared: " in caplog.text
    assert facts["scores"]
