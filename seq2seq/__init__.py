"""An English→Spanish sequence-to-sequence Transformer: train, translate, look.

Letters of tensor shapes, the same in every file: **b** sentences, **k** beams, **n** rows (b or b·k), **s** source
length, **t** target length, **d** d_model, **h** heads, **c** channels per head (d / h), **v** vocabulary.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq2seq.translator import Translator

__version__ = "0.1.0"
__all__ = ["Translator", "__version__"]


def __getattr__(name: str) -> object:
    """Load `Translator` (and with it PyTorch) only when it is asked for, so that `--help` is quick."""
    if name == "Translator":
        from seq2seq.translator import Translator

        return Translator
    raise AttributeError(f"module 'seq2seq' has no attribute {name!r}")
