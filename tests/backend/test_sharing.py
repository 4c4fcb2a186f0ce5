"""Programs that are lowered together: what they share is stored once, and a bundle holds it all."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tinyai
from tests.support.example_graphs import NETWORKS, random_inputs
from tests.support.paths import MODELS, ROOT
from tests.support.relay_nets import layers, module
from tinyai.backend import (
    CompileSpec,
    NamedData,
    NamedDataStore,
    PreprocessResult,
    TinyAIBackend,
    whole_source,
)
from tinyai.backend.sharing import is_code, saved_bytes
from tinyai.errors import BoundaryError, FormatError, OptionError
from tinyai.ir import Builder, DType, Graph, Type
from tinyai.network import network_of_graph
from tinyai.ops import Conv2d
from tinyai.ops.window import Window
from tinyai.reference import run_graph
from tinyai.runtime.bundle import Bundle, Method

PLAIN = CompileSpec("abi", b"plain")
GENERIC = CompileSpec("isa", b"generic")
BINARY = CompileSpec("binary", b"1")


def network(name: str = "one") -> Graph:
    return replace(NETWORKS["small NHWC"](), name=name)


def pointwise(name: str, size: int) -> Graph:
    """A layer that is cut up otherwise for other numbers of outputs."""
    weight = np.random.default_rng(0).integers(-127, 128, (192, 1, 1, 64)).astype(np.int8)
    b = Builder(name)
    x = b.input(Type((1, size, size, 64), DType.INT8))
    return b.graph([b.add(Conv2d(Window((1, 1))), [x, b.constant(weight)])])


def together(results: Mapping[str, list[PreprocessResult]]) -> NamedData:
    store = NamedDataStore()
    for each in results.values():
        for result in each:
            assert result.data_store_output is not None
            store.merge(result.data_store_output)
    return store.output()


def lowered(*graphs: Graph, specs: list[CompileSpec]) -> dict[str, list[PreprocessResult]]:
    programs = {graph.name: [graph] for graph in graphs}
    return TinyAIBackend.preprocess_multimethod(programs, {name: [specs] for name in programs})


def test_equal_programs_share_constants_and_functions_and_stay_whole() -> None:
    specs = [PLAIN, GENERIC]
    results = lowered(network("one"), network("two"), specs=specs)
    stores = [each[0].data_store_output for each in results.values()]
    assert stores[0] == stores[1] == together(results)
    assert stores[0] is not None
    code = [key for key in stores[0] if is_code(key)]
    assert len(code) > 2
    assert saved_bytes([stores[0], stores[0]], stores[0]) == stores[0].size > 0
    text = results["one"][0].processed_bytes.decode()
    assert all(text.count(f'#include "{key}"') == 1 for key in code)
    whole = whole_source(results["one"][0])
    assert "#include <stdint.h>" in whole
    assert "tinyai_code_" not in whole
    assert "TINYAI_APART" not in whole
    assert text.count("\n") < whole.count("\n") / 2
    assert lowered(network("one"), network("two"), specs=specs) == results


def test_a_program_alone_shares_nothing_and_names_functions_by_content() -> None:
    (alone,) = lowered(network(), specs=[PLAIN, GENERIC])["one"]
    assert alone.data_store_output is not None
    assert not any(map(is_code, alone.data_store_output))
    text = TinyAIBackend.preprocess(network(), [PLAIN, GENERIC]).processed_bytes.decode()
    assert len(alone.processed_bytes.splitlines()) == len(text.splitlines())


@pytest.mark.parametrize("isa", ["auto", "generic"])
def test_a_weight_has_one_packing_in_all_methods(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone these two pack it otherwise: the tiles of one output and of many are not as wide."""
    specs = [PLAIN, CompileSpec("isa", isa.encode())]
    graphs = pointwise("few", 1), pointwise("many", 16)
    alone = [TinyAIBackend.preprocess(graph, specs).data_store_output for graph in graphs]
    assert alone[0] != alone[1]
    results = lowered(*graphs, specs=specs)
    weights = {key for key in together(results) if len(together(results)[key]) >= 192 * 64}
    assert len({key for key in weights if not is_code(key)}) == 1


