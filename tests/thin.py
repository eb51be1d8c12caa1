"""Thins parametrised tests for the default run; `pytest -m slow` runs what is left out."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def thin(values: Iterable[Any], keep: Collection[Any]) -> list[Any]:
    """Return the values as parameters; those that are not in keep belong to the tier `slow`.

    A tuple holds the values of several parameters.
    """
    values = list(values)
    assert all(value in values for value in keep), "keep names a value that is not there"
    return [value if value in keep else _slow(value) for value in values]


def _slow(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
