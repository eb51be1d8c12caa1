"""The bundle: a folder with everything that translation needs, and nothing of training; no pickle and no code."""

import contextlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from seq2seq.errors import UserError, shorten
from seq2seq.model.build import build_without_values
from seq2seq.model.encoder_decoder import EncoderDecoder
from seq2seq.settings.bundle import (
    ARCHITECTURE,
    CARD,
    CONFIG,
    SETTINGS,
    TWO_TOKENIZERS,
    WEIGHTS,
    BundleConfig,
    read_config,
)
from seq2seq.settings.missing_packages import train_command
from seq2seq.storage.atomic import draft_of
from seq2seq.text.vocabulary import FILES, Tokenizers, load_tokenizers, tokenizer_files, write_files

_OWN = {WEIGHTS, CONFIG, SETTINGS, CARD, *FILES}  # that decide what a folder's model is


def example(src_lang: str) -> str:
    """Return a sentence to try a model with."""
    return {"es": "La bola es azul.", "en": "The ball is blue."}.get(src_lang, "…")


@dataclass
class Bundle:
    """A model that can translate: weights, tokenizer (one, or one for each side), and the settings of both."""

    model: EncoderDecoder
    tokenizer: Tokenizers
    config: BundleConfig


def save_bundle(folder: Path, bundle: Bundle, card: str, *, is_new: bool = False) -> None:
    """Write a bundle, with a Hugging Face model card as its README.md; an error leaves the folder as it was.

    What is in the folder under other names than a bundle's stays, such as a shortlist or an export. With is_new, the
    folder must be new or empty.
    """
    values = {
        "architecture": ARCHITECTURE + bundle.config.model.architecture,
        "format_version": 1 if bundle.tokenizer.is_joint else TWO_TOKENIZERS,
        "src_lang": bundle.config.src_lang,
        "tgt_lang": bundle.config.tgt_lang,
        "vocab_size": bundle.model.vocab_size,
        "tokenizer_sha256": bundle.tokenizer.digest,
        "model": {key: value for key, value in bundle.config.model.used().items() if key != "architecture"},
        "search": asdict(bundle.config.search),
    }
    optional = {
        "trained_length": bundle.config.trained_length,
        "calibration": bundle.config.calibration and asdict(bundle.config.calibration),
        "source_vocab_size": bundle.model.source_vocab_size,
    }
    values |= {key: value for key, value in optional.items() if value is not None}
    with replaced_folder(folder, None if is_new else _OWN) as draft:
        weights = {name: tensor.detach().to("cpu").contiguous() for name, tensor in bundle.model.state_dict().items()}
        owners = {tensor.data_ptr(): name for name, tensor in weights.items()}  # safetensors refuses shared memory
        weights = {name: x if owners[x.data_ptr()] == name else x.clone() for name, x in weights.items()}
        save_file(weights, draft / WEIGHTS, metadata={"format": "pt"})
        (draft / CONFIG).write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        write_files(draft, bundle.tokenizer)
        (draft / CARD).write_text(card, encoding="utf-8")


def load_bundle(folder: Path) -> Bundle:
    """Read a bundle on the CPU, in evaluation mode.

    Nothing in the folder is executed, and no class is looked up by a name in the folder. Sizes are compared with the
    weights file's header before any memory is allocated.
    """
    if not folder.is_dir():
        raise UserError(f"no model at {folder}: give a bundle's folder, or train one with `{train_command()}`")
    values, config = read_config(folder / CONFIG)
    for name in (WEIGHTS, *tokenizer_files(folder)):
        if not (folder / name).is_file():
            raise UserError(f"{folder} is not a whole model: {name} is missing")
    tokenizer, names = load_tokenizers(folder), ", ".join(tokenizer_files(folder))
    if tokenizer.digest != values["tokenizer_sha256"]:
        are = "are not the tokenizers" if "," in names else "is not the tokenizer"
        raise UserError(f"{folder / names} {are} that this model was trained with: copy the model folder again")
    for key, size in zip(("vocab_size", "source_vocab_size"), tokenizer.sizes, strict=True):
        if size != values.get(key):
            raise UserError(f"{folder / CONFIG} is damaged: {key}={values.get(key)}, {names} has {size or 'no'} tokens")
    shapes = _read_shapes(folder / WEIGHTS)
    if (layers := config.model.num_encoder_layers + config.model.num_decoder_layers) > len(shapes):
        message = f"{len(shapes)} tensors are no {layers} layers"  # building so many layers would take seconds
        raise UserError(f"{folder / WEIGHTS} does not belong to its {CONFIG}: {message}")
    model = build_without_values(config.model, *tokenizer.sizes)
    model.load_state_dict(_read_weights(folder / WEIGHTS, shapes, model.state_dict()), assign=True)
    return Bundle(model.eval(), tokenizer, config)


def load_bundles(folders: Sequence[Path]) -> list[Bundle]:
    """Read bundles that translate together, as an ensemble."""
    bundles = [load_bundle(folder) for folder in folders]
    for folder, bundle in zip(folders[1:], bundles[1:], strict=True):
        if bundle.tokenizer.digest != bundles[0].tokenizer.digest:
            raise UserError(f"{folder} has another vocabulary than {folders[0]}: an ensemble needs the same tokenizer")
    return bundles


def require_new(folder: Path) -> None:
    """Check that a folder is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already: give --output a new or empty folder")


@contextlib.contextmanager
def replaced_folder(folder: Path, own: Collection[str] | None = None) -> Iterator[Path]:
    """Yield a temporary folder, which replaces `folder` at the end of the block, or is removed after an error.

    With own, files and folders of other names stay (`draft_of`); without, the folder must be new or empty.
    """
    try:
        with draft_of(folder, own) as draft:
            if own is None:
                require_new(folder)
            yield draft
    except (OSError, SafetensorError) as error:
        raise UserError(f"cannot write {folder}: {getattr(error, 'strerror', None) or error}") from error


def _read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Read the names and shapes of the weights."""
    with _naming(path), safe_open(path, framework="pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no dict)


def _read_weights(path: Path, shapes: dict[str, tuple[int, ...]], model: dict[str, Tensor]) -> dict[str, Tensor]:
    """Read the weights, if their names and shapes are those of the model."""
    expected = {name: tuple(tensor.shape) for name, tensor in model.items()}
    for name in sorted(expected.keys() | shapes.keys()):
        if expected.get(name) != shapes.get(name):
            message = f"{name:.100} is {shapes.get(name, 'missing')}, {CONFIG} wants {expected.get(name, 'none')}"
            raise UserError(f"{path} does not belong to its {CONFIG}: {shorten(message)}")
    with _naming(path):
        return {name: tensor.float() for name, tensor in load_file(path).items()}


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged ({shorten(error)}): copy the model folder again") from error
    except (RuntimeError, MemoryError) as error:
        raise UserError(f"{path} does not fit into memory ({shorten(error)}): use a machine with more") from error
