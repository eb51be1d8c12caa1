"""On a Ray cluster, here one of this machine, the results are those of one process."""

import operator
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from seq2seq.apps.distributed import bulk
from seq2seq.cli.shared import ray_workers
from seq2seq.errors import UserError
from seq2seq.storage.output import count_lines, output_folder
from tests.refusing import refuses

if TYPE_CHECKING:
    from seq2seq.apps.distributed.ray_workers import RayWorkers

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore"),  # Ray's own, of many kinds
]


def test_a_mistake_is_one_line_and_a_failure_can_be_gone_on_from(workers, tmp_path, capfd):
    (tmp_path / "a").write_bytes(b"x\n\xff\n")
    with pytest.raises(UserError, match=r"a:2 is not UTF-8 \(byte 0xff at column 1\)"):
        list(workers.map_with(lambda: count_lines, [tmp_path / "a"], workers=1, num_cpus=0))
    message = r"^the Ray job failed \(FileNotFoundError: .*nowhere'\): the same command goes on from what is done$"
    with pytest.raises(UserError) as failed:
        list(workers.map_with(lambda: os.remove, [tmp_path / "nowhere"], workers=1, num_cpus=0))
    assert re.match(message, str(failed.value))
    assert "Traceback" in failed.value.__notes__[0]  # for --debug
    assert capfd.readouterr().err == ""


def test_actors_make_their_function_once_and_tasks_are_listed_when_they_are_needed(workers, tmp_path):
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

    assert list(workers.map_with(lambda: die_once, range(9), workers=2, num_cpus=1)) == list(range(9))
    assert (tmp_path / "died").exists()


def test_bulk_translation_by_actors_is_that_of_one_process(workers: "RayWorkers", tmp_path: Path, bundle_folder: Path):
    texts = {"a": ["The cat sees 1.", "", "A dog.", "El gato ve la leche.", "Ella has."], "b": [], "c": ["A ball."]}
    for name, lines in texts.items():
        (tmp_path / f"{name}.en").write_text("".join(f"{line}\n" for line in lines))
    patterns, outputs = [str(tmp_path / "*.en")], []
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(bulk, "SHARD", 2)
        for name, who in (("here", None), ("ray", workers)):
            job = bulk.BulkJob((bundle_folder,), "same", {"beam": 2}, "cpu", 1)
            with output_folder(tmp_path / name):
                for expected in ([("a.en", 5), ("b.en", 0), ("c.en", 1)], [(f"{i}.en", 0) for i in "abc"]):
                    files = bulk.bulk_translate(job, bulk.find_files(patterns), tmp_path / name, who, 1)
                    assert [(file.source.name, count) for file, count in files] == expected
            outputs.append([(tmp_path / name / f"{i}.en").read_bytes() for i in "abc"])
    assert outputs[0] == outputs[1]
    assert outputs[0][0].count(b"\n") == 5


def test_no_cluster_at_an_address_is_one_line(monkeypatch: pytest.MonkeyPatch):
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(
        ray, "init", Mock(side_effect=ConnectionError("Please specify.\nCould not find any running Ray instance.\n"))
    )
    workers: Any = ray_workers("auto")
    refuses(r"--ray auto: no Ray cluster there \(Could not .*\); try --ray local", workers.__enter__)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "seq2seq.apps.distributed.ray_workers", raising=False)
    assert ray_workers(None) is None
    refuses(r"^this needs the package ray: pip install -e '.*\[ray\]'$", ray_workers, "local")


def test_the_command_works_on_a_cluster(workers: "RayWorkers", seq2seq: Any, tmp_path: Path, bundle_folder: Path):
    (tmp_path / "mono.en").write_text("The cat sees.\n\nA dog.\n")
    words = ("--model", bundle_folder, "--input", tmp_path / "mono.en", "--output", tmp_path / "out", "--ray", "auto")
    status, _, err = seq2seq("bulk-translate", *words, "--device", "cpu")
    assert status == 0, err
    assert (tmp_path / "out" / "mono.en").read_text().count("\n") == 3
