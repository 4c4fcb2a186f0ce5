"""A browser without a window, for tests and pictures of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

TOOLS = ROOT / "build" / "page" / "node_modules"  # what `make pages` installs by npm
AXE = TOOLS / "axe-core" / "axe.min.js"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDE, NARROW = (1440, 1000), (390, 844)


def missing() -> str:
    """What is not there and needed, or nothing."""
    if not any(map(shutil.which, _BROWSERS)) or not shutil.which("chromedriver"):
        return "no browser: apt install chromium chromium-driver"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "no selenium: make pages installs it"
    return "" if AXE.is_file() else "no axe-core: make pages installs it"


class Browser:
    """A page in a browser that selenium drives."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def show(
        self,
        file: Path,
        part: str = "",
        size: tuple[int, int] = WIDE,
        theme: str = "light",
    ) -> float:
        """Open the page of a file at a ``part`` such as "layer=0.3". Returns the milliseconds until
        all of it was there."""
        width, height = size
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        scheme = [{"name": "prefers-color-scheme", "value": theme}]
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        self.driver.get("about:blank")  # else another part of the same page would not load it
        address = file.absolute().as_uri() + (f"#{part}" if part else "")
        self.driver.get(address)
        return float(self.wait("return document.documentElement.dataset.ready"))

    def wait(self, script: str) -> Any:
        """What a script returns as soon as it is true."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, 30, 0.02).until(
            lambda driver: driver.execute_script(script)
        )

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def texts(self, selector: str) -> list[str]:
        """What is written in the elements that a selector finds and a reader sees."""
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
        return list(self.run(script, selector))

    def click(self, selector: str) -> None:
        self.driver.find_element("css selector", selector).click()

    def type(self, text: str, selector: str = "body") -> None:
        """Press keys; selenium's names of keys are characters too."""
        self.driver.find_element("css selector", selector).send_keys(text)

    def errors(self) -> list[str]:
        """What the console has told since it was last asked, warnings included."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def serious_problems(self) -> list[str]:
        """What axe-core finds that keeps people from reading the page."""
        self.run(AXE.read_text())
        script = "axe.run().then((r) => arguments[0](r.violations), (e) => arguments[0](String(e)))"
        found = self.driver.execute_async_script(script)
        assert isinstance(found, list), found
        return [
            f"{each['id']}: {each['help']}: {node['html'][:200]}"
            for each in found
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser, which ends with the block."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, _BROWSERS))) or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
