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
    """Add the switch that writes golden files anew, and what `.ci/run` needs."""
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew; explain the diff")
    parser.addoption(
        "--passed", type=Path, metavar="FILE", help="leave out the tests that FILE lists, add those that pass"
    )
    parser.addoption("--allowed-skips", type=Path, metavar="FILE", help="fail if a test is skipped for another reason")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that passed before."""
    path = config.getoption("--passed")
    if path is not None and path.exists():
        passed = set(path.read_text(encoding="utf-8").splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Record the tests that passed, and fail if a test was skipped for a reason that is not allowed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return
    if path := session.config.getoption("--passed"):
        with path.open("a", encoding="utf-8") as file:
            file.writelines(
                f"{report.nodeid}\n" for report in reporter.stats.get("passed", []) if report.when == "call"
            )
    if path := session.config.getoption("--allowed-skips"):
        allowed = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
        reasons = {report.nodeid: str(report.longrepr[2]) for report in reporter.stats.get("skipped", [])}
        refused = [name for name, reason in reasons.items() if not any(text in reason for text in allowed)]
        for name in refused:
            reporter.write_line(f"skipped, which {path} does not allow: {name}: {reasons[name]}", red=True)
        if refused:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
