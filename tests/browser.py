"""A real headless Chromium, for the tests of pages. Skipped with a line that says so where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page, ViewportSize

ANSWER_MS = 15_000
"""Longest wait for anything a test expects to see."""

SCREENSHOTS = Path(os.environ.get("SCREENSHOTS", Path(__file__).parent.parent / ".screenshots"))
"""Pictures of what tests saw, kept to be looked at."""

PHONE: ViewportSize = {"width": 390, "height": 780}
DESKTOP: ViewportSize = {"width": 1280, "height": 800}

_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Tab:
    """A page in a browser, and what it said on its console."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.said: list[str] = []
        """Warnings and errors, uncaught exceptions and refusals of the page's policy among them."""
        page.on("console", lambda message: self.said.append(message.text) if message.type != "log" else None)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.set_default_timeout(ANSWER_MS)

    # Not `wait_for_function`: it evaluates text in the page, whose policy refuses that.

    async def counts(self, selector: str, number: int) -> None:
        """Wait until so many elements are there."""
        from playwright.async_api import expect

        await expect(self.page.locator(selector)).to_have_count(number, timeout=ANSWER_MS)

    async def holds(self, selector: str, value: str) -> None:
        """Wait until a field holds a value."""
        from playwright.async_api import expect

        await expect(self.page.locator(selector)).to_have_value(value, timeout=ANSWER_MS)

    async def reads(self, where: Locator, text: str, *, timeout_ms: float = ANSWER_MS) -> None:
        """Wait until an element reads so."""
        from playwright.async_api import expect

        await expect(where).to_have_text(text, timeout=timeout_ms)

    async def picture(self, name: str) -> None:
        """Keep a picture."""
        await self.page.screenshot(path=SCREENSHOTS / f"{name}.jpg", quality=82)  # makes the folder


def need_browser() -> str:
    """The browser's program. Skips the test where it, or what drives it, is missing."""
    pytest.importorskip("playwright", reason="Playwright is not installed: pip install playwright")
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("no Chromium on this machine; on Debian: apt-get install chromium")


@asynccontextmanager
async def browsing(url: str, *, errors: bool = False, **context: Any) -> AsyncIterator[Tab]:
    """The page of a URL in a fresh browser. It fails at the end if the console had an error, unless some may come."""
    path = need_browser()
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        try:
            page = await browser.new_page(**{"viewport": DESKTOP, **context})
            tab = Tab(page)
            await page.goto(url)
            yield tab
            assert errors or tab.said == []
        finally:
            await browser.close()
