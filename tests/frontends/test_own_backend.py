"""Back ends of one's own beside tinyai, and compile specs for all regions or for one.

Tutorial 3 has an operator and a kernel of its own.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from click.testing import CliRunner, Result
from onnx import helper
from tvm import relay

import tests.support.relay_nets as nets
import tinyai
from tests.support.machines import runnable_isas
from tests.support.magnitudes import KERNEL, ROW, Magnitude
from tests.support.onnx_models import Model, quantized
from tests.support.oracle import oracle
from tests.support.paths import ROOT
from tests.support.scripts import code_of
from tinyai.backend import BackendDetails, CompileSpec, PreprocessResult, TinyAIBackend
from tinyai.builders import Lowering, OperatorRow
from tinyai.checking.built import load_built
from tinyai.cli import main
from tinyai.codegen.ctree import Code
from tinyai.codegen.kernels import Kernel
from tinyai.codegen.lowered import Lowered, Prepared
from tinyai.codegen.steps import Epilogue
from tinyai.errors import DefectError, OptionError, OwnCodeError, UsageWarning
from tinyai.frontends.relay import regions
from tinyai.frontends.relay.functions import region_target
from tinyai.ir import DType, Graph, Operand
from tinyai.match import AnyConstant, Anything, op, part
from tinyai.ops import Elementwise, steps
from tinyai.own import backend_of_file
from tinyai.patterns import PatternRow
from tinyai.runtime.runner import Runner
from tinyai.source import Call, Constant, Expr, require
from tinyai.target import Target

SCALAR, GENERIC = CompileSpec("isa", b"scalar"), CompileSpec("isa", b"generic")
RELU = (PatternRow("relu", op("relu", Anything())),)
ASKED: list[tuple[str, tuple[CompileSpec, ...]]] = []


class Noting(BackendDetails):
    """tinyai's C; notes what it was asked for."""

    @staticmethod
    def preprocess(program: Graph, compile_specs: Sequence[CompileSpec]) -> PreprocessResult:
        ASKED.append((program.name, tuple(compile_specs)))
        return TinyAIBackend.preprocess(program, [each for each in compile_specs if each == SCALAR])


@pytest.fixture(autouse=True)
def _registered() -> None:
    ASKED.clear()
    tinyai.register_backend("noting", Noting, RELU)


def network() -> tvm.IRModule:
    """A region of tinyai's, an operator of the host's, a region, ReLU, which "noting" takes."""
    x = relay.var("x", shape=(4, 8), dtype="int32")
    summed = relay.cumsum(relay.right_shift(x, relay.const(2)), axis=1)
    rest = relay.nn.relu(relay.cumsum(relay.clip(summed, -90, 90), axis=0))
    return tvm.IRModule.from_expr(relay.Function([x], rest))


def test_the_tutorial_takes_less_than_80_lines() -> None:
    """Without those that draw pictures."""
    cells = code_of(ROOT / "tutorials" / "03_a_back_end_of_your_own.ipynb")
    assert 20 < sum(len(source.splitlines()) for source in cells) < 100
    lines = [line for source in cells for line in source.splitlines() if line.strip()]
    assert len(lines) < 80


# --- A composite with a builder ------------------------------------------------------------------

PROGRAMS: list[Graph] = []


class Seeing(BackendDetails):
    """tinyai's C; notes the programs."""

    @staticmethod
    def preprocess(program: Graph, compile_specs: Sequence[CompileSpec]) -> PreprocessResult:
        PROGRAMS.append(program)
        return TinyAIBackend.preprocess(program, compile_specs)


def half(parts: Mapping[str, Expr], lowering: Lowering) -> str:
    """Three operators as one node."""
    data, by, bounds = lowering.type(parts["data"]), parts["by"], parts["bounds"]
    require(data.dtype is DType.INT32, "dtype of half", data.dtype, "int32")
    assert isinstance(by, Constant)
    assert isinstance(bounds, Call)
    shift = steps.RightShift(operand=Operand(lowering.builder.constant(by.value)))
    low = max(bounds.attrs["low"], 0.0)
    chain = steps.Clip(low, bounds.attrs["high"]), shift
    return lowering.builder.add(Elementwise(data.shape), [lowering.tensor(parts["data"])], chain)


