"""Fixtures of the tests that resume runs."""

from typing import Any

import pytest

from seq2seq.settings.config import Config
from seq2seq.text.dataset import PreparedData
from seq2seq.text.prepare import prepare
from tests.unit.training.resuming import small_config, straight_run


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """The settings of a small run."""
    return small_config(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def data(config: Config) -> PreparedData:
    """The small run's text."""
    return prepare(config.data, config.tokenizer)


@pytest.fixture(scope="module")
def straight(config: Config, data: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """A run without interruption: its folder, a copy of every file it ever saved, and its events."""
    return straight_run(config, data, tmp_path_factory.mktemp("straight"))
