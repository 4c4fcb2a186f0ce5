"""What Model Explorer gets: graphs and data of layers; and the extension in its own server.

`make pages` installs Model Explorer into an environment of its own; without it what needs the
server is skipped.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.page.browser import browser
from tests.support.example_graphs import branching_network, tiled_network
from tests.support.pages import HOSTILE, host_row, hostile_page, page_of
from tests.support.paths import MODELS, ROOT
from tinyai import model_explorer
from tinyai.errors import OptionError
from tinyai.frontends.files import explain_file
from tinyai.report import Report
from tinyai.target import Target

EXPLORER = ROOT / "build" / "page" / "explorer" / "bin"
MOBILENET = MODELS / "mobilenet_v2_int8.tflite"
needs_it = pytest.mark.skipif(
    not (EXPLORER / "model-explorer").exists(), reason="no Model Explorer: make pages installs it"
)


def graph(shown: Any) -> dict[str, dict[str, Any]]:
    """The nodes by their names; each edge leads from a node that is there."""
    (made,) = model_explorer.graphs(shown)["graphs"]
    nodes = {node["id"]: node for node in made["nodes"]}
    assert len(nodes) == len(made["nodes"])
    for node in nodes.values():
        assert {edge["sourceNodeId"] for edge in node["incomingEdges"]} <= nodes.keys()
    return nodes


def sources(node: dict[str, Any]) -> list[str]:
    return [edge["sourceNodeId"] for edge in node["incomingEdges"]]


def test_a_layer_is_a_node_in_the_group_of_its_region() -> None:
    nodes = graph(page_of(tiled_network()))
    assert [name for name in nodes if name.startswith("0.") and " " not in name] == [
        "0.0",
        "0.1",
        "0.2",
    ]
    assert {nodes[f"0.{number}"]["namespace"] for number in range(3)} == {"tiled_network"}
    assert sources(nodes["0.1"]) == ["0.0"]
    facts = {each["key"]: each["value"] for each in nodes["0.1"]["attrs"]}
    assert facts["names"] == "deep"
    assert facts["operator"].startswith("conv2d(")


def test_every_read_of_a_layer_is_an_edge() -> None:
    page = page_of(branching_network("NHWC"))
    nodes = graph(page)
    for layer in page.regions[0].anatomy.layers:
        names = (each.replace("result ", "0.") for each in layer.reads)
        wanted = [name.replace("input", "value 0.input") for name in names]
        assert sources(nodes[f"0.{layer.number}"]) == wanted
    assert sum("output" in name for name in nodes) == 2


def test_regions_and_the_host_are_joined() -> None:
    report = explain_file(MODELS / "real" / "i8_nmp.tflite", Target(isa="scalar"))
    nodes = graph(report)
    outside = [node for name, node in nodes.items() if name.startswith("host")]
    assert len(outside) == len(report.host)
    assert all(node["incomingEdges"] for node in outside)
    groups = {node["namespace"] for node in nodes.values()}
    assert groups == {"", "on the host", *(row.symbol for row in report.regions)}
    assert sum("style" in node for node in outside) == len(report.computing)


def test_numbers_of_layers_are_data_and_times_where_they_were_taken() -> None:
    page = page_of(tiled_network())
    assert "time (µs)" not in model_explorer.node_data(page)
    (row,) = page.regions
    layers = tuple(replace(each, microseconds=1.5 + each.number) for each in row.anatomy.layers)
    timed = replace(page, regions=(replace(row, anatomy=replace(row.anatomy, layers=layers)),))
    data = model_explorer.node_data(timed, "net")
    values = data["time (µs)"]["net"]["results"]
    assert values == {f"0.{number}": {"value": 1.5 + number} for number in range(3)}
    macs = data["MACs"]["net"]["results"]
    assert [each["value"] for each in macs.values()] == [each.macs for each in layers]


def test_the_first_layer_that_differs_has_a_colour() -> None:
    page = page_of(tiled_network())
    plain = graph(page)
    assert not any("style" in node for node in plain.values())
    nodes = graph(replace(page, comparison={"first": {"names": ["deep"]}}))
    assert [name for name, node in nodes.items() if "style" in node] == ["0.1"]
    assert graph(replace(page, comparison={"first": None})) == plain


def test_files_are_written_whole_or_not_at_all(tmp_path) -> None:
    report = Report((host_row("erf"),), page_of(tiled_network()).regions)
    file = model_explorer.write(report, tmp_path / "net.json", "net")
    assert json.loads(file.read_text())["graphs"][0]["id"] == "net"
    beside = sorted(path.name for path in tmp_path.iterdir())
    assert beside == ["net.arena.json", "net.json", "net.macs.json", "net.weights.json"]
    assert json.loads((tmp_path / "net.macs.json").read_text())["net"]["results"]
    with pytest.raises(OptionError, match="no folder"):
        model_explorer.write(report, tmp_path / "none" / "net.json")


def test_hostile_names_are_escaped() -> None:
    text = json.dumps(model_explorer.graphs(hostile_page(), "net"), ensure_ascii=False)
    assert HOSTILE not in text
    assert not any(character in text for character in "\u202e\u2028")


# --- In Model Explorer itself ---------------------------------------------------------------------


@contextmanager
def server(log: Path) -> Iterator[str]:
    """The address of a server on loopback with the extension."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--extensions=tinyai.model_explorer", "--no_open_in_browser"]
    command = [EXPLORER / "model-explorer", *words, "--host", "127.0.0.1", "--port", str(port)]
    with log.open("w") as told:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, env=environment, stdout=told, stderr=told)
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait()


