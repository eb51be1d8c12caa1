"""No override and no preset's file ends train.py's composition with anything but settings or one line.

How to run it for an hour: see test_fuzz_documents.py.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from seq2seq.settings.compose import compose, home, known_settings, rewrite
from seq2seq.settings.config import Config, to_plain
from tests.fuzz.mutating import PLACE, SECRET, arbitrary, mutated, refusal_of, with_place

pytestmark = pytest.mark.slow
EXAMPLES = max(settings().max_examples // 4, 8)  # each composes twice
LASTING = settings(
    max_examples=EXAMPLES,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink would take minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

KEYS = st.sampled_from(
    [*known_settings(), "hydra.run.dir", "_target_", "defaults", "a", "model.x.y", "model/style@x", ""]
)
NUMBERS = ("0", "1", "-1", "2", "1e999", "nan", "inf", "9" * 5_000, "0x1f", "1_000", "0.5", "true", "null")
SYNTAX = (
    "[",
    "]",
    "{",
    "}",
    "'",
    '"',
    ",",
    ":",
    "=",
    "+",
    "~",
    "@",
    "\\",
    "${",
    "${oc.env:HOME}",
    "${seed}",
    "${x}",
    "${oc.decode:[}",
)
SYNTAX = (
    *SYNTAX,
    "glob(*)",
    "range(0,9)",
    "choice(a,b)",
    "interval(0,1)",
    "[" * 300,
    "--multirun",
    "--config-dir=",
    " ",
    "\n",
    "\0",
    "é",
)
WORDS = (
    "none",
    "base",
    "auto",
    "bundled",
    "transformer",
    "modern",
    "../",
    "../../etc/passwd",
    PLACE,
    "runs/a",
    "tatoeba_cpu",
    "x" * 300,
)
VALUES = st.sampled_from([*NUMBERS, *WORDS]) | st.lists(st.sampled_from([*NUMBERS, *SYNTAX, *WORDS]), max_size=4).map(
    "".join
)
OVERRIDES = st.builds(
    lambda sign, key, value: f"{sign}{key}={value}", st.sampled_from(["", "", "", "+", "++", "~"]), KEYS, VALUES
)
OVERRIDES |= arbitrary((*SYNTAX, *WORDS)).map(lambda text: text.replace("\0", ""))


def check(overrides: list[str], folder: Path, watched_files: Callable[[], Any]) -> None:
    found: list[Config] = []
    given_ones = [with_place(one, folder.parent / "secret.po") for one in overrides]
    with watched_files() as opened:
        refusal = refusal_of(lambda: found.append(compose(given_ones))) or ""
    assert "\n" not in refusal
    assert len(refusal) < 2_000
    assert [one for one in opened if one.endswith(("secret.po", "passwd"))] == []
    assert SECRET not in refusal
    for config in found:
        yaml.safe_dump(to_plain(config))


@LASTING
@given(overrides=st.lists(OVERRIDES, min_size=1, max_size=3))
def test_odd_overrides(overrides: list[str], folder: Path, watched_files: Callable[[], Any]) -> None:
    check(overrides, folder, watched_files)


@given(overrides=st.lists(OVERRIDES, max_size=3))
def test_odd_globs(overrides: list[str]) -> None:
    assert "\n" not in (refusal_of(lambda: rewrite(overrides)) or "")


PRESET = """# @package _global_
experiment_name: own
data:
  train: [a.tsv]
model:
  d_model: 64
training:
  learning_rate: 0.001
"""
IN_YAML = (
    ": ",
    "\n",
    "  ",
    "- ",
    "!!python/object/apply:os.system [x]",
    "&a ",
    "*a",
    "<<: *a",
    "${oc.env:HOME}",
    "[" * 500,
    "null",
)
IN_YAML = (
    *IN_YAML,
    "defaults:\n  - ",
    "override /model: base\n",
    "# @package x\n",
    "_target_: os.system\n",
    "1e999",
    ".nan",
    "'",
    '"',
    "{",
)
IN_YAML = (
    *IN_YAML,
    "? ",
    "|",
    "%YAML 9",
    "\t",
    "---\n",
    "/../../secret",
    PLACE,
    "\ufeff",
    "\0",
    "hydra:\n  run: x\n",
    "_self_",
    "${model}",
)


@LASTING
@given(text=mutated([PRESET], IN_YAML) | arbitrary(IN_YAML))
def test_a_broken_preset(
    text: str, folder: Path, watched_files: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = folder / "conf"
    if not conf.exists():
        shutil.copytree(home() / "conf", conf)
    (conf / "experiment" / "own.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    with monkeypatch.context() as patch:
        patch.setenv("SEQ2SEQ_HOME", str(folder))
        check(["experiment=own"], folder, watched_files)