BOUNDS = part("bounds", op("clip", op("relu", part("data"))))
HALF = PatternRow("half", op("right_shift", BOUNDS, part("by", AnyConstant())), build=half)


def thrice(dtype: str = "int32", *, read_twice: bool = False) -> tvm.IRModule:
    x = relay.var("x", shape=(4, 8), dtype=dtype)
    positive = relay.nn.relu(x - relay.const(5, dtype))
    y = relay.right_shift(relay.clip(positive, -90, 90), relay.const(1, dtype))
    return tvm.IRModule.from_expr(relay.Function([x], y + positive if read_twice else y))


def without_bounds(graph: Graph) -> Graph:
    """A pass that leaves out the first step of each node."""
    nodes = tuple(replace(node, epilogue=node.epilogue[1:]) for node in graph.nodes)
    return replace(graph, nodes=nodes)


def test_a_composite_reaches_preprocess_as_the_one_node_that_its_builder_made() -> None:
    tinyai.register_backend("seeing", Seeing, [HALF])
    PROGRAMS.clear()
    mod = thrice()
    parts = tinyai.partition_for_tinyai(tinyai.partition_for("seeing", mod))
    assert sorted(compilers(parts).values()) == ["seeing", "tinyai"]
    data = np.random.default_rng(0).integers(-900, 900, (4, 8)).astype(np.int32)
    built = tinyai.runtime.compile(relay.build(parts, target="llvm"))
    (found,), (expected,) = nets.run_factory(built, {"x": data}), oracle(mod, {"x": data})
    assert np.array_equal(found, expected)
    (program,) = PROGRAMS
    (node,) = program.nodes
    assert [step.name for step in node.epilogue] == ["clip", "right_shift"]
    network = tinyai.network_of(mod, backend="seeing")
    assert [len(node.epilogue) for node in network.graph.nodes] == [1, 2]
    assert np.array_equal(tinyai.run_graph(network.graph, [data])[0], expected)


def test_passes_of_ones_own_come_before_preprocess() -> None:
    tinyai.register_backend("seeing", Seeing, [HALF], passes=[without_bounds])
    PROGRAMS.clear()
    with tvm.transform.PassContext(opt_level=3):
        relay.build(tinyai.partition_for("seeing", thrice()), target="llvm")
    (program,) = PROGRAMS
    assert [step.name for node in program.nodes for step in node.epilogue] == ["right_shift"]


@pytest.mark.parametrize(
    ("mod", "operator", "clause", "found"),
    [
        (thrice("int16"), "right_shift", "dtype of half", "int16"),
        (thrice(read_twice=True), "right_shift", "other readers", "add"),
        (thrice(), "subtract", "operator", "subtract"),
        (network(), "right_shift", "pattern: argument 1 of right_shift", "a value computed at run"),
    ],
)
def test_explain_says_why_a_back_end_of_ones_own_leaves_an_operator(
    mod: tvm.IRModule, operator: str, clause: str, found: str
) -> None:
    tinyai.register_backend("seeing", Seeing, [HALF])
    rows = tinyai.explain(mod, backend="seeing").host
    (reason,) = {row.reason for row in rows if row.operator == operator}
    assert reason.clause == clause
    assert found in reason.found


def test_the_report_of_a_back_end_of_ones_own_has_its_regions_too() -> None:
    tinyai.register_backend("seeing", Seeing, [HALF])
    mod = thrice()
    (row,) = tinyai.explain(mod, backend="seeing").regions
    assert (row.composites, row.operators, row.layers) == ((("half", 1),), (), 1)
    again = tinyai.explain(tinyai.partition_for("seeing", mod), backend="seeing")
    assert again.regions == (row,)


def test_a_back_end_that_takes_nothing_says_so_with_what_to_do() -> None:
    tinyai.register_backend("seeing", Seeing, [HALF])
    with pytest.warns(UserWarning, match=r"'seeing' takes nothing.*explain\(mod, backend='seeing'"):
        assert not compilers(tinyai.partition_for("seeing", network()))


