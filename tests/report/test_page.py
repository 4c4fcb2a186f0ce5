"""The page of a report, without a browser: what is in it, and what cannot get out of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tvm import relay

import tests.support.relay_nets as nets
import tinyai
from benchmarks.page import renew_dagre
from tests.support.example_graphs import branching_network, small_network, tiled_network
from tests.support.pages import HOSTILE, Parts, data_of, host_row, hostile_page, named, page_of
from tests.support.paths import DIGITS, MODELS
from tests.support.planted_faults import with_wrong_number
from tinyai.backend import compile_graph
from tinyai.backend.anatomy import anatomy_of
from tinyai.backend.pipeline import compile_once
from tinyai.cli import main
from tinyai.dropped import Dropped
from tinyai.errors import OptionError
from tinyai.frontends.files import explain_file, network_of_file
from tinyai.frontends.page import with_code
from tinyai.ir import Builder, DType, Graph, Operand, QParams, Type
from tinyai.network import network_of_graph
from tinyai.ops import Elementwise, MaxPool2d, Transpose
from tinyai.ops.steps import Cast, Clip, Maximum
from tinyai.ops.window import Window
from tinyai.package import package_of
from tinyai.report import RegionRow, Report
from tinyai.report.page import json_in_html
from tinyai.runtime import code_sizes
from tinyai.runtime.code_sizes import function_bytes
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import Target

KWS = MODELS / "kws_ref_model.tflite"
# Windows with results of one size.
POOLS = (Window((3, 3), padding=(1, 1, 1, 1)), Window((1, 1)))
GRAPHS: dict[str, Callable[[], Graph]] = {
    "small": small_network,
    "tiled": tiled_network,
    "branching": lambda: branching_network("NHWC"),
}


# --- What is in it --------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_a_page_has_every_layer_with_its_c_and_every_tensor_with_its_place(graph) -> None:
    compiled = compile_graph(graph(), Target())
    data = data_of(page_of(graph()).html())
    (region,) = data["regions"]
    layers, tensors = region["anatomy"]["layers"], region["anatomy"]["tensors"]
    assert len(layers) == len(compiled.graph.nodes)
    for layer, node in zip(layers, compiled.graph.nodes, strict=True):
        assert tuple(layer["sources"]) == node.sources
        for serving in layer["servings"]:
            if serving["kernel"]:
                name = data["code"][serving["call"]].partition("(")[0]
                assert name in data["code"][serving["function"]] in compiled.source.text
    assert sum(layer["weight_bytes"] for layer in layers) == region["weight_bytes"]
    in_arena = [tensor for tensor in tensors if tensor["space"] == "arena"]
    assert max(each["offset"] + each["bytes"] for each in in_arena) <= region["arena_bytes"]
    own = {each["name"] for each in in_arena if not each["shares"]}
    assert len(own) >= len({each["offset"] for each in in_arena if each["name"] in own})
    aligned = compiled.graph.alignment * len(in_arena)
    assert region["arena_lower_bound"] - aligned <= max(region["live"])
    assert max(region["live"]) <= region["arena_lower_bound"]


def shared(graph: Graph) -> dict[str, tuple[str, str]]:
    tensors = anatomy_of(compile_graph(graph, Target())).tensors
    places = {each.name: (each.space, each.offset) for each in tensors}
    found = {each.name: (each.how, each.shares) for each in tensors if each.shares}
    for name, (how, other) in found.items():
        assert places[name] == places[other] or how == "part"
    return found


def test_tensors_that_take_over_the_memory_of_others_say_of_which() -> None:
    """A reshape, and what a concatenation joins; then a maximum of two pools."""
    found = shared(branching_network("NHWC"))
    assert found["result 11"] == ("alias", "result 10")
    assert found["result 3"] == found["result 4"] == ("part", "result 5")
    assert "result 5" not in found
    b = Builder("pools")
    image = b.input(Type((1, 6, 6, 4), DType.INT8))
    first, second = (b.add(MaxPool2d(window), [image]) for window in POOLS)
    steps = (Maximum(operand=Operand(second)),)
    both = b.add(Elementwise(b.type(first).shape), [first], steps)
    last = b.add(MaxPool2d(Window((2, 2), (2, 2))), [both])
    assert ("in place", "result 0") in shared(b.graph([last])).values()


def test_what_is_read_and_made_leads_from_layer_to_layer() -> None:
    anatomy = anatomy_of(compile_graph(branching_network("NHWC"), Target()))
    names = {each.name for each in anatomy.tensors}
    for layer in anatomy.layers:
        assert names.issuperset(layer.reads)
        before = [name for name in layer.reads if name.startswith("result ")]
        assert all(int(name.removeprefix("result ")) < layer.number for name in before)
    assert len(anatomy.outputs) == 2
    assert names.issuperset(anatomy.outputs)


def test_layers_that_end_in_a_relu_have_their_scale() -> None:
    """Of a .tflite file, whose bounds are behind the requantization, and often bound nothing."""
    for name, others in (("ad01_int8", 0), ("mobilenet_v2_int8", 2)):
        (row,) = explain_file(MODELS / f"{name}.tflite", Target(isa="scalar")).regions
        results = [each for each in row.anatomy.tensors if each.name.startswith("result")]
        assert sum(not each.scale for each in results) == others  # a mean's sums, and a softmax


def test_a_bound_that_bounds_nothing_is_no_node_and_leaves_its_name() -> None:
    b = Builder("bounds")
    scale = QParams((0.5,), -128)
    image = b.input(Type((1, 6, 6, 4), DType.INT8))
    made = b.add(Elementwise((1, 6, 6, 4)), [image], (Clip(-9.0, 9.0),), ("first",), scale)
    b.credit(made, ("second", "first"))
    pooled = b.add(MaxPool2d(POOLS[0]), [made])
    graph = b.graph([pooled])
    assert graph.nodes[0].sources == ("first", "second")
    assert graph.tensors[pooled].quant == scale
    wide = Builder("wide")
    image = wide.input(Type((2, 3), DType.INT8))
    made = wide.add(Elementwise((2, 3)), [image], (Clip(-9.0, 9.0),), (), QParams((0.5, 1.0), 0, 0))
    turned = wide.add(Transpose((1, 0)), [made])
    assert wide.tensors[turned].quant is None  # the scales lie along another axis now
    cast = wide.add(Elementwise((2, 3)), [image], (Cast(DType.INT32),))
    assert wide.tensors[cast].quant is None


def test_files_of_tflite_have_no_bound_that_bounds_nothing() -> None:
    graph = network_of_file(MODELS / "pretrainedResnet_quant.tflite", Target()).graph
    steps = [step for node in graph.nodes for step in node.epilogue]
    alone = [node for node in graph.nodes if [each.name for each in node.epilogue] == ["clip"]]
    assert any(isinstance(each, Clip) for each in steps)
    assert alone == []


def test_states_are_told_from_inputs() -> None:
    anatomy = anatomy_of(compile_graph(branching_network("NHWC"), Target()), states=1)
    assert [each.name for each in anatomy.tensors[:2]] == ["input 0", "state 0"]


def test_c_of_an_equal_graph_is_shown_under_the_names_of_this_one() -> None:
    first, second = (named(small_network(), name) for name in ("alpha", "omega"))
    target = Target(isa="scalar")
    compile_once(first, target)
    compiled = compile_once(second, target, named=False)
    assert {layer.sources for layer in anatomy_of(compiled).layers} == {("omega",)}
    assert "alpha" not in repr(anatomy_of(compiled))


def test_a_page_of_many_instruction_sets_has_the_c_of_each() -> None:
    data = data_of(page_of(tiled_network(), arch="x86_64").html())
    isas = [each["isa"] for each in data["regions"][0]["anatomy"]["layers"][0]["servings"]]
    assert len(isas) == len(set(isas)) > 1


def test_the_page_of_what_was_compiled_has_the_machine_code_of_each_layer(tmp_path: Path) -> None:
    html, library = tmp_path / "page.html", tmp_path / "net.so"
    tinyai.compile(branching_network("NHWC"), library, Target(isa="scalar"), html=html)
    sizes = function_bytes(library, Toolchain())
    anatomy = data_of(html.read_text())["regions"][0]["anatomy"]
    known = [layer["servings"][0]["code_bytes"] for layer in anatomy["layers"]]
    # What is shared counts once, and but for the entry nothing is left.
    own = {name: size for name, size in sizes.items() if name.startswith("tinyai_")}
    assert sum(filter(None, known)) == sum(own.values()) > 0
    page = package_of(network_of_graph(branching_network("NHWC")), Target(isa="scalar")).page
    codes = [layer.servings[0].code_bytes for layer in page.regions[0].anatomy.layers]
    assert any(codes)
    assert [code is None for code in codes] == [code is None for code in known]


def test_without_a_tool_that_tells_sizes_the_page_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError

    library = tmp_path / "net.so"
    tinyai.compile(small_network(), library)
    monkeypatch.setattr(code_sizes.subprocess, "run", missing)
    assert function_bytes(library, Toolchain()) == {}
    page = page_of(small_network())
    assert with_code(page, {}) is page


# --- The three things to know ---------------------------------------------------------------------


def test_highlights_are_the_fullest_layer_the_most_work_and_what_is_on_the_host() -> None:
    page = page_of(tiled_network(), isa="scalar")
    memory, work, host = page.highlights
    (row,) = page.regions
    live = row.anatomy.live_bytes
    assert memory.link == f"layer=0.{live.index(max(live))}"
    macs = [layer.macs for layer in row.anatomy.layers]
    assert work.link == f"layer=0.{macs.index(max(macs))}"
    assert (host.figure, host.link) == ("none", "")


def test_where_layers_were_timed_time_is_told_instead_of_work() -> None:
    page = page_of(tiled_network(), isa="scalar")
    (row,) = page.regions
    layers = [replace(each, microseconds=1.0 + each.number) for each in row.anatomy.layers]
    timed = replace(row, anatomy=replace(row.anatomy, layers=tuple(layers)))
    highlight = replace(page, regions=(timed,)).highlights[1]
    assert (highlight.about, highlight.figure, highlight.link) == ("time", "6.0 µs", "layer=0.2")


def test_the_host_is_told_by_its_dearest_operator() -> None:
    report = Report((host_row("cheap", 3), host_row("dear", 5), host_row("moves", 9, False)), ())
    (host,) = report.page().highlights
    assert (host.figure, host.link) == ("2 operators", "host=1")
    assert "dear" in host.text


# --- What cannot get out of it --------------------------------------------------------------------


def test_names_that_would_end_a_script_stay_data() -> None:
    html = hostile_page().html()
    plain = page_of(small_network()).html()
    tags = [tag for tag, _ in Parts(html).elements]
    assert tags == [tag for tag, _ in Parts(plain).elements]
    data = data_of(html)
    assert data["title"] == data["made_by"] == data["facts"][0][0] == HOSTILE
    assert data["host"][0]["name"] == HOSTILE
    assert data["regions"][0]["anatomy"]["layers"][0]["sources"] == [HOSTILE]
    assert "\u2028" not in html
    assert "\u202e" not in html


def test_json_in_html_has_nothing_that_html_understands() -> None:
    text = json_in_html([HOSTILE])
    assert json.loads(text) == [HOSTILE]
    assert not re.search("[<>&\u2028\u2029]", text)
    assert text.isascii()


def test_a_page_asks_no_one_for_anything() -> None:
    html = page_of(small_network()).html()
    parts = Parts(html)
    for tag, attributes in parts.elements:
        assert not {"src", "href", "srcset", "action", "data"} & attributes.keys(), tag
    urls = set(re.findall(r"https?://[^\s\"']+", html))
    assert urls == {"http://www.w3.org/2000/svg"}  # which is no address, but a name
    assert "url(" not in html.replace("url(#", "")
    assert "@import" not in html


def test_only_the_scripts_and_the_style_of_the_page_may_run() -> None:
    parts = Parts(page_of(small_network()).html())
    (policy,) = (
        each["content"] for tag, each in parts.elements if each.get("http-equiv") and tag == "meta"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == rules.pop("base-uri") == rules.pop("form-action") == "'none'"
    for kind in ("script", "style"):
        digests = {
            f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
            for name, text in parts.texts
            if name == kind
        }
        assert set(rules[f"{kind}-src"].split()) == digests


@pytest.mark.parametrize("name", ["basics", "graph", "arena", "layers", "details", "page"])
def test_scripts_set_text_and_parse_no_html(name) -> None:
    script = (renew_dagre.ASSETS / f"{name}.js").read_text()
    assert script.startswith('// @ts-check\n"use strict";\n')
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert sink not in script


def test_the_script_that_lays_out_graphs_is_the_one_of_its_package() -> None:
    assert renew_dagre.digest(renew_dagre.ASSETS / "dagre.min.js") == renew_dagre.DIGEST
    assert "Permission is hereby granted" in page_of(small_network()).html()


# --- Files ----------------------------------------------------------------------------------------


def test_the_same_model_gives_the_same_bytes() -> None:
    assert page_of(tiled_network()).html() == page_of(tiled_network()).html()


def test_a_report_writes_itself_as_a_page(tmp_path) -> None:
    (row,) = page_of(small_network()).regions
    report = Report((host_row("erf"),), (row,))
    written = report.html(tmp_path / "page.html")
    assert data_of(written.read_text())["host"][0]["name"] == "erf"
    again = Report.from_json(report.json())
    assert again == report
    assert data_of(again.page().html())["regions"][0]["anatomy"] is None


def test_a_page_that_cannot_be_written_is_an_error(tmp_path) -> None:
    with pytest.raises(OptionError, match="no folder"):
        Report((), ()).html(tmp_path / "none" / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_region_of_another_back_end_has_a_page_without_layers() -> None:
    row = RegionRow("own", (), (), 1, 2, 0, 0, 3, dropped=Dropped())
    data = data_of(Report((), (row,)).page().html())
    assert data["regions"][0]["symbol"] == "own"
    assert [each["about"] for each in data["highlights"]] == ["host"]


def run(*words: object) -> Any:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_explain_and_compile_write_the_page_of_a_file(tmp_path) -> None:
    for command, output in (
        ("explain", ()),
        ("compile", ("-o", tmp_path / "net.so")),
        ("compile", ("-o", tmp_path / "folder", "--isa", "scalar")),
    ):
        page = tmp_path / "page.html"
        done = run(command, KWS, *output, "--html", page)
        assert done.exit_code == 0, done.output
        data = data_of(page.read_text())
        assert data["title"] == KWS.name
        assert data["made_by"] == f"tinyai {command}"
        assert data["regions"][0]["anatomy"]["layers"]
        page.unlink()


@pytest.mark.parametrize("command", ["explain", "compile"])
def test_a_page_that_cannot_be_written_ends_a_command_before_its_work(tmp_path, command) -> None:
    output = ["-o", tmp_path / "net.so"] if command == "compile" else []
    done = run(command, KWS, *output, "--html", tmp_path / "none" / "page.html")
    assert done.exit_code == 2
    assert "no folder" in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_package_and_a_library_have_pages(tmp_path) -> None:
    network = network_of_graph(tiled_network())
    package = package_of(network, Target(isa="scalar"))
    written = package.page.write(tmp_path / "package.html").read_text()
    assert len(data_of(written)["regions"][0]["anatomy"]["layers"]) == len(package.report.layers)
    page = tmp_path / "library.html"
    tinyai.compile(network, tmp_path / "net.so", Target(isa="scalar"), html=page)
    assert data_of(page.read_text())["title"] == "tiled_network"


# --- What only some commands know -----------------------------------------------------------------


def failed_check(tmp_path: Path) -> dict[str, Any]:
    """The data of the page of a check that finds a wrong weight in the fifth layer."""
    package = package_of(network_of_file(KWS, Target(rounding="tflite")), Target(isa="scalar"))
    folder = package.write(tmp_path / "package")
    weights = folder / f"{package.name}_weights.c"
    weights.write_text(with_wrong_number(weights.read_text(), 4))
    page = tmp_path / "check.html"
    done = run("check", KWS, "--with", folder, "--html", page)
    assert done.exit_code == 1, done.output
    return data_of(page.read_text())


def test_a_failed_check_leads_to_the_layer_with_the_arithmetic_of_its_element(tmp_path) -> None:
    data = failed_check(tmp_path)
    first = data["comparison"]["first"]
    assert first["arithmetic"][-1]["value"] == first["expected"] != first["found"]
    (about, *_) = data["highlights"]
    assert (about["about"], about["figure"], about["link"]) == ("check", "different", "layer=0.4")
    assert first["names"][0] in data["regions"][0]["anatomy"]["layers"][4]["sources"]
    assert [each["about"] for each in data["highlights"]] == ["check", "memory", "work"]


def test_a_check_that_finds_nothing_says_so(tmp_path) -> None:
    page = tmp_path / "check.html"
    assert run("check", KWS, "--samples", 1, "--html", page).exit_code == 0
    data = data_of(page.read_text())
    assert data["highlights"][0]["figure"] == "equal"
    assert data["comparison"]["first"] is None


def test_times_of_layers_are_on_the_page_of_a_measurement(tmp_path) -> None:
    page = tmp_path / "times.html"
    done = run("bench", KWS, "--layers", "--runs", 2, "--isa", "scalar", "--html", page)
    assert done.exit_code == 0, done.output
    data = data_of(page.read_text())
    layers = data["regions"][0]["anatomy"]["layers"]
    times = [layer["microseconds"] for layer in layers]
    assert min(times) >= 0
    assert max(times) > 0
    assert data["peak"] > 0
    assert data["highlights"][1]["link"] == f"layer=0.{times.index(max(times))}"
    done = run("bench", KWS, "--peers", "--html", page)
    assert done.exit_code == 2
    assert "--html" in done.output


def test_a_quantized_model_shows_noise_and_ranges_by_layer(tmp_path) -> None:
    samples, page = tmp_path / "samples.npz", tmp_path / "quantized.html"
    image = np.random.default_rng(0).random((4, 1, 8, 8)).astype(np.float32)
    np.savez(samples, image=image)
    done = run("quantize", DIGITS, "--calibrate", samples, "--rank", "--html", page)
    assert done.exit_code == 0, done.output
    data = data_of(page.read_text())
    rows = data["quantization"]["layers"]
    assert any(row["alone"] is not None for row in rows)
    assert all(row["low"] <= row["high"] for row in rows)
    assert [each["about"] for each in data["highlights"]] == ["results", "layers", "in float"]
    noisy = [row for row in rows if isinstance(row["sqnr"], float)]
    worst = min(noisy, key=lambda row: row["sqnr"])
    assert worst["name"] in data["highlights"][1]["text"]


@pytest.mark.parametrize("command", ["check", "bench", "quantize"])
def test_such_a_command_ends_before_its_work_where_its_page_cannot_be_written(
    tmp_path, command
) -> None:
    more = ["--calibrate", tmp_path / "samples.npz"] if command == "quantize" else []
    done = run(command, KWS, *more, "--html", tmp_path / "none" / "page.html")
    assert done.exit_code == 2
    assert "no folder" in done.output


def test_hosts_and_regions_are_joined_by_the_values_that_go_between_them() -> None:
    """Two regions with the host between them: what one makes the other reads."""
    report = explain_file(MODELS / "real" / "i8_nmp.tflite", Target(isa="scalar"))
    makers = {value for row in (*report.host, *report.regions) for value in row.flow.makes}
    for row in (*report.host, *report.regions):
        assert row.flow.reads
        assert row.flow.makes
    for region in report.regions:
        inputs = [each for each in region.anatomy.tensors if each.first < 0]
        assert len(region.flow.reads) == len(inputs)
        assert len(region.flow.makes) == len(region.anatomy.outputs)
    from_outside = {value for row in (*report.host, *report.regions) for value in row.flow.reads}
    assert len(from_outside - makers) == 1  # the model's own input


def test_regions_of_relay_are_joined_by_values_too() -> None:
    inner = relay.cast(nets.layers(2), "int32")
    einsum = relay.einsum([relay.reshape(inner, (1, -1))] * 2, "ij,kj->ik")
    report = tinyai.explain(nets.module(einsum), isa="scalar")
    (region,) = report.regions
    read = {value for row in report.host for value in row.flow.reads}
    assert read.issuperset(region.flow.makes)
    assert len(region.flow.makes) == len(region.anatomy.outputs) > 0
