"""What a run leaves for people to read."""

import pytest

from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig
from seq2seq.training.report import model_card

FACTS = {
    "parameters": 1000, "version": "0", "updates": 3, "training_seconds": 6.0, "hardware": "a machine",
    "validation_loss": 2.125, "data": {"files": [], "sizes": {"train": 10}}, "model": {}, "training": {},
}  # fmt: skip


def test_the_card_tells_the_validation_loss() -> None:
    card = model_card(Config(name="x"), FACTS)
    assert "3 updates in 0.1 minutes on a machine, seed 1. Validation loss: 2.125 nats per token.\n" in card
    unfinished = model_card(Config(name="x"), FACTS | {"weights_after": 2000})
    assert "seed 1. The run is not finished: these are the weights after update 2,000.\n" in unfinished


@pytest.mark.parametrize(("src", "tgt", "text"), [("en", "es", "The ball is blue."), ("es", "en", "La bola es azul.")])
def test_the_cards_command_translates_a_text_of_the_models_source_language(src: str, tgt: str, text: str) -> None:
    card = model_card(Config(name="x", data=DataConfig(src_lang=src, tgt_lang=tgt)), FACTS, {}, [])
    assert f"# x: {src}→{tgt} translation" in card
    assert f'seq2seq translate --model FOLDER "{text}"\n' in card
