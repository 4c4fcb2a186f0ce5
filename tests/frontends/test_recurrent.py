"""LSTM, GRU and RNN of float .onnx files: spelled out they compute the same, and become integers;
and what is quantized with care beside them: gates, magnitudes, states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import tinyai
from tinyai.checking.check import check
from tinyai.checking.onnxruntime import exact_session
from tinyai.cli import main
from tinyai.codegen import steps
from tinyai.errors import BoundaryError, TinyAIError
from tinyai.frontends.onnx import reader
from tinyai.frontends.onnx.load import read_whole
from tinyai.frontends.onnx.quantized import OLDEST
from tinyai.ops.functions import EXACT_FUNCTIONS
from tinyai.quantizer import QuantConfig
from tinyai.quantizer.report import output_row

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FUNCTIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}


@dataclass
class Case:
    """A model of one recurrent node, and values of its inputs."""

    model: onnx.ModelProto
    feed: dict[str, Any]

    def saved(self, folder: Path) -> Path:
        onnx.save(self.model, folder / "model.onnx")
        return folder / "model.onnx"

    def samples(self, count: int, seed: int) -> list[dict[str, Any]]:
        rng = np.random.default_rng(seed)
        return [
            {
                name: (np.tanh if name == "h" else np.asarray)(rng.normal(size=value.shape)).astype(
                    np.float32
                )
                for name, value in self.feed.items()
            }
            for _ in range(count)
        ]


def recurrent(
    kind: str,
    *,
    steps: int = 3,
    batch: int = 1,
    given: str = "",
    outputs: str = "Y Yh",
    inputs: str = "x W R B - h c",
    name: str = "layer",
    seed: int = 0,
    opset: int = 17,
    **attrs: Any,
) -> Case:
    """``given`` are the states that the model has as inputs: h, c or both; "-" is no operand."""
    rng = np.random.default_rng(seed)
    ways = 2 if attrs.get("direction") == "bidirectional" else 1
    features, units, rows = 5, 4, 4 * GATES[kind]
    shapes = {"x": (steps, batch, features), "h": (ways, batch, units), "c": (ways, batch, units)}
    numbers = {"W": (ways, rows, features), "R": (ways, rows, units), "B": (ways, 2 * rows)}
    names = [n if n in (*"xWRB", *given) else "" for n in inputs.split()[: 7 if given else 4]]
    while not names[-1]:
        names.pop()
    node = helper.make_node(
        kind, names, [n.strip("-") for n in outputs.split()], name, hidden_size=units, **attrs
    )
    values = {n: rng.normal(size=shapes[n]).astype(np.float32) for n in shapes if n in names}
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, v.shape) for n, v in values.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in node.output if n],
        [
            numpy_helper.from_array(rng.normal(0, 0.6, shape).astype(np.float32), n)
            for n, shape in numbers.items()
            if n in names
        ],
    )
    opsets = [helper.make_opsetid("", opset)]
    return Case(helper.make_model(graph, opset_imports=opsets, ir_version=8), values)


def run(model: onnx.ModelProto, feed: dict[str, Any]) -> list[Any]:
    return list(exact_session(model.SerializeToString(), keeps_int8=False).run(None, feed))


def random_case(seed: int) -> Case:
    rng = np.random.default_rng(seed)

    def one(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    kind = one(*GATES)
    attrs: dict[str, Any] = {"direction": one("forward", "reverse", "bidirectional")}
    if kind == "GRU" and one(True, False):
        attrs["linear_before_reset"] = 1
    if one(True, False, False):
        ways = 2 if attrs["direction"] == "bidirectional" else 1
        attrs["activations"] = [one("Sigmoid", "Tanh") for _ in range(ways * FUNCTIONS[kind])]
    return recurrent(
        kind,
        steps=one(1, 2, 5),
        batch=one(1, 3),
        given=one("", "h", *(("c", "hc") if kind == "LSTM" else ())),
        outputs=one("Y", "Y Yh", "- Yh", *(("Y Yh Yc", "- - Yc") if kind == "LSTM" else ())),
        inputs=one("x W R B - h c", "x W R - - h c"),
        name=one("layer", ""),
        seed=seed,
        opset=one(12, 14, 17),
        **attrs,
    )


@pytest.mark.parametrize("seed", range(40))
def test_nodes_that_spell_a_recurrent_one_compute_the_same(tmp_path: Path, seed: int) -> None:
    case = random_case(seed)
    spelled = read_whole(case.saved(tmp_path), "", OLDEST).proto
    assert {node.op_type for node in spelled.graph.node}.isdisjoint(GATES)
    for found, wanted in zip(run(spelled, case.feed), run(case.model, case.feed), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, atol=2e-5)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_a_quantized_recurrent_network_is_whole_and_equals_onnx_runtime(
    tmp_path: Path, seed: int
) -> None:
    case = random_case(seed + 1000)
    quantized = tinyai.quantize_file(case.saved(tmp_path), case.samples(16, seed))
    quantized.save(tmp_path / "int8.onnx")
    assert check(tmp_path / "int8.onnx", samples=4).equal
    assert quantized.report.sqnr is not None
    assert quantized.report.sqnr > 18


@pytest.mark.parametrize(
    ("case", "part"),
    [
        (recurrent("LSTM", steps=129), "129"),
        (recurrent("GRU", clip=3.0), "attribute clip"),
        (recurrent("RNN", activations=["Softsign"]), "Softsign"),
        (recurrent("LSTM", input_forget=1), "attribute input_forget"),
    ],
)
def test_what_is_not_spelled_out_is_told(tmp_path: Path, case: Case, part: str) -> None:
    with pytest.raises(BoundaryError, match=part):
        tinyai.quantize_file(case.saved(tmp_path), case.samples(2, 0), whole=True)


def test_no_more_is_spelled_out_than_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MOST_PARTS", 20)
    case = recurrent("LSTM")
    with pytest.raises(BoundaryError, match="allowed: 20"):
        tinyai.quantize_file(case.saved(tmp_path), case.samples(2, 0), whole=True)


def test_inputs_beyond_what_saturates_take_no_steps(tmp_path: Path) -> None:
    case = recurrent("GRU", steps=4)
    loud = [{"x": 40 * sample["x"]} for sample in case.samples(16, 1)]
    report = tinyai.quantize_file(case.saved(tmp_path), loud).report
    (row,) = (each for each in report.layers if each.name == "layer/way0/inputs")
    assert row.high < 30


def test_a_state_that_is_cut_up_has_a_grid_for_each_part(tmp_path: Path) -> None:
    """As of Silero's voice activity detector: hidden values and those of the cell in one state,
    which only leave the network together."""
    case = recurrent("LSTM", steps=1, given="hc", outputs="- Yh Yc")
    graph = case.model.graph
    for name in "hc":
        graph.node.insert(
            0, helper.make_node("Gather", ["state", f"at {name}"], [f"{name} row"], axis=0)
        )
        graph.node.insert(1, helper.make_node("Unsqueeze", [f"{name} row", "axes"], [name]))
        number = np.array("hc".index(name), np.int64)
        graph.initializer.append(numpy_helper.from_array(number, f"at {name}"))
    graph.initializer.append(numpy_helper.from_array(np.array([0], np.int64), "axes"))
    graph.node.append(helper.make_node("Concat", ["Yh", "Yc"], ["next"], axis=0))
    graph.node.append(helper.make_node("Relu", ["Yh"], ["y"]))
    state = helper.make_tensor_value_info("state", TensorProto.FLOAT, (2, 1, 4))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "next")]
    for field, values in ((graph.input, [graph.input[0], state]), (graph.output, ends)):
        kept = [type(each).FromString(each.SerializeToString()) for each in values]
        del field[:]
        field.extend(kept)
    rng = np.random.default_rng(3)
    sizes = np.array([1, 30]).reshape(2, 1, 1)
    samples = [
        {
            "x": rng.normal(size=(1, 1, 5)).astype(np.float32),
            "state": (sizes * rng.uniform(-1, 1, (2, 1, 4))).astype(np.float32),
        }
        for _ in range(16)
    ]
    quantized = tinyai.quantize_file(case.saved(tmp_path), samples)
    ranges = {row.name: row.high for row in quantized.report.layers}
    assert "state" not in ranges
    assert ranges["layer/way0/step0/hidden"] <= 1
    quantized.save(tmp_path / "int8.onnx")
    assert check(tmp_path / "int8.onnx", samples=4).equal


def test_a_magnitude_is_rounded_once(tmp_path: Path) -> None:
    """sqrt(a * a + b * b): squares of small values would be 0 in 8 bits."""
    nodes = [
        helper.make_node("Pow", ["a", "two"], ["aa"], "square"),
        helper.make_node("Mul", ["b", "b"], ["bb"]),
        helper.make_node("Add", ["aa", "bb"], ["sum"]),
        helper.make_node("Sqrt", ["sum"], ["y"], "root"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 64)) for n in "aby"]
    two = numpy_helper.from_array(np.float32([2]), "two")
    graph = helper.make_graph(nodes, "g", ends[:2], ends[2:], [two])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "m.onnx")
    rng = np.random.default_rng(4)
    samples = [
        {n: (rng.normal(size=(1, 64)) ** 3).astype(np.float32) for n in "ab"} for _ in range(32)
    ]
    quantized = tinyai.quantize_file(tmp_path / "m.onnx", samples, QuantConfig(observer="minmax"))
    assert len(quantized.report.layers) == 3
    quantized.save(tmp_path / "int8.onnx")
    found = check(tmp_path / "int8.onnx", samples=8)
    assert found.equal
    assert quantized.report.sqnr is not None
    assert quantized.report.sqnr > 30


def test_open_inputs_have_the_shapes_of_the_samples(tmp_path: Path) -> None:
    case = recurrent("RNN", steps=2)
    case.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "steps"
    samples = case.samples(4, 0)
    file = case.saved(tmp_path)
    np.savez(tmp_path / "s.npz", x=np.stack([each["x"] for each in samples]))
    for data in (samples, tmp_path / "s.npz"):
        (spec,) = tinyai.quantize_file(file, data).floats.inputs
        assert spec.shape == (2, 1, 5)


STATE = {"Yh": "h", "Yc": "c"}


def of_calls(folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """An LSTM that takes a step in a call, and the inputs of calls in a row beside its state."""
    case = recurrent("LSTM", steps=1, given="hc", outputs="Y Yh Yc")
    rng = np.random.default_rng(9)
    calls = [{"x": rng.normal(size=(1, 1, 5)).astype(np.float32)} for _ in range(40)]
    return case.saved(folder), calls


def test_samples_of_a_network_with_state_are_calls_in_a_row(tmp_path: Path) -> None:
    file, calls = of_calls(tmp_path)
    with_states, states = [], {name: np.zeros((1, 1, 4), np.float32) for name in "hc"}
    for call in calls:
        with_states.append(call | states)
        _, states["h"], states["c"] = run(onnx.load(file), with_states[-1])
    wanted = tinyai.quantize_file(file, with_states)
    found = tinyai.quantize_file(file, calls, state=STATE)
    found.save(tmp_path / "found.onnx")
    scales = [[row.scale for row in each.report.layers] for each in (found, wanted)]
    np.testing.assert_allclose(*scales, rtol=1e-5)  # floats are rounded in another order
    again = tinyai.calibrate_file(file, calls, state=STATE)
    report = tinyai.quantize_file(file, again, state=STATE).report
    assert replace(report, in_a_row=found.report.in_a_row) == found.report
    of_memory, of_file = (
        tinyai.Model(tinyai.compile(model, tmp_path / f"{name}.so", state=state))
        for name, model, state in (
            ("memory", found.model, None),
            ("file", tmp_path / "found.onnx", STATE),
        )
    )
    floats = [run(onnx.load(file), each)[0] for each in with_states]
    results = [of_memory(call)[0] for call in calls]
    for call, result in zip(calls, results, strict=True):
        np.testing.assert_array_equal(of_file(call)[0], result)
    (row,) = found.report.in_a_row
    assert row.sqnr == pytest.approx(output_row("", floats, results).sqnr, abs=1e-3)
    assert row.sqnr > 20
    assert f"calls in a row, result 0: {row.sqnr:.2f} dB" in str(found.report)
    assert not wanted.report.in_a_row


def test_commands_quantize_a_network_with_state(tmp_path: Path) -> None:
    file, calls = of_calls(tmp_path)
    np.savez(tmp_path / "s.npz", x=np.stack([each["x"] for each in calls]))
    options = ["--calibrate", str(tmp_path / "s.npz")]
    options += [word for pair in STATE.items() for word in ("--state", "=".join(pair))]
    for command, output in (("quantize", "q.onnx"), ("compile", "q.so")):
        words = [command, str(file), "-o", str(tmp_path / output), *options]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        if command == "quantize":
            assert "q.so --state Yh=h --state Yc=c" in done.output
    network = tinyai.Model(tmp_path / "q.so")
    assert [each.name for each in network.inputs] == ["x"]
    done = CliRunner().invoke(main, ["quantize", str(file), *options[:-1], "Yc=nowhere"])
    assert (done.exit_code, "inputs of the model: x, h, c" in done.output) == (2, True), done.output


def test_damaged_samples_are_told_as_such(tmp_path: Path) -> None:
    """They are looked into for shapes before they are read."""
    case = recurrent("RNN", steps=2)
    case.model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "steps"
    file, data = case.saved(tmp_path), tmp_path / "s.npz"
    np.savez(data, x=np.zeros((4, 2, 1, 5), np.float32))
    whole = data.read_bytes()
    for wrong in (
        whole.replace(b"\x93NUMPY", b"\x93NUMPX"),
        whole[: len(whole) // 2],
        [{"x": [[1], [1, 2]]}],
    ):
        if isinstance(wrong, bytes):
            data.write_bytes(wrong)
        with pytest.raises(TinyAIError):
            tinyai.quantize_file(file, data if isinstance(wrong, bytes) else wrong)


def test_functions_that_have_code_are_those_that_are_exact() -> None:
    assert {*steps._FUNCTIONS} == {*EXACT_FUNCTIONS}