def wait_for(address: str) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{address}check_health", timeout=5) as answer:
                answer.read()
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(address)


@needs_it
def test_the_extension_makes_their_graph_and_their_data(tmp_path) -> None:
    script = f"""if True:
        import json, sys
        from dataclasses import asdict
        from model_explorer.utils import convert_adapter_response
        from tinyai.model_explorer.main import TinyAIAdapter, TinyAITimes
        file = {str(MODELS / "kws_ref_model.tflite")!r}
        made = convert_adapter_response(TinyAIAdapter().convert(file, {{}}))
        times = TinyAITimes().run("tinyai_times", file, "", {{}}, None)
        refused = TinyAITimes().run("tinyai_times", __file__ + ".tflite", "", {{}}, None)
        json.dump([made, asdict(times), asdict(refused)], sys.stdout)
    """
    file = tmp_path / "script.py"
    file.write_text(script)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [EXPLORER / "python", file], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    made, times, refused = json.loads(done.stdout)
    report = explain_file(MODELS / "kws_ref_model.tflite", Target())
    (wanted,) = model_explorer.graphs(report, "kws_ref_model")["graphs"]
    (found,) = made["graphs"]
    assert [node["id"] for node in found["nodes"]] == [node["id"] for node in wanted["nodes"]]
    for ours, theirs in zip(wanted["nodes"], found["nodes"], strict=True):
        assert ours.items() <= {key: theirs[key] for key in ours}.items()
    names = [each["name"] for each in times["result"]]
    assert names == ["time (µs)", "MACs", "weights (bytes)", "arena (bytes)"]
    layers = {name for name in (node["id"] for node in found["nodes"]) if name[2:].isdigit()}
    assert times["result"][0]["results"].keys() == layers
    assert refused["result"] is None
    assert refused["error"]


@needs_it
@pytest.mark.slow
def test_model_explorer_opens_a_file_with_its_region_and_times(tmp_path) -> None:
    """Its picture is in build/pictures."""
    page = model_explorer.page_with_times(MOBILENET, runs=20)
    model_explorer.write(page, tmp_path / "net.json", MOBILENET.stem)
    asked = {
        "models": [{"url": str(MOBILENET), "adapterId": "tinyai"}],
        "nodeData": [str(tmp_path / "net.time.json")],
        "nodeDataTargets": [""],
    }
    pictures = ROOT / "build" / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    with server(tmp_path / "log") as address, browser() as opened:
        wait_for(address)
        opened.show(f"{address}?data={urllib.parse.quote(json.dumps(asked))}")
        opened.wait("return document.body.innerText.includes('Aggregated stats')")
        text = opened.run("return document.body.innerText")
        opened.run("await new Promise((done) => setTimeout(done, 2000))")  # until all is drawn
        opened.picture(pictures / "model_explorer.png")
    assert f"{len(graph(page))} nodes" in text
    assert "time (µs)" in text
    first = page.regions[0].anatomy.layers[0]
    assert f"conv2d {first.number}" in text
    assert f"{first.microseconds:.3f}".rstrip("0") in text
