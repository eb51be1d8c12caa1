"""The command line's choices override experiments and defaults."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from seq2seq.errors import UserError
from seq2seq.settings.choices import Origins, flatten, name_of, parse
from seq2seq.settings.compose import compose, compose_with_origins, expand_globs, general_defaults
from seq2seq.settings.config import Config, to_plain
from seq2seq.settings.loading import load_config

CONF = Path(__file__).parents[2] / "conf"
GROUPS = ("data", "tokenizer", "model", "model/style", "training", "search", "trainer")
OPTIONS = [(group, path.stem) for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]
EXPERIMENTS = ("mixed_gpu", "none", "bundled", "tatoeba_cpu", "finetune", "distillation")
CONFLICTS = {("trainer", "fsdp"): "training.ema_decay=0"}  # experiments that average their weights


def stated(group: str, option: str) -> dict[str, Any]:
    """The values that an option's own file states, by dotted keys."""
    values = yaml.safe_load((CONF / group / f"{option}.yaml").read_text()) or {}
    values.pop("defaults", None)
    return flatten({group.partition("/")[0]: values}) if values else {}


def value(config: Config, key: str) -> object:
    found: Any = to_plain(config)
    for part in key.split("."):
        found = found[part]
    return found


@pytest.mark.parametrize(
    "experiment", [EXPERIMENTS[0], *(pytest.param(e, marks=pytest.mark.slow) for e in EXPERIMENTS[1:])]
)
@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_a_chosen_option_overrides_every_experiment(group: str, option: str, experiment: str) -> None:
    more = [CONFLICTS[group, option]] if (group, option) in CONFLICTS else []
    final = ["training.final_weights=last"] if more else []
    config = compose([f"experiment={experiment}", f"{group}={option}", *more, *final])
    for key, expected in stated(group, option).items():
        if isinstance(expected, str) and "${" in expected:
            assert str(value(config, key)).endswith(expected.rpartition("}")[2])
        else:
            assert value(config, key) == expected, key


def test_a_bare_command_line_is_the_bundled_experiment() -> None:
    bare = compose([])
    assert (bare.experiment_name, bare.tokenizer.vocab_size, bare.trainer.max_time) == ("bundled", 2000, "00:00:08:00")
    for neutral in (
        ["name=a"],
        ["seed=3"],
        ["name=a", "seed=3", "existing=keep"],
        ["hydra.verbose=true"],
        ["baseline=runs/a"],
    ):
        assert compose(neutral).experiment_name == "bundled"


@pytest.mark.parametrize(
    "named",
    [
        "data=files",
        "model=base",
        "trainer.max_steps=7",
        "training.label_smoothing=0",
        "experiment=null",
        "experiment=none",
    ],
)
def test_any_choice_drops_the_default_preset(named: str) -> None:
    config = compose([named])
    assert config.experiment_name == "run"
    assert (config.tokenizer.vocab_size, config.training.max_tokens, config.trainer.max_time) == ("auto", "auto", None)
    assert config.training.patience > 0


def test_own_text_with_a_named_model_and_device_gets_general_defaults() -> None:
    config = compose(["data=tatoeba", "data.root=/text", "model=base", "trainer=gpu"])
    assert (config.data.root, config.model.d_model, config.trainer.accelerator) == ("/text", 512, "gpu")
    assert config.tokenizer.vocab_size == config.trainer.max_steps == config.training.learning_rate == "auto"
    assert config.trainer.max_time is None


def test_a_value_wins_over_a_chosen_option_and_an_option_over_an_experiment() -> None:
    config = compose(["experiment=distillation", "model=small", "model.dropout=0.3"])
    assert (config.model.d_model, config.model.num_decoder_layers, config.model.dropout) == (256, 3, 0.3)
    styled = compose(["experiment=mixed_gpu", "model=tiny"])
    assert (styled.model.d_model, styled.model.norm_position) == (128, "post")
    styled = compose(["experiment=mixed_gpu", "model/style=modern", "model=tiny"])
    assert (styled.model.d_model, styled.model.norm_position) == (128, "pre")


def test_a_group_given_as_values_is_not_an_option() -> None:
    config, origins = compose_with_origins(["experiment=bundled", "model={d_model: 64, num_heads: 2}"])
    assert (config.model.d_model, config.model.num_heads, config.model.d_ff) == (64, 2, 512)
    assert (origins.of("model.num_heads"), origins.of("model.d_ff")) == ("chosen", "experiment=bundled")
    config = compose(["experiment=bundled", "training={learning_rate: 1e-4, schedule: linear}"])
    assert (config.training.learning_rate, config.training.schedule, config.training.warmup_steps) == (
        *(1e-4, "linear", 300),
    )


def test_choices_override_the_lab_preset() -> None:
    config, origins = compose_with_origins(["lab=tatoeba", "data.root=/text", "model=base", "training=vaswani"])
    assert (config.model.d_model, config.model.num_encoder_layers, config.training.schedule) == (512, 6, "inverse_sqrt")
    assert (origins.of("training.max_tokens"), origins.of("model.d_model")) == ("lab=tatoeba", "chosen")
    experiment = compose_with_origins(["experiment=lab/baseline", "lab=tatoeba", "data.root=/text"])[1]
    assert experiment.of("model.d_model") == "experiment=lab/baseline"


def test_an_experiments_other_values_stay() -> None:
    config = compose(["experiment=tatoeba_cpu", "model=tiny", "data=files", "training.max_tokens=77"])
    assert (config.model.d_model, config.training.max_tokens, config.data.hub) == (128, 77, None)
    assert (config.training.schedule, config.tokenizer.vocab_size) == ("linear", 8000)


