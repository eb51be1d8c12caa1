"""Forged bundles: refused in one line before memory is taken or anything runs."""

import json
import math
import os
import pickle
import resource
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import save_file

from seq2seq.errors import UserError
from seq2seq.model.build import build_model
from seq2seq.settings.bundle import Calibration
from seq2seq.settings.data import TokenizerConfig
from seq2seq.settings.model import ModelConfig
from seq2seq.settings.search import SearchConfig
from seq2seq.text.tokenizer import Tokenizer, train_tokenizer
from seq2seq.text.vocabulary import Tokenizers
from seq2seq.translate.bundle import Bundle, BundleConfig, load_bundle, save_bundle
from tests.refusing import refuses
from tests.unit.training.test_malicious import Payload

TEXTS = [
    f"The {a} {b} is {c}." for a in ("red", "big", "old") for b in ("dog", "cat", "house") for c in ("here", "new")
]
SEARCH = SearchConfig(beam=3, length_penalty=0.7, max_length_ratio=1.5, max_length_offset=9, batch_tokens=77)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig(vocab_size=280))
    config = ModelConfig(d_model=12, num_heads=3, d_ff=20, num_encoder_layers=1, num_decoder_layers=2, bias=False)
    model = build_model(config, tokenizer.vocab_size).eval()
    calibration = Calibration(1.5, 3.25, -0.125, 0.5)
    settings = BundleConfig(config, SEARCH, "en", "pt", trained_length=17, calibration=calibration)
    return Bundle(model, Tokenizers.joint(tokenizer), settings)


@pytest.fixture
def folder(bundle: Bundle, tmp_path: Path) -> Path:
    save_bundle(tmp_path / "model", bundle, "# A card\n")
    return tmp_path / "model"


def test_what_is_saved_is_what_is_loaded(bundle: Bundle, folder: Path) -> None:
    loaded = load_bundle(folder)
    assert loaded.config == bundle.config
    assert loaded.tokenizer.target.encode(TEXTS) == bundle.tokenizer.target.encode(TEXTS)
    weights = loaded.model.state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in bundle.model.state_dict().items())
    assert not loaded.model.training
    names = ["README.md", "config.json", "model.safetensors", "tokenizer.model"]
    assert sorted(path.name for path in folder.iterdir()) == names
    values = json.loads((folder / "config.json").read_text())
    assert values["architecture"] == "seq2seq-transformer"
    assert "architecture" not in values["model"]  # once


def test_whom_the_umask_lets_read_can_read_all_of_it(bundle: Bundle, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        save_bundle(tmp_path / "shared", bundle, "# A card\n")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "shared").iterdir()} == {0o640}
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o750


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("operation", ["seq2seq.translate.bundle.save_file", "pathlib.Path.rename"])
def test_a_failed_save_leaves_the_bundle_as_before(bundle, folder, monkeypatch, operation):
    with monkeypatch.context() as patched:
        patched.setattr(operation, full)
        refuses(r"model: No space left on device", save_bundle, folder, bundle, "# New\n")
    assert (folder / "README.md").read_text() == "# A card\n"
    load_bundle(folder)
    save_bundle(folder, bundle, "# Another card\n")
    assert (folder / "README.md").read_text() == "# Another card\n"
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_bundle_written_again_keeps_what_others_put_there_and_no_file_of_the_model_before(bundle, folder):
    (folder / "ct2").mkdir()
    of_others, of_a_model = (
        ("shortlist.bin", ".notes", "ct2/model.bin"),
        ("source.model", "target.model", "subwords.json"),
    )
    for name in (*of_others, *of_a_model, "bundle.json"):
        (folder / name).write_text("of another model")
    save_bundle(folder, bundle, "# Card\n")
    assert load_bundle(folder).tokenizer.digest == bundle.tokenizer.digest
    names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert names - {"model.safetensors", "config.json", "README.md", "tokenizer.model"} == {*of_others, "ct2"}


def test_what_is_not_whole_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    refuses(r"no model at .*nowhere: give a bundle's folder, or train one", load_bundle, tmp_path / "nowhere")
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-1])
    refuses(r"model.safetensors is damaged", load_bundle, folder)
    (folder / "model.safetensors").unlink()
    refuses(r"not a whole model: model.safetensors is missing", load_bundle, folder)


def test_the_files_of_another_model_are_refused(folder: Path) -> None:
    weights = (folder / "model.safetensors").read_bytes()
    save_file({f"h.{i}.weight": torch.zeros(3, 5) for i in range(9)}, folder / "model.safetensors")
    refuses(r"does not belong to its config.json: decoder_layers.*missing", load_bundle, folder)
    (folder / "model.safetensors").write_bytes(weights)
    other = train_tokenizer([text.replace("dog", "cow") for text in TEXTS], TokenizerConfig(vocab_size=280))
    (folder / "tokenizer.model").write_bytes(other.model_bytes)
    refuses("not the tokenizer that this model was trained with", load_bundle, folder)


