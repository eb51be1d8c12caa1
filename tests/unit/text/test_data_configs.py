"""The data settings that ship say where text is in a way that preparation understands."""

from pathlib import Path

import pytest

from seq2seq.settings.compose import compose
from seq2seq.settings.data import DataConfig
from seq2seq.text.corpus import open_corpora

CONF = Path(__file__).parents[3] / "conf"
DATA = sorted(path.stem for path in (CONF / "data").glob("*.yaml"))


def load(name: str) -> DataConfig:
    return compose([f"data={name}"]).data


@pytest.mark.parametrize("name", DATA)
def test_every_data_config_names_text_and_hub_sets_a_configuration_and_their_splits(name: str):
    config = load(name)
    assert name == "files" or config.train or config.hub
    if config.hub is not None:
        assert config.hub.endswith(":en-es")
        assert {"train"} <= set(config.hub_splits) <= {"train", "validation", "test"}


@pytest.mark.parametrize(("name", "folder"), [("mixed", "."), ("tatoeba_files", "tatoeba")])
def test_real_text_is_where_its_config_says(shared_data: Path, name: str, folder: str):
    config = load(name)
    for spec in (*config.train, *config.validation, *config.test):
        assert open_corpora(spec, str(shared_data / folder), config)
