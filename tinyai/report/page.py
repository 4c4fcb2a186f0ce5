"""A page of HTML that shows what became of a model: one file, which needs no network.

Names and values come from the user's model and are not trusted. They go into the page as data:
compressed, or as JSON in which nothing can end a script. The page's own script sets them as text,
and a content security policy lets no other script run and nothing be loaded.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from tinyai._version import __version__
from tinyai.files import check_place, written_whole
from tinyai.report.highlights import (
    Highlight,
    highlights_of,
    of_comparison,
    of_quantization,
)
from tinyai.report.rows import HostRow, RegionRow

SCHEMA = "tinyai.page/1"
_LARGE = ("host", "regions", "comparison", "quantization")  # what the page holds compressed
# In the order in which the browser reads them: each uses those before it.
_SCRIPTS = ("basics.js", "graph.js", "arena.js", "layers.js", "details.js", "found.js", "page.js")


@dataclass(frozen=True)
class Page:
    """What became of a model: its ``host`` rows and ``regions``, under a ``title``. ``made_by`` is
    the command that knows it, ``facts`` are what else a reader should know, each with its name.
    ``peak`` is what the processor could do at most, in multiply-accumulates a nanosecond.
    ``comparison`` is what a check found, ``quantization`` the quantizer's report: what their
    ``json`` writes, read again."""

    title: str
    made_by: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    host: tuple[HostRow, ...] = ()
    regions: tuple[RegionRow, ...] = ()
    peak: float | None = None
    comparison: Mapping[str, Any] | None = None
    quantization: Mapping[str, Any] | None = None

    @property
    def highlights(self) -> tuple[Highlight, ...]:
        """The three things to know: of what only this command found first."""
        own: tuple[Highlight, ...] = ()
        if self.comparison:
            own = of_comparison(self.comparison, self.regions)
        elif self.quantization:
            own = of_quantization(self.quantization)
        return (*own, *highlights_of(self.regions, self.host))[:3]

    def to_dict(self) -> dict[str, Any]:
        """The page as plain values, which JSON can hold."""
        facts = dataclasses.asdict(self)
        highlights = [dataclasses.asdict(highlight) for highlight in self.highlights]
        return {
            "schema": SCHEMA,
            "generator": f"tinyai {__version__}",
            "highlights": highlights,
            **facts,
        }

    def html(self) -> str:
        """The page: the same for the same values."""
        facts = self.to_dict()
        code = _Texts()
        for row, region in zip(self.regions, facts["regions"], strict=True):
            region["live"] = row.anatomy.live_bytes if row.anatomy else ()
            for serving in _servings(region):
                serving["call"] = code.number(serving["call"])
                serving["function"] = code.number(serving["function"])
                del serving["functions"]
        large = {name: facts.pop(name) for name in _LARGE}
        script = "".join(map(_asset, _SCRIPTS))
        dagre, style = _asset("dagre.min.js"), _asset("page.css")
        values = {
            "POLICY": f"default-src 'none'; script-src {_digest(dagre)} {_digest(script)}; "
            f"style-src {_digest(style)}; base-uri 'none'; form-action 'none'",
            "TITLE": escape(_printable(self.title)),
            "LICENSE": _asset("dagre.LICENSE.txt").strip(),
            "STYLE": style,
            "HEAD": json_in_html(facts),
            "DATA": _compressed(large),
            "CODE": _compressed(code.texts),
            "DAGRE": dagre,
            "SCRIPT": script,
        }
        pieces = _asset("page.html").split("@@")  # text and names of values in turn
        pieces[1::2] = [values[name] for name in pieces[1::2]]
        return "".join(pieces)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page, whole or not at all. Raises ``OptionError`` where none can be written."""
        file = Path(path)
        check_place(file)
        with written_whole(file) as beside:
            beside.write_text(self.html(), encoding="utf-8")
        return file


def _servings(region: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for layer in region["anatomy"]["layers"] if region["anatomy"] else ():
        yield from layer["servings"]


class _Texts:
    """Texts, each once, by their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def texts(self) -> Sequence[str]:
        return list(self._numbers)


def json_in_html(value: object) -> str:
    """JSON that may stand in a script of HTML: ASCII, without what HTML has a meaning for."""
    text = json.dumps(value, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _compressed(value: object) -> str:
    text = json.dumps(value, separators=(",", ":")).encode()
    return base64.b64encode(gzip.compress(text, mtime=0)).decode()


def _printable(text: str) -> str:
    """The text on one line: for the tab of a browser."""
    return "".join(each if each.isprintable() else " " for each in text)


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _asset(name: str) -> str:
    return files("tinyai.report").joinpath("assets", name).read_text(encoding="utf-8")
