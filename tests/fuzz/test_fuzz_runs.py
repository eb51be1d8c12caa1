"""No run's folder, however broken, ends resuming or listing with anything but one line, or loses a byte of it.

How to run it for an hour: see test_fuzz_documents.py.
"""

import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.settings.loading import load_config
from seq2seq.storage.atomic import unlock
from seq2seq.training.checkpoints import RECORD
from seq2seq.training.run_files import LOCK, list_runs, read_run
from seq2seq.training.run_folder import prepare_folder, read_checkpoint
from seq2seq.training.run_state import find_existing
from tests.fuzz.mutating import LASTING, PLACE, SECRET, arbitrary, mutated, mutated_bytes, refusal_of, with_place
from tests.unit.saved_runs import METRICS, make_run
from tests.unit.saved_runs import settings as settings_of_run

pytestmark = pytest.mark.slow
COSTLY = settings(LASTING, max_examples=max(settings().max_examples // 4, 8))  # each reads all settings
NAME = "step=0000006.ckpt"


def values() -> dict[str, Any]:
    record = {"corpora": {}, "settings": {}, "ranks": 1, "accumulate": 1, "validation_pending": False}
    loops = {"fit_loop": {"epoch_loop.batch_progress": {"total": {"ready": 6, "completed": 6}}}}
    weights = {f"layer.{i}.weight": torch.ones(3, 4) for i in range(4)}
    return {"state_dict": weights, "global_step": 6, "loops": loops, RECORD: record}


def bytes_of(values: Any) -> bytes:
    file = io.BytesIO()
    torch.save(values, file)
    return file.getvalue()


CHECKPOINT = bytes_of(values())


def read(path: Path, data: bytes, watched_files: Callable[[], Any]) -> None:
    path.write_bytes(data)
    with watched_files() as opened:
        refusal = refusal_of(lambda: read_checkpoint(path)) or ""
    assert "\n" not in refusal
    assert len(refusal) < 500
    assert {file for file in opened if file != str(path) and "/lib/python" not in file} == set()
    assert path.read_bytes() == data


@LASTING
@given(data=mutated_bytes(CHECKPOINT))
def test_a_broken_checkpoint(data: bytes, folder: Path, watched_files: Callable[[], Any]) -> None:
    read(folder / NAME, data, watched_files)


def with_pickle(change: Callable[[bytes], bytes]) -> bytes:
    """The checkpoint with another pickle and right checksums."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(CHECKPOINT)) as old, zipfile.ZipFile(file, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            new.writestr(entry.filename, change(data) if entry.filename.endswith("data.pkl") else data)
    return file.getvalue()


PICKLE = zipfile.ZipFile(io.BytesIO(CHECKPOINT)).read("archive/data.pkl")


@LASTING
@given(pickled=mutated_bytes(PICKLE))
def test_a_forged_pickle(pickled: bytes, folder: Path, watched_files: Callable[[], Any]) -> None:
    read(folder / NAME, with_pickle(lambda _: pickled), watched_files)


ODD = st.recursive(
    st.none() | st.booleans() | st.sampled_from([-1, 10**30, 1.5, float("nan"), "\n", "x" * 999]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "ranks"]), inner, max_size=2),
    max_leaves=3,
)


def change(values: Any, path: tuple[Any, ...], value: Any, is_left_out: bool) -> None:
    """Set the value at a path of keys, or leave it out."""
    *keys, last = path
    for key in keys:
        values = values[key]
    if is_left_out:
        del values[last]
    else:
        values[last] = value


@COSTLY
@given(
    key=st.sampled_from([(RECORD,), *((RECORD, key) for key in values()[RECORD])]), value=ODD, is_left_out=st.booleans()
)
def test_a_forged_record_is_resumed_or_refused(key, value, is_left_out, folder):
    shutil.rmtree(folder / "runs", ignore_errors=True)
    run = make_run(folder / "runs" / "a", settings_of_run())
    forged = values()
    change(forged, key, value, is_left_out)
    (run / "checkpoints" / NAME).write_bytes(bytes_of(forged))
    try:
        refusal = refusal_of(lambda: prepare_folder(load_config(str(run), []), run.parent))
    finally:
        unlock(run / LOCK)
    assert "\n" not in (refusal or "")
    assert len(refusal or "") < 900


IN_METRICS = (",", '"', "nan", "inf", "1e999", "²", "-1", "step", "x", "\n", "\r", "\0", "9" * 5_000)
IN_RESULTS = ("{", "}", "null", "NaN", "1e999", ",", '"', "-1", '"scores": {', "[" * 5_000, "9" * 5_000)
IN_CONFIG = (
    *("- ", "&a ", "*a", "${oc.env:HOME}", "null", "1e999", ".nan", "'", '"', "{", "? ", "|", "<<: ", "2020-13-45"),
    *(": ", "\n", "  ", "\t", "---\n", "\ufeff", "\0", "%YAML 9", "!!python/object/apply:os.system [x]", PLACE),
    *("[" * 2_000, "x" * 2_000, "9" * 5_000),
)
CONFIG = yaml.safe_dump(
    {
        "seed": 1,
        "training": {"monitor": "bleu", "modifiers": {"typos": 0.1}},
        "data": {"train": ["a.tsv"]},
        "trainer": {"max_steps": 6},
    }
)
RESULTS = '{"updates": 6, "training_seconds": 3.5, "parameters": 9, "scores": {"a": {"bleu": {"value": 1}}}}'


@COSTLY
@given(
    metrics=st.just(METRICS) | mutated([METRICS], IN_METRICS) | arbitrary(IN_METRICS),
    results=st.just(RESULTS) | mutated([RESULTS], IN_RESULTS),
    config=st.just(CONFIG) | mutated([CONFIG], IN_CONFIG),
)
def test_a_broken_run_is_listed(metrics: str, results: str, config: str, folder: Path) -> None:
    shutil.rmtree(folder / "runs", ignore_errors=True)
    run = make_run(folder / "runs" / "a", results=6)
    for name, text in (("metrics.csv", metrics), ("results.json", results), ("config.yaml", config)):
        (run / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    listed = read_run(run, "a")
    assert list_runs(folder / "runs") == [listed]
    done = []

    def resume() -> None:
        resumed = load_config(str(run), [])
        resumed.name = run.name
        done.append(find_existing(resumed, run.parent))

    refusal = refusal_of(resume)
    assert "\n" not in (refusal or "")
    assert refusal or done == [listed.state == "complete"]


@LASTING
@given(text=mutated([CONFIG, json.dumps({"seed": 1})], IN_CONFIG) | arbitrary(IN_CONFIG))
def test_broken_settings_of_a_run(text: str, folder: Path, watched_files: Callable[[], Any]) -> None:
    path = folder / "config.yaml"
    path.write_bytes(with_place(text, folder.parent / "secret.po").encode("utf-8", "surrogatepass"))
    with watched_files() as opened:
        refusal = refusal_of(lambda: load_config(str(folder), [])) or ""
    assert "\n" not in refusal
    assert len(refusal) < 900
    assert {file for file in opened if file != str(path) and "/lib/python" not in file} == set()
    assert SECRET not in refusal
