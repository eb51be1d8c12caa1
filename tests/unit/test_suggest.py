"""The error for a misspelt setting suggests the right one."""

from pathlib import Path

import pytest
from saved_runs import make_run

from seq2seq.errors import UserError
from seq2seq.settings.compose import compose, known_settings, suggest, unknown_setting
from seq2seq.settings.loading import load_config

KNOWN = known_settings()


def test_the_known_settings_are_dotted_keys_and_groups() -> None:
    keys = set(KNOWN)
    assert {"seed", "trainer.max_steps", "training.noise.typos", "data.weights"} <= keys
    assert {"model", "model/style", "experiment"} <= keys
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
        ("+data.foo=1", "there is no setting data.foo: `python train.py --help` lists all settings"),
        ("model=smal", "model has no option 'smal': choose from base, big"),
        (
            "experiment=nope",
            "experiment has no option 'nope': choose from averaging, .*, lab/baseline, .*unscaled",
        ),
        ("model=null", "a group cannot be null: to choose none of its options, write ~GROUP"),
        ("seed=abc", r"seed=abc \(Value 'abc' of type 'str' could not be converted to Integer"),
        ("trainer.max_steps=1e4", "trainer.max_steps=1e4: write this whole number with digits only, as 10000"),
        ("trainer.keep_last=1e3", "trainer.keep_last=1e3: write this whole number with digits only, as 1000"),
        ("resume=runs/a=b", "resume=runs/a=b: .*quote a value with special characters"),
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
