"""The settings of each documented training command that differ from the general defaults.

`pytest tests/golden --update-golden` rewrites composed.json; explain the diff in the commit.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from seq2seq.settings.compose import compose, rewrite
from seq2seq.settings.config import flatten
from tests.documented import REPOSITORY, commands, settings_of

GOLDEN = Path(__file__).with_name("composed.json")
ABSENT = "the default"


def composed(overrides: list[str]) -> dict[str, Any]:
    """Return the settings of one run that differ from the general defaults, with this clone's path replaced."""
    defaults = flatten(compose(["data=files"]))
    found = flatten(compose(overrides))
    keys = sorted(key for key in found.keys() | defaults.keys() if found.get(key) != defaults.get(key))
    changed = {key: found.get(key, ABSENT) for key in keys}
    return {key: json.loads(json.dumps(changed[key]).replace(str(REPOSITORY), "CLONE")) for key in keys}


@pytest.mark.slow  # the default run composes the same commands, in tests/unit/test_documented_commands.py
def test_documented_commands_are_composed_as_they_were(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQ2SEQ_HOME", str(REPOSITORY))
    training = [
        one for one in commands() if one.starts_with("python", "train.py") or one.starts_with("seq2seq", "train")
    ]
    found = {
        one.text: composed([re.sub(r"^(experiment=[^,]+),.*", r"\1", word) for word in rewrite(settings_of(one))])
        for one in training
    }
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert found == json.loads(GOLDEN.read_text(encoding="utf-8"))
