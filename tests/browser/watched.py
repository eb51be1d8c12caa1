"""A page in the browser, with what a test does with it."""

from typing import Any

import pytest


class Watched:
    """A page that collects what went wrong in it, and what it asked the network for."""

    def __init__(self, page: Any, url: str) -> None:
        """Open the address."""
        self.page, self.faults, self.requests = page, [], []
        page.set_default_timeout(60_000)  # however busy the machine is
        page.on("console", lambda message: self.faults.append(message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("dialog", lambda dialog: (self.faults.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(url)

    def write(self, text: str) -> None:
        """Write text into the server's page and wait for the translation."""
        self.page.locator("#source").fill(text)
        self.page.wait_for_selector("#target:not([data-old])", state="attached")

    def look_into(self, text: str) -> None:
        """Write text into the server's page and wait for its attention."""
        self.write(text)
        self.page.wait_for_selector("#attention .diagram")

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def wait_for_text(self, selector: str, text: str) -> None:
        self.page.locator(selector).filter(has_text=text).wait_for()

    def serious_faults(self) -> list[str]:
        """Return what axe-core calls serious or critical."""
        axe = pytest.importorskip(
            "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
        )
        return [
            f"{violation['id']}: {violation['help']}: {node['html'][:120]} {node['failureSummary']}"
            for violation in axe.Axe().run(self.page).response["violations"]
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"][:3]
        ]
