"""The page of a report in a browser: what a reader sees, finds and clicks.

`make pages` installs what these tests need; without it they are skipped.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from benchmarks import onnx_networks
from benchmarks.page.browser import NARROW, WIDE, Browser, browser, missing
from tests.support.example_graphs import branching_network, tiled_network
from tests.support.pages import HOSTILE, host_row, hostile_page, long_chain, page_of
from tests.support.paths import MODELS
from tinyai.checking.result import ArithmeticLine, Comparison, FirstDifference, Output
from tinyai.frontends.files import explain_file
from tinyai.qdq import FloatOperator
from tinyai.quantizer.layer_row import LayerRow
from tinyai.quantizer.report import OutputRow, QuantReport
from tinyai.report.page import Page
from tinyai.target import Target

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "all is there")


@pytest.fixture(scope="module")
def shown() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def branching(tmp_path_factory) -> Path:
    page = page_of(branching_network("NHWC"))
    return page.write(tmp_path_factory.mktemp("pages") / "branching.html")


@pytest.fixture(scope="module")
def tiled(tmp_path_factory) -> Path:
    return page_of(tiled_network()).write(tmp_path_factory.mktemp("pages") / "tiled.html")


def test_a_click_on_a_layer_shows_its_facts_and_its_c(shown, tiled) -> None:
    shown.show_report(tiled)
    assert shown.texts("#details .empty")
    shown.click("#graph a.node:nth-of-type(2)")
    shown.wait("return document.querySelector('#details pre .word') !== null")
    assert shown.texts("#details .source") == ["deep"]
    (code,) = shown.texts("#details pre")
    assert "void tinyai_" in code
    assert shown.run("return location.hash") == "#layer=0.1"
    assert shown.texts("#layers tr.chosen td a") == ["deep"]
    assert shown.errors() == []


def test_the_arena_has_every_tensor_that_lives_in_it(shown, branching) -> None:
    (row,) = page_of(branching_network("NHWC")).regions
    shown.show_report(branching)
    drawn = shown.run(
        "return [...document.querySelectorAll('.tensor')].map((e) => e.dataset.tensor)"
    )
    assert sorted(drawn) == sorted(
        each.name for each in row.anatomy.tensors if each.space == "arena"
    )
    assert shown.texts(".tensor.shared title")


def test_a_search_finds_a_layer_and_enter_goes_there(shown, tiled) -> None:
    shown.show_report(tiled)
    for key in "/dee":
        shown.press(key)
    assert shown.texts("#matches") == ["1 of 3"]
    assert shown.texts("#layers tbody tr:not([hidden]) a") == ["deep"]
    shown.press("Enter")
    shown.wait("return location.hash === '#layer=0.1'")
    shown.press("Escape")
    assert shown.texts("#matches") == [""]
    assert len(shown.texts("#layers tbody tr:not([hidden])")) == 3


def test_keys_go_from_layer_to_layer(shown, tiled) -> None:
    shown.show_report(tiled)
    for key, part in (("j", "0.0"), ("j", "0.1"), ("k", "0.0"), ("k", "0.2")):
        shown.press(key)
        shown.wait(f"return location.hash === '#layer={part}'")
    shown.press("Escape")
    shown.wait("return document.querySelector('#details .empty') !== null")


@pytest.mark.parametrize("part", ["layer=0.1", "layer=1", "layer=deep"])
def test_the_address_of_a_layer_opens_it(shown, tiled, part) -> None:
    shown.show_report(tiled, part)
    assert shown.texts("#details .source") == ["deep"]


def test_a_highlight_leads_to_its_layer(shown, tiled) -> None:
    shown.show_report(tiled)
    shown.click("a.highlight:nth-of-type(2)")
    shown.wait("return document.querySelector('#details .source') !== null")
    assert shown.texts("#details .source") == ["last"]


def test_columns_sort(shown, tiled) -> None:
    shown.show_report(tiled)
    number = shown.texts("#layers th").index("MACs") + 1
    shown.click(f"#layers th:nth-child({number}) button")
    assert shown.texts("#layers td a") == ["last", "deep", "wide"]
    shown.click(f"#layers th:nth-child({number}) button")
    assert shown.texts("#layers td a") == ["wide", "deep", "last"]


def test_a_theme_can_be_chosen(shown, tiled) -> None:
    def lightness() -> int:
        colour = shown.run("return getComputedStyle(document.body).backgroundColor")
        return int(colour.removeprefix("rgb(").partition(",")[0])

    shown.show_report(tiled, theme="light")
    assert lightness() > 200
    shown.click("#theme")
    assert lightness() > 200
    shown.click("#theme")
    assert lightness() < 60
    shown.click("#theme")
    shown.show_report(tiled, theme="dark")
    assert lightness() < 60


def test_hostile_names_are_text(shown, tmp_path) -> None:
    shown.show_report(hostile_page().write(tmp_path / "page.html"), "layer=0.0")
    assert shown.errors() == []  # nor did the policy have to stop anything
    assert shown.run("return document.querySelectorAll('img').length") == 0
    (name, *_) = shown.texts("#details .source")
    assert name.startswith("</script><script>alert(1)</script>\\n<!--\\u{202e}\\u{2028}]]>&lt;")
    assert HOSTILE.splitlines()[0] in shown.texts("h1")[0]
    assert not any(c in text for text in shown.texts("body *:not(script)") for c in "\u202e\u2028")


COMPARISON = json.loads(
    Comparison(
        model=HOSTILE,
        checked=HOSTILE,
        opponent="another",
        rounding="onnx",
        samples=2,
        given=1,
        outputs=(Output(HOSTILE, "int8[2]", 2, 1, 0, (1,), 3, 4), Output("equal", "int8[2]", 2)),
        first=FirstDifference(
            *(3, 9, (HOSTILE,), "conv2d", "int8[2]", "code", "reference", (1,), 3, 4, 1, 2),
            (ArithmeticLine("sum of 2 products", 7), ArithmeticLine(HOSTILE, 4, 1)),
        ),
        notes=(HOSTILE,),
    ).json()
)
VALUES = LayerRow(HOSTILE, "Conv", "float32[2]", "int8", 0.1, 3, -1, 1, 0.5, 0.01, 20.0, 30.0)
LEFT = FloatOperator(HOSTILE, "Erf", HOSTILE)
QUANTIZATION = json.loads(
    QuantReport(
        *("mse", 2, 2, (VALUES, dataclasses.replace(VALUES, sqnr=None, alone=float("inf")))),
        (OutputRow("float32[2]", 20.0, 1.0, 0.5),),
        (LEFT,),
        kept=(LEFT,),
    ).json()
)


def pages() -> dict[str, Page]:
    regions = page_of(branching_network("NHWC")).regions
    host = (host_row("first", 3), host_row("second", 3), host_row("moves", 0, False))
    return {
        "whole": page_of(branching_network("NHWC")),
        "parts": Page("parts", "tinyai explain", (("rounding", "onnx"),), host, regions * 2),
        "hostile": hostile_page(),
        "host": Page("host", host=host),
        "found": Page("found", comparison=COMPARISON, quantization=QUANTIZATION),
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("kind", ["whole", "parts", "hostile", "host", "found"])
def test_everyone_can_read_a_page(shown, tmp_path, kind, size, theme) -> None:
    """No serious problem by axe-core, nothing wider than the screen, and no word of the console."""
    file = pages()[kind].write(tmp_path / "page.html")
    shown.show_report(file, "layer=0.1", size, theme)
    assert shown.serious_problems() == []
    assert shown.run("return document.documentElement.scrollWidth") <= size[0]
    assert shown.errors() == []


def test_500_layers_are_laid_out_and_can_be_moved(shown, tmp_path) -> None:
    ready = shown.show_report(page_of(long_chain(500)).write(tmp_path / "page.html"))
    assert len(shown.texts("#graph .node")) == 500
    frames = shown.run(SCROLL)
    shown.press("k")
    shown.wait("return location.hash === '#layer=0.499'")
    print(f"500 layers: {ready:.0f} ms until all is there, {max(frames):.0f} ms the longest frame")


# Scrolls the graph for 30 frames, and tells how long each took.
SCROLL = """
const [graph, times] = [document.querySelector('.scroller'), []];
return await new Promise((done) => {
  const frame = (now) => {
    times.push(now);
    graph.scrollTop += 100;
    if (times.length <= 30) requestAnimationFrame(frame);
    else done(times.slice(1).map((time, i) => time - times[i]));
  };
  requestAnimationFrame(frame);
});
"""


def test_the_page_of_a_file_opens_without_a_word_of_the_console(shown, tmp_path) -> None:
    file = MODELS / "mobilenet_v2_int8.tflite"
    report = explain_file(file, Target())
    written = report.page(file.name).write(tmp_path / "page.html")
    ready = shown.show_report(written)
    assert shown.errors() == []
    assert len(shown.texts("#graph .node")) == report.regions[0].layers
    print(f"MobileNetV2: {written.stat().st_size:,} bytes, {ready:.0f} ms until all is there")


def test_the_page_of_resnet50_shows_all_of_it(shown, tmp_path) -> None:
    """A search, a click, the arena, the console, axe-core; how soon all is there is printed."""
    file = tmp_path / "resnet50.onnx"
    onnx.save(onnx_networks.quantize(onnx_networks.resnet50(size=64, width=0.25)), file)
    report = explain_file(file, Target())
    (anatomy,) = (region.anatomy for region in report.regions)
    ready = shown.show_report(report.page(file.name).write(tmp_path / "page.html"))
    print(f"ResNet50: {len(anatomy.layers)} layers, {ready:.0f} ms until all is there")
    drawn = shown.run("return [...document.querySelectorAll('.tensor')].map(e => e.dataset.tensor)")
    in_arena = [each.name for each in anatomy.tensors if each.space == "arena"]
    assert sorted(drawn) == sorted(in_arena)
    wanted = anatomy.layers[30]
    for key in "/" + wanted.sources[0]:
        shown.press(key)
    found = shown.texts("#layers tbody tr:not([hidden]) td:first-child")
    assert "30" in found
    assert len(found) < len(anatomy.layers)
    shown.click("#layers tbody tr:nth-child(31) td:first-child")
    shown.wait("return document.querySelector('#details pre .word') !== null")
    assert shown.texts("#details .source")[0] == wanted.sources[0]
    assert wanted.attributes in shown.texts("#details dd")
    (code,) = shown.texts("#details pre")
    assert wanted.servings[0].call in code
    assert shown.serious_problems() == []
    assert shown.errors() == []
