"""An .onnx file whose outputs are inputs of its next call."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import tinyai
from tests.support.oracle import Array
from tinyai.checking.onnxruntime import exact_session
from tinyai.cli import main
from tinyai.errors import OptionError, UnsupportedError
from tinyai.target import Target

SCALE, ZERO = np.float32(0.05), np.uint8(117)
STATE = {"h_out": "h", "delayed": "last"}
CALLS = 12


def recurrent(weight_scale: float = 0.01) -> bytes:
    """``h`` is float and mixed with a product of ``x``; ``last`` is the integers of ``x`` of the
    call before, which are added. ``y`` is the sum."""
    rng = np.random.default_rng(8)
    constants = {
        "s": SCALE,
        "z": ZERO,
        "ws": np.float32(weight_scale),
        "wz": np.int8(0),
        "w": rng.integers(-60, 60, (8, 8)).astype(np.int8),
    }

    def quantized(name: str) -> list[object]:
        pair = [name, "s", "z"], [f"{name}_q", "s", "z"]
        return [
            helper.make_node("QuantizeLinear", pair[0], [f"{name}_q"], f"{name}_q"),
            helper.make_node("DequantizeLinear", pair[1], [f"{name}_d"], f"{name}_d"),
        ]

    nodes = [
        *quantized("x"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["w_d"], "w_d"),
        helper.make_node("MatMul", ["x_d", "w_d"], ["product"], "product"),
        *quantized("product"),
        *quantized("h"),
        helper.make_node("Add", ["product_d", "h_d"], ["mixed"], "mixed"),
        *quantized("mixed"),
        helper.make_node("Identity", ["mixed_d"], ["h_out"], "h_out"),
        helper.make_node("DequantizeLinear", ["last", "s", "z"], ["last_d"], "last_d"),
        helper.make_node("Add", ["mixed_d", "last_d"], ["sum"], "sum"),
        *quantized("sum"),
        helper.make_node("Identity", ["sum_d"], ["y"], "y"),
        helper.make_node("Identity", ["x_q"], ["delayed"], "delayed"),
    ]
    float_, uint8 = TensorProto.FLOAT, TensorProto.UINT8
    kinds = {
        "h_out": float_,
        "y": float_,
        "delayed": uint8,
        "h": float_,
        "last": uint8,
        "x": float_,
    }
    ends = {n: helper.make_tensor_value_info(n, kind, (1, 8)) for n, kind in kinds.items()}
    graph = helper.make_graph(
        nodes,
        "recurrent",
        [ends[name] for name in ("h", "x", "last")],
        [ends[name] for name in ("h_out", "y", "delayed")],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "net.onnx"
    made.write_bytes(recurrent())
    return made


@pytest.fixture
def calls() -> list[Array]:
    return list(np.random.default_rng(2).uniform(-6, 6, (CALLS, 1, 8)).astype(np.float32))


def by_onnx_runtime(file: Path, calls: list[Array]) -> list[Array]:
    session = exact_session(file, keeps_int8=False)
    h, last, found = np.zeros((1, 8), np.float32), np.full((1, 8), ZERO), []
    for x in calls:
        h, y, last = session.run(["h_out", "y", "delayed"], {"h": h, "x": x, "last": last})
        found.append(y)
    return found


def test_calls_in_a_row_give_onnx_runtime_s_values(file: Path, calls: list[Array]) -> None:
    network = tinyai.network_of(file, state=STATE)
    assert [port.name for port in (*network.inputs, *network.outputs)] == ["x", "y"]
    assert [state.port.name for state in network.states] == ["h", "last"]
    assert [np.unique(state.value).tolist() for state in network.states] == [[0], [ZERO]]
    expected = by_onnx_runtime(file, calls)
    assert len(np.unique(expected)) > 40
    found = [results[0] for results in network.run([call] for call in calls)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", ["file", "library", "package"])
def test_each_product_keeps_the_state_and_begins_anew(
    kind: str, file: Path, calls: list[Array]
) -> None:
    target = "tinyai -isa=scalar"
    if kind == "file":
        model = tinyai.Model(file, state=STATE)
    elif kind == "library":
        model = tinyai.Model(tinyai.compile(file, file.with_suffix(".so"), state=STATE))
    else:
        tinyai.emit_c(file, file.parent / "net", target, state=STATE)
        model = tinyai.Model(file.parent / "net")
    expected = by_onnx_runtime(file, calls)
    for _ in range(2):
        np.testing.assert_array_equal([model(call)[0] for call in calls], expected)
        model.reset()


def test_check_feeds_both_sides_in_a_row(file: Path) -> None:
    compared = tinyai.check(file, Target(isa="scalar"), state=STATE, samples=2)
    assert compared.equal, str(compared)
    assert compared.samples == 50


def test_check_refuses_code_with_less_state_and_finds_a_layer_that_differs(file: Path) -> None:
    built = file.parent / "net.so"
    tinyai.compile(file, built, "tinyai -isa=scalar", state={"delayed": "last"})
    with pytest.raises(OptionError, match="code of the model"):
        tinyai.check(file, built=built, state=STATE, samples=1)
    other = file.parent / "other.onnx"
    other.write_bytes(recurrent(0.0101))
    tinyai.compile(other, built, "tinyai -isa=scalar", name="net", state=STATE)
    compared = tinyai.check(file, built=built, state=STATE, samples=1)
    assert not compared.equal
    assert compared.first is not None or compared.notes


def test_commands_take_states(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    np.save("x.npy", np.zeros((1, 8), np.float32))
    words = [f"--state={output}={value}" for output, value in STATE.items()]
    for command in (
        ["compile", "net.onnx", "-o", "net.so"],
        ["run", "net.onnx", "-i", "x.npy"],
        ["check", "net.onnx", "--samples", "1"],
        ["bench", "net.onnx", "--runs", "2"],
        ["tune", "net.onnx", "-o", "tuning.json", "--seconds", "0"],
    ):
        done = CliRunner().invoke(main, [*command, *words])
        assert done.exit_code == 0, done.output
    done = CliRunner().invoke(main, ["explain", "net.onnx", "--json", *words])
    assert json.loads(done.stdout)["regions"][0]["state_bytes"] == 40


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"nothing": "h"}, "outputs of the model: h_out, y, delayed"),
        ({"h_out": "nothing"}, "inputs of the model: h, x, last"),
        ({"h_out": "h", "y": "h"}, "h, 2 times"),
        ({"h_out": "last"}, r"h_out of float32\[1,8\](.|\n)*uint8\[1,8\], as its input"),
        ({"h_out": "h", "y": "x", "delayed": "last"}, "one output that is none"),
    ],
)
def test_states_that_do_not_fit_are_errors(state: dict[str, str], told: str, file: Path) -> None:
    with pytest.raises(OptionError, match=told):
        tinyai.network_of(file, state=state)


@pytest.mark.parametrize("words", ["h_out", "h_out=", "h_out=h --state h_out=x"])
def test_a_state_is_a_pair(words: str, file: Path) -> None:
    done = CliRunner().invoke(main, ["explain", str(file), "--state", *words.split()])
    assert (done.exit_code, "OUTPUT=INPUT, each output once" in done.output) == (2, True)


def test_neither_bundles_nor_tvm_nor_tflite_files_take_it(file: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="state"):
        tinyai.lower({"one": tinyai.network_of(file, state=STATE)})
    with pytest.raises(OptionError, match="none beside what TVM's importers read"):
        tinyai.check(file, state=STATE, against="tvm")
    (tmp_path / "net.tflite").write_bytes(b"x")
    with pytest.raises(OptionError, match=r"none beside a \.tflite file"):
        tinyai.network_of(tmp_path / "net.tflite", state=STATE)
    with pytest.raises(OptionError, match="none beside the int"):
        tinyai.network_of(3, state=STATE)