def test_other_text_does_not_hold_out_from_the_experiments_corpora() -> None:
    assert compose(["experiment=finetune"]).data.held_out_from == ["everyday.train.tsv"]
    own = ["experiment=finetune", "data=files", "data.train=[mine.tsv]"]
    assert compose(own).data.held_out_from == []
    assert compose([*own, "data.held_out_from=[mine]"]).data.held_out_from == ["mine"]


def test_fsdp_needs_no_other_setting() -> None:
    config = compose(["trainer=fsdp"])
    assert (config.trainer.strategy, config.trainer.devices, config.training.ema_decay) == ("fsdp", "auto", 0)


def test_origins_name_who_chose_each_value() -> None:
    found = compose_with_origins(["experiment=tatoeba_cpu", "model=tiny", "training.max_tokens=77"])[1]
    assert found.of("model") == found.of("model.d_model") == found.of("training.max_tokens") == "chosen"
    assert found.of("training.warmup_steps") == found.of("tokenizer.vocab_size") == "experiment=tatoeba_cpu"
    assert found.of("search.beam") == found.of("trainer.keep_last") == "default"
    ruled = Origins(frozenset({"training.schedule"}), ruled=frozenset({"training.max_tokens"}))
    assert ruled.of("training.max_tokens", "training.accumulate") == "rule"
    assert ruled.of("training.accumulate") == "default"
    assert ruled.of("training.max_tokens", "training.schedule") == "chosen + rule"


def test_auto_in_a_chosen_option_does_not_count_as_chosen() -> None:
    found = compose_with_origins(["data=files", "model=base"])[1]
    assert (found.of("model"), found.of("model.dropout"), found.of("model.d_model")) == ("chosen", "default", "chosen")


def test_overrides_of_a_resumed_run_are_read_by_hydras_grammar(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(to_plain(general_defaults())))
    again = load_config(
        str(tmp_path), ["trainer.max_time=1:00:00:00", "data.train=[a.tsv,'b c.tsv']", "data.weights={a: 2}"]
    )
    assert (again.trainer.max_time, again.data.train, again.data.weights) == (
        "1:00:00:00",
        ["a.tsv", "b c.tsv"],
        {"a": 2.0},
    )
    for override in ("+trainer.max_steps=3", "++trainer.max_steps=3", "~trainer.max_steps", "seed=1,2"):
        with pytest.raises(UserError, match="only key=value can be given here"):
            load_config(str(tmp_path), [override])
    with pytest.raises(UserError, match=r"mismatched input|no viable alternative|extraneous input"):
        load_config(str(tmp_path), ["data.train=[a"])


def test_a_resumed_runs_overrides_are_checked_with_its_settings(tmp_path: Path) -> None:
    config = general_defaults()
    config.training.monitor, config.training.final_weights = "loss", "best"
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(to_plain(config)))
    assert load_config(str(tmp_path), ["training.bleu_sentences=0"]).training.bleu_sentences == 0
    for override in ("name=b", "series=b"):
        with pytest.raises(UserError, match="cannot be changed on resume: the run keeps its folder"):
            load_config(str(tmp_path), [override])


def test_a_run_resumed_by_a_link_gets_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs" / "x").mkdir(parents=True)
    (tmp_path / "runs" / "latest").symlink_to("x")
    (tmp_path / "runs" / "x" / "config.yaml").write_text(yaml.safe_dump(to_plain(general_defaults())))
    monkeypatch.chdir(tmp_path)
    assert load_config("runs/latest", []).resume == "runs/x"
    monkeypatch.chdir(tmp_path / "runs" / "x")
    assert load_config(".", []).resume == str(tmp_path / "runs" / "x")


def test_names_of_runs_may_contain_hydras_special_characters(tmp_path: Path) -> None:
    folder = tmp_path / "mine-learning_rate=0.001,b it's"
    folder.mkdir()
    for key in ("resume", "init", "baseline"):
        [override] = parse(expand_globs([f"{key}={folder}"]))
        assert override.value() == str(folder)
    assert expand_globs(["resume=runs/none"]) == ["resume=runs/none"]


def test_a_group_without_an_option_is_refused() -> None:
    with pytest.raises(UserError, match="model=null: model needs one of its options: base, big"):
        compose(["model=null"])
    assert compose(["experiment=NULL"]).experiment_name == "run"


def test_more_epochs_on_resume_give_more_updates(tmp_path: Path) -> None:
    config = general_defaults()
    config.trainer.max_steps, config.trainer.max_epochs = 300, 3
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(to_plain(config)))
    assert load_config(str(tmp_path), []).trainer.max_steps == 300
    assert load_config(str(tmp_path), ["trainer.max_epochs=9"]).trainer.max_steps == "auto"
    assert load_config(str(tmp_path), ["trainer.max_epochs=9", "trainer.max_steps=400"]).trainer.max_steps == 400


@pytest.mark.parametrize(
    ("text", "overrides", "name"),
    [
        ("mine", [], "mine"),
        ("mine", ["data=files", "data.train=[a.tsv]", "model=base", "model/style=modern"], "mine-base-modern"),
        ("bundled", ["name=x", "training.learning_rate=1e-3", "seed=2"], "bundled-learning_rate=0.001-seed=2"),
        ("../ö b", ["tokenizer.user_symbols=['<bt>']"], "öb-user_symbols=bt"),
        ("mine", [f"trainer.max_time='{'0' * 200}'", "model=tiny"], "mine-tiny"),
    ],
)
def test_a_runs_name_consists_of_its_text_and_its_choices(text: str, overrides: list[str], name: str) -> None:
    assert name_of(text, overrides, {"model", "model/style", "data"}) == name
    Config(name=name)
