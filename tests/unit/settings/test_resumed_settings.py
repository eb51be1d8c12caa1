"""The settings of a resumed run: its config.yaml, with the changes that the command line may make."""

import functools
import re
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from seq2seq.errors import UserError
from seq2seq.settings.compose import compose
from seq2seq.settings.loading import load_config
from tests.refusing import refuses

pytestmark = pytest.mark.slow


def write(folder: Path, *overrides: str) -> str:
    """Write config.yaml as composed, as that of a run of other text than the bundled corpus."""
    settings = yaml.safe_dump(asdict(compose(["data=files", *overrides])))
    (folder / "config.yaml").write_text(settings)
    return str(folder)


def test_overrides_of_a_resumed_run_are_read_by_hydras_grammar(tmp_path: Path) -> None:
    write(tmp_path, "seed=7", "model.d_model=48")
    overrides = ["trainer.max_time=1:00:00:00", "data.train=[a.tsv,'b c.tsv']", "data.weights={a: 2}"]
    again = load_config(str(tmp_path), overrides)
    assert (again.trainer.max_time, again.data.train) == ("1:00:00:00", ["a.tsv", "b c.tsv"])
    assert again.data.weights == {"a": 2.0}
    assert (again.seed, again.model.d_model, again.resume) == (7, 48, str(tmp_path))
    for override in ("+trainer.max_steps=3", "++trainer.max_steps=3", "~trainer.max_steps", "seed=1,2"):
        refuses("only key=value can be given here", load_config, str(tmp_path), [override])
    for override, message in (
        ("data.train=[a", r"data.train=\[a: .*quote a value"),
        ("max_steps=5", r"there is no setting max_steps: did you mean trainer.max_steps\?"),
        ("model=tiny", "model= cannot be changed on resume"),
    ):
        refuses(message, load_config, str(tmp_path), [override])


def test_a_resumed_runs_overrides_are_checked_with_its_settings(tmp_path: Path) -> None:
    write(tmp_path, "training.monitor=loss", "training.final_weights=best")
    assert load_config(str(tmp_path), ["training.bleu_sentences=0"]).training.bleu_sentences == 0
    for override in ("name=b", "series=b"):
        refuses("cannot be changed on resume: the run keeps its folder", load_config, str(tmp_path), [override])


def test_a_setting_of_another_version_is_named_with_the_way_out(tmp_path: Path) -> None:
    settings = yaml.safe_load((Path(write(tmp_path)) / "config.yaml").read_text())
    settings["training"]["noise"] = {"case": 0.0}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(settings))
    refuses(r"config.yaml has training.noise, which is no setting any more: use the", load_config, str(tmp_path), [])


def test_a_run_resumed_by_a_link_gets_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "latest").symlink_to("x")
    write(tmp_path / "runs" / "x")
    monkeypatch.chdir(tmp_path)
    assert load_config("runs/latest", []).resume == "runs/x"
    monkeypatch.chdir(tmp_path / "runs" / "x")
    assert load_config(".", []).resume == str(tmp_path / "runs" / "x")


def test_more_epochs_on_resume_give_more_updates(tmp_path: Path) -> None:
    write(tmp_path, "trainer.max_steps=300", "trainer.max_epochs=3")
    assert load_config(str(tmp_path), []).trainer.max_steps == 300
    assert load_config(str(tmp_path), ["trainer.max_epochs=9"]).trainer.max_steps == "auto"
    assert load_config(str(tmp_path), ["trainer.max_epochs=9", "trainer.max_steps=400"]).trainer.max_steps == 400


def test_only_resume_lr_changes_the_learning_rate_of_a_resumed_run(tmp_path: Path) -> None:
    again = load_config(write(tmp_path), ["resume_lr=3e-5"])
    assert (again.training.learning_rate, again.resume_lr) == (3e-5, None)
    with pytest.raises(UserError, match=r"training.learning_rate= cannot be changed on resume: .*say resume_lr="):
        load_config(str(tmp_path), ["training.learning_rate=3e-5"])
    for value in ("0", "-1", "nan", "inf"):
        refuses(r"resume_lr=.* must be greater than 0", load_config, str(tmp_path), [f"resume_lr={value}"])
    refuses(r"resume_lr= changes a resumed run's learning rate: give resume=runs/NAME too", compose, ["resume_lr=3e-5"])


@pytest.mark.parametrize(
    ("key", "unused", "used"),
    [
        ("baseline", "auto", "runs/other"),
        ("baseline", None, "runs/other"),
        ("training.lora_rank", 0, 8),
        ("training.subword_sampling.nbest", -1, 10),
        ("training.freeze", [], ["encoder"]),
        ("search.groups", 1, 2),
    ],
)
def test_a_retired_setting_is_read_over_where_it_changed_nothing_and_refused_otherwise(tmp_path, key, unused, used):
    path, (*sections, name) = Path(write(tmp_path)) / "config.yaml", key.split(".")
    settings = yaml.safe_load(path.read_text())
    settings["training"]["lora_alpha"] = 6.0  # which nothing uses without a rank
    settings["search"]["diversity"] = 0.5  # which nothing uses without groups
    settings["trainer"]["compile"] = True  # which changed the speed alone
    holder = functools.reduce(lambda holder, section: holder[section], sections, settings)
    for value in (unused, used):
        holder[name] = value
        path.write_text(yaml.safe_dump(settings))
        if value == unused:
            assert load_config(str(tmp_path), []).seed == 1
    with pytest.raises(
        UserError, match=rf"config.yaml has {key}={re.escape(str(used))} of an earlier version: go on with that versio"
    ):
        load_config(str(tmp_path), [])
