"""A real Chromium for tests of the page; they skip, saying so, where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Opener = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    play = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    found = os.environ.get("CHROMIUM") or next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        pytest.skip("there is no Chromium; install one, or let CHROMIUM name it")
    with play.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Opener]:
    """Open a file of the disk in a fresh window, offline; at the end nothing may have complained or asked for the network."""
    complaints: list[str] = []
    contexts = []

    def go(file: Path, address: str = "", *, width: int = 1300, height: int = 800, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, offline=True)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("request", lambda request: None if request.url.startswith(("file:", "data:")) else complaints.append(request.url))
        page.goto(f"{file.as_uri()}{address}")
        return page

    yield go
    for context in contexts:
        context.close()
    assert complaints == []
