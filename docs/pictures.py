"""Pictures of six pages of the site: light, dark, and as wide as a phone, by Chromium.

``make docs-pictures`` calls it after ``make docs``. It speaks to Chromium through a pipe.
An error in the page's console, or a page that is wider than its window, ends it with 1.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SITE, PICTURES = ROOT / "build" / "site", ROOT / "build" / "pictures"
PAGES = (
    "index",
    "guides/program",
    "questions/tflite-micro-differs",
    "reference/commands",
    "api/compile",
    "measurements",
)
BROWSERS = "chromium", "chromium-browser", "google-chrome"
# Name, scheme, width and height of the window.
VIEWS = (("light", "light", 1280, 900), ("dark", "dark", 1280, 900), ("phone", "light", 390, 844))
PROBLEMS = "Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"


@dataclass
class Browser:
    """A running Chromium. ``events`` are what it told beside its answers."""

    read: Any
    write: Any
    session: str = ""
    number: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a command of the protocol."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.write.write(json.dumps(message).encode() + b"\0")
        self.write.flush()
        while (answer := self._next()).get("id") != self.number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def await_event(self, name: str) -> None:
        while all(event.get("method") != name for event in self.events):
            self.events.append(self._next())

    def value_of(self, expression: str) -> Any:
        """What an expression of the page is, or what it promises."""
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        return self.ask("Runtime.evaluate", **asked)["result"].get("value")

    def _next(self) -> dict[str, Any]:
        content = bytearray()
        while (byte := self.read.read(1)) != b"\0":
            if not byte:
                raise RuntimeError("the browser has ended")
            content += byte
        message: dict[str, Any] = json.loads(content)
        return message


@contextmanager
def browser(program: str) -> Iterator[Browser]:
    """A browser without a window, that ends with the block."""
    ours_read, theirs_write = os.pipe()
    theirs_read, ours_write = os.pipe()
    with tempfile.TemporaryDirectory() as profile:
        # It reads from descriptor 3 and writes to 4.
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        flags += [f"--user-data-dir={profile}", "--no-first-run", "--hide-scrollbars"]
        words = 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"'
        process = subprocess.Popen(
            ["bash", "-c", words, str(theirs_read), str(theirs_write), program, *flags],
            pass_fds=(theirs_read, theirs_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_read)
        os.close(theirs_write)
        with os.fdopen(ours_read, "rb") as read, os.fdopen(ours_write, "wb") as write:
            made = Browser(read, write)
            try:
                target = made.ask("Target.createTarget", url="about:blank")["targetId"]
                attached = made.ask("Target.attachToTarget", targetId=target, flatten=True)
                made.session = attached["sessionId"]
                for domain in ("Page", "Runtime", "Log"):
                    made.ask(f"{domain}.enable")
                # Or each page has the colours of the first.
                forgetting = "localStorage.clear()"
                made.ask("Page.addScriptToEvaluateOnNewDocument", source=forgetting)
                yield made
            finally:
                process.terminate()
                process.wait()


def show(page: Browser, place: str, width: int, height: int) -> None:
    """Loads a page of the site into a window of this size."""
    page.events.clear()
    size = {"width": width, "height": height, "deviceScaleFactor": 1}
    page.ask("Emulation.setDeviceMetricsOverride", **size, mobile=width < 600)
    page.ask("Page.navigate", url=(SITE / f"{place}.html").as_uri())
    page.await_event("Page.loadEventFired")
    page.value_of("new Promise(done => setTimeout(done, 500))")


def picture(page: Browser, place: str, view: tuple[str, str, int, int]) -> list[str]:
    """Writes the picture of a page, and returns what is wrong with it."""
    name, scheme, width, height = view
    feature = {"name": "prefers-color-scheme", "value": scheme}
    page.ask("Emulation.setEmulatedMedia", features=[feature])
    show(page, place, width, height)
    shot = page.ask("Page.captureScreenshot", format="png")
    file = PICTURES / f"{place.replace('/', '-')}-{name}.png"
    file.write_bytes(base64.b64decode(shot["data"]))
    wide = page.value_of("document.documentElement.scrollWidth")
    faults = [str(event["params"]) for event in page.events if is_problem(event)]
    if wide > width:
        faults.append(f"{wide} pixels wide in a window of {width}")
    return [f"{file.name}: {fault}" for fault in faults]


def is_problem(event: dict[str, Any]) -> bool:
    """Whether an event is an error of the page's console."""
    params = event.get("params", {})
    level = params.get("entry", {}).get("level") or params.get("type")
    return event.get("method") == PROBLEMS[0] or (
        event.get("method") in PROBLEMS and level in ("error", "assert")
    )


def searched(page: Browser) -> list[str]:
    """What is wrong with the search, which has to find a word without a network."""
    show(page, "index", 1280, 900)
    found = page.value_of(
        """new Promise(done => {
          const field = document.querySelector("[data-md-component=search-query]");
          field.focus();
          field.value = "arena";
          field.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true}));
          setTimeout(() => done(document.querySelectorAll(".md-search-result__item").length), 4000);
        })"""
    )
    shot = page.ask("Page.captureScreenshot", format="png")
    (PICTURES / "search.png").write_bytes(base64.b64decode(shot["data"]))
    return [] if found else ["search.png: the search finds nothing"]


def main() -> int:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        print("No browser makes the pictures.", file=sys.stderr)
        print(f"  found:   none of {', '.join(BROWSERS)}", file=sys.stderr)
        print("  allowed: Chromium", file=sys.stderr)
        print("  try:     apt install chromium", file=sys.stderr)
        return 1
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir(parents=True)
    with browser(program) as page:
        faults = [
            fault for place in PAGES for view in VIEWS for fault in picture(page, place, view)
        ]
        faults += searched(page)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(list(PICTURES.glob('*.png')))} pictures in build/pictures")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
