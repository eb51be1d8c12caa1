"""Errors of settings are one line; for a misspelt setting it suggests the right one."""

from pathlib import Path

import pytest
from saved_runs import make_run

from seq2seq.errors import UserError
from seq2seq.settings.compose import compose
from seq2seq.settings.loading import load_config
from tests.thin import thin

MISSPELT = [
    ("trainer.maxsteps=5", "there is no setting trainer.maxsteps: did you mean trainer.max_steps?"),
    ("training.max_time=4", "there is no setting training.max_time: did you mean trainer.max_time?"),
    ("style=modern", "there is no setting style: did you mean model/style?"),
    ("+data.foo=1", "there is no setting data.foo: `python train.py --help` lists all settings"),
    ("model=smal", "model has no option 'smal': choose from base, big"),
    ("experiment=nope", "experiment has no option 'nope': choose from averaging, .*, lab/baseline, .*unscaled"),
    ("model=null", "a group cannot be null: to choose none of its options, write ~GROUP"),
    ("model.d_model=wide", r"model.d_model=wide \(Value 'wide' of type 'str' could not be converted to Integer"),
    ("trainer.max_steps=1e4", "trainer.max_steps=1e4: write this whole number with digits only, as 10000"),
    ("training.lr=1", "there is no setting training.lr: did you mean training.learning_rate?"),
    ("batch_size=8", "there is no setting batch_size: did you mean training.max_tokens?"),
    ("trainer.gpus=2", "there is no setting trainer.gpus: did you mean trainer.devices?"),
    ("epochs=2", "there is no setting epochs: did you mean trainer.max_epochs?"),
    ("resume=runs/a=b", "resume=runs/a=b: .*quote a value with special characters"),
    ("tokenizer.vocab_size=3000000000", "tokenizer.vocab_size=3000000000 must be at most 2147483647"),
    ("tokenizer.user_symbols=['</s>']", "tokenizer.user_symbols has </s>, which every tokenizer has anyway"),
    ("data.train=[{a: b}]", r"data.train=\[{'a': 'b'}\] is no list of words"),
    ("seed=" + "9" * 5000, "4300 digits"),
    ("model=" + "x" * 5000, "xxx: File name too long"),
]


DEFAULT_TIER = [MISSPELT[index] for index in (0, 2, 4, 7, 8, 10)]


@pytest.mark.parametrize(("override", "message"), thin(MISSPELT, DEFAULT_TIER), ids=lambda text: text[:40])
def test_the_error_for_a_wrong_override_names_the_way_out(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        compose([override])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_the_error_for_a_resumed_runs_override_suggests_a_setting(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no setting max_steps: did you mean trainer.max_steps\?"):
        load_config(str(make_run(tmp_path / "half")), ["max_steps=5"])
