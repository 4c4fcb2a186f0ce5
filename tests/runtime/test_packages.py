"""C packages that run: compiled for this machine, found again, and refused where they are not
whole."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

import tinyai
from benchmarks.onnx_networks import NETWORKS
from tests.support.example_graphs import branching_network, random_inputs, small_network
from tests.support.paths import MODELS, ROOT
from tests.support.prequantized import OnnxCase
from tinyai.errors import FormatError, OptionError, ToolchainError
from tinyai.frontends.relay.whole import network_of
from tinyai.network import network_of_graph
from tinyai.package import Package, package_of
from tinyai.reference import run_graph
from tinyai.runtime import manifest as manifest_module
from tinyai.runtime import package as package_module
from tinyai.target import Target, this_architecture

KWS = MODELS / "kws_ref_model.tflite"
SCALAR = Target(isa="scalar", rounding="tflite")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tinyai" / "packages"


def small() -> Package:
    return package_of(network_of_graph(small_network(), "small"), Target(isa="scalar"))


@pytest.mark.parametrize("how", ["a member", "many members", "a header of a member"])
def test_an_archive_that_unpacks_to_more_than_a_gibibyte_is_refused_unread(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_module, "LARGEST_UNPACKED", 100_000)  # else the test takes long
    small().write_tar(tmp_path / "small.tar")
    assert tinyai.Model(tmp_path / "small.tar").name == "small"
    archive, padding = tmp_path / "net.tar", {"path": "x" * 200_000}
    with tarfile.open(archive, "w:gz", format=tarfile.PAX_FORMAT) as made:
        for number in range(20 if how == "many members" else 1):
            size = {"a member": 200_000, "many members": 10_000}.get(how, 0)
            member = tarfile.TarInfo(f"small{number}.c")
            member.size = size
            member.pax_headers = padding if how == "a header of a member" else {}
            made.addfile(member, io.BytesIO(bytes(size)))
    assert archive.stat().st_size < 2_000
    read: list[int] = []
    monkeypatch.setattr(
        tarfile.ExFileObject, "read", lambda *_: read.append(1) or b"", raising=False
    )
    with pytest.raises(FormatError, match="bytes and more when unpacked; at most 100,000"):
        tinyai.Model(archive)
    assert len(read) == {"many members": 10}.get(how, 0)


# --- Results -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ports_in_arena", [False, True])
@pytest.mark.parametrize("isa", ["scalar", "auto"])
def test_a_folder_and_an_archive_compute_what_the_references_do(
    isa: str, ports_in_arena: bool, tmp_path: Path
) -> None:
    target = replace(SCALAR, isa=isa)
    network = network_of(KWS, target)
    package = package_of(network, target, ports_in_arena=ports_in_arena)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-128, 128, (1, 49, 10, 1)).astype(np.int8) for _ in range(3)]
    for path in (package.write(tmp_path / "net"), package.write_tar(tmp_path / "net.tar")):
        model = tinyai.Model(path)
        assert (model.name, model.arena_bytes) == (package.name, package.report.arena_bytes)
        assert model.inputs[0].name == network.inputs[0].name
        assert (model.inputs[0].scale, model.inputs[0].zero_point) == (
            network.inputs[0].quant.scale[0] if network.inputs[0].quant else None,
            83,
        )
        for x in inputs:
            (found,) = model.run(x)
            np.testing.assert_array_equal(found, run_graph(network.graph, [x])[0])


@pytest.mark.parametrize("ports_in_arena", [False, True])
def test_several_outputs_have_their_places(ports_in_arena: bool, tmp_path: Path) -> None:
    graph = branching_network("NHWC")
    package = package_of(
        network_of_graph(graph, "branching"), SCALAR, ports_in_arena=ports_in_arena
    )
    inputs = random_inputs(graph, 0)
    expected = run_graph(graph, inputs)
    found = tinyai.Model(package.write(tmp_path / "net")).run(inputs)
    assert len(found) == len(expected) > 1
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("ends", ["model", "int8"])
def test_inputs_and_outputs_are_those_that_the_package_has(ends: str, tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    (squeezenet,) = [each for each in NETWORKS if each.name == "squeezenet"]
    onnx.save(OnnxCase(squeezenet, "qdq", "uint8").model, file)
    target = Target(isa="scalar", rounding="onnx")
    tinyai.emit_c(file, tmp_path / "net", target, ends=ends)
    network = network_of(file, target, ends=ends)
    inputs = random_inputs(network.graph, 0)
    model = tinyai.Model(tmp_path / "net")
    assert (model.inputs[0].dtype == "float32") == (ends == "model")
    (found,), (expected,) = model.run(inputs), run_graph(network.graph, inputs)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_a_process_without_tvm_runs_a_package(tmp_path: Path) -> None:
    tinyai.emit_c(KWS, tmp_path / "net", SCALAR)
    x = np.random.default_rng(1).integers(-128, 128, (1, 49, 10, 1)).astype(np.int8)
    np.save(tmp_path / "x.npy", x)
    code = """
