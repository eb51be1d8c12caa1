"""Small runs, whole or resumed, that end without what takes long."""

from collections.abc import Iterator
from typing import Any

import pytest

from seq2seq.data.dataset import PreparedData
from seq2seq.data.prepare import prepare
from seq2seq.settings.config import Config
from seq2seq.training import finish_run
from tests.unit.training.resuming import small_config, straight_run


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """The settings of a small run; a test that wants others takes a `changed` copy."""
    return small_config(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def data(config: Config) -> PreparedData:
    """The small run's text."""
    return prepare(config.data, config.tokenizer)


@pytest.fixture(scope="session")
def straight(config: Config, data: PreparedData, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """A run without interruption: its folder, a copy of every file it ever saved, and its events."""
    return straight_run(config, data, tmp_path_factory.mktemp("straight"))


@pytest.fixture(scope="module")
def quick_end() -> Iterator[None]:
    """Let runs end without a picture of their curves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish_run, "draw_curves", lambda folder: None)
        yield
