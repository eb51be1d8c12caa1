"""The meaning of every setting, for --help and docs/settings.md."""

from pathlib import Path

import pytest

from seq2seq.settings.compose import compose
from seq2seq.settings.describe import markdown, meanings, options, show_help

REPOSITORY = Path(__file__).parents[2]
CONF = REPOSITORY / "conf"
DEFAULTS = compose(["data=files"])


def test_the_documented_settings_are_current() -> None:
    fresh = markdown(CONF, DEFAULTS)
    stored = (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8")
    assert stored == fresh, "run: python train.py --help-markdown > docs/settings.md"


def test_every_setting_and_every_option_has_a_meaning() -> None:
    for key, _, meaning in meanings(DEFAULTS):
        assert len(meaning) > 10, key
    for option in options(CONF):
        assert len(option.meaning) > 10, option


def test_help_shows_groups_values_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    show_help(CONF, DEFAULTS)
    output = capsys.readouterr().out
    for expected in ("model=small", "trainer.max_epochs=null", "passes over the training pairs", "resume=runs/NAME"):
        assert expected in output
