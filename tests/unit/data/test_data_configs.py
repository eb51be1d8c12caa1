"""The data settings that ship say where text is in a way that preparation understands."""

from pathlib import Path

import pytest

from seq2seq.data.corpus import open_corpora
from seq2seq.settings.compose import compose


@pytest.mark.parametrize(("name", "folder"), [("mixed", "."), ("tatoeba_files", "tatoeba")])
def test_real_text_is_where_its_config_says(shared_data: Path, name: str, folder: str):
    config = compose([f"data={name}"]).data
    for spec in (*config.train, *config.validation, *config.test):
        assert open_corpora(spec, str(shared_data / folder), config)
