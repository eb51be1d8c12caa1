"""What the command line names wins; what it does not name comes from what it named: by Hydra's own precedence."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from seq2seq.errors import UserError
from seq2seq.settings.compose import compose
from seq2seq.settings.config import Config, flatten
from tests.refusing import refuses
from tests.thin import thin

CONF = Path(__file__).parents[3] / "conf"
GROUPS = ("data", "tokenizer", "model", "model/style", "training", "search", "trainer")
OPTIONS = [(group, path.stem) for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]
RECIPES = ["tatoeba_cpu", "mixed_cpu", "mixed_gpu", "finetune", "backtranslation", "distillation"]
OTHERS = sorted(
    path.relative_to(CONF / "experiment").with_suffix("").as_posix() for path in CONF.glob("experiment/**/*.yaml")
)
ABLATIONS = [name for name in OTHERS if name not in RECIPES]  # and techniques
OF_TRANSFORMERS = re.compile("lab/(heads_[12]|modern|no_(?!dropout|warmup)|pre_norm|rotary|shared|swiglu|unscaled)")
SURVIVED = [option for option in OPTIONS if option[0] == "model" or option in [("data", "files"), ("trainer", "cpu")]]


def stated(group: str, option: str) -> dict[str, Any]:
    """Return what an option's file and the options of its group in its defaults state, by dotted keys."""
    text = (CONF / group / f"{option}.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load(text) or {}
    inherited: dict[str, Any] = {}
    for base in values.pop("defaults", []):
        if isinstance(base, str) and base != "_self_":
            inherited |= stated(group, base)
    return inherited | (flat(values) if "@package _global_" in text else flat({group.partition("/")[0]: values}))


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in values.items():
        is_section = isinstance(value, dict) and prefix + key not in ("data.weights", "data.hub_splits")
        result |= flat(value, f"{prefix}{key}.") if is_section else {prefix + key: value}
    return result


def differing(config: Config, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the expected values that a configuration does not have."""
    values = flatten(config)
    return {key: value for key, value in expected.items() if values[key] != value and "${" not in str(value)}


@pytest.mark.parametrize("experiment", thin([None, *RECIPES], [None]))
@pytest.mark.parametrize(("group", "option"), thin(OPTIONS, [("model", "base"), ("training", "cosine")]))
def test_an_option_of_the_command_line_replaces_that_of_a_recipe_or_of_the_bundled_corpus(group, option, experiment):
    config = compose([f"{group}={option}", *([f"experiment={experiment}"] if experiment else [])])
    sections = ("training.", "trainer.") if group == "training" else (group.partition("/")[0] + ".",)
    expected = {key: value for key, value in stated(group, option).items() if key.startswith(sections)}
    assert differing(config, expected) == {}


@pytest.mark.parametrize("name", thin(ABLATIONS, ["lab/unscaled", "r_drop"]))
@pytest.mark.parametrize(("group", "option"), thin(SURVIVED, [("model", "base")]))
def test_an_ablation_survives_every_option(name: str, group: str, option: str) -> None:
    text = yaml.safe_load((CONF / "experiment" / f"{name}.yaml").read_text(encoding="utf-8"))
    expected = {
        key: value for key, value in flat(text).items() if key.partition(".")[0] in ("model", "training", "data")
    }
    settings = [f"experiment={name}", f"{group}={option}"]
    if option == "lstm" and OF_TRANSFORMERS.match(name):
        refuses(r"means nothing to model.architecture=recurrent", compose, settings)
        return
    config = compose(settings)
    assert differing(config, expected) == {}
    whole = compose([*(["experiment=lab/baseline"] if name.startswith("lab/") else []), f"{group}={option}"])
    places = {"lab/modern": "pre", "lab/pre_norm": "pre", "lab/lstm_attention": "post", "lab/lstm_no_attention": "post"}
    assert config.model.norm_position == places.get(name, whole.model.norm_position)


@pytest.mark.slow
def test_a_key_that_chooses_nothing_changes_nothing_else() -> None:
    plain, changed = flatten(compose([])), flatten(compose(["data.num_proc=4"]))
    assert [name for name in plain if plain[name] != changed[name]] == ["data.num_proc"]


def test_other_text_has_no_time_limit_and_sizes_by_rules() -> None:
    config = compose(["data=files"])
    assert config.trainer.max_time is None
    assert config.training.patience > 0
    ruled = (config.tokenizer.vocab_size, config.training.max_tokens, config.trainer.max_steps, config.model.dropout)
    assert set(ruled) == {"auto"}
    assert config.model.d_model == 256
    assert config.training.modifiers.share == 0.25
    assert compose(["data=files", "training=vaswani"]).training.modifiers.share == 0
    assert compose(["data=files", "training.modifiers.share=0.5"]).training.modifiers.share == 0.5


@pytest.mark.slow
def test_values_override_options_and_recipes() -> None:
    config = compose(["experiment=distillation", "model=small", "model.dropout=0.3"])
    assert (config.model.d_model, config.model.num_decoder_layers, config.model.dropout) == (256, 3, 0.3)
    styled = compose(["experiment=mixed_gpu", "model/style=modern", "model=tiny"])
    assert (styled.model.d_model, styled.model.norm_position) == (128, "pre")
    config = compose(["model={d_model: 64, num_heads: 2}"])
    assert (config.model.d_model, config.model.num_heads, config.model.d_ff) == (64, 2, 512)


@pytest.mark.slow
def test_a_recipe_on_other_text_leaves_out_what_belongs_to_its_own() -> None:
    assert compose(["experiment=finetune"]).data.held_out_from == ["everyday.train.tsv"]
    config = compose(["experiment=finetune", "data=files", "data.train=[mine.tsv]"])
    assert (config.data.held_out_from, config.data.root, config.experiment_name) == ([], None, "finetune")
    config = compose(["experiment=mixed_cpu", "data=files"])
    assert (config.data.weights, config.training.max_tokens) == ({}, 1024)


def test_weights_and_splits_need_no_plus() -> None:
    config = compose(["data=files", "data.weights={mine: 1, a b: 2}", "data.weights.other=0.5"])
    assert config.data.weights == {"mine": 1, "a b": 2, "other": 0.5}


@pytest.mark.slow
def test_the_bundled_corpus_and_the_hub_refuse_other_files() -> None:
    with pytest.raises(UserError, match=r"data.train has /abs/mine.tsv, .*: for your own text, add data=files"):
        compose(["data.train=[/abs/mine.tsv]"])
    for name in ("../README.md", ""):
        with pytest.raises(UserError, match=rf"data.test has {re.escape(name)}, which is not of the bundled corpus"):
            compose([f"data.test=['{name}']"])
    assert compose(["data.test=['*.test.tsv']"]).data.test == ["*.test.tsv"]
    for key, value in (("train", "[mine.tsv]"), ("root", "/text")):
        with pytest.raises(UserError, match=rf"data.{key} would not be read: .*data=tatoeba_files"):
            compose(["data=tatoeba", f"data.{key}={value}"])


def test_the_name_of_the_experiment_is_derived() -> None:
    assert compose(["data=files", "data.train=['x/my text.v2.tsv']"]).experiment_name == "mytext"
    assert compose(["experiment=lab/no_positions"]).experiment_name == "no_positions"


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


@pytest.mark.parametrize(("override", "message"), thin(MISSPELT, MISSPELT[::3]), ids=lambda text: text[:40])
def test_the_error_for_a_wrong_override_names_the_way_out(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        compose([override])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2000
