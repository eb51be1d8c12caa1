"""No bundle, however forged, ends loading with anything but one line or a model that translates.

How to run it for an hour: see test_fuzz_documents.py.
"""

import hashlib
import json
import resource
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seq2seq.translator import Translator
from tests.fuzz.mutating import SECRET, arbitrary, mutated, mutated_bytes, refusal_of

pytestmark = pytest.mark.slow
EXAMPLES = max(settings().max_examples // 4, 8)  # each translates
LASTING = settings(
    max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

FILES = ("config.json", "model.safetensors", "tokenizer.model")
NUMBERS = (0, 1, -1, 2, 3, 4, 7, 1000, 2**31, 10**30, 0.5, 1e300, float("nan"), float("inf"))
WORDS = ("", "auto", "${oc.env:HOME}", "../x", "\n", "none", "rotary", "rmsnorm", "pre", "swiglu", "shared", "x" * 999)
ODD = (
    st.none()
    | st.booleans()
    | st.sampled_from((*NUMBERS, *WORDS, "seq2seq-recurrent"))
    | st.lists(st.just(1), max_size=1)
)
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
        assert all(one.startswith(str(folder / "model")) or "/lib/python" in one for one in opened)
        if refusal is not None:
            assert "\n" not in refusal
            assert len(refusal) < 700
            assert str(folder / "model") in refusal
        for translator in loaded:
            (line,) = translator.translate(["The cat drank."], beam=2, max_length=3, mbr=0, groups=1)
            assert "\n" not in line
        assert {name: (folder / "model" / name).read_bytes() for name in FILES} == files

    return check


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def places_in(values: Any, place: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    inner = values.items() if isinstance(values, dict) else ()
    return [place, *(one for key, value in inner for one in places_in(value, (*place, key)))]


@LASTING
@given(data=st.data())
def test_odd_settings(data: st.DataObject, genuine: dict[str, bytes], check: Check) -> None:
    values = json.loads(genuine["config.json"])
    for *path, key in data.draw(st.lists(st.sampled_from(places_in(values)[1:]), max_size=3)):
        inner = values
        for part in path:
            inner = inner[part] if isinstance(inner, dict) and part in inner else {}
        if isinstance(inner, dict):
            inner[key] = data.draw(ODD)
    check({"config.json": json.dumps(values).encode()})


IN_JSON = (
    "[" * 5_000,
    "9" * 5_000,
    "1e999",
    "NaN",
    "{",
    "}",
    '"',
    ",",
    "null",
    '"model": ',
    '"_target_": "os.system", ',
)


@LASTING
@given(data=st.data())
def test_a_broken_config(data: st.DataObject, genuine: dict[str, bytes], check: Check) -> None:
    text = data.draw(mutated([genuine["config.json"].decode()], IN_JSON) | arbitrary(IN_JSON))
    check({"config.json": text.encode("utf-8", "surrogatepass")})


@LASTING
@given(data=st.data())
def test_broken_weights(data: st.DataObject, genuine: dict[str, bytes], check: Check) -> None:
    check({"model.safetensors": data.draw(mutated_bytes(genuine["model.safetensors"], start=2000))})


@LASTING
@given(data=st.data())
def test_a_forged_header_of_weights(data: st.DataObject, genuine: dict[str, bytes], check: Check) -> None:
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
    check({"model.safetensors": struct.pack("<Q", len(text)) + text + genuine["model.safetensors"][8 + length :]})


@LASTING
@given(data=st.data(), is_told=st.booleans())
def test_a_broken_tokenizer(data: st.DataObject, is_told: bool, genuine: dict[str, bytes], check: Check) -> None:
    changed = data.draw(mutated_bytes(genuine["tokenizer.model"]))
    config = json.loads(genuine["config.json"])
    if is_told:
        config["tokenizer_sha256"] = hashlib.sha256(changed).hexdigest()
    check({"tokenizer.model": changed, "config.json": json.dumps(config).encode()})
