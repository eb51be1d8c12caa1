"""The settings of each documented training command that differ from the general defaults.

`pytest tests/golden -m '' -n0 --update-golden` rewrites composed.json; explain the diff in the commit.
"""

import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from seq2seq.settings.compose import compose, rewrite
from seq2seq.settings.config import flatten
from tests.documented import REPOSITORY, Command, commands, settings_of
from tests.thin import thin

GOLDEN = Path(__file__).with_name("composed.json")
ABSENT = "the default"
TRAINING = {command.text: command for command in commands() if {"train.py", "train"} & set(command.words)}  # torchrun
QUICK = [text for text in TRAINING if text == "python train.py" or text.endswith("model=lstm model.attention=none")]


@functools.cache
def defaults() -> dict[str, Any]:
    return flatten(compose(["data=files"]))


def differing_settings(command: Command) -> dict[str, Any]:
    """Return the settings of the command's first run that differ from the defaults; this clone's path is CLONE."""
    overrides = [re.sub(r"^(experiment=[^,]+),.*", r"\1", word) for word in rewrite(settings_of(command))]
    composed = flatten(compose(overrides))
    keys = sorted(key for key in composed.keys() | defaults().keys() if composed.get(key) != defaults().get(key))
    values = json.dumps({key: composed.get(key, ABSENT) for key in keys})
    return json.loads(values.replace(str(REPOSITORY), "CLONE"))


@pytest.mark.parametrize("text", thin(TRAINING, QUICK))
def test_a_documented_command_is_composed_as_before(request, monkeypatch, text):
    monkeypatch.setenv("SEQ2SEQ_HOME", str(REPOSITORY))
    settings, golden = differing_settings(TRAINING[text]), json.loads(GOLDEN.read_text(encoding="utf-8"))
    if request.config.getoption("--update-golden"):
        golden = {key: value for key, value in {**golden, text: settings}.items() if key in TRAINING}
        lines = (f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in golden.items())
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    assert settings == golden[text]
    words = TRAINING[text].words
    program = next(index for index, word in enumerate(words) if word in ("train.py", "train"))
    assert {word for word in words[program + 1 :] if "=" not in word} <= {"--multirun"}
