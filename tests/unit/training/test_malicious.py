"""Forged checkpoints and run folders: refused in one line, and what they carry never runs."""

import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from seq2seq.errors import UserError
from seq2seq.settings.config import Config
from seq2seq.settings.data import DataConfig
from seq2seq.settings.loading import load_config
from seq2seq.training.checkpoints import RECORD, KeptCheckpoints
from seq2seq.training.run_folder import newest_checkpoint, prepare_folder, read_checkpoint
from seq2seq.training.run_state import list_resumable
from tests.refusing import refuses


class Payload:
    """Creates a folder when unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("the-payload-ran",)


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a payload that runs leaves behind."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "the-payload-ran"


def honest() -> dict[str, Any]:
    return {"state_dict": {"weight": torch.ones(3, 4)}, "global_step": 7, RECORD: {"corpora": {}, "settings": {}}}


def forge(tmp_path: Path, changes: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    """A checkpoint with other bytes in some of its records."""
    torch.save(honest(), tmp_path / "honest.ckpt")
    forged = tmp_path / "forged.ckpt"
    with zipfile.ZipFile(tmp_path / "honest.ckpt") as old, zipfile.ZipFile(forged, "w", compression) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, changes.get(entry.filename.split("/")[-1], old.read(entry)))
    return forged


def assert_one_line(error: BaseException) -> None:
    assert "\n" not in str(error)
    assert len(str(error)) < 500


@pytest.mark.parametrize(
    "name", ["../../victim", "/etc/passwd", "best-step=0000001-val_bleu=1.ckpt/../x", "victim.ckpt"]
)
def test_a_checkpoint_cannot_have_other_files_deleted(tmp_path: Path, name: str) -> None:
    kept = KeptCheckpoints(tmp_path, "val_bleu", keep_last=1, keep_best=1)
    refuses("as one of the best: it is forged", kept.load_state_dict, {"scores": {name: 1.0}})


@pytest.mark.parametrize(
    "text",
    [
        "seed: !!python/object/apply:os.mkdir ['{trace}']",
        "model: {{_target_: os.mkdir, path: {trace}}}",
        "a: &a [x, x]\nb: &b [*a, *a, *a]\nseed: [*b, *b]",
        "name: ${{oc.env:HOME}}",
        "name: ../../outside",
        "- 1",
        "seed: 1\nseed: [",
        "seed: " + "9" * 5000,
        "seed: 2020-13-45",
        "model: {{d_model: 1000000000, num_heads: 1}}",
        "\x00",
        "data: {{null: 1}}",
    ],
)
def test_a_forged_config_is_refused_unrun(tmp_path: Path, trace: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text.format(trace=trace))
    with pytest.raises(UserError) as caught:
        load_config(str(tmp_path), [])
    assert_one_line(caught.value)
    assert not trace.exists()


def test_a_config_of_absurd_length_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.yaml").open("wb") as file:
        file.truncate(10**12)
    refuses(r"config.yaml has 1,000,000,000,000 bytes: it is damaged", load_config, str(tmp_path), [])


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "..", ".hidden", "latest", "", "a\0b", "x" * 201, "a\n"])
def test_a_name_cannot_leave_the_folder_of_runs(name: str) -> None:
    with pytest.raises(UserError, match=r"name=.* cannot be a folder's name") as caught:
        Config(name=name)
    assert_one_line(caught.value)
    refuses(r"experiment_name=.* cannot be a folder's name", Config, experiment_name=name)
    Config(name="2026.11_x", experiment_name="sweep-1,lr=3e-4")


def run_folder(tmp_path: Path) -> Path:
    (tmp_path / "train.tsv").write_text("a\tb\n")
    config = Config(name="x", data=DataConfig(root=str(tmp_path), train=["train.tsv"]))
    _, folder, _ = prepare_folder(config, tmp_path / "runs")
    for step in (5, 7):
        torch.save({**honest(), "global_step": step}, folder / f"checkpoints/step={step:07d}.ckpt")
    assert yaml.safe_load((folder / "config.yaml").read_text()) == asdict(config)
    return folder


def test_the_best_checkpoint_is_gone_on_from_if_the_last_one_is_damaged(tmp_path, caplog):
    folder = run_folder(tmp_path) / "checkpoints"
    (folder / "step=0000005.ckpt").rename(folder / "best-step=0000005-val_bleu=20.25.ckpt")
    (folder / "best-step=0000004-val_bleu=30.25.ckpt").write_bytes(b"PK")
    (folder / "step=0000007.ckpt").write_bytes(b"PK")
    (folder / "best-step=0000007-val_bleu=20.00.ckpt").hardlink_to(folder / "step=0000007.ckpt")
    path, values = newest_checkpoint(folder.parent)
    assert path.name == "best-step=0000005-val_bleu=20.25.ckpt"
    assert values["global_step"] == 7 - 2
    assert "step=0000007.ckpt is damaged" in caplog.text
    assert "going on from best-step=0000005-val_bleu=20.25.ckpt, the one before, and training 2 updates" in caplog.text
    assert list_resumable(folder)[0] == path
    assert len(list(folder.glob("damaged-*"))) == 2


def damage(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Return what writes a checkpoint with other bytes."""

    def write(path: Path) -> None:
        torch.save(honest(), path)
        path.write_bytes(change(path.read_bytes()))

    return write