def test_the_command_compiles_with_the_back_end_of_a_file(tmp_path: Path) -> None:
    mod = thrice()
    file, text = tmp_path / "own.py", tmp_path / "net.relay"
    text.write_text(mod.astext(show_meta_data=True))
    tinyai.register_backend("seeing", Seeing, [HALF], passes=[without_bounds])
    file.write_text(
        "import tinyai.own\nown = tinyai.own.backend_of('seeing')\n"
        "tinyai.register_backend('filed', own.details, own.patterns, passes=own.passes)\n"
    )
    made = tmp_path / "net.so"
    arguments = ["compile", str(text), "-o", str(made), "--isa", "scalar", "--backend"]
    result = CliRunner().invoke(main, [*arguments, str(file)])
    assert result.exit_code == 0, result.output
    data = np.full((4, 8), -1000, np.int32)
    # The pass took a step away from the composite's node, and from that before it.
    assert (tinyai.Model(made).run(data)[0] == -500).all()
    for wrong, said in (("x = 1", "found:   none"), ("1 / 0", "found:   ZeroDivisionError")):
        file.write_text(wrong)
        result = CliRunner().invoke(main, [*arguments, str(file)])
        assert result.exit_code != 0
        assert said in result.output


# --- In every command ----------------------------------------------------------------------------


@pytest.fixture
def magnitudes(tmp_path: Path) -> Path:
    """A folder with the model abs.onnx, an input for it, and own.py, a back end for it."""
    proto, inputs = quantized(
        Model((helper.make_node("Abs", ["x"], ["y"]),), {"x": (7, 9)}), "int8"
    )
    onnx.save(proto, tmp_path / "abs.onnx")
    np.save(tmp_path / "x.npy", inputs["x"])
    (tmp_path / "own.py").write_text(
        "import tinyai\n"
        "from tests.support.magnitudes import KERNEL, ROW\n"
        "from tinyai.backend import TinyAIBackend\n"
        "tinyai.register_backend('magnitudes', TinyAIBackend, [ROW], kernels=[KERNEL])\n"
    )
    return tmp_path


def command(folder: Path, name: str, *arguments: str) -> Result:
    file, own = str(folder / "abs.onnx"), str(folder / "own.py")
    return CliRunner().invoke(main, [name, file, *arguments, "--backend", own])


@pytest.mark.parametrize(
    ("name", "arguments", "code", "said"),
    [
        ("explain", (), 0, "1 magnitude"),
        ("run", ("--input", "x.npy"), 0, "y_steps: int8"),
        ("check", ("--samples", "2"), 1, "different: the C of net_abs and ONNX Runtime"),
        ("check", ("--samples", "2", "--html", "page.html"), 1, "different"),
        ("bench", ("--layers", "--runs", "2", "--json"), 0, "magnitude(zero_point="),
        ("bench", ("--peers", "--seconds", "0.01"), 0, "ratio = peer / tinyai"),
        ("tune", ("-o", "tuning.json", "--seconds", "0.01"), 0, "has every layer"),
    ],
)
def test_a_command_takes_the_back_end_of_a_file(
    magnitudes: Path, name: str, arguments: Sequence[str], code: int, said: str
) -> None:
    """What the composite computes is not what ONNX Runtime does: its result has another scale."""
    files = (".npy", ".html", ".json")
    given = [str(magnitudes / each) if each.endswith(files) else each for each in arguments]
    result = command(magnitudes, name, *given)
    assert result.exit_code == code, result.output
    assert said in result.output


def test_a_file_that_is_divided_has_its_composites_in_a_region(magnitudes: Path) -> None:
    model = onnx.load(magnitudes / "abs.onnx")
    (result,) = model.graph.output
    model.graph.node.append(helper.make_node("BitwiseNot", [result.name], ["not"], name="host"))
    model.graph.output.append(helper.make_tensor_value_info("not", onnx.TensorProto.INT8, (7, 9)))
    model.opset_import[0].version = 18
    onnx.save(model, magnitudes / "abs.onnx")
    backend = backend_of_file(magnitudes / "own.py")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = tinyai.explain(magnitudes / "abs.onnx", backend=backend)
    assert [row.operator for row in report.host] == ["BitwiseNot"]
    assert [row.composites for row in report.regions] == [(("magnitude", 1),)]


