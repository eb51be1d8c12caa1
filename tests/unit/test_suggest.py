"""The error for a misspelt setting suggests the right one."""

from pathlib import Path

import pytest
from saved_runs import make_run

from seq2seq.errors import UserError
from seq2seq.settings.compose import compose
from seq2seq.settings.config import Config
from seq2seq.settings.loading import load_config, setting_keys, suggest, unknown_setting

KNOWN = [*setting_keys(Config), "data", "experiment", "model", "model/style", "trainer", "training"]


def test_setting_keys_are_the_dotted_keys_of_all_settings() -> None:
    keys = set(setting_keys(Config))
    assert {"seed", "trainer.max_steps", "training.noise.typos", "data.weights"} <= keys
    assert "training.noise" not in keys


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("trainer.maxsteps", "trainer.max_steps"),
        ("max_steps", "trainer.max_steps"),
        ("training.max_steps", "trainer.max_steps"),
        ("trainer.learning_rate", "training.learning_rate"),
        ("lerning_rate", "training.learning_rate"),
        ("typos", "training.noise.typos"),
        ("model.d_modell", "model.d_model"),
        ("modl", "model"),
        ("style", "model/style"),
        ("resum", "resume"),
    ],
)
def test_the_nearest_setting_comes_first(key: str, meant: str) -> None:
    assert suggest(key, KNOWN)[0] == meant


def test_a_name_in_several_sections_suggests_all_of_them() -> None:
    assert set(suggest("alpha", ["a.alpha", "b.c.alpha", "d.beta"])) == {"a.alpha", "b.c.alpha"}


def test_a_key_unlike_any_setting_gets_no_suggestion() -> None:
    assert (
        unknown_setting("qqq.zzz", KNOWN) == "there is no setting qqq.zzz: `python train.py --help` lists all settings"
    )
    assert unknown_setting("max_step", KNOWN) == "there is no setting max_step: did you mean trainer.max_steps?"


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("trainer.maxsteps=5", "there is no setting trainer.maxsteps: did you mean trainer.max_steps?"),
        ("max_steps=5", "there is no setting max_steps: did you mean trainer.max_steps?"),
        ("training.max_epochs=4", "there is no setting training.max_epochs: did you mean trainer.max_epochs?"),
        ("training.max_time=4", "there is no setting training.max_time: did you mean trainer.max_time?"),
        ("+trainer.maxsteps=5", "there is no setting trainer.maxsteps: did you mean trainer.max_steps?"),
        ("style=modern", "there is no setting style: did you mean model/style?"),
        ("modl=small", "there is no setting modl: did you mean model?"),
        ("foo.bar=1", "there is no setting foo.bar: `python train.py --help` lists all settings"),
        ("data.weights.x=1", r"data.weights has no entry x yet: add it with a plus, as \+data.weights.x=VALUE"),
        ("model=smal", "Available options in 'model': base big"),
        ("seed=abc", "Value 'abc' of type 'str' could not be converted to Integer"),
    ],
)
def test_the_error_for_a_misspelt_override_suggests_a_setting(override: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        compose([override])


def test_the_error_for_a_resumed_runs_override_suggests_a_setting(tmp_path: Path) -> None:
    folder = str(make_run(tmp_path / "half"))
    with pytest.raises(UserError, match=r"there is no setting trainer.maxsteps: did you mean trainer.max_steps\?"):
        load_config(folder, ["trainer.maxsteps=5"])
    with pytest.raises(UserError, match=r"there is no setting max_steps: did you mean trainer.max_steps\?"):
        load_config(folder, ["max_steps=5"])