import sys
sys.modules["tvm"] = None
from tinyai.cli import main
main(["run", "net", "--input", "x.npy", "-o", "y.npz"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (found,) = np.load(tmp_path / "y.npz").values()
    np.testing.assert_array_equal(found, run_graph(network_of(KWS, SCALAR).graph, [x])[0])


def test_what_was_compiled_is_found_again_and_made_anew_where_it_was_cut_off(
    tmp_path: Path, cache: Path
) -> None:
    folder = small().write(tmp_path / "net")
    inputs = random_inputs(small_network(), 0)
    expected = tinyai.Model(folder).run(inputs)
    (kept,) = cache.iterdir()
    made = kept.stat().st_mtime_ns
    tinyai.Model(small().write_tar(tmp_path / "other.tar"))
    assert [path.stat().st_mtime_ns for path in cache.iterdir()] == [made]
    whole = kept.read_bytes()
    kept.unlink()
    kept.write_bytes(whole[: len(whole) // 2])
    for mine, other in zip(tinyai.Model(folder).run(inputs), expected, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert len(kept.read_bytes()) == len(whole)


def test_a_changed_weight_is_another_library(tmp_path: Path, cache: Path) -> None:
    folder = small().write(tmp_path / "net")
    tinyai.Model(folder)
    weights = folder / "small_weights.c"
    weights.write_text(weights.read_text() + "\n")
    tinyai.Model(folder)
    assert len(list(cache.iterdir())) == 2


# --- What is refused -----------------------------------------------------------------------------


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def changed(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


def cut(folder: Path) -> None:
    manifest = folder / "small_manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:200])


def two(folder: Path) -> None:
    (folder / "other_manifest.json").write_text("{}")


def signed(folder: Path, **changes: object) -> None:
    """Change the manifest, and its checksum accordingly."""
    path = folder / "small_manifest.json"
    facts = {**json.loads(path.read_text()), **changes}
    facts["checksum"] = manifest_module._checksum({k: facts[k] for k in facts if k != "checksum"})
    path.write_text(json.dumps(facts))


MANIFEST = "small_manifest.json"


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (without("small_weights.c"), "no small_weights.c"),
        (two, "2 files *_manifest.json"),
        (cut, "manifest.json: JSONDecodeError"),
        (changed(MANIFEST, "manifest/1", "manifest/9"), "tinyai.manifest/9"),
        (changed(MANIFEST, '"name": "small"', '"name": "../x"'), "it was altered"),
        (changed(MANIFEST, '"arena_bytes": ', '"arena_bytes": 1'), "it was altered"),
        (changed(MANIFEST, '"shape": [\n    1', '"shape": [\n    7'), "it was altered"),
        (partial(signed, name="../x"), "name '../x'"),
        (partial(signed, name="other"), "name 'other'"),
        (partial(signed, target="llvm"), "OptionError"),
        (partial(signed, inputs=[{"name": "x", "dtype": "int9", "shape": [1]}]), "int9"),
        (partial(signed, inputs=[{"name": "x", "dtype": "int8", "shape": [0]}]), "shape (0,)"),
        (partial(signed, files={}), "KeyError"),
        (changed("small.h", '_HASH "', '_HASH "0'), "small.h is another one"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(
    spoil: Callable[[Path], None], found: str, tmp_path: Path, cache: Path
) -> None:
    folder = small().write(tmp_path / "net")
    spoil(folder)
    with pytest.raises(FormatError) as caught:
        tinyai.Model(folder)
    assert caught.value.what.startswith("C package")
    assert found in str(caught.value.found)
    assert not cache.exists() or not list(cache.iterdir())


@pytest.mark.parametrize("kind", ["folder", "archive"])
def test_a_package_of_before_there_were_manifests_says_to_compile_it_again(
    kind: str, tmp_path: Path
) -> None:
    files = {file: data for file, data in small().files.items() if file != MANIFEST}
    package = replace(small(), files=files)
    path = tmp_path / "net.tar"
    write = package.write if kind == "folder" else package.write_tar
    write(path.with_suffix("") if kind == "folder" else path)
    with pytest.raises(FormatError, match="of another version") as caught:
        tinyai.Model(path.with_suffix("") if kind == "folder" else path)
    assert "no *_manifest.json" in str(caught.value.found)
    assert "compile the model again" in str(caught.value)


def test_the_manifest_lists_the_files_and_what_goes_in_and_out() -> None:
    made = small()
    manifest = json.loads(made.files[MANIFEST])
    assert manifest["files"].keys() == made.files.keys() - {MANIFEST}
    for file, facts in manifest["files"].items():
        content = made.files[file]
        assert facts == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert (manifest["name"], manifest["entry"]) == ("small", "small_run")
    assert manifest["hash"] == made.report.hash
    assert [port["shape"] for port in manifest["inputs"]] == [list(made.report.inputs[0].shape)]


def test_code_that_was_changed_by_hand_is_run_and_its_layers_are_not_known(tmp_path: Path) -> None:
    folder = small().write(tmp_path / "net")
    assert tinyai.Model(folder).facts["layers"]
    changed("small.c", "/* The network.", "/* A network.")(folder)
    model, inputs = tinyai.Model(folder), random_inputs(small_network(), 0)
    assert not model.facts["layers"]
    expected = run_graph(small_network(), inputs)
    np.testing.assert_array_equal(model.run(inputs)[0], expected[0])


def test_an_archive_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = small().write_tar(tmp_path / "net.tar")
    content = path.read_bytes()
    for size in (0, 100, len(content) // 2):
        path.write_bytes(content[:size])
        with pytest.raises(FormatError, match="C package"):
            tinyai.Model(path)


def test_an_archive_writes_nothing_where_it_likes(tmp_path: Path) -> None:
    """Its files are taken by their names alone."""
    path = tmp_path / "net.tar"
    with tarfile.open(path, "w") as archive:
        for name, data in small().files.items():
            member = tarfile.TarInfo(f"../../{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    inputs = random_inputs(small_network(), 0)
    assert tinyai.Model(path).run(inputs)
    assert {each.name for each in tmp_path.iterdir()} == {"net.tar", "cache"}


def test_code_of_another_architecture_is_refused_but_where_it_is_portable(tmp_path: Path) -> None:
    other, isa = ("x86_64", "avx2") if this_architecture() == "aarch64" else ("aarch64", "neon")
    network = network_of_graph(small_network(), "small")
    foreign = package_of(network, Target(arch=other, isa=isa)).write(tmp_path / "foreign")
    with pytest.raises(OptionError, match="architecture of a C package") as caught:
        tinyai.Model(foreign)
    assert other in str(caught.value.found)
    portable = package_of(network, Target(arch=other, isa="scalar")).write(tmp_path / "portable")
    inputs = random_inputs(small_network(), 0)
    expected = run_graph(network.graph, inputs)
    np.testing.assert_array_equal(tinyai.Model(portable).run(inputs)[0], expected[0])


def test_options_of_what_is_compiled_already_are_refused(tmp_path: Path) -> None:
    folder = small().write(tmp_path / "net")
    with pytest.raises(OptionError, match="options beside a C package"):
        tinyai.Model(folder, "tinyai -isa=scalar")
    with pytest.raises(ToolchainError, match="no C compiler"):
        tinyai.Model(folder, toolchain=tinyai.Toolchain("no-such-compiler"))
