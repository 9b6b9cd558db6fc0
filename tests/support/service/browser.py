"""A real browser, for the pages of the console: Debian's Chromium, or whichever is there, driven by Playwright.

ALLOCATOR_TEST_CHROMIUM   the path of its program, where it is not found by its name
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from support.closing import Closing
from support.servers.available import without

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DESKTOP, PHONE = {"width": 1400, "height": 900}, {"width": 390, "height": 844}
LIGHT, DARK = "light", "dark"
PATIENCE = 15_000
"""Milliseconds."""


def program() -> str | None:
    named = os.environ.get("ALLOCATOR_TEST_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


HURRIED = """
import time
from types import SimpleNamespace
from allocator.service.console import views
views.EVERY /= {0}
views.time = SimpleNamespace(monotonic=lambda: {0} * time.monotonic(), time=time.time)
from allocator.cli import main
main()
"""
"""A service whose plots are full that many times sooner; its rates are that many times smaller."""

NETWORK = "ERR_NETWORK_CHANGED"
"""What Chromium says of every request under way when the machine gets a network interface, as by a container."""


@contextmanager
def browser() -> Iterator[Browser]:
    """Skips where there is none, or fails where ALLOCATOR_TEST_REQUIRE says chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        without("chromium", "no browser: playwright is not installed")
    path = program()
    if path is None:
        without("chromium", f"no browser: none of {', '.join(NAMES)} is installed")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


class Visit(Closing):
    """A window of its own, which gives this token as a password; `trouble` is whatever the browser complained of."""

    def __init__(self, browser: Browser, address: str, secret: str, size: dict[str, int], scheme: str) -> None:
        self.context: BrowserContext = browser.new_context(
            base_url=address,
            viewport=size,
            color_scheme=scheme,
            http_credentials={"username": "anybody", "password": secret},
        )
        self.context.set_default_timeout(PATIENCE)
        self.trouble: list[str] = []
        self.page: Page = self.context.new_page()
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.trouble.append(f"error: {error}"))
        self.page.on("requestfailed", self._failed)
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.asked: list[str] = []

    def _said(self, message: Any) -> None:
        if message.type in {"error", "warning"} and NETWORK not in message.text:
            self.trouble.append(f"{message.type}: {message.text}")

    def _failed(self, request: Any) -> None:
        why = str(request.failure)
        if "ERR_ABORTED" not in why and NETWORK not in why:  # what the page itself gave up, as for a newer question
            self.trouble.append(f"failed: {request.url} {request.failure}")

    def go(self, there: str) -> None:
        """Once more where another test starts a container meanwhile."""
        try:
            self.page.goto(there)
        except Exception as error:
            if NETWORK not in str(error):
                raise
            self.page.goto(there)

    def sideways(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def close(self) -> None:
        self.context.close()
