"""What refuses a setting, in one line that names it."""

from typing import TYPE_CHECKING

from seq2seq.errors import UserError
from seq2seq.settings.rules import AUTO

# What may be `auto` in the settings. A run that has begun knows the number, so its readers see one.
if TYPE_CHECKING:
    IntOrAuto = int
    NumberOrAuto = float
else:
    IntOrAuto = int | str
    NumberOrAuto = int | float | str


def require(condition: bool, message: str) -> None:
    """Refuse a setting.

    Raises:
        UserError: condition is false.
    """
    if not condition:
        raise UserError(message)


def require_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the choices.

    Raises:
        UserError: value is not among choices.
    """
    require(value in choices, f"{key}={value} is not known: choose one of {', '.join(choices)}")


def require_at_least(key: str, value: float | int, minimum: float | int) -> None:
    """Refuse a number below its minimum (NaN too).

    Raises:
        UserError: value is below minimum.
    """
    require(value >= minimum, f"{key}={value} must be at least {minimum:g}")


def require_at_most(key: str, value: float | int, maximum: float | int) -> None:
    """Refuse a number above its maximum, before memory is taken for it.

    Raises:
        UserError: value is above maximum.
    """
    require(value <= maximum, f"{key}={value} must be at most {maximum}")


def require_number_or_auto(key: str, value: float | int | str, minimum: float | int) -> None:
    """Refuse anything but `auto` and numbers from the minimum on.

    Raises:
        UserError: value is another word, or below minimum.
    """
    if isinstance(value, str):
        require(value == AUTO, f"{key}={value} must be a number or {AUTO}")
    else:
        require_at_least(key, value, minimum)
