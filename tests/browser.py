"""A real browser for tests of pages: Debian's chromium without a window, driven by selenium.

Use the fixture `browser` (known to all tests), which skips where there is no chromium.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


class Browser:
    """One window of a fresh profile. `driver` is selenium's, for what is not offered here."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, where: Path | str) -> None:
        """Load a file or an address; what an earlier page complained about is forgotten."""
        self.driver.get_log("browser")
        self.driver.get(where.resolve().as_uri() if isinstance(where, Path) else where)

    def find(self, selector: str) -> list[Any]:
        """The elements that a CSS selector matches."""
        return list(self.driver.find_elements("css selector", selector))

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script of JavaScript returns."""
        return self.driver.execute_script(script, *arguments)

    def complaints(self) -> list[str]:
        """Errors and warnings on the console, since the page was opened or this was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def resize(self, width: int, height: int, *, phone: bool = False) -> None:
        """The size of the window's inside, in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 0, "mobile": phone}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, theme: Literal["light", "dark"], media: str = "") -> None:
        """What the system would say it likes; and, with `media="print"`, how pages are on paper."""
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})


@pytest.fixture
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for one test."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("no chromium here: apt-get install chromium chromium-driver")
    selenium = pytest.importorskip("selenium.webdriver")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    for flag in (*_FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    if os.geteuid() == 0:  # chromium's sandbox is not for root
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = selenium.Chrome(options=options, service=selenium.ChromeService(chromedriver))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
