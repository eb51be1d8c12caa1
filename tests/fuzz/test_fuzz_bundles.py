"""No forged bundle, imported model or export ends loading with anything but one line or a model that translates.

How to run it for an hour: see test_fuzz_documents.py.
"""

import hashlib
import json
import resource
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.translate.translator import Translator
from tests.fuzz.mutating import COSTLY, SECRET, arbitrary, mutated, mutated_bytes, refusal_of

pytestmark = pytest.mark.slow

FILES = ("config.json", "model.safetensors", "tokenizer.model")
NUMBERS = (0, 1, -1, 2, 3, 4, 7, 1000, 10**5, 2**31, 10**30, 0.5, 1e300, float("nan"), float("inf"))
STYLES = ("none", "rotary", "rmsnorm", "pre", "swiglu", "shared", "seq2seq-recurrent")
WORDS = ("", "auto", "${oc.env:HOME}", "../x", "\n", "\x1b[31m", "\ud800", "x" * 999, *STYLES)
ODD = st.none() | st.booleans() | st.sampled_from((*NUMBERS, *WORDS)) | st.lists(st.just(1), max_size=1)
Check = Callable[[dict[str, bytes]], None]


@pytest.fixture(scope="module")
def genuine(bundle_folder: Path) -> dict[str, bytes]:
    return {name: (bundle_folder / name).read_bytes() for name in FILES}


@pytest.fixture(scope="module")
def check(folder: Path, genuine: dict[str, bytes], watched_files: Callable[[], Any]) -> Check:
    """Loads a bundle of changed files, and translates with it."""
    Translator.load(write(folder / "model", genuine), "cpu").translate(["The cat."])
    (folder / "secret").write_text(SECRET)

    def check(changed: dict[str, bytes]) -> None:
        files = {**genuine, **changed}
        write(folder / "model", files)

        loaded: list[Translator] = []
        memory, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        with watched_files() as opened:
            refusal = refusal_of(lambda: loaded.append(Translator.load(folder / "model", "cpu")))
        assert time.process_time() - start < 5
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 200_000  # kB
        assert all(name.startswith(str(folder / "model")) or "/lib/python" in name for name in opened)
        if refusal is not None:
            require_one_line(refusal, folder / "model")
        for translator in loaded:
            (line,) = translator.translate(["The cat drank."], beam=2, max_length=3, mbr=0)
            assert line.isprintable()
            assert "".join([translator.src_lang, translator.tgt_lang]).isprintable()
        assert {name: (folder / "model" / name).read_bytes() for name in FILES} == files

    return check


