"""Bulk translation, as a user asks for it."""

import errno
import gzip
import lzma
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from seq2seq.apps.distributed import bulk
from seq2seq.errors import UserError
from seq2seq.storage.lines import open_bytes
from seq2seq.storage.output import output_folder

pytestmark = pytest.mark.slow

TEXTS = [f"The cat {verb} {thing} {i}." for i in range(2) for verb in ("sees", "has") for thing in ("milk", "a ball")]


@pytest.fixture
def mono(tmp_path: Path) -> Path:
    folder = tmp_path / "mono"
    folder.mkdir()
    for name, lines in (("a.en", TEXTS[:5]), ("b.en", ["", *TEXTS[5:8]]), ("c.en", [])):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return folder


@pytest.fixture
def translate(seq2seq, bundle_folder: Path, mono: Path):
    threads = torch.get_num_threads()

    def call(*more: object):
        files = ("--input", mono / "*.en*", "--output", mono.parent / "out")
        model = ("--model", bundle_folder, "--device", "cpu", "--threads", 1)
        return seq2seq("bulk-translate", *model, *files, *more)

    yield call
    torch.set_num_threads(threads)


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_it_is_the_translation_of_each_file_and_finished_files_are_skipped(run, translate, mono: Path):
    status, _, err = translate()
    assert status == 0, err
    out = mono.parent / "out"
    for name in ("a.en", "b.en", "c.en"):
        status, alone, _ = run("--input", mono / name)
        assert (out / name).read_text() == alone
    names = ["a.en", "b.en", "c.en"]
    assert tree(out) == [*(f".seq2seq/parts/{name}/progress.json" for name in names), *names]
    (out / "b.en").unlink()
    times = (out / "a.en").stat().st_mtime_ns
    status, _, err = translate()
    assert status == 0
    assert "2 of 3 files are finished" in err
    assert "b.en: 4 lines" in err
    assert (out / "a.en").stat().st_mtime_ns == times


def test_a_job_killed_after_any_shard_goes_on_from_it(translate, mono: Path, monkeypatch: pytest.MonkeyPatch):
    """A compressed file gives a compressed one."""
    monkeypatch.setattr(bulk, "SHARD", 2)
    assert translate("--output", mono.parent / "straight")[0] == 0
    for name, packed, compress in (("a.en", "a.en.gz", gzip.compress), ("b.en", "b.en.xz", lzma.compress)):
        (mono / packed).write_bytes(compress((mono / name).read_bytes()))
        (mono / name).unlink()
    translate_shard, commit, begun = bulk.ShardTranslator.__call__, bulk.ResumableOutput.commit, list[bulk.Shard]()
    kills = list[int]()

    def note(translator: bulk.ShardTranslator, shard: bulk.Shard) -> list[str]:
        begun.append(shard)
        return translate_shard(translator, shard)

    def killed_after_a_shard(output: bulk.ResumableOutput, inputs: int) -> None:
        commit(output, inputs)
        if len(begun) > len(kills):
            kills.append(inputs)
            raise KeyboardInterrupt

    monkeypatch.setattr(bulk.ShardTranslator, "__call__", note)
    monkeypatch.setattr(bulk.ResumableOutput, "commit", killed_after_a_shard)
    for _ in range(5):
        assert translate()[0] == 130
    assert translate()[0] == 0
    assert len(begun) == len(set(begun)) == 5
    names = ["a.en.gz", "b.en.xz", "c.en"]
    for name in names:
        with open_bytes(mono.parent / "out" / name) as file:
            assert file.read() == (mono.parent / "straight" / name[:4]).read_bytes()
    assert tree(mono.parent / "out") == [*(f".seq2seq/parts/{name}/progress.json" for name in names), *names]


def test_what_cannot_be_read_is_an_error_in_its_turn_after_the_other_shards(
    mono: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bulk, "SHARD", 2)
    (mono / "a.en").write_bytes(b"A cat.\nA dog.\n\xff\n")
    first, damaged, missing = bulk.BulkFile(mono / "a.en", Mock(bulk.ResumableOutput), range(0, 5, 2)).shards()
    assert first.lines == ("A cat.", "A dog.")
    with pytest.raises(UserError, match=r"a\.en:3 .*UTF-8"):
        bulk.ShardTranslator(Mock(bulk.BulkJob))(damaged)
    assert str(missing.lines).endswith("a.en has fewer lines than before: start the job again")


def test_an_unfinished_output_of_other_settings_is_begun_again(translate, mono: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patched:
        patched.setattr(bulk.ResumableOutput, "finish", Mock(side_effect=KeyboardInterrupt))
        assert translate()[0] == 130
    assert translate("--beam", 1)[0] == translate("--beam", 1, "--output", mono.parent / "other")[0] == 0
    assert (mono.parent / "out" / "a.en").read_bytes() == (mono.parent / "other" / "a.en").read_bytes()


def test_a_full_disk_at_the_next_start_removes_nothing_and_can_be_gone_on_from(translate, mono, monkeypatch):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for error, function, message in (
        (KeyboardInterrupt, "finish", ""),
        (full, "_record", "out: No space left"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(bulk.ResumableOutput, function, Mock(side_effect=error))
            status, _, err = translate()
        assert status != 0
        assert message in err
        assert (mono.parent / "out/.seq2seq/parts/a.en/partial").read_text().count("\n") == 5
    assert translate()[0] == 0


def test_samples_do_not_depend_on_shards(translate, mono: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("whole", "cut"):
        status, _, err = translate("--sampling", "--beam", 1, "--seed", 3, "--output", mono.parent / name)
        assert status == 0, err
        monkeypatch.setattr(bulk, "SHARD", 2)
    assert (mono.parent / "whole" / "a.en").read_bytes() == (mono.parent / "cut" / "a.en").read_bytes()


def test_what_another_job_wrote_is_not_taken_for_finished(translate, mono: Path, monkeypatch: pytest.MonkeyPatch):
    assert translate()[0] == 0
    error = "a.en is no translation of this input by this model with these settings: choose another --output"
    assert error in translate("--beam", 1)[2]
    for name, value in (
        ("seq2seq.device.default_dtype", lambda _: torch.bfloat16),
        ("seq2seq.apps.distributed.bulk.__version__", "9"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(name, value)
            assert error in translate()[2]
    (mono / "a.en").write_text("Another text.\n")
    assert error in translate()[2]


def test_bad_input_is_refused_in_one_line(translate, mono: Path):
    assert "error: --workers 2 needs --ray" in translate("--workers", 2)[2]
    assert "nothing.* matches no file" in translate("--input", mono / "nothing.*")[2]
    (mono / "b.en").write_bytes(b"good\nb\xe9d\n")
    assert "b.en:2 is not UTF-8 (byte 0xe9 at column 2)" in translate()[2]
    (mono.parent / "a.en").write_text("x\n")
    assert "would have one output" in translate("--input", mono.parent / "a.en")[2]
    with output_folder(mono.parent / "out"):
        assert f"out is being written by process {os.getpid()} on" in translate()[2]
    assert "would replace the input" in translate("--output", mono)[2]
    assert "a.en: File exists" in translate("--output", mono.parent / "a.en")[2]
