"""What the program refuses, it refuses in one line."""

from collections.abc import Callable
from typing import Any

import pytest

from seq2seq.errors import UserError


def refuses(message: str, call: Callable[..., object], *arguments: Any, **options: Any) -> None:
    """Check that a call ends with a UserError of one line that matches the message."""
    with pytest.raises(UserError, match=message) as refused:
        call(*arguments, **options)
    assert "\n" not in str(refused.value)
