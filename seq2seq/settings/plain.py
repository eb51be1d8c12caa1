"""Reads a bundle's settings from plain values; imports no Hydra, which translating does not need."""

from collections.abc import Mapping
from typing import Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq.errors import UserError
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig

C = TypeVar("C", ModelConfig, SearchConfig)


def config_from_plain(schema: type[C], values: Mapping[str, Any]) -> C:
    """Return a bundle's settings of the model or of the search from their plain values.

    Raises:
        UserError: a key is unknown or a value has the wrong type or range.
    """
    try:
        merged = OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.create(dict(values)))
        found = OmegaConf.to_object(merged)
    except (OmegaConfBaseException, AssertionError, ValueError) as error:
        raise UserError(first_line(error)) from error
    assert isinstance(found, schema)
    return found


def first_line(error: Exception) -> str:
    """Return the first line of an error's text."""
    return str(error).strip().splitlines()[0]
