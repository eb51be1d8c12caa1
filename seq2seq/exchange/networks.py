"""Which networks other programs can compute."""

from seq2seq.config import ModelConfig
from seq2seq.errors import UserError
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.transformer import Transformer


def require_transformer(model: EncoderDecoder) -> Transformer:
    """The model itself, if it is a Transformer.

    Raises:
        UserError: it is another network.
    """
    if not isinstance(model, Transformer):
        raise UserError(
            f"model.architecture={model.config.architecture}: CTranslate2 and Hugging Face have no such network; "
            "translate with `seq2seq translate --engine pytorch`, or train a Transformer, such as model=small"
        )
    return model


def require_whole(config: ModelConfig) -> None:
    """Refuse a model that something was taken away from: no other program can be told to leave that out.

    Raises:
        UserError: the model is an ablation.
    """
    if taken := config.ablations():
        raise UserError(f"{', '.join(taken)}: such an ablation cannot be exported, only translated with here")
