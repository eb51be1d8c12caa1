"""Lets the command line's choices override experiments and defaults, and finds the origin of each value.

Hydra merges an experiment after all groups, so an experiment's values would override those of an option that the
command line chose. `let_choices_win` restores the chosen option's values.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from seq2seq.settings.model import ModelConfig
from seq2seq.settings.rules import AUTO

PRESETS = ("experiment", "lab")  # groups whose options are presets of values of all other groups
NO_PRESET = "none"
DEFAULT_PRESET = "bundled"  # for a command line without any choice
# Prefixes of keys that do not count as a choice: a command line with only these still gets the default preset.
_NEUTRAL = ("name", "series", "existing", "baseline", "seed", "logger", "hydra", "trainer.progress_bar", "data.cache")
_NAMED_BY_TEXT = ("data", "experiment", "resume", "init")  # groups that the first part of a run's name stands for
_LONGEST_NAME = 100  # characters


@dataclass(frozen=True)
class Origins:
    """Who chose the values of a run, by dotted keys.

    Attributes:
        chosen: keys set on the command line, directly or by a chosen option.
        preset: keys that the experiment sets.
        preset_name: the experiment as on the command line, experiment=NAME.
        ruled: keys that say `auto`, whose numbers come from rules.
        others: the origin of all other keys.
    """

    chosen: frozenset[str] = frozenset()
    preset: frozenset[str] = frozenset()
    preset_name: str = "experiment"
    ruled: frozenset[str] = frozenset()
    others: str = "default"

    def of(self, *keys: str) -> str:
        """Return who chose any of the values, such as `chosen + rule`; `others` only if nobody else did."""
        found = {self._of_one(key) for key in keys}
        named = [one for one in ("chosen", self.preset_name, "rule") if one in found]
        return " + ".join(named) or self.others

    def _of_one(self, key: str) -> str:
        if is_within(key, self.chosen):
            return "chosen"
        if key in self.ruled:
            return "rule"
        return self.preset_name if is_within(key, self.preset) else self.others


def is_within(key: str, keys: Iterable[str]) -> bool:
    """Return whether a dotted key is one of keys, lies below one, or contains one."""
    return any(key == other or key.startswith(f"{other}.") or other.startswith(f"{key}.") for other in keys)


def parse(overrides: Sequence[str]) -> list[Override]:
    """Read overrides by Hydra's own grammar.

    Raises:
        HydraException: one of them is malformed.
    """
    return OverridesParser.create().parse_overrides(overrides=list(overrides))


def name_of(text: str, overrides: Sequence[str], groups: Collection[str]) -> str:
    """Return a folder's name for a run: its text or experiment, and the choices of the command line.

    Options appear by their name (`base`), values with the last part of their key (`learning_rate=0.001`). The name
    leaves out settings of data, neutral settings, and settings that would make the name too long.
    """
    name = _fit_for_a_folder(text) or "run"
    for override in parse(overrides):
        key, value = override.key_or_group, str(override.value())
        if key.startswith(tuple(one for one in _NEUTRAL if one != "seed")) or key.partition(".")[0] in _NAMED_BY_TEXT:
            continue
        part = _fit_for_a_folder(value if key in groups else f"{key.rpartition('.')[2]}={value}")
        if len(name) + len(part) < _LONGEST_NAME:
            name += f"-{part}"
    return name


def _fit_for_a_folder(text: str) -> str:
    return re.sub(r"[^\w.+=,@-]+", "", text.replace("/", ".")).lstrip("._+=,@-")


def with_preset(overrides: Sequence[str]) -> list[str]:
    """Add the default preset to overrides without a choice, and let `experiment=null` mean none."""
    arguments = [
        f"experiment={NO_PRESET}" if argument.lower() in ("experiment=null", "experiment=") else argument
        for argument in overrides
    ]
    named = [argument for argument in arguments if argument[:1] in "+~" or ("=" in argument and argument[:1] != "-")]
    keys = [argument.lstrip("+~").partition("=")[0].partition("@")[0] for argument in named]
    if all(key.startswith(_NEUTRAL) for key in keys):
        return [*arguments, f"experiment={DEFAULT_PRESET}"]
    return arguments


def let_choices_win(
    cfg: DictConfig, overrides: Sequence[str], options: Mapping[str, Any]
) -> tuple[DictConfig, Origins]:
    """Restore the values of chosen options that an experiment replaced, and return who chose each value.

    overrides are those of one run; options are the option of every group (`hydra.runtime.choices`). Hydra must be
    initialised.
    """
    parsed = [one for one in parse(overrides) if not one.key_or_group.startswith("hydra")]
    groups, values = set[str](), set[str]()  # groups with a chosen option, and keys of chosen values
    for override in parsed:
        key, value = override.key_or_group, override.value()
        if isinstance(value, dict):  # values, even if the key is a group
            values |= flatten({key: value}).keys()
        elif key not in options:
            values.add(key)
        elif key not in PRESETS:
            groups.add(key)
    chosen: dict[str, Any] = {}
    if "model" in groups:  # an option of model is a whole network and replaces all of an experiment's network
        chosen = flatten({"model": asdict(ModelConfig())})
    if "data" in groups:  # data.held_out_from of the experiment names a corpus of the experiment's text
        chosen["data.held_out_from"] = []
    for group in sorted(groups, key=lambda group: group.count("/")):  # model/style after model
        chosen |= _values_of(group, options[group])
    named = frozenset(values) | {key for key, value in chosen.items() if value != AUTO}
    presets = [f"{group}={options[group]}" for group in PRESETS if options.get(group) not in (None, NO_PRESET)]
    if not presets:
        return cfg, Origins(named)
    for key, value in chosen.items():
        if not is_within(key, values):
            OmegaConf.update(cfg, key, value)
    return cfg, Origins(named, _values_of_presets(cfg, overrides), presets[0])


def _values_of(group: str, option: object) -> dict[str, Any]:
    """Return what an option or a list of options sets, by dotted keys, with unresolved interpolations."""
    found: dict[str, Any] = {}
    for name in option if isinstance(option, Sequence) and not isinstance(option, str) else [option]:
        if name is not None:
            found |= flatten(OmegaConf.to_container(hydra.compose(f"{group}/{name}")))
    return found


def _values_of_presets(cfg: DictConfig, overrides: Sequence[str]) -> frozenset[str]:
    """Return the keys whose values differ from those without the presets."""
    without = [one for one in overrides if not one.startswith((*(f"{group}=" for group in PRESETS), "hydra"))]
    now = flatten(OmegaConf.to_container(cfg))
    then = flatten(OmegaConf.to_container(hydra.compose("config", [*without, f"experiment={NO_PRESET}"])))
    return frozenset(key for key in now if now[key] != then.get(key))


def flatten(values: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested plain values by their dotted keys, as on the command line."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
    return flat
