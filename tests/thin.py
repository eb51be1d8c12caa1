"""Thins parametrised tests for the default run; `pytest -m slow` runs what is left out."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def thin(values: Iterable[Any], keep: Collection[Any]) -> list[Any]:
    """Return the values as parameters; those that are not in keep belong to the tier `slow`."""
    found = list(values)
    assert all(one in found for one in keep), "keep names a value that is not there"
    return [one if one in keep else pytest.param(one, marks=pytest.mark.slow) for one in found]
