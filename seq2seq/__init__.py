"""An English→Spanish sequence-to-sequence Transformer: train it, translate with it, inspect it.

Letters of tensor shapes, the same in every file: **b** sentences, **k** beams, **n** rows (b or b·k), **s** source
length, **t** target length, **d** d_model, **h** heads, **c** channels per head (d / h), **v** vocabulary.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from seq2seq.errors import UserError

if TYPE_CHECKING:
    from seq2seq.apps.pipeline import pipeline
    from seq2seq.apps.train import train
    from seq2seq.settings.checks import register
    from seq2seq.text.glossary import Glossary
    from seq2seq.translate.translator import Translator
    from seq2seq.translate.types import Text

__version__ = "1.0.0"
__all__ = ["Glossary", "Text", "Translator", "UserError", "__version__", "pipeline", "register", "train"]
_HOMES = {
    "Glossary": "seq2seq.text.glossary",
    "Text": "seq2seq.translate.types",
    "Translator": "seq2seq.translate.translator",
    "pipeline": "seq2seq.apps.pipeline",
    "register": "seq2seq.settings.checks",
    "train": "seq2seq.apps.train",
}


def __getattr__(name: str) -> object:
    """Load a public class only when it is used, so that `--help` is fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'seq2seq' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
