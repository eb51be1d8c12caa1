"""One small Ray cluster, of this machine, for all tests of the module that has them."""

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from seq2seq.apps.distributed.ray_workers import RayWorkers


@pytest.fixture(scope="module")
def workers() -> "Iterator[RayWorkers]":
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    from seq2seq.apps.distributed.ray_workers import RayWorkers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own, of many kinds
        small = {"num_cpus": 2, "object_store_memory": 80 << 20, "include_dashboard": False}
        ray.init("local", **small, log_to_driver=False)  # its own, whatever runs here or RAY_ADDRESS says
        with RayWorkers("auto") as opened:  # takes the one that is there, and leaves it
            yield opened
        assert ray.is_initialized()
        ray.shutdown()
