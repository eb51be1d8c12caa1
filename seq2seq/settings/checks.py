"""What refuses a setting, in one line that names it."""

from seq2seq.errors import UserError


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
