"""Checks that refuse a setting in one line, and own parts of a model and of training that settings may name."""

import os
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from seq2seq.errors import UserError
from seq2seq.settings.rules import AUTO

if TYPE_CHECKING:
    BoolOrAuto = bool
    IntOrAuto = int
    NumberOrAuto = float
else:
    BoolOrAuto = bool | str
    IntOrAuto = int | str
    NumberOrAuto = int | float | str

ARCHITECTURE, OPTIMIZER, SCHEDULE = "model.architecture", "training.optimizer", "training.schedule"
MODIFIERS, CALLBACKS = "training.modifiers.own", "trainer.callbacks"
PARTS: dict[str, dict[str, Any]] = {key: {} for key in (ARCHITECTURE, OPTIMIZER, SCHEDULE, MODIFIERS, CALLBACKS)}
WAY_OUT = "or name the module that registers it, by extensions=[MODULE] or --extension MODULE"
_NAMED = "SEQ2SEQ_EXTENSIONS"  # environment variable: the modules, for processes that start later
_Part = TypeVar("_Part", bound=Callable[..., Any])


def register(setting: str, name: str) -> Callable[[_Part], _Part]:
    """Register the decorated class or function under a name, which the setting then accepts (docs/extensions.md)."""

    def add(part: _Part) -> _Part:
        PARTS[setting][name] = part
        return part

    return add


def registered(setting: str) -> dict[str, Any]:
    """Return the parts that are registered for a setting, by name; none for a setting that takes no parts."""
    load_extensions(os.environ.get(_NAMED, "").split())
    return PARTS.get(setting, {})


def part_of(setting: str, name: str) -> Any:
    """Return a registered part; refuse a name that has none."""
    if name not in (parts := registered(setting)):
        raise UserError(f"{setting}: {name} is not known: choose one of {', '.join(parts) or 'none'}, {WAY_OUT}")
    return parts[name]


def load_extensions(modules: Iterable[str]) -> None:
    """Import modules of the working directory or of packages; processes that start later import them, too."""
    for module in (name for name in modules if name not in sys.modules):
        if (folder := str(Path.cwd())) not in sys.path:
            sys.path.append(folder)  # for further processes, too
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):
                raise
            raise UserError(f"extensions: neither {folder} nor a package has the module {module}") from error
        os.environ[_NAMED] = f"{os.environ.get(_NAMED, '')} {module}".strip()


def require(condition: bool, message: str) -> None:
    """Refuse a setting."""
    if not condition:
        raise UserError(message)


def require_at_least(key: str, value: float | int, minimum: float | int) -> None:
    """Refuse a number below its minimum (NaN too)."""
    require(value >= minimum, f"{key}={value} must be at least {minimum:g}")


def check_choices(section: str, settings: object, **choices: tuple[str, ...]) -> None:
    """Refuse values of settings that are neither among their choices nor registered for them."""
    for name, own in choices.items():
        value, key = getattr(settings, name), section + name
        known = ", ".join((*own, *registered(key))) + (f", {WAY_OUT}" if key in PARTS else "")
        require(value in own or value in registered(key), f"{key}={value} is not known: choose one of {known}")


def check_ranges(section: str, settings: object, **ranges: tuple[float | int, float | int]) -> None:
    """Refuse numbers outside their range (least, most), which both belong to the range; None and `auto` pass."""
    for name, (least, most) in ranges.items():
        value = getattr(settings, name)
        if isinstance(value, str):
            require(value == AUTO, f"{section}{name}={value} must be a number or {AUTO}")
        elif value is not None:
            require_at_least(section + name, value, least)
            require(value <= most, f"{section}{name}={value} must be at most {most}")
