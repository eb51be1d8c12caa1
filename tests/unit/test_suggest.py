"""Errors of settings are one line; for a misspelt setting it suggests the right one."""

from pathlib import Path

import pytest
from saved_runs import make_run

from seq2seq.errors import UserError
from seq2seq.settings.compose import compose, known_settings, one_line, suggest, unknown_setting
from seq2seq.settings.loading import load_config
from tests.thin import thin

KNOWN = known_settings()


def test_the_known_settings_are_dotted_keys_and_groups() -> None:
    keys = set(KNOWN)
    assert {"seed", "trainer.max_steps", "training.noise.typos", "data.weights"} <= keys
    assert {"model", "model/style", "experiment"} <= keys
    assert "training.noise" not in keys


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("max_steps", "trainer.max_steps"),
        ("training.max_steps", "trainer.max_steps"),
        ("trainer.learning_rate", "training.learning_rate"),
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


MISSPELT = [
    ("trainer.maxsteps=5", "there is no setting trainer.maxsteps: did you mean trainer.max_steps?"),
    ("+trainer.maxsteps=5", "there is no setting trainer.maxsteps: did you mean trainer.max_steps?"),
    ("training.max_time=4", "there is no setting training.max_time: did you mean trainer.max_time?"),
    ("style=modern", "there is no setting style: did you mean model/style?"),
    ("modl=small", "there is no setting modl: did you mean model?"),
    ("+data.foo=1", "there is no setting data.foo: `python train.py --help` lists all settings"),
    ("model=smal", "model has no option 'smal': choose from base, big"),
    ("experiment=nope", "experiment has no option 'nope': choose from averaging, .*, lab/baseline, .*unscaled"),
    ("model=null", "a group cannot be null: to choose none of its options, write ~GROUP"),
    ("model.d_model=wide", r"model.d_model=wide \(Value 'wide' of type 'str' could not be converted to Integer"),
    ("trainer.max_steps=1e4", "trainer.max_steps=1e4: write this whole number with digits only, as 10000"),
    ("trainer.keep_last=1e3", "trainer.keep_last=1e3: write this whole number with digits only, as 1000"),
    ("resume=runs/a=b", "resume=runs/a=b: .*quote a value with special characters"),
]


@pytest.mark.parametrize(("override", "message"), thin(MISSPELT, [MISSPELT[index] for index in (0, 3, 6, 9, 10)]))
def test_the_error_for_a_wrong_override_names_the_way_out(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        compose([override])


def test_the_error_for_a_resumed_runs_override_suggests_a_setting(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no setting max_steps: did you mean trainer.max_steps\?"):
        load_config(str(make_run(tmp_path / "half")), ["max_steps=5"])


@pytest.mark.parametrize(
    ("error", "cause", "line"),
    [
        (UserError("a.tsv:3 is not UTF-8:\n convert it"), ValueError("codec"), "a.tsv:3 is not UTF-8: convert it"),
        (
            ValueError("cannot compose\nin a file"),
            RuntimeError("no such key\nand more"),
            "cannot compose (no such key)",
        ),
    ],
)
def test_an_error_is_one_line_and_only_hydras_has_its_cause(error: Exception, cause: Exception, line: str) -> None:
    error.__cause__ = cause
    assert one_line(error) == line
