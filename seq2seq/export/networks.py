"""Which networks other programs can compute."""

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
            "translate with this program (translate.py, --engine pytorch), or train a Transformer, such as model=small"
        )
    return model
