"""On a Ray cluster, here one of this machine, the results are those of one process."""

import operator
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seq2seq.cli.shared import ray_workers
from seq2seq.distributed import bulk
from seq2seq.errors import UnfinishedError, UserError
from seq2seq.files import count_lines
from seq2seq.settings.data import DataConfig, TokenizerConfig
from seq2seq.text import shards
from seq2seq.text.prepare import prepare

if TYPE_CHECKING:
    from seq2seq.distributed.ray_workers import RayWorkers

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore"),  # Ray's own, of many kinds
]


def test_results_come_in_order(workers: "RayWorkers"):
    assert workers.size == 2
    assert list(workers.map(operator.neg, range(5))) == [0, -1, -2, -3, -4]
    assert list(workers.map(operator.neg, [])) == []


def test_a_mistake_is_one_line_and_a_failure_can_be_gone_on_from(
    workers: "RayWorkers", tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    (tmp_path / "a").write_bytes(b"x\n\xff\n")
    with pytest.raises(UserError, match=r"a:2 is not UTF-8 \(byte 0xff at column 1\)"):
        list(workers.map(count_lines, [tmp_path / "a"]))
    message = r"^the Ray job failed \(FileNotFoundError: .*nowhere'\): the same command goes on from what is done$"
    with pytest.raises(UnfinishedError) as failed:
        list(workers.map(os.remove, [tmp_path / "nowhere"]))
    assert re.match(message, str(failed.value))
    assert "Traceback" in failed.value.__notes__[0]  # for --debug
    assert capfd.readouterr().err == ""


def test_actors_make_their_function_once_and_tasks_are_listed_when_they_are_needed(
    workers: "RayWorkers", tmp_path: Path
):
    """Two of the three actors have room in the cluster."""
    listed = list[int]()

    def make() -> Callable[[int], int]:
        with (tmp_path / "made").open("a") as file:
            file.write("once\n")
        return operator.neg

    def tasks() -> Iterator[int]:
        for number in range(2500):
            listed.append(number)
            yield number

    results = workers.map_with(make, tasks(), workers=3, num_cpus=1)
    assert next(results) == 0
    assert len(listed) < 100
    assert list(results) == [-number for number in range(1, 2500)]
    assert (tmp_path / "made").read_text() == "once\n" * 2
    assert list(workers.map_with(lambda: pytest.fail("no task"), [], workers=1, num_cpus=1)) == []


def test_a_worker_that_dies_is_replaced(workers: "RayWorkers", tmp_path: Path):
    def die_once(number: int) -> int:
        if number == 3 and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os._exit(1)
        return number

    for results in (
        workers.map(die_once, range(9)),
        workers.map_with(lambda: die_once, range(9), workers=2, num_cpus=1),
    ):
        assert list(results) == list(range(9))
        (tmp_path / "died").unlink()


def test_preparation_gives_the_bytes_of_one_process(
    workers: "RayWorkers", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(shards, "SHARD", 100)
    pairs = [(f"line {i} of {i % 7}", f"línea {i} de {i % 7}") for i in range(250)]
    for name, some in (("a", pairs), ("b", [*pairs[200:], ("", "x"), *((f"{s}!", t) for s, t in pairs[:40])])):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in some))
    data = DataConfig(root=str(tmp_path), train=["a.tsv", "b.tsv"], held_out=10)
    files = []
    for name, who in (("here", None), ("ray", workers)):
        monkeypatch.setenv("SEQ2SEQ_CACHE", str(tmp_path / name))
        folder = prepare(data, TokenizerConfig(vocab_size=282), who).folder
        files.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert files[0] == files[1]
    assert b'"duplicate": 50' in files[0]["report.json"]


def test_bulk_translation_by_actors_is_that_of_one_process(workers: "RayWorkers", tmp_path: Path, bundle_folder: Path):
    texts = {
        "a": ["The cat sees 1.", "", "A dog.", "El gato ve la leche.", "Ella has."],
        "b": [],
        "c": ["A blue ball."],
    }
    for name, lines in texts.items():
        (tmp_path / f"{name}.en").write_text("".join(f"{line}\n" for line in lines))
    patterns, outputs = [str(tmp_path / "*.en")], []
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(bulk, "SHARD", 2)
        for name, who in (("here", None), ("ray", workers)):
            job = bulk.BulkJob((bundle_folder,), "same", {"beam": 2}, "cpu", 1)
            with bulk.claim(tmp_path / name):
                for expected in ([("a.en", 5), ("b.en", 0), ("c.en", 1)], [(f"{i}.en", 0) for i in "abc"]):
                    files = bulk.bulk_translate(job, bulk.find_files(patterns), tmp_path / name, who, 1)
                    assert [(file.target.name, count) for file, count in files] == expected
            outputs.append([(tmp_path / name / f"{i}.en").read_bytes() for i in "abc"])
    assert outputs[0] == outputs[1]
    assert outputs[0][0].count(b"\n") == 5


def test_no_cluster_at_an_address_is_one_line(monkeypatch: pytest.MonkeyPatch):
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")

    def refuse(**_: object) -> None:
        raise ConnectionError("Please specify.\nCould not find any running Ray instance.\n")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", refuse)
    workers: Any = ray_workers("auto")
    with pytest.raises(UserError, match=r"--ray auto: no Ray cluster there \(Could not .*\); try --ray local"):
        workers.__enter__()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "seq2seq.distributed.ray_workers", raising=False)
    assert ray_workers(None) is None
    with pytest.raises(UserError, match=r"^this needs the package ray: pip install -e '.*\[ray\]'$"):
        ray_workers("local")


def test_the_commands_work_on_a_cluster(workers: "RayWorkers", seq2seq: Any, tmp_path: Path, bundle_folder: Path):
    (tmp_path / "mono.en").write_text("The cat sees.\n\nA dog.\n")
    words = ("--model", bundle_folder, "--input", tmp_path / "mono.en", "--output", tmp_path / "out", "--ray", "auto")
    status, _, err = seq2seq("bulk-translate", *words, "--device", "cpu")
    assert status == 0, err
    assert (tmp_path / "out" / "mono.en").read_text().count("\n") == 3
    text = "".join(f"Sentence {i} of {i % 9}.\tFrase {i} de {i % 9}.\n" for i in range(200))
    (tmp_path / "train.tsv").write_text(text)
    settings = ("data=files", f"data.root={tmp_path}", "data.train=[train.tsv]", "data.held_out=10")
    cache = f"data.cache={tmp_path / 'cache'}"
    status, out, err = seq2seq("prepare", *settings, f"init={bundle_folder}", cache, "--ray", "auto")
    assert status == 0, err
    assert "pairs: train 180, validation 10, held_out 10" in out
