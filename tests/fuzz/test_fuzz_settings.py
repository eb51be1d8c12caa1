"""No override and no preset's file ends train.py's composition with anything but settings or one line.

How to run it for an hour: see test_fuzz_documents.py.
"""

import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from seq2seq.settings.compose import compose, home, known_settings
from seq2seq.settings.config import Config
from tests.fuzz.mutating import COSTLY, PLACE, SECRET, arbitrary, mutated, refusal_of, with_place

pytestmark = pytest.mark.slow
LASTING = settings(COSTLY, phases=(Phase.explicit, Phase.reuse, Phase.generate))  # to shrink would take minutes

KEYS = st.sampled_from(
    [*known_settings(), "hydra.run.dir", "_target_", "defaults", "a", "model.x.y", "model/style@x", ""]
)
NUMBERS = ("0", "1", "-1", "2", "1e999", "nan", "inf", "9" * 5_000, "0x1f", "1_000", "0.5", "true", "null")
SYNTAX = (
    *("[", "]", "{", "}", "'", '"', ",", ":", "=", "+", "~", "@", "\\", " ", "\n", "\0", "é", "[" * 300),
    *("${", "${oc.env:HOME}", "${seed}", "${x}", "${oc.decode:[}", "--multirun", "--config-dir="),
    *("glob(*)", "range(0,9)", "choice(a,b)", "interval(0,1)"),
)
WORDS = (
    *("none", "base", "auto", "bundled", "transformer", "modern", "runs/a", "tatoeba_cpu"),
    *("../", "../../etc/passwd", PLACE, "x" * 300),
)
VALUES = st.sampled_from([*NUMBERS, *WORDS]) | st.lists(st.sampled_from([*NUMBERS, *SYNTAX, *WORDS]), max_size=4).map(
    "".join
)
OVERRIDES = st.builds(
    lambda sign, key, value: f"{sign}{key}={value}", st.sampled_from(["", "", "", "+", "++", "~"]), KEYS, VALUES
)
OVERRIDES |= arbitrary((*SYNTAX, *WORDS)).map(lambda text: text.replace("\0", ""))


def check(overrides: list[str], folder: Path, watched_files: Callable[[], Any]) -> None:
    configs: list[Config] = []
    overrides = [with_place(override, folder.parent / "secret.po") for override in overrides]
    with watched_files() as opened:
        refusal = refusal_of(lambda: configs.append(compose(overrides))) or ""
    assert "\n" not in refusal
    assert len(refusal) < 2_000
    assert [file for file in opened if file.endswith(("secret.po", "passwd"))] == []
    assert SECRET not in refusal
    for config in configs:
        yaml.safe_dump(asdict(config))


@LASTING
@given(overrides=st.lists(OVERRIDES, min_size=1, max_size=3))
def test_odd_overrides(overrides: list[str], folder: Path, watched_files: Callable[[], Any]) -> None:
    check(overrides, folder, watched_files)


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
    *("- ", "&a ", "*a", "${oc.env:HOME}", "${model}", "null", "1e999", ".nan", "'", '"', "{", "? ", "|", "_self_"),
    *(": ", "\n", "  ", "\t", "---\n", "\ufeff", "\0", "%YAML 9", "<<: *a", "!!python/object/apply:os.system [x]"),
    *("defaults:\n  - ", "override /model: base\n", "# @package x\n", "_target_: os.system\n", "hydra:\n  run: x\n"),
    *("/../../secret", PLACE, "[" * 500),
)


@LASTING
@given(text=mutated([PRESET], IN_YAML) | arbitrary(IN_YAML))
def test_a_broken_preset(text, folder, watched_files, monkeypatch):
    conf = folder / "conf"
    if not conf.exists():
        shutil.copytree(home() / "conf", conf)
    (conf / "experiment" / "own.yaml").write_bytes(text.encode("utf-8", "surrogatepass"))
    with monkeypatch.context() as patch:
        patch.setenv("SEQ2SEQ_HOME", str(folder))
        check(["experiment=own"], folder, watched_files)
