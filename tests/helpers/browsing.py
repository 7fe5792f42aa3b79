"""Pages: what HTML has, and those of ``colobus watch`` and ``play`` in a real Chromium."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

PATIENCE = 120.0  # seconds; no test is about how fast a machine is


@contextmanager
def served(command: str, folder: Path, *words: str) -> Iterator[str]:
    """Run ``colobus COMMAND FOLDER``; give the link that it prints."""
    whole = [sys.executable, "-m", "colobus.cli.main", command, str(folder), *words]
    with subprocess.Popen(whole, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            process.stdout.read()


def open_page(browser: Any, link: str, width: int = 1600, theme: str = "light") -> None:
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get("about:blank")
    complaints(browser)  # those of the page before
    browser.get(link)
    wait(lambda: browser.execute_script("return document.body.dataset.ready") == "yes")


@contextmanager
def opened(
    browser: Any, command: str, folder: Path, *words: str, width: int = 1600
) -> Iterator[None]:
    """Open the page of ``colobus COMMAND FOLDER``, which has nothing to complain about."""
    with served(command, folder, *words) as link:
        open_page(browser, link, width)
        yield
        assert complaints(browser) == []


def wait(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "the page does not show it"
        time.sleep(0.05)


def text_of(browser: Any, selector: str) -> str:
    found: str = browser.execute_script(
        "return document.querySelector(arguments[0])?.innerText ?? ''", selector
    )
    return found


def count_of(browser: Any, selector: str) -> int:
    found: int = browser.execute_script(
        "return document.querySelectorAll(arguments[0]).length", selector
    )
    return found


def picture_of(browser: Any, selector: str = "#score-chart canvas") -> str:
    found: str = browser.execute_script(
        "return document.querySelector(arguments[0])?.toDataURL() ?? ''", selector
    )
    return found


def complaints(browser: Any) -> list[str]:
    return [one["message"] for one in browser.get_log("browser") if one["level"] == "SEVERE"]


def click(browser: Any, selector: str) -> None:
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)


def screenshot(browser: Any, name: str) -> None:
    """Leave a picture of the whole page in COLOBUS_SCREENSHOTS, if that names a folder."""
    if folder := os.environ.get("COLOBUS_SCREENSHOTS"):
        height = browser.execute_script("return document.documentElement.scrollHeight")
        width = browser.execute_script("return innerWidth")
        size = {"width": width, "height": min(height, 6000)}
        size |= {"deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        time.sleep(0.5)
        Path(folder).mkdir(parents=True, exist_ok=True)
        browser.save_screenshot(str(Path(folder) / f"{name}.png"))


TRAVERSALS = [
    "/assets/../server.py",
    "/assets/..%2fserver.py",
    "/assets/%2e%2e/server.py",
    "/assets/..%5cserver.py",
    "/assets//etc/passwd",
    "/assets/%2fetc%2fpasswd",
    "/films/{run}/../config.json",
    "/films/{run}/..%2fconfig.json",
    "/films/{run}/%2e%2e%2f%2e%2e%2f%2e%2e%2fsecret.json",
    "/films/../../secret.json",
    "/films/..%2f..%2fsecret.json/x.mp4",
    "/films/{run}/20000.mp4",
    "/secret.json",
    "/../secret.json",
]
"""Addresses that would lead out of what the live page shows, if paths were followed."""


class Page(HTMLParser):
    """Collects the tags and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
