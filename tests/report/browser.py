"""A real browser for the tests: Debian's or anybody's Chromium, without a window and without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

VARIABLE = "APOINT_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run")  # fmt: skip


def find_chromium() -> str:
    """The browser's program; skips the test, with the reason, if there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: neither {VARIABLE} nor {', '.join(NAMES)} on PATH")
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running browser."""
    program = find_chromium()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@dataclass
class Opened:
    """A page that is open, and what the browser had to say about it."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def go(self, file: Path) -> Page:
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        return self.page

    def assert_quiet(self, file: Path) -> None:
        assert self.complaints == []
        assert self.requests == [file.as_uri()]


Open = Callable[..., Opened]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    contexts: list[BrowserContext] = []

    def opened(scheme: str = "light", width: int = 1280, **settings: object) -> Opened:
        size = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, color_scheme=scheme, **settings)  # type: ignore[arg-type]
        contexts.append(context)
        return Opened(context.new_page())

    yield opened
    for context in contexts:
        context.close()
