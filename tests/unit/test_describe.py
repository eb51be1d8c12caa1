"""The meaning of every setting, for --help and docs/settings.md."""

from pathlib import Path

import pytest

from seq2seq.settings.compose import general_defaults
from seq2seq.settings.describe import markdown, options, settings, show_help

REPOSITORY = Path(__file__).parents[2]
CONF = REPOSITORY / "conf"


def test_the_documented_settings_are_current() -> None:
    fresh = markdown(CONF, general_defaults())
    stored = (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8")
    assert stored == fresh, "run: python train.py --help-markdown > docs/settings.md"


def test_every_setting_and_every_option_has_a_meaning() -> None:
    for setting in settings(general_defaults()):
        assert len(setting.meaning) > 10, setting.key
    for option in options(CONF):
        assert len(option.meaning) > 10, option


def test_a_comment_above_or_after_its_field_belongs_to_it() -> None:
    found = {setting.key: setting for setting in settings(general_defaults())}
    assert found["training.max_tokens"].default == "auto"
    assert found["training.max_tokens"].meaning.startswith("positions of a batch on either side")
    assert found["training.final_weights"].meaning.endswith("else ema if ema_decay is above 0, else last")
    assert "BPE dropout" in found["training.subword_sampling.alpha"].meaning
    assert found["model.d_model"].default == "256"


def test_help_shows_groups_values_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    show_help(CONF, general_defaults())
    shown = capsys.readouterr().out
    for expected in ("model=small", "trainer.max_epochs=null", "passes over the training pairs", "resume=runs/NAME"):
        assert expected in shown