def test_programs_of_one_name_in_one_library_are_an_error() -> None:
    programs, specs = {"a": [network()], "b": [network()]}, [GENERIC, BINARY]
    with pytest.raises(OptionError, match="names of programs\n  found:   one 2 times"):
        TinyAIBackend.preprocess_multimethod(programs, {"a": [specs], "b": [specs]})


# --- Bundles -------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("specs", [[GENERIC], [GENERIC, BINARY], []], ids=["c", "binary", "auto"])
def test_a_bundle_is_saved_loaded_and_computes_what_its_methods_mean(
    specs: list[CompileSpec], tmp_path: Path
) -> None:
    graphs = {"few rows": pointwise("few", 1), "many": pointwise("many", 16), "net": network()}
    methods = {name: network_of_graph(graph) for name, graph in graphs.items()}
    bundle = tinyai.lower(methods, specs)
    file = tmp_path / "net.tinyai"
    bundle.save(file)
    again = Bundle.load(file)
    assert again == bundle
    assert list(again.methods) == list(methods)
    assert again.to_bytes() == file.read_bytes() == tinyai.lower(methods, specs).to_bytes()
    for name, graph in graphs.items():
        inputs = random_inputs(graph, 5)
        for found, expected in zip(
            tinyai.Model(file, method=name)(inputs), run_graph(graph, inputs), strict=True
        ):
            assert np.array_equal(found, expected)
    names = [port.name for port in again.methods["net"].inputs]
    assert names == [port.name for port in methods["net"].inputs]
    assert "bundle of 3 methods (few rows, many, net)" in str(again)
    assert (again.constant_bytes == 0) == (BINARY in specs)


@pytest.mark.parametrize("specs", [[GENERIC], []], ids=["c", "auto"])
def test_a_bundle_of_before_c_had_heads_still_runs(
    specs: list[CompileSpec], tmp_path: Path
) -> None:
    bundle = tinyai.lower({"one": network("one"), "two": network("two")}, specs)

    def before(method: Method) -> Method:
        title, head, *rest = method.program.splitlines(keepends=True)
        assert head.startswith(b"* tinyai.c/1 {")
        return replace(method, program=b"".join((title, *rest)))

    methods = {name: before(method) for name, method in bundle.methods.items()}
    replace(bundle, methods=methods).save(tmp_path / "net.tinyai")
    inputs = random_inputs(network(), 5)
    (found,) = tinyai.Model(tmp_path / "net.tinyai", method="two")(inputs)
    assert np.array_equal(found, run_graph(network(), inputs)[0])


ELSEWHERE = """
import sys
sys.modules["tvm"] = None  # import tvm raises ModuleNotFoundError
import numpy as np, tinyai
file, inputs, outputs = sys.argv[1:]
found = {}
for name, x in np.load(inputs).items():
    found[name] = tinyai.Model(file, method=name)(x)[0]
np.savez(outputs, **found)
"""


@pytest.mark.parametrize("specs", [[GENERIC], [BINARY]], ids=["c", "binary"])
def test_methods_run_in_a_process_without_tvm(specs: list[CompileSpec], tmp_path: Path) -> None:
    graphs = {"few rows": pointwise("few", 1), "many": pointwise("many", 16), "net": network()}
    bundle = tinyai.lower(graphs, specs)
    bundle.save(tmp_path / "net.tinyai")
    inputs = {name: random_inputs(graph, 5)[0] for name, graph in graphs.items()}
    np.savez(tmp_path / "inputs.npz", **inputs)
    files = [str(tmp_path / name) for name in ("net.tinyai", "inputs.npz", "outputs.npz")]
    command = [sys.executable, "-c", ELSEWHERE, *files]
    process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert process.returncode == 0, process.stderr
    found = np.load(tmp_path / "outputs.npz")
    for name, graph in graphs.items():
        assert np.array_equal(found[name], run_graph(graph, [inputs[name]])[0])