def pickled(data: bytes) -> Callable[[Path], Any]:
    """Return what writes a checkpoint with another pickle in its archive."""
    return lambda path: shutil.move(forge(path.parents[1], {"data.pkl": data}), path)


def with_extra(value: Any) -> Callable[[Path], None]:
    """Return what writes a checkpoint with one more value."""
    return lambda path: torch.save({**honest(), "extra": value}, path)


def nested(levels: int, width: int) -> list[Any]:
    """Return a list of equal lists of equal lists."""
    value: list[Any] = [0]
    for _ in range(levels):
        value = [value] * width
    return value


PAYLOADS = [pickle.dumps(Payload(), protocol=protocol) for protocol in (0, 2, 4)]
MEMORY = b"\x80\x02cbuiltins\nbytearray\n\x8a\x07" + (10**15).to_bytes(7, "little") + b"\x85R."  # bytearray(10**15)
ONE, TWO = (torch.full((4,), value).numpy().tobytes() for value in (1.0, 2.0))
UNUSABLE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "code": (with_extra(Payload()), "asks for posix.mkdir: weights are plain values, this one is forged"),
    **{f"bare code {i}": (partial(Path.write_bytes, data=PAYLOADS[i]), "forged and was not loaded") for i in range(3)},
    **{f"pickled code {i}": (pickled(PAYLOADS[i]), "forged and was not loaded") for i in range(3)},
    "much memory": (pickled(MEMORY), "asks for builtins.bytearray"),
    "a huge tensor": (with_extra(torch.ones(1).expand(10**12)), "a tensor of 1,000,000,000,000 numbers, more than"),
    "multiplied lists": (with_extra(nested(40, 2)), "holds more values, or deeper ones, than a file of weights"),
    "deep lists": (with_extra(nested(200, 1)), "holds more values, or deeper ones, than a file of weights"),
    "an empty pickle": (pickled(b"\x80\x02."), "is damaged"),
    "a missing memo": (pickled(b"\x80\x02h\x07."), "is damaged"),
    "too few arguments": (pickled(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R."), "is damaged"),
    "a long name": (pickled(b"\x80\x02cx\n" + b"y" * 9999 + b"\n."), "asks for x"),
    "packed": (lambda path: shutil.move(forge(path.parents[1], {}, zipfile.ZIP_DEFLATED), path), "packed"),
    "foreign": (lambda path: torch.save({"model": torch.ones(2)}, path), "no checkpoint of this program"),
    "a list": (lambda path: torch.save([1], path), "no checkpoint of this program"),
    "a record of another kind": (lambda path: torch.save({**honest(), RECORD: 3}, path), "no checkpoint of this"),
    "a record without texts": (lambda path: torch.save({**honest(), RECORD: {}}, path), "no checkpoint of this"),
    "a folder": (Path.mkdir, "no regular file"),
    "a pipe": (os.mkfifo, "no regular file"),
    "a dead link": (lambda path: path.symlink_to("none"), "no regular file"),
    "a link to itself": (lambda path: path.symlink_to(path.name), "no regular file"),
    "truncated": (damage(lambda data: data[:-100]), "is damaged"),
    "empty": (damage(lambda data: b""), "is damaged"),
    "flipped": (damage(lambda data: data.replace(ONE, TWO, 1)), "is damaged"),
    "headless": (damage(lambda data: data[50:]), "is damaged"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_an_unusable_newest_checkpoint_is_passed_over_unrun_and_kept(tmp_path, trace, kind, caplog):
    folder = run_folder(tmp_path)
    newest, (make, reason) = folder / "checkpoints/step=0000007.ckpt", UNUSABLE[kind]
    newest.unlink()
    make(newest)
    (folder / "checkpoints/damaged-step=0000007.ckpt").mkdir()  # of an earlier time
    before = newest.read_bytes() if newest.is_file() else None
    path, values = newest_checkpoint(folder)
    assert (path.name, values["global_step"]) == ("step=0000005.ckpt", 5)
    assert [reason in message and "going on from step=0000005" in message for message in caplog.messages] == [True]
    kept = folder / "checkpoints/damaged-2-step=0000007.ckpt"
    assert os.path.lexists(kept)
    assert before is None or kept.read_bytes() == before
    (folder / "checkpoints/step=0000005.ckpt").unlink()
    make(newest)
    with pytest.raises(UserError, match=f"{reason}.*; there is no other: restore it") as caught:
        newest_checkpoint(folder)
    assert_one_line(caught.value)
    assert os.path.lexists(newest)
    assert not trace.exists()


def test_no_bit_of_a_checkpoints_table_of_contents_changes_its_values(tmp_path: Path) -> None:
    path, was = forge(tmp_path, {}), honest()["state_dict"]["weight"]
    data = path.read_bytes()
    for place in range(8 * int.from_bytes(data[-6:-2], "little"), 8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        try:
            values = read_checkpoint(path, "cpu")
        except UserError:
            continue
        assert torch.equal(values["state_dict"]["weight"], was), place
