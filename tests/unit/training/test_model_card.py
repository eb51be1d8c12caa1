"""What a run leaves for people to read."""

import pytest

from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig
from seq2seq.training.report import model_card

FACTS = {
    "parameters": 1000, "version": "0", "updates": 3, "training_seconds": 6.0, "hardware": "a machine",
    "validation_loss": 2.125, "data": {"files": [], "sizes": {"train": 10}}, "model": {}, "training": {},
}  # fmt: skip


@pytest.mark.parametrize(("src", "tgt", "text"), [("en", "es", "The ball is blue."), ("es", "en", "La bola es azul.")])
def test_the_cards_command_translates_a_text_of_the_models_source_language(src: str, tgt: str, text: str) -> None:
    card = model_card(Config(name="x", data=DataConfig(src_lang=src, tgt_lang=tgt)), FACTS, {}, [])
    assert f"# x: {src}→{tgt} translation" in card
    assert f'seq2seq translate --model FOLDER "{text}"\n' in card
