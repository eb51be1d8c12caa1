"""The data settings that ship say where text is in a way that preparation understands."""

from pathlib import Path

import pytest
import yaml

from seq2seq.settings.compose import compose
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.text.corpus import open_corpora

CONF = Path(__file__).parents[3] / "conf"
DATA = sorted(path.stem for path in (CONF / "data").glob("*.yaml"))


def load(name: str) -> DataConfig:
    return compose([f"data={name}"]).data


@pytest.mark.parametrize("name", DATA)
def test_every_data_config_fits_the_schema(name: str):
    config = load(name)
    assert name == "files" or config.train or config.hub


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_every_tokenizer_config_is_of_its_type(kind: str):
    assert TokenizerConfig(**yaml.safe_load((CONF / "tokenizer" / f"{kind}.yaml").read_text())).type == kind


@pytest.mark.parametrize("name", [name for name in DATA if load(name).hub])
def test_hub_sets_name_a_configuration_and_a_training_split(name: str):
    config = load(name)
    assert config.hub is not None
    assert config.hub.endswith(":en-es")
    assert "train" in config.hub_splits
    assert set(config.hub_splits) <= {"train", "validation", "test"}


def test_the_bundled_corpus_is_where_its_config_says():
    config = load("bundled")
    assert config.root == str(CONF.parent / "data" / "bundled")
    for spec in (*config.train, *config.validation, *config.test):
        assert open_corpora(spec, config.root, config)


@pytest.mark.parametrize(("name", "folder"), [("mixed", "."), ("tatoeba_files", "tatoeba")])
def test_real_text_is_where_its_config_says(shared_data: Path, name: str, folder: str):
    config = load(name)
    for spec in (*config.train, *config.validation, *config.test):
        assert open_corpora(spec, str(shared_data / folder), config)
