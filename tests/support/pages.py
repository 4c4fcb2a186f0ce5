"""Pages of small networks, and what is in a page."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

from tests.support.example_graphs import small_network
from tinyai.backend import compile_graph
from tinyai.frontends.page import page_of_network
from tinyai.ir import Builder, DType, Graph, Type
from tinyai.network import network_of_graph
from tinyai.ops import MaxPool2d
from tinyai.ops.window import Window
from tinyai.report import HostRow, Reason
from tinyai.report.page import Page
from tinyai.target import Target

HOSTILE = "</script><script>alert(1)</script>\n<!--\u202e\u2028]]>&lt;\0\ud800\"'<img src=x>"


class Parts(HTMLParser):
    """The elements of a page with their attributes, and the texts of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.texts.append((dict(attrs).get("id") or tag, ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:  # a piece of a script or style
            name, text = self.texts[-1]
            self.texts[-1] = name, text + data


def data_of(html: str) -> dict[str, Any]:
    """What a page shows."""
    texts = dict(Parts(html).texts)
    unpacked = (gzip.decompress(base64.b64decode(texts[name])) for name in ("data", "code"))
    data, code = map(json.loads, unpacked)
    return {**json.loads(texts["head"]), **data, "code": code}


def page_of(graph: Graph, **options: Any) -> Page:
    target = Target(**options)
    return page_of_network(network_of_graph(graph), compile_graph(graph, target), target)


def named(graph: Graph, name: str) -> Graph:
    """The graph with one name of the source model's for all layers."""
    return replace(graph, nodes=tuple(replace(node, sources=(name,)) for node in graph.nodes))


def long_chain(length: int) -> Graph:
    """Pools one after the other, each with a name."""
    b = Builder("long_chain")
    x = b.input(Type((1, 4, 4, 4), DType.INT8))
    window = Window((3, 3), padding=(1, 1, 1, 1))
    for number in range(length):
        x = b.add(MaxPool2d(window), [x], sources=(f"block_{number // 10}/pool_{number}",))
    return b.graph([x])


def host_row(name: str = "", macs: int | None = 0, computes: bool = True) -> HostRow:
    reason = Reason("none", "", 0, "operator", name, "another")
    return HostRow(name, "erf", "float32[1]", reason, computes, macs, None, "write another")


def hostile_page() -> Page:
    """A page of which every name is hostile."""
    row = page_of(named(small_network(), HOSTILE)).regions[0]
    facts = ((HOSTILE, HOSTILE),)
    return Page(HOSTILE, HOSTILE, facts, (host_row(HOSTILE),), (replace(row, symbol=HOSTILE),))
