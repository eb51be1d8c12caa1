"""The meaning of every setting, for --help and docs/settings.md."""

from pathlib import Path

from docs.settings import PAGE, markdown
from seq2seq.settings.compose import compose
from seq2seq.settings.config import meanings, options

REPOSITORY = Path(__file__).parents[3]
CONF = REPOSITORY / "conf"
DEFAULTS = compose(["data=files"])


def test_the_documented_settings_are_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(CONF, DEFAULTS), "run: python -m docs.settings"


def test_every_setting_and_every_option_has_a_meaning() -> None:
    for name, meaning in (*meanings(DEFAULTS), *options(CONF)):
        assert len(meaning) > 10, name
