"""Fixtures of all tests."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

if "PYTEST_XDIST_WORKER" in os.environ:  # the cores are taken by as many tests
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine must not fail a test, and a test that failed once must fail again.
_STEADY: dict[str, Any] = {"deadline": None, "derandomize": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", max_examples=15, **_STEADY)
settings.register_profile("ci", max_examples=200, **_STEADY)
_WIDE = {**_STEADY, "derandomize": False, "print_blob": True}
settings.register_profile("fuzz", max_examples=int(os.environ.get("FUZZ_EXAMPLES", "20000")), **_WIDE)
_IS_CI = os.environ.get("CI", "").lower() in ("1", "true")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if _IS_CI else "dev"))

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def _private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep prepared text of tests out of the user's cache."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("SEQ2SEQ_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def shared_data() -> Path:
    """Real English-Spanish text beside the repository; tests that need it are skipped without it."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real text at {folder}")
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that writes golden files anew."""
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew; explain the diff")