def test_a_model_and_a_package_have_the_back_end_of_ones_own(magnitudes: Path) -> None:
    file, data = magnitudes / "abs.onnx", np.load(magnitudes / "x.npy")
    backend = backend_of_file(magnitudes / "own.py")
    (mine,), (tinyais,) = (
        tinyai.Model(file, backend=backend).run(data),
        tinyai.Model(file).run(data),
    )
    assert (mine != tinyais).any()
    tinyai.emit_c(file, magnitudes / "package", "tinyai -isa=scalar", backend=backend)
    assert np.array_equal(tinyai.Model(magnitudes / "package").run(data)[0], mine)
    zero_point = tinyai.network_of(file, backend=backend).graph.nodes[0].op.zero_point
    assert np.array_equal(mine, Magnitude(zero_point).reference(data))


def test_a_library_with_kernels_of_ones_own_is_checked_by_its_layers(magnitudes: Path) -> None:
    backend = backend_of_file(magnitudes / "own.py")
    tinyai.compile(magnitudes / "abs.onnx", magnitudes / "net.so", backend=backend)
    built = load_built(magnitudes / "net.so")
    network = tinyai.network_of(magnitudes / "abs.onnx", backend=backend)
    assert built.code(network).graph is not None


def products(seed: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Abs between two products, of random sizes."""
    rng = np.random.default_rng(seed)
    rows, *sizes = (int(n) for n in rng.integers(1, 40, 4))
    weights = {
        f"w{n}": (rng.normal(size=sizes[n : n + 2]), 1 if n else None)
        for n in range(len(sizes) - 1)
    }
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["a"])]
    plain: dict[str, Any] = {}
    for number, (before, after) in enumerate((("a", "c"), ("b", "d"))):
        nodes += [helper.make_node("Abs", ["c"], ["b"])] if number else []
        grid = f"scale{number}", f"zero{number}"
        plain |= dict(zip(grid, (np.float32(0.1 + 0.2 * number), np.int8(-7)), strict=True))
        nodes.append(helper.make_node("QuantizeLinear", [before, *grid], [f"{before}_steps"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{before}_steps", *grid], [after]))
    nodes.append(helper.make_node("MatMul", ["d", "w1"], ["y"]))
    shapes = {"x": (rows, sizes[0])}
    return quantized(Model(tuple(nodes), shapes, weights=weights, plain=plain), "int8", seed=seed)


@pytest.mark.long
@pytest.mark.parametrize("isa", runnable_isas())
@pytest.mark.parametrize("threads", [1, 2])
def test_its_composites_are_in_the_c_of_every_instruction_set(
    isa: str, threads: int, tmp_path: Path
) -> None:
    """Beside layers whose bytes an instruction set may want with another sign."""
    tinyai.register_backend("magnitudes", TinyAIBackend, [ROW], kernels=[KERNEL])
    for seed in range(6):
        proto, inputs = products(seed)
        onnx.save(proto, tmp_path / "net.onnx")
        network = tinyai.network_of(tmp_path / "net.onnx", backend="magnitudes")
        assert any(isinstance(node.op, Magnitude) for node in network.graph.nodes)
        runner = Runner(network.graph, Target(isa=isa, threads=threads), kernels=network.kernels)
        found, expected = (
            runner(*inputs.values()),
            tinyai.run_graph(network.graph, [*inputs.values()]),
        )
        np.testing.assert_array_equal(found[0], expected[0], err_msg=str(seed))


def test_regions_of_tvms_are_not_measured_with_it(magnitudes: Path) -> None:
    text = magnitudes / "net.relay"
    text.write_text(thrice().astext(show_meta_data=True))
    for name in ("explain", "bench", "tune"):
        more = ["-o", str(magnitudes / "t.json")] if name == "tune" else []
        own = ["--backend", str(magnitudes / "own.py")]
        result = CliRunner().invoke(main, [name, str(text), *more, *own])
        assert result.exit_code == 2, result.output
        assert "allowed: beside an .onnx or .tflite file" in result.output


# --- A back end that takes nothing ---------------------------------------------------------------

QUANTIZED_SIGN = op("quantize", op("sign", Anything()), AnyConstant(), AnyConstant())


def test_a_back_end_that_takes_nothing_of_a_file_says_what_came_nearest(magnitudes: Path) -> None:
    tinyai.register_backend("halving", Seeing, [HALF, ROW])
    tinyai.register_backend("choosy", Seeing, [replace(ROW, pattern=QUANTIZED_SIGN)])
    tinyai.register_backend("cutting", Seeing, RELU)
    tinyai.register_backend("kernels", Seeing, [], kernels=[KERNEL])
    file = magnitudes / "abs.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tinyai.network_of(file, backend="halving")
    said = r"(?s)'choosy' takes nothing.*nearest.*allowed: *sign"
    for act in (
        lambda: tinyai.network_of(file, backend="choosy"),
        lambda: tinyai.explain(file, backend="choosy"),
    ):
        with pytest.warns(UsageWarning, match=said):
            act()
    with pytest.warns(UsageWarning, match=r"(?s)'cutting' has nothing.*1 patterns, none with a"):
        tinyai.network_of(file, backend="cutting")
    with pytest.warns(UsageWarning, match=r"(?s)serve no layer of net_abs.*found: *magnitude"):
        tinyai.compile(file, magnitudes / "net.so", backend="kernels")


def test_a_command_prints_a_warning_as_it_prints_errors(magnitudes: Path) -> None:
    own = magnitudes / "own.py"
    own.write_text(own.read_text().replace("[ROW], kernels=[KERNEL]", "[]"))
    words = "-m", "tinyai", "explain", str(magnitudes / "abs.onnx"), "--backend", str(own)
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(
        "warning: the back end 'magnitudes' has nothing that is used here"
    )
    assert ".py:" not in done.stderr


# --- What a back end of one's own raises ---------------------------------------------------------


def fails(*_: object) -> Any:
    raise KeyError("colour")


class FailingLate(Prepared):
    """Fails when its code is asked for."""

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        return fails()


class FailingDetails(BackendDetails):
    """Fails when it has the graph."""

    @staticmethod
    def preprocess(program: Graph, compile_specs: Sequence[CompileSpec]) -> PreprocessResult:
        return fails()


def late(graph: Lowered, node: Any) -> Prepared:
    return FailingLate(node)


@pytest.mark.parametrize(
    ("extension", "place"),
    [
        ({"patterns": [replace(HALF, build=fails)]}, "the graph of "),
        ({"operators": {"relu": OperatorRow(fails)}}, "the graph of "),
        ({"passes": [fails]}, "pass fails"),
        ({"kernels": [Kernel("failing", Elementwise, fails)]}, "the kernel for "),
        ({"kernels": [Kernel("failing", Elementwise, late)]}, "the code of "),
    ],
    ids=["builder", "operator", "pass", "kernel", "code of a kernel"],
)
def test_what_a_function_of_ones_own_raises_names_it_and_the_back_end(
    extension: dict[str, Any], place: str, tmp_path: Path
) -> None:
    given = {"patterns": [], **extension}
    tinyai.register_backend("seeing", Seeing, **given)
    with pytest.raises(OwnCodeError) as caught:
        tinyai.compile(thrice(), tmp_path / "net.so", "tinyai -isa=scalar", backend="seeing")
    assert f"{__name__}.fails of the back end 'seeing' failed, at {place}" in caught.value.what
    assert caught.value.found == "KeyError: 'colour'"
    assert isinstance(caught.value.__cause__, KeyError)


def test_relay_build_says_what_preprocess_of_ones_own_raised() -> None:
    tinyai.register_backend("seeing", FailingDetails, [HALF])
    with pytest.raises(OwnCodeError, match=r"fails of the back end 'seeing' failed, at preprocess"):
        relay.build(tinyai.partition_for("seeing", thrice()), target="llvm")


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        (lambda graph: None, "NoneType"),
        (lambda graph: replace(graph, nodes=()), "no node defines it"),
    ],
)
def test_a_pass_that_breaks_a_graph_is_named(broken: Any, found: str) -> None:
    tinyai.register_backend("seeing", Seeing, [HALF], passes=[broken])
    with pytest.raises(OwnCodeError, match="of the back end 'seeing' broke the graph") as caught:
        tinyai.network_of(thrice(), backend="seeing")
    assert "<lambda>" in caught.value.what
    assert found in str(caught.value.found)


def test_a_fault_of_tinyais_stays_one_beside_a_back_end_of_ones_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Elementwise, "infer", None)  # which is called all the same
    with pytest.raises(DefectError, match="a fault of tinyai's own in"):
        tinyai.network_of(thrice(), backend="noting")


def compilers(mod: tvm.IRModule) -> dict[str, str]:
    return {
        variable.name_hint: str(func.attrs["Compiler"])
        for variable, func in mod.functions.items()
        if func.attrs is not None and "Compiler" in func.attrs
    }


def test_two_back_ends_share_a_module_and_the_result_is_tvms() -> None:
    other = CompileSpec("colour", b"\xff\x00")
    mod = network()
    parts = tinyai.partition_for("noting", mod, compile_specs=[SCALAR, other])
    parts = tinyai.partition_for_tinyai(parts, compile_specs=[SCALAR])
    assert sorted(compilers(parts).values()) == ["noting", "tinyai", "tinyai"]
    built = tinyai.runtime.compile(relay.build(parts, target="llvm"))
    data = np.random.default_rng(0).integers(-900, 900, (4, 8)).astype(np.int32)
    (found,) = nets.run_factory(built, {"x": data})
    (expected,) = oracle(mod, {"x": data})
    assert np.array_equal(found, expected)
    ((name, specs),) = ASKED
    assert compilers(parts)[name] == "noting"
    assert set(specs) == {SCALAR, other}


def test_specs_of_a_region_go_before_those_of_all() -> None:
    mod = network()
    names = [v.name_hint for v in regions(tinyai.partition_for_tinyai(mod))]
    assert len(names) == 3
    own = {names[1]: [GENERIC, CompileSpec("threads", b"2")]}
    parts = tinyai.partition_for_tinyai(mod, isa="scalar", compile_specs=own)
    targets = [region_target(func) for func in regions(parts).values()]
    assert [each.isa for each in targets] == ["scalar", "generic", "scalar"]
    assert [each.threads for each in targets] == [1, 2, 1]
    assert {region_target(f) for f in regions(partition(mod, [GENERIC])).values()} == {
        tinyai.Target(isa="generic", rounding="upward")
    }


def partition(mod: tvm.IRModule, specs: Any, **options: Any) -> tvm.IRModule:
    return tinyai.partition_for_tinyai(mod, compile_specs=specs, **options)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda: partition(network(), {"no_region": [SCALAR]}), "found:   no_region"),
        (lambda: partition(network(), {"a": [CompileSpec("rounding", b"onnx")]}), "of region a"),
        (lambda: partition(network(), [SCALAR], isa="auto"), "isa, twice"),
        (lambda: partition(network(), [SCALAR, SCALAR]), "twice"),
        (lambda: partition(network(), [CompileSpec("colour", b"1")]), "found:   colour"),
        (lambda: partition(network(), "isa=scalar"), "CompileSpec values"),
        (lambda: tinyai.partition_for("nobody", network()), "allowed: a registered one"),
        (
            lambda: tinyai.partition_for("noting", network(), compile_specs={"b": []}),
            "compile specs of regions\n  found:   b",
        ),
        (
            lambda: tinyai.partition_for("noting", tinyai.partition_for_tinyai(network())),
            "partition_for a back end of your own first",
        ),
        (lambda: tinyai.register_backend("tinyai", Noting, RELU), "one without tinyai"),
        (lambda: tinyai.register_backend("a b", Noting, RELU), "name of a back end"),
        (lambda: tinyai.register_backend("other", dict, RELU), "a subclass of BackendDetails"),
    ],
)
def test_wrong_arguments_are_errors(act: Any, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        act()
    assert said in str(caught.value)
