"""Builds the network that the settings name."""

from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.recurrent import Recurrent
from seq2seq.model.transformer import Transformer
from seq2seq.settings.model import ModelConfig


def build_model(config: ModelConfig, vocab_size: int) -> EncoderDecoder:
    """Return the network of `config.architecture` with random weights."""
    networks: dict[str, type[EncoderDecoder]] = {"transformer": Transformer, "recurrent": Recurrent}
    return networks[config.architecture](config, vocab_size)
