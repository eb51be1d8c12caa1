"""Translations of files that were broken off, and go on with --resume."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.conftest import one_line_error

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_an_interrupted_file_goes_on_as_if_nothing_had_happened_unless_something_changed(run, tmp_path, monkeypatch):
    monkeypatch.setattr("seq2seq.translate.translator.CHUNK_LINES", 3)
    source, terms, complete, broken = (tmp_path / name for name in ("in.en", "terms.tsv", "complete.es", "broken.es"))
    source.write_text("\n".join(f"The cat {number}." for number in range(10)))
    terms.write_text("# old\nsee\tve\n")
    options = ("--input", source, "--glossary", terms, "--max-length", "4", "--n-best", "2")
    assert run(*options, "--output", complete)[0] == 0
    with monkeypatch.context() as patched:
        patched.setattr("seq2seq.cli.shared.show", breaking_at(7))
        assert run(*options, "--output", broken)[0] == 130
    assert not broken.exists()
    partial = tmp_path / ".broken.es.seq2seq/partial"
    begun = partial.read_bytes()
    resume = (*options, "--output", broken, "--resume")
    assert "broken.es was made with beam=None, not 2: --resume it with the same" in run(*resume, "--beam", 2)[2]
    for file, name in ((source, "input"), (terms, "glossary")):
        before = file.read_text()
        file.write_text(before.replace("see", "drinks").replace("cat 9", "dog 9"))
        err = one_line_error(run(*resume))
        assert re.search(rf"made with {name}_digest=\w+, not \w+: .*leave out --resume to begin anew", err)
        assert partial.read_bytes() == begun
        file.write_text(before)
    terms.write_text("see\tve\n")  # a comment changes no translation
    assert run(*resume)[0] == 0
    assert broken.read_bytes() == complete.read_bytes()
    assert [path.name for path in partial.parent.iterdir()] == ["progress.json"]  # by which it is known
    assert "broken.es was made with beam=None, not 2" in run(*resume, "--beam", 2)[2]
    assert run(*resume)[::2] == (0, f"{broken} is already complete\n")
    broken.write_text("corrected by hand\n")
    assert "broken.es has changed since it was complete" in run(*resume)[2]
    assert run("hola", "--resume")[0] == 2


def test_the_parts_of_a_file_are_the_whole_in_order(run, tmp_path, monkeypatch):
    monkeypatch.setattr("seq2seq.translate.translator.CHUNK_LINES", 2)
    monkeypatch.chdir(tmp_path)
    with gzip.open("in.gz", "wt") as file:
        file.writelines(f"el gato {n}\n" for n in range(9))
    assert run("--input", "in.gz", "--json", "--output", "whole.gz")[0] == 0
    for part in (1, 2, 3, 4):
        assert run("--input", "in.gz", "--json", "--output", f"{part}.gz", "--shard", f"{part}/4", "--resume")[0] == 0
    parts = b"".join(Path(f"{part}.gz").read_bytes() for part in (1, 2, 3, 4))
    assert gzip.decompress(parts) == gzip.decompress(Path("whole.gz").read_bytes())
    for shard in ("0/4", "5/4", "1", "1/0", "x/2"):
        assert f"--shard {shard} is no part" in run("--input", "in.gz", "--shard", shard)[2]
    again = run("--input", "in.gz", "--json", "--output", "1.gz", "--shard", "2/4", "--resume")
    assert "made with shard=1/4, not 2/4" in again[2]
    assert "--shard is for the lines of a regular file" in run("hola", "--shard", "1/2")[2]


def test_what_cannot_be_read_or_written_again_is_not_resumed(run, tmp_path):
    source, pipe = tmp_path / "in.en", tmp_path / "pipe"
    source.write_text("The cat.\n")
    os.mkfifo(pipe)
    for options, named in (
        (("--input", pipe, "--output", tmp_path / "out.es"), pipe),
        (("--input", source, "--output", os.devnull), os.devnull),
    ):
        status, _, err = run(*options, "--resume")
        assert status == 1
        assert err == f"error: --resume needs regular files, and {named} is none: leave out --resume to begin anew\n"


def breaking_at(line):
    from seq2seq.cli.shared import show

    def show_or_break(job, number, source, best):
        if number == line:
            raise KeyboardInterrupt
        return show(job, number, source, best)

    return show_or_break


@pytest.mark.system
def test_a_killed_translation_resumes_to_the_same_file(bundle_folder, tmp_path):
    source, whole, killed = tmp_path / "in.en", tmp_path / "whole.es", tmp_path / "killed.es"
    source.write_text("\n".join(f"The cat drank {number} times." for number in range(3000)))
    command = [sys.executable, "translate.py", "--model", bundle_folder, "--device=cpu", "--input", source, "--beam=1"]
    subprocess.run([*command, "--output", whole], cwd=ROOT, check=True)
    process = subprocess.Popen([*command, "--output", killed], cwd=ROOT)
    progress = tmp_path / ".killed.es.seq2seq/progress.json"
    while not (progress.is_file() and json.loads(progress.read_text())["inputs"]):
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not killed.exists()
    subprocess.run([*command, "--output", killed, "--resume"], cwd=ROOT, check=True)
    assert killed.read_bytes() == whole.read_bytes()
