"""Pictures of six pages of the site: light, dark, and as wide as a phone, by Chromium.

``make docs-pictures`` calls it after ``make docs``. A message of the page's console, or a page that
is wider than its window, ends it with 1.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.page.browser import NARROW, Browser, browser  # noqa: E402  # of the repository

SITE, PICTURES = ROOT / "build" / "site", ROOT / "build" / "pictures" / "site"
PAGES = (
    "index",
    "guides/program",
    "questions/tflite-micro-differs",
    "reference/commands",
    "api/compile",
    "measurements",
)
WINDOW = (1280, 900)
# Name, scheme and size of the window.
VIEWS = (("light", "light", WINDOW), ("dark", "dark", WINDOW), ("phone", "light", NARROW))
PAUSE = "await new Promise((done) => setTimeout(done, arguments[0]))"


def picture(page: Browser, place: str, view: tuple[str, str, tuple[int, int]]) -> list[str]:
    """Writes the picture of a page, and returns what is wrong with it."""
    name, scheme, size = view
    page.show((SITE / f"{place}.html").as_uri(), size, scheme)
    page.run(PAUSE, 500)
    file = PICTURES / f"{place.replace('/', '-')}-{name}.png"
    page.picture(file)
    faults = page.errors()
    wide = page.run("return document.documentElement.scrollWidth")
    if wide > size[0]:
        faults.append(f"{wide} pixels wide in a window of {size[0]}")
    return [f"{file.name}: {fault}" for fault in faults]


def searched(page: Browser) -> list[str]:
    """What is wrong with the search, which has to find a word without a network."""
    page.show((SITE / "index.html").as_uri(), WINDOW)
    page.run(
        """const field = document.querySelector("[data-md-component=search-query]");
        field.focus();
        field.value = "arena";
        field.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true}));"""
    )
    page.run(PAUSE, 4000)
    page.picture(PICTURES / "search.png")
    return [] if page.texts(".md-search-result__item") else ["search.png: the search finds nothing"]


def main() -> int:
    shutil.rmtree(PICTURES, ignore_errors=True)
    PICTURES.mkdir(parents=True)
    with browser() as page:
        faults = [
            fault for place in PAGES for view in VIEWS for fault in picture(page, place, view)
        ]
        faults += searched(page)
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"{len(list(PICTURES.glob('*.png')))} pictures in build/pictures/site")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
