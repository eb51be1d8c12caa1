"""Real Chromium, without any network."""

import os
import shutil
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from seq2seq.explain.page import write_page

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
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watched:
    """A page that counts what went wrong in it and what it asked the network for."""

    def __init__(self, page: Any, file: Path) -> None:
        """Open the file."""
        self.page, self.faults, self.requests = page, [], []
        page.on("console", lambda message: self.faults.append(message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", lambda dialog: (self.faults.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(file.as_uri())


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    """Write a page and open it from its file: opened(explanation, walks, beams, width=, theme=)."""
    contexts = []

    def call(explanation: dict, walks: list, beams: dict, *, width: int = 1280, theme: str = "light") -> Watched:
        file = tmp_path / "page.html"
        data = {"explanation": explanation, "walks": walks, "beams": beams}
        file.write_text(write_page(data), encoding="utf-8")
        size = {"width": width, "height": 900}
        context = chromium.new_context(offline=True, viewport=size, color_scheme=theme, has_touch=width < 600)
        contexts.append(context)
        watched = Watched(context.new_page(), file)
        watched.page.set_default_timeout(60_000)  # however busy the machine is
        return watched

    yield call
    for context in contexts:
        context.close()


@pytest.fixture
def served(chromium: Any) -> Iterator[Any]:
    """A page of a server that has the viewer's modules beside it, and an element `place` in it."""

    def answer(route: Any) -> None:
        name = route.request.url.rsplit("/", 1)[1]
        if not name:
            return route.fulfill(body="<div id=place></div>", content_type="text/html")
        body = (files("seq2seq.explain") / "viewer" / name).read_text(encoding="utf-8")
        return route.fulfill(body=body, content_type="text/javascript")

    page = chromium.new_page()
    page.route("http://viewer.test/*", answer)
    page.goto("http://viewer.test/")
    yield page
    page.close()


os.environ.setdefault("DBUS_SESSION_BUS_ADDRESS", "disabled:")  # there is no desktop for Chromium to look for
