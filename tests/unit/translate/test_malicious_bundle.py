"""Forged bundles: refused in one line before memory is taken or anything runs."""

import json
import os
import pickle
import resource
import shutil
import struct
from pathlib import Path
from unittest.mock import Mock

import pytest

from seq2seq.errors import UserError
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.translate.bundle import load_bundle
from tests.unit.training.test_malicious import Payload


@pytest.fixture
def forged(bundle_folder: Path, tmp_path: Path) -> Path:
    """A genuine bundle to change."""
    return Path(shutil.copytree(bundle_folder, tmp_path / "model"))


def refuse(folder: Path, message: str) -> None:
    """Loading fails in one line and takes no memory worth mentioning."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=message) as caught:
        load_bundle(folder)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def edit(folder: Path, *keys: str, value: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    values = config
    for key in keys[:-1]:
        values = values[key]
    values[keys[-1]] = value
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.model"])
def test_a_pickle_instead_of_a_file_is_refused_unrun(forged: Path, tmp_path: Path, name: str) -> None:
    trace = tmp_path / "the-payload-ran"
    (forged / name).write_bytes(pickle.dumps(Payload(trace), protocol=4))
    refuse(forged, name)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("model.d_model", 10**30), ("model.d_model", -2), ("model.num_decoder_layers", 10**9)],
        *[("search.beam", 10**9), ("model._target_", "os.system"), ("search._target_", "os.system")],
        ("model", {"d_model": {"$ref": "x"}}),
        *[("search.min_length", 10**5), ("search.max_length_offset", 10**5), ("search.max_length_ratio", 1000.0)],
        *[("search.length_penalty", 1e300), ("search.mbr", 10_000), ("model.dropout", 10**400)],
        *[("search.temperature", 1e300), ("search.batch_tokens", 10**9)],
        *[("search.seed", 10**30), ("search.top_k", 10**30), ("search.no_repeat_ngram", 10**30)],
        *[("search.length_penalty", float("nan")), ("search.top_p", float("inf")), ("search.beam", "5e9")],
        *[("trained_length", 10**30), ("trained_length", True), ("calibration", {"bias": 1.0})],
        *[("src_lang", "\x1b]0;x\x07"), ("tgt_lang", "e\u202es"), ("src_lang", ""), ("tgt_lang", "x" * 999)],
    ],
)
def test_absurd_and_executable_settings_are_refused(forged: Path, key: str, value: object) -> None:
    edit(forged, *key.split("."), value=value)
    refuse(forged, "config.json is damaged")


@pytest.mark.parametrize("keys", [("model", "positions"), ("search", "beam")])
def test_a_bundle_reads_no_environment(forged: Path, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]) -> None:
    monkeypatch.setenv("SECRET", "sinusoidal")
    edit(forged, *keys, value="${oc.env:SECRET}")
    refuse(forged, r"config.json is damaged: a setting has \$\{, but settings are plain values")


@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 10_000, "\ud800".encode("utf-16", "surrogatepass")])
def test_json_that_breaks_parsers_is_refused(forged: Path, text: str | bytes) -> None:
    (forged / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    refuse(forged, "config.json (is damaged: it is no JSON|is not a model)")


@pytest.mark.parametrize("name", ["config.json", "tokenizer.model"])
def test_an_endless_file_is_not_read(forged: Path, name: str) -> None:
    with (forged / name).open("wb") as file:
        file.truncate(10**12)
    refuse(forged, rf"{name} has 1,000,000,000,000 bytes")


def test_a_pipe_instead_of_the_config_is_not_waited_for(forged: Path) -> None:
    (forged / "config.json").unlink()
    os.mkfifo(forged / "config.json")
    refuse(forged, r"config.json is no file")


@pytest.mark.parametrize("key", ["format_version", "vocab_size"])
def test_long_values_are_not_repeated(forged: Path, key: str) -> None:
    edit(forged, key, value="x" * 10_000)
    refuse(forged, r"config.json (is damaged|has format_version)")


def test_a_thousand_layers_without_weights_are_not_built(forged: Path) -> None:
    edit(forged, "model", "num_encoder_layers", value=1000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seq2seq.translate.bundle.build_without_values", lambda *_: pytest.fail("it was built"))
        refuse(forged, r"model.safetensors does not belong to its config.json: \d+ tensors are no 1002 layers")


def write_weights(folder: Path, header: dict[str, object]) -> None:
    data = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(data)) + data + bytes(4))


@pytest.mark.parametrize(("dtype", "shape"), [("F32", [10**12]), ("x" * 10_000, [1]), ("F32\nF32", [1])])
def test_absurd_tensors_in_the_weights_header_are_refused(forged: Path, dtype: str, shape: list[int]) -> None:
    write_weights(forged, {"embedding.weight": {"dtype": dtype, "shape": shape, "data_offsets": [0, 4]}})
    refuse(forged, r"model.safetensors is damaged")
    (forged / "model.safetensors").write_bytes(struct.pack("<Q", 2**63 - 1) + b"{}")
    refuse(forged, r"model.safetensors is damaged")


@pytest.mark.parametrize("error", [RuntimeError("unable to mmap 6 TB: Cannot allocate memory"), MemoryError()])
def test_weights_that_do_not_fit_into_memory_are_refused(forged, monkeypatch, error):
    monkeypatch.setattr("seq2seq.translate.bundle.load_file", Mock(side_effect=error))
    refuse(forged, r"model.safetensors does not fit into memory \(.+\): use a machine with more")


def test_a_tensor_named_like_a_path_is_refused(forged: Path) -> None:
    entries = {f"../../{name}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for name in "wvxyz"}
    write_weights(forged, {**entries, "../../u": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})
    refuse(forged, r"model.safetensors does not belong to its config.json: \.\./\.\./u")
    assert {path.name for path in forged.parent.iterdir()} == {"model"}


@pytest.mark.parametrize(("old", "new"), [(b"<unk>", b"<un\x80"), (b"<0x03>", b"<0x\xff3>"), (b"\x81", b"\xff")])
def test_a_tokenizer_whose_subwords_are_no_text_is_refused(forged: Path, old: bytes, new: bytes) -> None:
    data = (forged / "tokenizer.model").read_bytes()
    assert old in data
    with pytest.raises(UserError, match=r"tokenizer.model is damaged"):
        Tokenizer(data.replace(old, new, 1))


@pytest.mark.parametrize("garbage", [b"", bytes(range(256)) * 40, b"\x0a\x80\x80\x80\x80\x7f"])
def test_a_tokenizer_of_garbage_is_refused(forged: Path, garbage: bytes) -> None:
    (forged / "tokenizer.model").write_bytes(garbage)
    refuse(forged, r"tokenizer.model")
