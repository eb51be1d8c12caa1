"""Read and check the weights of a Marian model in Hugging Face's layout, without executing any code in the files."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from seq2seq.errors import UserError, in_short
from seq2seq.exchange.huggingface import channel_order, pairings, reordered
from seq2seq.model.positions import sinusoidal
from seq2seq.pickled_weights import DamagedError, read_pickled
from seq2seq.settings.bundle import CONFIG
from seq2seq.settings.model import ModelConfig
from seq2seq.text.vocabulary import Tokenizers

WEIGHTS, PICKLED = "model.safetensors", "pytorch_model.bin"
BIAS = "final_logits_bias"
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_MOST_POSITIONS = 100_000  # most rows of a table of positions
_TIED = (
    "model.shared.weight",
    "lm_head.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
)
_POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read weights without executing any code in their file.

    Raises:
        UserError: the file is missing, is damaged, or holds anything but weights with finite values.
    """
    path = next((folder / name for name in (WEIGHTS, PICKLED) if (folder / name).is_file()), None)
    if path is None:
        parts = next(iter(sorted(folder.glob("*.index.json"))), None)
        message = (
            f"weights in several files ({parts.name}) are not read: save them in one" if parts else "it has no weights"
        )
        raise UserError(f"{folder}: {message} ({WEIGHTS} or {PICKLED})")
    try:
        weights = load_file(path) if path.name == WEIGHTS else read_pickled(path, "cpu")
    except (DamagedError, SafetensorError, OSError, RuntimeError, ValueError, LookupError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is damaged ({in_short(error)}): copy it again") from error
    if not isinstance(weights, dict) or not all(_is_weight(*item, path.stat().st_size) for item in weights.items()):
        raise UserError(f"{path} holds no weights by name: give the model's own, as save_pretrained leaves it")
    for name, weight in weights.items():
        if not weight.isfinite().all():
            raise UserError(f"{path}: {name:.100} has values that are no finite numbers: the model is damaged")
    return dict(weights)


def _is_weight(name: object, weight: object, most_bytes: int) -> bool:
    """Return whether the item is a name and a plain tensor of real numbers that is no larger than the file."""
    if not (isinstance(name, str) and isinstance(weight, Tensor)):
        return False
    is_plain = weight.layout == torch.strided and weight.device.type == "cpu" and weight.dtype in _FLOATS
    return is_plain and weight.nelement() * weight.element_size() <= most_bytes


def require_fixed_positions(folder: Path, state: dict[str, Tensor], d_model: int) -> None:
    """Remove the tables of sinusoidal positions from the weights, if present.

    Raises:
        UserError: a table is not sinusoidal, for example because its positions are learned.
    """
    for name in _POSITIONS:
        table = state.pop(name, None)
        if table is None:
            continue
        is_table = table.ndim == 2 and table.shape[1] == d_model and len(table) <= _MOST_POSITIONS
        expected = sinusoidal(0, len(table), d_model, table.device) if is_table else None
        if expected is None or not torch.allclose(
            table.float(), reordered(expected, 1, channel_order(d_model)), atol=1e-3
        ):
            raise UserError(f"{folder}: {name} is no table of sines: learned positions cannot be imported")


def require_tied(folder: Path, state: dict[str, Tensor], *, is_shared: bool) -> None:
    """Keep one copy of an embedding that is stored under several names, under the name that `pairings` uses.

    Raises:
        UserError: the copies differ.
    """
    groups = [_TIED] if is_shared else [(_TIED[3], _TIED[1]), (_TIED[2],)]
    for names in groups:
        stored = [name for name in names if name in state]
        for other in stored[1:]:
            if not torch.equal(state[stored[0]], state[other]):
                raise UserError(f"{folder}: {other} differs from {stored[0]}: only tied embeddings can be imported")
        if stored:
            state.setdefault(names[0], state[stored[0]])
        for other in names[1:]:
            state.pop(other, None)


def require_same(
    folder: Path,
    state: Mapping[str, Tensor],
    config: ModelConfig,
    tokenizer: Tokenizers,
    shapes: Mapping[str, tuple[int, ...]],
) -> None:
    """Check that the weights belong to this network and this vocabulary.

    Raises:
        UserError: a weight is missing, is unknown, or has another shape.
    """
    known = {BIAS}
    for pair in pairings(config, is_shared=tokenizer.is_shared):
        known.add(pair.marian)
        shape = tuple(state[pair.marian].shape) if pair.marian in state else "missing"
        if pair.ids and shape != "missing" and len(shape) == 2 and shape[0] != shapes[pair.ours][0]:
            message = f"{pair.marian} has {shape[0]:,} rows, and the vocabulary {shapes[pair.ours][0]:,} subwords"
            raise UserError(f"{folder}: {message}: they belong to different models")
        if shape != shapes[pair.ours]:
            raise UserError(f"{folder}: {pair.marian} is {shape}, and {CONFIG} wants {shapes[pair.ours]}")
    if unknown := sorted(state.keys() - known):
        raise UserError(f"{folder}: {unknown[0]:.100} is a weight that no Marian model has")
    if BIAS in state and tuple(state[BIAS].shape) != (1, tokenizer.sizes[0]):
        message = f"{BIAS} is {tuple(state[BIAS].shape)}, and the vocabulary has {tokenizer.sizes[0]:,} subwords"
        raise UserError(f"{folder}: {message}: they belong to different models")
