"""Real Chromium, without any network."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.server_process import REPOSITORY, ServerProcess
from seq2seq.apps.explain.page import write_page
from tests.browser.watched import Watched

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser; tests that need it are skipped where it or what drives it is not installed.

    It ends with its module: while Playwright runs, its thread has an event loop, and no other test of the process could
    start one with asyncio.run.
    """
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    playwright.expect.set_options(timeout=60_000)  # however busy the machine is
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def contexts(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Make a browser's context: contexts(width=, theme=, **options)."""
    made = []

    def call(*, width: int = 1280, theme: str = "light", **options: Any) -> Any:
        size = {"width": width, "height": 900}
        options |= {"viewport": size, "color_scheme": theme, "has_touch": width < 600, "reduced_motion": "reduce"}
        made.append(chromium.new_context(**options))
        return made[-1]

    yield call
    for context in made:
        context.close()


@pytest.fixture
def opened(contexts: Callable[..., Any], tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    """Write a page and open it from its file, opened(explanation, walks, beams, width=, theme=); it has no faults."""
    pages: list[Watched] = []

    def call(explanation: dict, walks: list, beams: dict, **options: Any) -> Watched:
        file = tmp_path / "page.html"
        file.write_text(write_page({"explanation": explanation, "walks": walks, "beams": beams}), encoding="utf-8")
        pages.append(Watched(contexts(offline=True, **options).new_page(), file.as_uri()))
        return pages[-1]

    yield call
    assert [page.faults for page in pages] == [[]] * len(pages)


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    with ServerProcess(REPOSITORY / "tests" / "golden" / "bundle", "--device", "cpu", OMP_NUM_THREADS="1") as process:
        yield process


@pytest.fixture
def visit(contexts: Callable[..., Any], server: ServerProcess) -> Callable[..., Watched]:
    """Open the server's page: visit(width=, theme=)."""

    def call(**options: Any) -> Watched:
        context = contexts(**options)
        context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
        watched = Watched(context.new_page(), server.url)
        watched.page.wait_for_selector("#examples button", state="attached")
        return watched

    return call


@pytest.fixture
def served(visit: Callable[..., Watched]) -> Any:
    """The server's page, which can import the viewer's modules, with nothing but an element `place` in it."""
    page = visit().page
    page.evaluate("document.body.innerHTML = '<div id=place></div>'")
    return page


os.environ.setdefault("DBUS_SESSION_BUS_ADDRESS", "disabled:")  # there is no desktop for Chromium to look for