def require_one_line(refusal: str, folder: Path) -> None:
    assert refusal.isprintable()
    assert len(refusal) < 700
    assert str(folder) in refusal


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def paths_in(values: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    inner = values.items() if isinstance(values, dict) else ()
    return [path, *(deeper for key, value in inner for deeper in paths_in(value, (*path, key)))]


@COSTLY
@given(data=st.data())
def test_odd_settings(data: st.DataObject, genuine: dict[str, bytes], check: Check) -> None:
    values = json.loads(genuine["config.json"])
    for *path, key in data.draw(st.lists(st.sampled_from(paths_in(values)[1:]), max_size=3)):
        inner = values
        for part in path:
            inner = inner[part] if isinstance(inner, dict) and part in inner else {}
        if isinstance(inner, dict):
            inner[key] = data.draw(ODD)
    check({"config.json": json.dumps(values).encode()})


IN_JSON = ("[" * 5_000, "9" * 5_000, "1e999", "NaN", *'{}",', "null", '"model": ', '"_target_": "os.system", ')


@COSTLY
@given(data=st.data())
def test_a_broken_config(data: st.DataObject, genuine: dict[str, bytes], check: Check) -> None:
    text = data.draw(mutated([genuine["config.json"].decode()], IN_JSON) | arbitrary(IN_JSON))
    check({"config.json": text.encode("utf-8", "surrogatepass")})


@COSTLY
@given(data=st.data())
def test_broken_weights_and_a_forged_header(data: st.DataObject, genuine: dict[str, bytes], check: Check) -> None:
    (length,) = struct.unpack("<Q", genuine["model.safetensors"][:8])
    header = json.loads(genuine["model.safetensors"][8 : 8 + length])
    name = data.draw(st.sampled_from(sorted(header)))
    key = data.draw(st.sampled_from(["dtype", "shape", "data_offsets"]))
    values = {
        "dtype": st.sampled_from(["F16", "BF16", "F64", "I64", "U8", "BOOL", "F8_E4M3", "C64", "F4", "x"]),
        "shape": st.lists(st.sampled_from([0, 1, 24, 305, 2**62]), max_size=3),
        "data_offsets": st.lists(st.integers(-9, 40_000), min_size=2, max_size=2),
    }
    header[name][key] = data.draw(values[key] | ODD)
    text = json.dumps(header).encode()
    forged = struct.pack("<Q", len(text)) + text + genuine["model.safetensors"][8 + length :]
    check({"model.safetensors": data.draw(st.just(forged) | mutated_bytes(genuine["model.safetensors"], start=2000))})


@COSTLY
@given(data=st.data(), has_digest=st.booleans())
def test_a_broken_tokenizer(data: st.DataObject, has_digest: bool, genuine: dict[str, bytes], check: Check) -> None:
    changed = data.draw(mutated_bytes(genuine["tokenizer.model"]))
    config = json.loads(genuine["config.json"])
    if has_digest:
        config["tokenizer_sha256"] = hashlib.sha256(changed).hexdigest()
    check({"tokenizer.model": changed, "config.json": json.dumps(config).encode()})


MARIAN = ("config.json", "generation_config.json", "tokenizer_config.json", "vocab.json")
ODD_IDS = st.lists(st.sampled_from([-1, 0, 5, 900, 10**6, True, 1.5, "\x1b", [0], [5], [True], [1, 2]]), max_size=3)
MARIAN_KEYS = (  # read from these files, if they are there
    "num_beams", "length_penalty", "no_repeat_ngram_size", "bad_words_ids", "suppress_tokens", "renormalize_logits",
    "forced_bos_token_id", "eos_token_id", "source_lang", "unk_token", "quantization_config", "\x1b[2J",
)  # fmt: skip


@pytest.fixture(scope="module")
def marian(folder: Path) -> Path:
    pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")
    from benchmarks.checkpoints import write_checkpoint

    sizes: dict[str, Any] = {"d_model": 16, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    sizes |= {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    (folder / "marian").mkdir()
    write_checkpoint(folder / "marian", "opus-mt", **sizes)
    return folder / "marian"


@COSTLY
@given(data=st.data())
def test_odd_settings_of_an_imported_model(data: st.DataObject, marian: Path, folder: Path) -> None:
    from seq2seq.apps.exchange.huggingface_import import import_huggingface

    shutil.rmtree(folder / "imported", ignore_errors=True)
    changed = shutil.copytree(marian, folder / "changed", dirs_exist_ok=True)
    for name in data.draw(st.lists(st.sampled_from(MARIAN), max_size=2)):
        values = json.loads((changed / name).read_text(encoding="utf-8"))
        keys = [*values, *MARIAN_KEYS] if name != "vocab.json" else ["<pad>", "</s>", "\x1b", *WORDS]
        values[data.draw(st.sampled_from(keys))] = data.draw(ODD | ODD_IDS)
        (changed / name).write_text(json.dumps(values), encoding="utf-8")
    refusal = refusal_of(lambda: import_huggingface(str(changed), folder / "imported"))
    if refusal is not None:
        require_one_line(refusal, folder / "changed")
        assert not (folder / "imported").exists()
    else:
        assert len(Translator.load(folder / "imported", "cpu").translate(["The cat."], beam=2, max_length=3)) == 1


@COSTLY
@given(data=st.data())
def test_odd_settings_of_an_export(data: st.DataObject, bundle_folder: Path, folder: Path) -> None:
    pytest.importorskip("ctranslate2", reason="the extra `ctranslate2` is not installed")
    from seq2seq.apps.exchange.ctranslate2 import export_ctranslate2
    from seq2seq.translate.ctranslate2_engine import load_export

    if not (folder / "export").exists():
        export_ctranslate2(bundle_folder, folder / "export")
    changed = shutil.copytree(folder / "export", folder / "changed_export", dirs_exist_ok=True)
    for name in data.draw(st.lists(st.sampled_from(["config.json", "bundle.json"]), max_size=2)):
        values = json.loads((changed / name).read_text())
        values[data.draw(st.sampled_from([*values, "\x1b[2J"]))] = data.draw(ODD)
        (changed / name).write_text(json.dumps(values))
    loaded: list[Translator] = []
    refusal = refusal_of(lambda: loaded.append(load_export(changed, "cpu", 1)))
    if refusal is not None:
        require_one_line(refusal, changed)
    for translator in loaded:
        expected = load_export(folder / "export", "cpu", 1).translate(["The cat drank."], beam=1, max_length=3)
        assert translator.translate(["The cat drank."], beam=1, max_length=3) == expected
