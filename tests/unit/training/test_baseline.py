"""`baseline=`: a run keeps its test translations, and is compared with those of another run."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from resuming import small_config

from seq2seq.errors import UserError
from seq2seq.evaluation.analysis import Translated
from seq2seq.evaluation.significance import Comparison, compare
from seq2seq.settings.config import Config
from seq2seq.settings.loading import load_config
from seq2seq.training.baseline import compare_with, keep_translations, read_baseline, read_translations
from seq2seq.training.early_checks import refuse_early
from seq2seq.training.finetune import start_from_bundle
from seq2seq.training.run import train
from seq2seq.training.run_files import list_checkpoints
from seq2seq.training.run_folder import write_config

pytestmark = pytest.mark.slow

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
    assert read_translations(baseline) == [
        Translated(name, ["A text."] * len(texts), TRANSLATIONS[name], texts) for name, texts in REFERENCES.items()
    ]
    assert read_baseline(None, REFERENCES) == read_baseline("auto", REFERENCES) == {}


def test_only_shared_test_sets_are_compared_and_the_others_named(
    baseline: Path, caplog: pytest.LogCaptureFixture
) -> None:
    references = {"talks": REFERENCES["talks"], "novels": ["Nada."]}
    assert read_baseline(str(baseline), references) == {"talks": TRANSLATIONS["talks"]}
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


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory, quick_end: None) -> Iterator[Config]:
    """The settings of a small run; the working directory is a folder with a run called `first`."""
    folder = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        config = small_config(folder)
        config.training.learning_rate = 1e-2
        config.trainer.max_steps = config.trainer.validate_every = 2
        run(config, "first")
        yield config


def run(config: Config, name: str, **changes: object) -> Path:
    folder = Path("runs", name)
    (folder / "checkpoints").mkdir(parents=True)
    config = replace(config, name=name, **changes)
    write_config(config, folder)
    train(config, folder)
    return folder


def resumed(folder: Path, updates: int) -> dict[str, Any]:
    """Resume a run from its newest checkpoint up to so many updates; its facts."""
    config = load_config(str(folder), [f"trainer.max_steps={updates}", f"trainer.validate_every={updates}"])
    train(config, folder, list_checkpoints(folder / "checkpoints")[-1])
    return facts(folder)


def facts(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


def test_a_run_ends_with_the_comparison(settings: Config, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(Path("runs/first/translations/held.txt").read_text(encoding="utf-8").splitlines()) == 8
    second = facts(run(settings, "second", baseline="runs/first"))
    assert second["baseline"]["run"] == "runs/first"
    comparison = second["baseline"]["tests"]["held"]
    assert comparison["systems"] == ["runs/first", "runs/second"]
    bleu = comparison["metrics"]["bleu"]["systems"][1]
    assert bleu["bootstrap_p"] == 1  # the same settings and seed
    assert bleu["value"] == second["scores"]["held"]["bleu"]["value"]
    assert "held: 8 sentences; baseline: runs/first" in " ".join(capsys.readouterr().err.split())


def test_a_seed_that_the_comparison_cannot_use_is_refused_before_training(
    settings: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "abc")
    with pytest.raises(UserError, match="SACREBLEU_SEED is 'abc', which is no seed"):
        run(settings, "refused", baseline="runs/first")
    assert not list(Path("runs/refused/checkpoints").iterdir())


def test_a_run_with_an_initial_model_ends_with_before_and_after_also_if_it_is_resumed_and_the_model_is_there(
    settings: Config, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    first, copied = Path("runs/first"), Path("copied")
    assert "baseline" not in facts(first)
    shutil.copytree(first, copied)
    tuned = run(start_from_bundle(replace(settings, init=str(copied)), []), "tuned")
    assert facts(tuned)["baseline"]["run"] == str((copied / "model").resolve())
    comparison = facts(tuned)["baseline"]["tests"]["held"]
    assert comparison["systems"] == ["before", "after"]
    before, after = comparison["metrics"]["chrf"]["systems"]
    assert before["value"] == facts(first)["scores"]["held"]["chrf"]["value"] != after["value"]
    assert after["value"] == facts(tuned)["scores"]["held"]["chrf"]["value"]
    kept = (first / "translations" / "held.txt").read_text(encoding="utf-8")
    assert (tuned / "translations" / "held.before.txt").read_text(encoding="utf-8") == kept
    bleu = [system["value"] for system in comparison["metrics"]["bleu"]["systems"]]
    p_value = comparison["metrics"]["bleu"]["systems"][1]["randomisation_p"]
    table = " ".join(capsys.readouterr().err.split())
    assert f"│ held │ {bleu[0]:.1f} │ {bleu[1]:.1f} │ {bleu[1] - bleu[0]:+.1f} │ {p_value:.4f} │" in table
    card = (tuned / "model" / "README.md").read_text(encoding="utf-8")
    assert f"\n| held | {bleu[0]:.1f} | {bleu[1]:.1f} | {p_value:.4f} | {before['value']:.1f} | " in card

    again = resumed(tuned, 3)
    assert (again["updates"], again["baseline"]["tests"]["held"]["systems"]) == (3, ["before", "after"])
    (copied / "model" / "config.json").unlink()
    alone = resumed(tuned, 4)
    assert "baseline" not in alone
    assert alone["scores"]
    assert "the initial model is not compared: " in caplog.text


def test_null_or_another_baseline_replaces_the_initial_model(settings: Config) -> None:
    tuning = start_from_bundle(replace(settings, init="runs/first"), [])
    silent = run(tuning, "silent", baseline=None)
    assert "baseline" not in facts(silent)
    other = run(tuning, "other", baseline=str(silent))
    assert facts(other)["baseline"]["tests"]["held"]["systems"] == [str(silent), str(other)]
    for folder in (silent, other):
        assert not (folder / "translations" / "held.before.txt").exists()
