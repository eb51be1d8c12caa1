"""What the command line names wins; what it does not name comes from what it named: by Hydra's own precedence."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from seq2seq.errors import UserError
from seq2seq.settings.compose import compose
from seq2seq.settings.config import Config, flatten

CONF = Path(__file__).parents[2] / "conf"
GROUPS = ("data", "tokenizer", "model", "model/style", "training", "search", "trainer")
OPTIONS = [(group, path.stem) for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]
RECIPES = ["tatoeba_cpu", "mixed_cpu", "mixed_gpu", "finetune", "lora", "backtranslation", "distillation"]
OTHERS = sorted(
    path.relative_to(CONF / "experiment").with_suffix("").as_posix() for path in CONF.glob("experiment/**/*.yaml")
)
ABLATIONS = [name for name in OTHERS if name not in RECIPES]  # and techniques
FEW = [("data", "files"), ("model", "base"), ("training", "cosine"), ("search", "greedy"), ("trainer", "cpu")]
EVERY_OPTION = [one if one in FEW else pytest.param(*one, marks=pytest.mark.slow) for one in OPTIONS]
OF_TRANSFORMERS = [
    *("lab/heads_1", "lab/heads_2", "lab/modern", "lab/no_causal_mask", "lab/no_cross_attention", "lab/no_positions"),
    *("lab/no_queries", "lab/pre_norm", "lab/shared_query_key", "lab/unscaled"),
]
SURVIVED = [one for one in OPTIONS if one[0] == "model" or one in FEW]
IN_MODERN_STYLE = [("model", "modern"), ("model", "mixed_gpu")]


def stated(group: str, option: str) -> dict[str, Any]:
    """Return what an option's file and the options of its group in its defaults state, by dotted keys."""
    text = (CONF / group / f"{option}.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load(text) or {}
    found: dict[str, Any] = {}
    for base in values.pop("defaults", []):
        if isinstance(base, str) and base != "_self_":
            found |= stated(group, base)
    return found | (flat(values) if "@package _global_" in text else flat({group.partition("/")[0]: values}))


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        is_section = isinstance(value, dict) and prefix + key not in ("data.weights", "data.hub_splits")
        found |= flat(value, f"{prefix}{key}.") if is_section else {prefix + key: value}
    return found


def differing(config: Config, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the expected values that a configuration does not have."""
    found = flatten(config)
    return {key: value for key, value in expected.items() if found[key] != value and "${" not in str(value)}


def own(group: str, option: str) -> dict[str, Any]:
    """Return what an option states in the sections that its group is about."""
    sections = ("training.", "trainer.") if group == "training" else (group.partition("/")[0] + ".",)
    return {key: value for key, value in stated(group, option).items() if key.startswith(sections)}


@pytest.mark.parametrize("recipe", [RECIPES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in RECIPES[1:])])
@pytest.mark.parametrize(("group", "option"), EVERY_OPTION)
def test_an_option_of_the_command_line_replaces_a_recipes_option(group: str, option: str, recipe: str) -> None:
    config = compose([f"experiment={recipe}", f"{group}={option}"])
    assert differing(config, own(group, option)) == {}


@pytest.mark.parametrize(("group", "option"), EVERY_OPTION)
def test_an_option_of_the_command_line_replaces_what_the_bundled_corpus_selects(group: str, option: str) -> None:
    config = compose([f"{group}={option}"])
    assert differing(config, own(group, option)) == {}


@pytest.mark.parametrize("name", ABLATIONS)
@pytest.mark.parametrize(
    ("group", "option"),
    [one if one == ("model", "base") else pytest.param(*one, marks=pytest.mark.slow) for one in SURVIVED],
)
def test_an_ablation_survives_every_option(name: str, group: str, option: str) -> None:
    text = yaml.safe_load((CONF / "experiment" / f"{name}.yaml").read_text(encoding="utf-8"))
    expected = {
        key: value for key, value in flat(text).items() if key.partition(".")[0] in ("model", "training", "data")
    }
    settings = [f"experiment={name}", f"{group}={option}"]
    if option == "lstm" and name in OF_TRANSFORMERS:
        with pytest.raises(UserError, match=r"means nothing to model.architecture=recurrent"):
            compose(settings)
        return
    config = compose(settings)
    assert differing(config, expected) == {}
    if (group, option) not in IN_MODERN_STYLE:
        assert (config.model.norm_position == "pre") == (name in ("lab/modern", "lab/pre_norm"))


@pytest.mark.parametrize(
    "options", [[], ["model=small"], ["trainer.log_every=10", "data.num_proc=4"], ["analyse=true"]]
)
def test_the_bundled_corpus_brings_a_short_run(options: list[str]) -> None:
    config = compose(options)
    assert (config.experiment_name, config.trainer.max_time, config.trainer.max_steps) == (
        "bundled",
        "00:00:08:00",
        3000,
    )
    assert (config.tokenizer.vocab_size, config.training.learning_rate) == (2000, 1.5e-3)
    assert config.model.d_model == (256 if "model=small" in options else 128)


@pytest.mark.parametrize(
    "key", ["trainer.log_every=10", "data.num_proc=4", "analyse=true", "trainer.progress_bar=false"]
)
def test_a_key_that_chooses_nothing_changes_nothing_else(key: str) -> None:
    plain, changed = flatten(compose([])), flatten(compose([key]))
    assert [name for name in plain if plain[name] != changed[name]] == [key.partition("=")[0]]


@pytest.mark.parametrize("data", ["files", "tatoeba", "tatoeba_files", "mixed", "opus100", "opus_books"])
def test_other_text_has_no_time_limit_and_sizes_by_rules(data: str) -> None:
    config = compose([f"data={data}"])
    assert config.trainer.max_time is None
    assert config.training.patience > 0
    ruled = (config.tokenizer.vocab_size, config.training.max_tokens, config.trainer.max_steps, config.model.dropout)
    assert set(ruled) == {"auto"}
    assert config.model.d_model == 256


def test_values_override_options_and_recipes() -> None:
    config = compose(["experiment=distillation", "model=small", "model.dropout=0.3"])
    assert (config.model.d_model, config.model.num_decoder_layers, config.model.dropout) == (256, 3, 0.3)
    styled = compose(["experiment=mixed_gpu", "model/style=modern", "model=tiny"])
    assert (styled.model.d_model, styled.model.norm_position) == (128, "pre")
    config = compose(["model={d_model: 64, num_heads: 2}"])
    assert (config.model.d_model, config.model.num_heads, config.model.d_ff) == (64, 2, 512)


def test_a_recipe_on_other_text_leaves_out_what_belongs_to_its_own() -> None:
    assert compose(["experiment=finetune"]).data.held_out_from == ["everyday.train.tsv"]
    config = compose(["experiment=finetune", "data=files", "data.train=[mine.tsv]"])
    assert (config.data.held_out_from, config.data.root, config.experiment_name) == ([], None, "finetune")
    config = compose(["experiment=mixed_cpu", "data=files"])
    assert (config.data.weights, config.training.max_tokens) == ({}, 1024)


def test_weights_and_splits_need_no_plus() -> None:
    config = compose(["data=files", "data.weights={mine: 1, a b: 2}", "data.weights.other=0.5"])
    assert config.data.weights == {"mine": 1, "a b": 2, "other": 0.5}


def test_the_bundled_corpus_and_the_hub_refuse_other_files() -> None:
    with pytest.raises(UserError, match=r"data.train has /abs/mine.tsv, .*: for your own text, add data=files"):
        compose(["data.train=[/abs/mine.tsv]"])
    for name in ("mine.tsv", "../README.md", "", "**x"):
        with pytest.raises(UserError, match=rf"data.test has {re.escape(name)}, which is not of the bundled corpus"):
            compose([f"data.test=['{name}']"])
    assert compose(["data.test=['*.test.tsv']"]).data.test == ["*.test.tsv"]
    assert compose(["data.train=[grammar.train.tsv]"]).data.train == ["grammar.train.tsv"]
    for key, value in (("train", "[mine.tsv]"), ("root", "/text")):
        with pytest.raises(UserError, match=rf"data.{key} would not be read: .*data=tatoeba_files"):
            compose(["data=tatoeba", f"data.{key}={value}"])


def test_the_name_of_the_experiment_is_derived() -> None:
    names = {
        "experiment=lab/no_positions": "no_positions",
        "experiment=mixed_gpu": "mixed_gpu",
        "data=mixed": "mixed",
        "model=base": "bundled",
        "~logger": "bundled",
    }
    assert {override: compose([override]).experiment_name for override in names} == names
    assert compose(["data=files", "data.train=['x/my text.v2.tsv']"]).experiment_name == "mytext"


def test_no_logger_and_several_loggers() -> None:
    used = {override: compose([override]).logger for override in ("~logger", "logger=csv", "logger=tensorboard,mlflow")}
    assert [(one.tensorboard, one.mlflow) for one in used.values()] == [(False, False), (False, False), (True, True)]


def test_the_cache_of_the_command_line_beats_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from seq2seq.settings.data import cache_root

    monkeypatch.setenv("SEQ2SEQ_CACHE", "/environment")
    assert cache_root(compose([]).data.cache) == Path("/environment")
    assert cache_root(compose(["data.cache=/named"]).data.cache) == Path("/named")