def change(folder: Path, values: Mapping[str, object]) -> None:
    """Change settings of a bundle, such as search.beam."""
    config = json.loads((folder / "config.json").read_text())
    for key, value in values.items():
        *groups, name = key.split(".")
        reduce(dict.__getitem__, groups, config)[name] = value
    (folder / "config.json").write_text(json.dumps(config))


def refuse(folder: Path, message: str) -> None:
    """Loading fails in one line and takes no memory worth mentioning."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refuses(message, load_bundle, folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


SIZES = {"d_model": 1 << 18, "num_encoder_layers": 1, "num_decoder_layers": 1}  # with matrices of a terabyte
ABSURD = [
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
    *[("model.positions", "${oc.env:HOME}"), ("search.beam", "${oc.env:HOME}")],
]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"architecture": "MarianMTModel"}, "not a model of this program"),
        ({"format_version": 2}, "format_version=2, this version reads 1 and 3: use the version that wrote it"),
        (
            {"calibration": dict.fromkeys(("bias", "mean", "total", "length"), math.nan)},
            "damaged: calibration={'bias': nan, .* expected the numbers",
        ),
        ({"vocab_size": 10**12}, "damaged: vocab_size=1000000000000, tokenizer.model has 280 tokens"),
        ({"architecture": "seq2seq-transformer", "model": SIZES}, r"config.json: .*, config.json wants \("),
        ({"architecture": "seq2seq-recurrent", "model": SIZES}, r"config.json: .*, config.json wants \("),
        ({"model.num_encoder_layers": 1000}, r"does not belong to its config.json: \d+ tensors are no 1002 layers"),
        *[({key: value}, "config.json is damaged") for key, value in ABSURD],
    ],
)
def test_foreign_absurd_and_executable_settings_are_refused(folder, values, message):
    change(folder, values)
    refuse(folder, message)


def test_a_retired_setting_of_an_older_version_is_left_out_if_it_was_off(bundle: Bundle, folder: Path) -> None:
    search = json.loads((folder / "config.json").read_text())["search"]
    retired = {"coverage_penalty": 0.0, "repetition_penalty": 1.0, "groups": 1, "diversity": 0.7}
    change(folder, {"search": {**search, **retired}})
    assert load_bundle(folder).config == bundle.config
    for key, value in (("coverage_penalty", 0.3), ("repetition_penalty", 1.2), ("groups", 2)):
        change(folder, {"search": {**search, key: value}})
        refuses(rf"^.*json: search.{key}={value} is not known to this version: set it to ", load_bundle, folder)


def test_a_bundle_keeps_a_changed_architecture(bundle: Bundle, tmp_path: Path) -> None:
    config = replace(bundle.config.model, relevance="uniform", positions="none", decoder_mask="none")
    model = build_model(config, bundle.model.vocab_size).eval()
    save_bundle(tmp_path / "model", replace(bundle, model=model, config=BundleConfig(config, SEARCH)), "")
    loaded = load_bundle(tmp_path / "model")
    assert loaded.config.model == config
    src, tgt_in = torch.arange(4, 18).view(2, 7), torch.arange(4, 14).view(2, 5)
    assert torch.equal(loaded.model(src, tgt_in), model(src, tgt_in))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.model"])
def test_a_pickle_instead_of_a_file_is_refused_unrun(
    folder: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (folder / name).write_bytes(pickle.dumps(Payload(), protocol=4))
    refuse(folder, name)
    assert not Path("the-payload-ran").exists()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.model"])
def test_an_endless_file_is_not_read(folder: Path, name: str) -> None:
    with (folder / name).open("wb") as file:
        file.truncate(10**12)
    refuse(folder, rf"{name} has 1,000,000,000,000 bytes")


def test_a_pipe_instead_of_the_config_is_not_waited_for(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    refuse(folder, r"config.json is no file")


@pytest.mark.parametrize("error", [RuntimeError("unable to mmap 6 TB: Cannot allocate memory"), MemoryError()])
def test_weights_that_do_not_fit_into_memory_are_refused(folder, monkeypatch, error):
    monkeypatch.setattr("seq2seq.translate.bundle.load_file", Mock(side_effect=error))
    refuse(folder, r"model.safetensors does not fit into memory \(.+\): use a machine with more")


@pytest.mark.parametrize(("old", "new"), [(b"<unk>", b"<un\x80"), (b"<0x03>", b"<0x\xff3>"), (b"\x81", b"\xff")])
def test_a_tokenizer_whose_subwords_are_no_text_is_refused(folder: Path, old: bytes, new: bytes) -> None:
    data = (folder / "tokenizer.model").read_bytes()
    assert old in data
    with pytest.raises(UserError, match=r"tokenizer.model is damaged"):
        Tokenizer(data.replace(old, new, 1))
