import functools
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

import seq2seq.settings.compose
from seq2seq.data.modifiers import FAMILIES
from seq2seq.settings.compose import register_schema, rewrite
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.training import (
    LoggerConfig,
    ModifiersConfig,
    SubwordSamplingConfig,
    TrainerConfig,
    TrainingConfig,
)
from tests.refusing import refuses
from tests.thin import thin

REPOSITORY = Path(__file__).parents[3]
CONF = REPOSITORY / "conf"


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQ2SEQ_HOME", str(REPOSITORY))
    register_schema()


@functools.cache
def composed(*overrides: str) -> Config:
    return seq2seq.settings.compose.compose(list(overrides))


LAB = [path.stem for path in sorted((CONF / "experiment" / "lab").glob("*.yaml"))]


@pytest.mark.parametrize("experiment", thin(LAB, ["no_positions"]))
def test_every_ablation_states_its_claim_and_changes_one_setting(experiment: str) -> None:
    header = (CONF / "experiment" / "lab" / f"{experiment}.yaml").read_text()
    assert f"python train.py --multirun experiment=lab/{experiment}" in header
    plain, base = (asdict(composed(f"experiment=lab/{name}", "seed=2")) for name in (experiment, "baseline"))
    assert plain["experiment_name"] == experiment
    assert (plain["series"], plain["name"], plain["resume"]) == ("lab", f"{experiment}-2", "auto")
    if experiment == "baseline":
        return
    assert "# Claim: " in header
    changed = {group for group in plain if plain[group] != base[group]} - {"name", "experiment_name"}
    assert len(changed) == 1
    (group,) = changed
    count = sum(plain[group][key] != base[group][key] for key in base[group])
    assert count == 1 or experiment.startswith(("modern", "lstm"))  # another style or network as a whole


def test_the_lab_runs_on_other_text_too() -> None:
    config = composed("experiment=lab/no_positions", "lab=tatoeba", "data.root=/x")
    assert (config.series, config.name, config.model.positions) == ("lab_tatoeba", "no_positions-1", "none")
    assert config.data.test == ["test.tsv"]
    assert composed("lab=tatoeba", "data.root=/x").series == "lab_tatoeba"  # as Hydra composes before a sweep


def test_globs_match_options_in_folders_of_a_group() -> None:
    assert rewrite(["experiment=glob(lab/*)"]) == ["experiment=" + ",".join(f"lab/{name}" for name in LAB)]
    assert rewrite(["experiment=glob(lab/heads_*)"]) == ["experiment=lab/heads_1,lab/heads_2,lab/heads_8"]
    untouched = ["--multirun", "experiment=glob(*)", "seed=1,2", "name=x", "data.train=[a.tsv]"]
    assert rewrite(untouched) == untouched


def test_one_file_is_a_list_of_one() -> None:
    assert composed("data=files", "data.train=my file.tsv").data.train == ["my file.tsv"]
    assert composed("data=files", "data.train=[a.tsv]", "data.test=a.en+a.es").data.test == ["a.en+a.es"]
    assert composed("data=files", "data.train='a=b (1).tsv'").data.train == ["a=b (1).tsv"]


def test_the_error_for_a_glob_without_match_lists_the_options() -> None:
    message = r"experiment=glob\(lab/head\): no file of conf/experiment/lab fits; there are base"
    refuses(message, rewrite, ["experiment=glob(lab/head)"])
    refuses(r"no file of conf/experiment/lav fits; there are none", rewrite, ["experiment=glob(lav/*)"])


@pytest.mark.slow
def test_the_published_sizes_equal_the_papers() -> None:
    base, big = composed("model=vaswani").model, composed("model=big").model
    assert (base.d_model, base.d_ff, base.num_heads, base.num_encoder_layers, base.dropout) == (512, 2048, 8, 6, 0.1)
    assert (big.d_model, big.d_ff, big.num_heads, big.num_decoder_layers, big.dropout) == (1024, 4096, 16, 6, 0.3)


RECORDING, RECOMPUTING = TrainerConfig(replay=True), TrainingConfig(activation_checkpointing=True)
LSTM = ModelConfig(architecture="recurrent", d_model=8, num_encoder_layers=1, num_decoder_layers=1)
DRAWING, BLIND = LoggerConfig(tensorboard=True, attention=True), ModelConfig(cross_attention="none")


