"""Which networks other programs can compute."""

from seq2seq.errors import UserError
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.transformer import Transformer


def require_exportable(model: EncoderDecoder) -> Transformer:
    """The model itself, if it is a whole Transformer.

    Raises:
        UserError: it is another network, or an ablation: other programs always compute every part.
    """
    if not isinstance(model, Transformer):
        raise UserError(
            f"model.architecture={model.config.architecture}: CTranslate2 and Hugging Face have no such network; "
            "translate with `seq2seq translate --engine pytorch`, or train a Transformer, such as model=small"
        )
    if ablations := model.config.ablations():
        raise UserError(f"{', '.join(ablations)}: such an ablation cannot be exported, only translated with here")
    return model
