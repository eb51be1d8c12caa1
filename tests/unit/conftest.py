"""A tokenizer and a bundle that are small enough to be made in a second."""

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from seq2seq import progress
from seq2seq.cli import app, main, translate_app
from seq2seq.errors import UserError
from seq2seq.model.build import build_model
from seq2seq.model.compiling import load_library
from seq2seq.settings.data import TokenizerConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import Tokenizer, train_tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.bundle import Bundle, BundleConfig, save_bundle
from seq2seq.translate.translator import Translator
from tests.unit.echo import echo_translator

GOLDEN = Path(__file__).parents[1] / "golden" / "bundle"  # of a trained model
SENTENCES = [
    f"{subject} {verb} {thing}{mark}"
    for subject in ("The cat", "A dog", "El gato", "Un perro", "¿Quién", "Ella")
    for verb in ("drank", "sees", "bebió", "ve", "quiere", "has")
    for thing in ("the milk", "a blue ball", "la leche", "una bola azul", "niños, años")
    for mark in (".", "?", "!")
]


@pytest.fixture
def process_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put back what the training program sets in its process: environment, arguments, logging, Hydra's state."""
    for variable in ("SEQ2SEQ_RUN", "SEQ2SEQ_CHECKPOINT", "SEQ2SEQ_HOME", "HYDRA_FULL_ERROR"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    GlobalHydra.instance().clear()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    GlobalHydra.instance().clear()
    HydraConfig.instance().cfg = None


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return train_tokenizer(SENTENCES, TokenizerConfig(vocab_size=305))


def write_untrained(folder: Path, tokenizers: Tokenizers, scale: float = 2.0) -> Path:
    """Write the bundle of an untrained model; scale makes scores wider, so that rounding decides nothing."""
    config = ModelConfig(d_model=24, num_heads=3, d_ff=40, num_encoder_layers=1, num_decoder_layers=2)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = build_model(config, tokenizers.target.vocab_size)
        for parameter in model.parameters():
            parameter.data.mul_(scale)
    search = SearchConfig(beam=3, max_length_ratio=0.5, max_length_offset=4, batch_tokens=300)
    save_bundle(folder, Bundle(model, tokenizers, BundleConfig(config, search)), card="untrained")
    return folder


@pytest.fixture(scope="session")
def bundle_folder(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model's bundle."""
    with suppress(UserError):  # without a C compiler
        load_library()  # else the first search would report on stderr that it is compiled
    return write_untrained(tmp_path_factory.mktemp("run") / "model", Tokenizers.joint(tokenizer))


@pytest.fixture(scope="session")
def translator(bundle_folder: Path) -> Translator:
    """The untrained model."""
    return Translator.load(bundle_folder, "cpu")


@pytest.fixture
def echo(tokenizer: Tokenizer) -> Translator:
    """A translator that translates every text into itself."""
    return echo_translator(tokenizer, beam=3, batch_tokens=300)


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


@pytest.fixture
def run(monkeypatch, bundle_folder):
    """Run translate.py in this process, on the untrained bundle; returns status, stdout, stderr."""

    def call(
        *arguments,
        stdin=b"",
        terminal=(),
        command=("--model", str(bundle_folder), "--device", "cpu"),
        application=translate_app,
    ):
        buffers = {"stdin": io.BytesIO(stdin), "stdout": io.BytesIO(), "stderr": io.BytesIO()}
        streams = {
            name: (Terminal if name in terminal else io.TextIOWrapper)(buffer, encoding="utf-8")
            for name, buffer in buffers.items()
        }
        for name, stream in streams.items():
            monkeypatch.setattr(sys, name, stream)
        progress.console.cache_clear()  # it looks at stderr once
        monkeypatch.setattr(sys, "argv", ["translate.py", *command, *map(str, arguments)])
        try:
            main(application)
            status = 0
        except SystemExit as exit_:
            status = exit_.code
        for name in ("stdout", "stderr"):
            streams[name].flush()
        out, err = (buffers[name].getvalue().decode() for name in ("stdout", "stderr"))
        return (1, out, f"{err}{status}\n") if isinstance(status, str) else (status or 0, out, err)

    return call


@pytest.fixture
def seq2seq(run):
    """Run `seq2seq` with its words, like `run`."""
    return lambda *words, **options: run(*words, command=(), application=app, **options)


def one_line_error(result: tuple[int, str, str]) -> str:
    """Return the one line of stderr with which a command refuses."""
    status, out, err = result
    assert (status, out, err[:7], err.count("\n")) == (1, "", "error: ", 1)
    return err
