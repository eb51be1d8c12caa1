"""Composes a run's settings by Hydra from conf/ and a command line, and says in one line what is wrong with them.

Hydra alone decides which value wins. This module registers the types of the settings, rewrites four spellings that
Hydra would misread, and turns Hydra's result into a checked `Config`.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from seq2seq.errors import UserError, shorten
from seq2seq.settings.bundle import first_line
from seq2seq.settings.checks import load_extensions
from seq2seq.settings.config import Config, flatten
from seq2seq.settings.missing_packages import train_command
from seq2seq.settings.rules import AUTO

_MAX_SUGGESTIONS = 3
MAX_NAME = 100  # characters of a run's derived name
_ELSEWHERE = {  # settings, and what other toolkits call them
    "training.learning_rate": ("lr",),
    "training.max_tokens": ("batch_size", "per_device_train_batch_size", "train_batch_size"),
    "training.accumulate": ("accumulate_grad_batches", "gradient_accumulation_steps", "update_freq"),
    "training.clip_norm": ("gradient_clip_val", "max_grad_norm"),
    "training.warmup_steps": ("warmup", "num_warmup_steps", "warmup_updates"),
    "training.patience": ("early_stopping_patience",),
    "trainer.max_epochs": ("epochs", "num_epochs", "num_train_epochs"),
    "trainer.max_steps": ("steps", "updates", "max_update", "train_steps"),
    "trainer.devices": ("gpus", "num_gpus", "n_gpus", "n_gpu"),
    "trainer.accelerator": ("device",),
    "trainer.precision": ("fp16", "bf16", "amp"),
    "model.d_model": ("hidden_size", "hidden_dim", "emb_dim", "embedding_dim"),
    "model.d_ff": ("ffn_dim", "ff_size", "dim_feedforward"),
    "model.num_heads": ("heads", "nhead", "n_heads"),
    "model.num_encoder_layers": ("num_layers", "n_layers", "layers"),
    "search.beam": ("beam_size", "num_beams"),
    "data.root": ("data_dir", "data_path"),
    "name": ("output_dir", "run_name", "save_dir"),
    "resume": ("ckpt_path", "resume_from_checkpoint"),
}
_ONE_FILE = re.compile(
    r"""(extensions|data\.(?:train|validation|test|held_out_from))=(\s*[^\s\[\]$,'"][^\[\]$,'"]*|'[^']*'|"[^"]*")"""
)
# what Hydra and OmegaConf say: that there is no such key, which key it is, and of a value and its override
_UNKNOWN = re.compile(r"Key '.*' (?:not in '|is not in struct)")
_KEY = re.compile(r"Could not override '(.+?)'|full_key: (\S+)")
_MERGING = re.compile(r"^Error merging override (\S+).*")
_FLOAT_FOR_INTEGER = re.compile(r"Error merging override (\S+)[^']*'(-?\d+)\.0' of type 'float'")


def home() -> Path:
    """Return the folder that has conf/ and data/bundled/: SEQ2SEQ_HOME, a folder of the wheel, or the clone."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "shipped"
    return Path(os.environ.get("SEQ2SEQ_HOME") or (shipped if shipped.is_dir() else package.parent)).resolve()


def register_schema() -> None:
    """Register the types of settings with Hydra, so that Hydra refuses an unknown key or a wrong type."""
    # of conf/hydra/launcher/slurm.yaml
    OmegaConf.register_new_resolver("or_one", lambda value: 1 if value == AUTO else value, replace=True)
    schema = OmegaConf.structured(Config)
    for mapping in (schema.data.weights, schema.data.hub_splits, schema.training.modifiers.own):
        OmegaConf.set_struct(mapping, False)  # the user chooses their keys
    store = ConfigStore.instance()
    if "schema.yaml" not in store.repo:
        store.store(name="schema", node=schema)


def compose(overrides: Sequence[str]) -> Config:
    """Return the settings that train.py would run these overrides with."""
    cfg = compose_by_hydra(overrides)
    return checked_config(cfg, cfg.hydra.runtime.choices)


def compose_by_hydra(overrides: Sequence[str]) -> DictConfig:
    """Return what Hydra composes from conf/ and these overrides, with its own settings at the key `hydra`."""
    folder = home()
    if not (folder / "conf" / "config.yaml").is_file():
        raise UserError(f"{folder} has no conf/config.yaml: set the environment's SEQ2SEQ_HOME to the project's folder")
    os.environ["SEQ2SEQ_HOME"] = str(folder)  # conf/ refers to it
    register_schema()
    callers = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with hydra.initialize_config_dir(str(folder / "conf"), version_base="1.3"):
            cfg = hydra.compose("config", rewrite(overrides), return_hydra_config=True)
            OmegaConf.set_struct(cfg, False)
            return cfg
    except Exception as error:  # Hydra reads overrides and files only: one of them is wrong
        raise UserError(one_line(error)) from error
    finally:
        GlobalHydra.instance().hydra = callers  # a program may have its own


def checked_config(cfg: DictConfig, choices: Mapping[str, Any]) -> Config:
    """Return Hydra's composed configuration as checked dataclasses; choices are the option of every group."""
    with open_dict(cfg):
        cfg.pop("hydra", None)
    try:
        if cfg.experiment_name is None:
            cfg.experiment_name = _experiment_name(cfg, choices)
        if cfg.resume == AUTO and cfg.name is None:
            cfg.name = "${experiment_name}-${seed}"
    except OmegaConfBaseException as error:
        raise UserError(first_line(error)) from error
    load_extensions(cfg.extensions)
    config = from_hydra(cfg)
    _require_bundled(config)
    return config


def _experiment_name(cfg: DictConfig, choices: Mapping[str, Any]) -> str:
    """Return the name of the experiment, else of the data option; for data=files, of the first file."""
    if choices.get("experiment") is not None:
        return as_folder_name(str(choices["experiment"]).rpartition("/")[2])
    if choices.get("data") == "files" and cfg.data.train:
        return as_folder_name(Path(str(cfg.data.train[0])).name.partition(".")[0])
    return as_folder_name(str(choices.get("data") or "run"))


def as_folder_name(text: str) -> str:
    """Return the characters of a text that suit a folder's name; `run` if there is none."""
    return re.sub(r"[^\w.+@-]+", "", text).lstrip("._+@-")[:MAX_NAME] or "run"


def _require_bundled(config: Config) -> None:
    """Refuse files that the bundled corpus lacks: beside its validation and test sets, they would measure nothing."""
    root = home() / "data" / "bundled"
    if config.data.root is None or Path(config.data.root) != root:
        return
    for split in ("train", "validation", "test"):
        for name in getattr(config.data, split):
            if not any(fnmatchcase(path.name, name) for path in root.glob("*")):
                raise UserError(
                    f"data.{split} has {name}, which is not of the bundled corpus: for your own text, add data=files"
                )


def from_hydra(cfg: DictConfig) -> Config:
    """Return a configuration with the types of `Config` as checked dataclasses."""
    try:
        for key, value in _lists(OmegaConf.to_container(cfg, resolve=True)):
            if any(isinstance(item, dict | list) for item in value):  # Hydra allows such lists
                raise UserError(f"{key}={shorten(value)} is no list of words")
        config = OmegaConf.to_object(cfg)
    except OmegaConfBaseException as error:
        raise UserError(first_line(error)) from error
    assert isinstance(config, Config)
    known = flatten(Config())
    for key in flatten(config):
        if key not in known:  # added as +key=value, and read by nothing
            raise UserError(unknown_setting(key, known))
    return config


def _lists(values: Any, prefix: str = "") -> Iterable[tuple[str, list[Any]]]:
    for key, value in values.items():
        if isinstance(value, list):
            yield prefix + key, value
        elif isinstance(value, dict):
            yield from _lists(value, f"{prefix}{key}.")


def parse(overrides: Sequence[str]) -> list[Override]:
    """Read overrides by Hydra's own grammar."""
    return OverridesParser.create().parse_overrides(overrides=list(overrides))


def rewrite(arguments: Sequence[str]) -> list[str]:
    """Rewrite four spellings of a command line for Hydra.

    `data.train=FILE` is a list of one file, and so are the other lists of files. `logger=A,B` is one run with both
    loggers: Hydra would start a sweep. `GROUP=glob(FOLDER/PATTERN)` names the options in a folder of a group, where
    Hydra's own glob does not search; options are searched in conf/ and in the folder of --config-dir. Overrides come
    after options such as `--cfg job`, which Hydra does not accept between two overrides.
    """
    # an option and its value become one word, so that a value with `=` is not taken for an override
    words = re.sub(r"(^|\0)(--config-dir|-cd)\0", r"\1\2=", "\0".join(arguments)).split("\0")
    folders = [word.partition("=")[2] for word in words if word.startswith(("--config-dir=", "-cd="))]
    rewritten = [_rewritten(word, [home() / "conf", *map(Path, folders)]) for word in words if word]
    return sorted(rewritten, key=lambda word: word[:1] != "-" and ("=" in word or word[:1] == "~"))


def _rewritten(argument: str, folders: Sequence[Path]) -> str:
    if re.fullmatch(r"logger=[\w,]*,[\w,]*", argument):
        return f"logger=[{argument.removeprefix('logger=').strip(',')}]"
    if one_file := _ONE_FILE.fullmatch(argument):
        return f"{one_file[1]}=[{one_file[2]}]"
    parts = re.fullmatch(r"([\w/]+)=glob\(([^()*?\[\]]+)/([^()/,]+)\)", argument)
    if parts is None:
        return argument
    group, folder, pattern = parts.groups()
    names = sorted(path.stem for conf in folders for path in (conf / group / folder).glob("*.yaml"))
    matching = [f"{folder}/{name}" for name in names if fnmatchcase(name, pattern)]
    if not matching:
        raise UserError(f"{argument}: no file of conf/{group}/{folder} fits; there are {', '.join(names) or 'none'}")
    return f"{group}={','.join(matching)}"


def one_line(error: Exception) -> str:
    """Return an error in one line; Hydra's errors have several lines, and a cause with the reason."""
    message, cause = str(error).strip(), str(error.__cause__ or "").strip()
    if isinstance(error, UserError):
        return " ".join(message.split())
    if isinstance(error, MissingConfigException) and "/" in (error.missing_cfg_file or ""):
        return _missing_option(error)
    if isinstance(error, OverrideParseException):
        reason = message.splitlines()[0]
        return f"{shorten(error.override)}: {reason} (quote a value with special characters: key=\"'…'\")"
    if isinstance(error, OSError) and error.filename:  # an option whose name no file can have
        return f"{shorten(Path(str(error.filename)).stem)}: {error.strerror}"
    both = f"{message}\n{cause}"
    if _UNKNOWN.search(both) and (key := _KEY.search(both)):
        return unknown_setting(key[1] or key[2], known_settings())
    if "must be a string or a list. Got NoneType" in message:
        return "a group cannot be null: to choose none of its options, write ~GROUP"
    if number := _FLOAT_FOR_INTEGER.search(both):
        return f"{number[1]}: write this whole number with digits only, as {number[2]}"
    if not cause:
        return " ".join(message.partition("Config search path")[0].split()) or type(error).__name__
    override = _MERGING.sub(r"\1", message.splitlines()[0])
    return f"{override} ({cause.splitlines()[0]})"


def _missing_option(error: MissingConfigException) -> str:
    """Return the message for an option that does not exist, with the options of the group and of its folders."""
    missing = str(error.missing_cfg_file)
    listed = re.search(r"Available options in '(.+?)'", str(error))
    group = listed[1] if listed else missing.rpartition("/")[0]
    conf = home() / "conf" / group
    options = list(error.options or sorted(path.stem for path in conf.glob("*.yaml")))
    if group == "experiment":
        options += sorted(f"lab/{path.stem}" for path in conf.glob("lab/*.yaml"))
    return f"{group} has no option {missing.removeprefix(f'{group}/')!r:.80}: choose from {', '.join(options)}"


def known_settings() -> list[str]:
    """Return all keys and groups that a command line can set."""
    conf = home() / "conf"
    groups = {path.parent.relative_to(conf).as_posix() for path in conf.rglob("*.yaml")}
    return [*flatten(Config()), *sorted(group for group in groups if not group.startswith((".", "hydra")))]


def suggest(key: str, known: Iterable[str]) -> list[str]:
    """Return the known keys and groups whose name is nearest to the name of an unknown key, at most three.

    Keys of several sections can have this name; the nearest key comes first.
    """
    names = {known_key: known_key.replace("/", ".").rpartition(".")[2] for known_key in (key, *known)}
    name = names.pop(key)
    nearest = difflib.get_close_matches(name, set(names.values()), n=1, cutoff=0.75)
    same = [known_key for known_key in names if names[known_key] in nearest]
    return difflib.get_close_matches(key, same, _MAX_SUGGESTIONS, cutoff=0.0)


def unknown_setting(key: str, known: Iterable[str]) -> str:
    """Return the message for a setting that does not exist, with suggestions."""
    name = key.rpartition(".")[2]
    near = [ours for ours, theirs in _ELSEWHERE.items() if name in theirs] or suggest(key, known)
    hint = f"did you mean {' or '.join(near)}?" if near else f"`{train_command()} --help` lists all settings"
    return f"there is no setting {key}: {hint}"