@pytest.mark.parametrize(
    ("group", "values", "message"),
    [
        (TrainingConfig, {"schedule": "cosinus"}, "training.schedule=cosinus is not known: choose one of inverse_sqrt"),
        (TrainingConfig, {"learning_rate": -1.0}, "training.learning_rate=-1.0 must be at least 0"),
        (TrainingConfig, {"final_weights": "ema"}, "final_weights=ema needs training.ema_decay above 0"),
        (TrainingConfig, {"bleu_sentences": 0}, "monitor=bleu needs training.bleu_sentences above 0"),
        (TrainingConfig, {"final_weights": "best", "keep_best": 0}, "final_weights=best needs training.keep_best"),
        (TrainerConfig, {"max_time": "25 minutes"}, "max_time=25 minutes must be days:hours:minutes:seconds"),
        (TrainerConfig, {"max_time": "00:00:00:00"}, "max_time=00:00:00:00 leaves no time to train"),
        (TrainerConfig, {"precision": "fp8"}, "trainer.precision=fp8 is not known"),
        (TrainerConfig, {"max_steps": 0}, "trainer.max_steps=0 must be at least 1"),
        (TrainerConfig, {"replay": "maybe"}, "trainer.replay=maybe must be auto, true or false"),
        (Config, {"trainer": RECORDING, "model": LSTM}, "trainer.replay=true records .* with model.architecture=rec"),
        (Config, {"trainer": replace(RECORDING, accelerator="cpu")}, "not with trainer.accelerator=cpu: leave out one"),
        (Config, {"trainer": RECORDING, "training": RECOMPUTING}, "with training.activation_checkpointing=true: le"),
        (Config, {"resume": "auto"}, "resume=auto finds a run by its name: give name="),
        (LoggerConfig, {"project": " "}, "logger.project is empty: give the project's name"),
        (LoggerConfig, {"attention": True}, "^logger.attention=true needs logger.tensorboard=true or logger.wandb=tr"),
        (
            Config,
            {"logger": DRAWING, "model": replace(LSTM, attention="none")},
            "leave it out, or model.attention=none",
        ),
        (Config, {"logger": DRAWING, "model": BLIND}, "draws attention .* or model.cross_attention=none$"),
        (SubwordSamplingConfig, {"alpha": 2.0}, "training.subword_sampling.alpha=2.0 must be at most 1"),
        (ModifiersConfig, {"share": 1.5}, "training.modifiers.share=1.5 must be at most 1"),
        (ModifiersConfig, {"typos": -1.0}, "training.modifiers.typos=-1.0 must be at least 0"),
        (ModifiersConfig, {"share": 0.1, **dict.fromkeys(FAMILIES, 0.0)}, "share=0.1 needs a family whose weight is a"),
        (DataConfig, {"on_bad_line": "drop"}, "data.on_bad_line=drop"),
        (DataConfig, {"hub": "x", "hub_splits": {"validaton": "dev"}}, "data.hub_splits has validaton: the names are "),
        (DataConfig, {"languages": ["en", "fr"]}, r"data.languages=\['en', 'fr'\] must be data.src_lang=en and"),
        (DataConfig, {"weights": {"a": 1.0}, "temperature": 5.0}, "data.weights and data.temperature both"),
        (DataConfig, {"weights": {"a": -1.0}}, "data.weights has a=-1.0"),
    ],
)
def test_impossible_values_are_refused_by_name(group: type, values: dict[str, Any], message: str) -> None:
    refuses(message, group, **values)


def test_a_time_limit_is_days_hours_minutes_seconds() -> None:
    assert TrainerConfig(max_time="01:02:03:04").duration() == timedelta(days=1, hours=2, minutes=3, seconds=4)


@pytest.mark.parametrize(("named", "nodes"), [(["trainer.num_nodes=3"], 3), ([], 1)])
def test_the_launcher_for_clusters_starts_one_process_for_each_device(named: list[str], nodes: int) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="the extra `slurm` is not installed")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        overrides = ["hydra/launcher=slurm", "trainer=ddp", "trainer.devices=4", *named]
        cfg = compose("config", overrides=overrides, return_hydra_config=True)
    launcher = cfg.hydra.launcher
    assert (launcher.nodes, launcher.tasks_per_node, launcher.gpus_per_node) == (nodes, 4, 4)
    assert launcher._target_.endswith("SlurmLauncher")
    assert launcher.submitit_folder == "runs/.submitit/%j"


def test_the_optuna_search_names_existing_settings() -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="the extra `sweep` is not installed")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("config", overrides=["hydra/sweeper=optuna_search"], return_hydra_config=True)
    assert cfg.hydra.sweeper.params
    for key in cfg.hydra.sweeper.params:
        assert OmegaConf.select(cfg, key, throw_on_missing=True) is not None
