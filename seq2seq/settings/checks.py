"""Checks that refuse a setting, in one line that names the setting."""

from typing import TYPE_CHECKING

from seq2seq.errors import UserError
from seq2seq.settings.extensions import PARTS, WAY_OUT, registered
from seq2seq.settings.rules import AUTO

# Types of settings that may be `auto`. For type checkers they are numbers: a run that has begun replaced all `auto`.
if TYPE_CHECKING:
    BoolOrAuto = bool
    IntOrAuto = int
    NumberOrAuto = float
else:
    BoolOrAuto = bool | str
    IntOrAuto = int | str
    NumberOrAuto = int | float | str


def require(condition: bool, message: str) -> None:
    """Refuse a setting.

    Raises:
        UserError: condition is false.
    """
    if not condition:
        raise UserError(message)


def require_at_least(key: str, value: float | int, minimum: float | int) -> None:
    """Refuse a number below its minimum (NaN too).

    Raises:
        UserError: value is below minimum.
    """
    require(value >= minimum, f"{key}={value} must be at least {minimum:g}")


def check_choices(section: str, settings: object, **choices: tuple[str, ...]) -> None:
    """Refuse values of settings that are neither among their choices nor registered for them."""
    for name, own in choices.items():
        value, key = getattr(settings, name), section + name
        known = ", ".join((*own, *registered(key))) + (f", {WAY_OUT}" if key in PARTS else "")
        require(value in own or value in registered(key), f"{key}={value} is not known: choose one of {known}")


def check_ranges(section: str, settings: object, **ranges: tuple[float | int, float | int]) -> None:
    """Refuse numbers outside their range (least, most), which both belong to the range; None and `auto` pass.

    Raises:
        UserError: there is such a number, or a word other than `auto`.
    """
    for name, (least, most) in ranges.items():
        value = getattr(settings, name)
        if isinstance(value, str):
            require(value == AUTO, f"{section}{name}={value} must be a number or {AUTO}")
        elif value is not None:
            require_at_least(section + name, value, least)
            require(value <= most, f"{section}{name}={value} must be at most {most}")
