"""Export as a bundle, and shared parts of exports and imports: the check of the network, the folder, the model card."""

import re
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.model import attention
from seq2seq.model.decoders import Example, agrees, make_example
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.model.kernels import is_fused_kernels
from seq2seq.model.transformer import Transformer
from seq2seq.settings.bundle import CARD, read_bounded
from seq2seq.text.tokenizer import EOS
from seq2seq.translate.bundle import Bundle, load_bundle, require_new, save_bundle

_MAX_CARD = 1_000_000  # bytes
_NO_MASKS = "{} masks no strings, so addresses, placeholders and code may change; `seq2seq translate` keeps them."


def export_bundle(bundle: Path, folder: Path, quantization: str = "float32") -> None:
    """Write a bundle again; float16 weights take half the space, and `load_bundle` reads them as float32."""
    require_new(folder)
    loaded = load_bundle(bundle)
    if quantization == "float16":
        loaded.model.half()
        if not all(tensor.isfinite().all() for tensor in loaded.model.state_dict().values()):
            raise UserError(f"{bundle} has weights above 65,504, the largest number of float16: keep float32")
    save_bundle(folder, loaded, read_card(bundle), is_new=True)


def require_exportable(model: EncoderDecoder) -> Transformer:
    """Return the model if it is a complete Transformer."""
    if not isinstance(model, Transformer):
        raise UserError(
            f"model.architecture={model.config.architecture}: CTranslate2 and Hugging Face have no such network; "
            "translate with `seq2seq translate --engine pytorch`, or train a Transformer, such as model=small"
        )
    if ablations := model.config.ablations():
        raise UserError(f"{', '.join(ablations)}: such an ablation cannot be exported, only translated with here")
    return model


def require_agreement(program: str, bundle: Bundle, compute: Callable[[Example], Tensor]) -> None:
    """Check that a program computes the scores of an example as the model's present code does."""
    example = make_example(bundle.model, bundle.tokenizer.start, EOS)
    if not (agrees(compute(example), example.scores) and is_fused_kernels(attention.attention_weights)):
        message = f"{program} gives other scores than the model's code here, which was changed: such a model cannot"
        raise UserError(f"{message} be exported, only translated with here (`seq2seq translate --engine pytorch`)")


def read_card(folder: Path) -> str:
    """Return a folder's model card, or an empty text if there is none."""
    path = folder / CARD
    return read_bounded(path, _MAX_CARD).decode(errors="replace") if path.is_file() else ""


def write_card(bundle: Path, draft: Path, library: str, usage: str) -> None:
    """Write the bundle's model card with another library's name, usage and limits instead of this program's.

    usage is the card's first section, in Markdown.
    """
    introduction, heading, rest = read_card(bundle).partition("\n## ")
    introduction = introduction.replace("library_name: seq2seq", f"library_name: {library}")
    introduction = re.sub(r"```\n.*?```", "", introduction, flags=re.DOTALL).rstrip()  # the bundle's own command
    new = f"{introduction}\n\n## Use with {library}\n\n{usage}\n{_NO_MASKS.format(library)}\n{heading}{rest}"
    (draft / CARD).write_text(new, encoding="utf-8")