def test_a_model_of_a_bundle_says_what_it_wants(tmp_path: Path) -> None:
    file = tmp_path / "net.tinyai"
    tinyai.lower({"one": network(), "two": pointwise("two", 1)}, [GENERIC]).save(file)
    model = tinyai.Model(file, method="one")
    (port,) = network_of_graph(network()).inputs
    assert [(each.name, each.shape) for each in model.inputs] == [(port.name, port.type.shape)]
    for act, said in (
        (lambda: tinyai.Model(file), "method of a bundle\n  found:   ''\n  allowed: 'one', 'two'"),
        (lambda: tinyai.Model(file, method="three"), "found:   'three'"),
        (lambda: tinyai.Model(file, "tinyai", method="one"), "options beside a bundle"),
        (lambda: tinyai.Model("net.so", method="one"), "allowed: none beside a single network"),
    ):
        with pytest.raises(OptionError) as caught:
            act()
        assert said in str(caught.value)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(FormatError):
        tinyai.Model(file, method="one")


def test_what_was_compiled_is_kept_for_the_next_load(tmp_path: Path) -> None:
    bundle = tinyai.lower({"net": network_of_graph(network())}, [GENERIC])
    with bundle.libraries() as first:
        pass
    assert [*(tmp_path / "cache/tinyai/bundles").iterdir()] == [first["net"]]
    time = first["net"].stat().st_mtime_ns
    with bundle.libraries() as second:
        assert second == first
    assert second["net"].stat().st_mtime_ns == time
    whole = first["net"].read_bytes()
    first["net"].write_bytes(whole[:-100])
    with bundle.libraries() as third:
        assert third["net"].stat().st_size == len(whole)


def test_a_bundle_that_was_altered_or_cut_off_is_refused(tmp_path: Path) -> None:
    content = tinyai.lower({"net": network_of_graph(network())}, [GENERIC]).to_bytes()
    chosen = random.Random(2)
    for place in chosen.sample(range(len(content)), 300):
        altered = bytearray(content)
        altered[place] ^= 1 << chosen.randrange(8)
        with pytest.raises(FormatError):
            Bundle.from_bytes(bytes(altered))
        with pytest.raises(FormatError):
            Bundle.from_bytes(content[:place])
    newer = bytearray(content)
    newer[8] = 9
    with pytest.raises(FormatError, match="version 9"):
        Bundle.from_bytes(bytes(newer), "net.tinyai")


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda: tinyai.lower({}), "methods of a bundle"),
        (lambda: tinyai.lower({"a": network(), "b": network()}, {"a": []}), "specs for b"),
        (lambda: tinyai.lower({"a b": network(), "a_b": network()}), "names of methods"),
        (lambda: tinyai.lower({"a": network()}, [CompileSpec("abi", b"packed")]), "'abi'"),
        (lambda: tinyai.lower({"a": network()}, [CompileSpec("speed", b"1")]), "found:   speed"),
        (lambda: Bundle.load("not/there.tinyai"), "bundle"),
        (lambda: tinyai.lower({"a": network()}).save("net.so"), "a name with .tinyai"),
        (lambda: tinyai.lower({"a": network()}).save("not/there.tinyai"), "can be written"),
    ],
)
def test_wrong_arguments_are_errors(act: object, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        act()  # type: ignore[operator]
    assert said in str(caught.value)


def test_a_model_with_an_operator_for_a_host_is_refused() -> None:
    from tvm import relay

    with pytest.raises(BoundaryError):
        tinyai.lower({"a": module(relay.sin(relay.cast(layers(1), "float32")))})


def test_mobilenet_v2_for_two_batches_has_its_weights_once() -> None:
    from tinyai.frontends.relay.whole import network_of

    file, shape = MODELS / "mobilenet_v2_int8.tflite", "serving_default_input_2:0"
    rounding = CompileSpec("rounding", b"tflite")
    target = tinyai.Target(rounding="tflite")
    networks = {
        f"batch{batch}": network_of(file, target, input_shapes={shape: (batch, 224, 224, 3)})
        for batch in (1, 4)
    }
    assert [n.inputs[0].type.shape[0] for n in networks.values()] == [1, 4]
    bundle = tinyai.lower(networks, [rounding])
    alone = TinyAIBackend.preprocess(networks["batch1"].graph, [rounding, PLAIN])
    assert alone.data_store_output is not None
    weights = alone.data_store_output.size
    assert bundle.constant_bytes == weights
    assert len(bundle.to_bytes()) <= 1.02 * weights + bundle.code_bytes
    assert bundle.saved_bytes >= weights
