"""A browser without a window, for tests and pictures of pages: Chromium, asked through a pipe.

It needs no package beside Chromium itself, so that every environment can use it.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "build" / "page" / "node_modules" / "axe-core" / "axe.min.js"  # `make pages` puts it
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_KEYS = {"Enter": 13, "Escape": 27}  # those that are no character, by their numbers
_PATIENCE = 30  # seconds
WIDE, NARROW = (1440, 1000), (390, 844)


def missing() -> str:
    """What is not there and needed to try pages, or nothing."""
    if not any(map(shutil.which, _PROGRAMS)):
        return "no browser: apt install chromium"
    return "" if AXE.is_file() else "no axe-core: make pages installs it"


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

    def show(self, address: str, size: tuple[int, int] = WIDE, theme: str = "light") -> None:
        """Open an address in a window of this ``size``, and wait until it is loaded."""
        width, height = size
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **screen)
        scheme = {"name": "prefers-color-scheme", "value": theme}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        # First nothing, else another part of the same page would not load it.
        for place in ("about:blank", address):
            self.events.clear()
            self.ask("Page.navigate", url=place)
            while all(event.get("method") != "Page.loadEventFired" for event in self.events):
                self.events.append(self._next())

    def show_report(
        self, file: Path, part: str = "", size: tuple[int, int] = WIDE, theme: str = "light"
    ) -> float:
        """Open the page of a report at a ``part`` such as "layer=0.3". Returns the milliseconds
        until all of it was there."""
        self.show(file.absolute().as_uri() + (f"#{part}" if part else ""), size, theme)
        return float(self.wait("return document.documentElement.dataset.ready"))

    def run(self, script: str, *arguments: object) -> Any:
        """What the body of an asynchronous function returns."""
        call = f"(async function() {{{script}}}).apply(null, {json.dumps(arguments)})"
        asked = {"expression": call, "awaitPromise": True, "returnByValue": True}
        answer = self.ask("Runtime.evaluate", **asked)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait(self, script: str) -> Any:
        """What a script returns as soon as it is true."""
        end = time.monotonic() + _PATIENCE
        while not (value := self.run(script)):
            if time.monotonic() > end:
                raise TimeoutError(f"not within {_PATIENCE} seconds: {script}")
            time.sleep(0.02)
        return value

    def texts(self, selector: str) -> list[str]:
        """What is written in the elements that a selector finds."""
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
        return list(self.run(script, selector))

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of the first element that a selector finds."""
        script = """
            const element = document.querySelector(arguments[0]);
            element.scrollIntoViewIfNeeded();
            const box = element.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];"""
        x, y = self.run(script, selector)
        for kind in ("mousePressed", "mouseReleased"):
            where = {"x": x, "y": y, "button": "left", "clickCount": 1}
            self.ask("Input.dispatchMouseEvent", type=kind, **where)

    def press(self, key: str) -> None:
        """Press and release a key: a character, "Enter" or "Escape"."""
        code = _KEYS.get(key)
        about = {"key": key} | ({"windowsVirtualKeyCode": code} if code else {"text": key})
        self.ask("Input.dispatchKeyEvent", type="keyDown", **about)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def errors(self) -> list[str]:
        """What the console has told of this page since it was last asked, warnings included."""
        self.run("await new Promise((done) => setTimeout(done))")  # so that all of it is here
        told, self.events = self.events, []
        return [str(event["params"]) for event in told if _is_problem(event)]

    def picture(self, file: Path, whole: bool = False) -> None:
        """Write what the window shows as a PNG, or the whole page."""
        options: dict[str, Any] = {}
        if whole:
            size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            options = {"captureBeyondViewport": True, "clip": {**size, "scale": 1}}
        shot = self.ask("Page.captureScreenshot", format="png", **options)
        file.write_bytes(base64.b64decode(shot["data"]))

    def serious_problems(self) -> list[str]:
        """What axe-core finds that keeps people from reading the page."""
        self.ask("Runtime.evaluate", expression=AXE.read_text())
        return [
            f"{each['id']}: {each['help']}: {node['html'][:200]}"
            for each in self.run("return (await axe.run()).violations")
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]

    def _next(self) -> dict[str, Any]:
        content = bytearray()
        while (byte := self.read.read(1)) != b"\0":
            if not byte:
                raise RuntimeError("the browser has ended")
            content += byte
        message: dict[str, Any] = json.loads(content)
        return message


def _is_problem(event: dict[str, Any]) -> bool:
    params = event.get("params", {})
    level = params.get("entry", {}).get("level") or params.get("type")
    return event.get("method") == "Runtime.exceptionThrown" or (
        event.get("method") in ("Log.entryAdded", "Runtime.consoleAPICalled")
        and level in ("error", "warning", "assert")
    )


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser, which ends with the block. Raises ``FileNotFoundError`` where there is none."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        raise FileNotFoundError(f"none of {', '.join(_PROGRAMS)}; try: apt install chromium")
    ours_read, theirs_write = os.pipe()
    theirs_read, ours_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
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
            try:
                yield _attached(Browser(read, write))
            finally:
                process.terminate()
                process.wait()


def _attached(made: Browser) -> Browser:
    target = made.ask("Target.createTarget", url="about:blank")["targetId"]
    made.session = made.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ("Page", "Runtime", "Log"):
        made.ask(f"{domain}.enable")
    # Or each page has the colours that the one before it was given. Blank ones have no storage.
    forgetting = "try { localStorage.clear(); } catch {}"
    made.ask("Page.addScriptToEvaluateOnNewDocument", source=forgetting)
    return made
