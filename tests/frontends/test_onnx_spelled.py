"""Operators of .onnx files that are read by the operators that they stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinyai
from tests.support.float_meaning import evaluated
from tests.support.random_onnx import run
from tinyai.errors import TinyAIError
from tinyai.frontends.files import read_file
from tinyai.frontends.onnx.load import SPELLINGS
from tinyai.frontends.onnx.operators import READERS
from tinyai.source import Call, Unread, post_order

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 2}


def saved(
    folder: Path, nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, ...]], opset: int
) -> Path:
    """A file of nodes whose result is ``y``; numbers of other names are constants."""
    float_ = TensorProto.FLOAT
    given = [helper.make_tensor_value_info(name, float_, shape) for name, shape in inputs.items()]
    output = helper.make_tensor_value_info("y", float_, None)
    rng = np.random.default_rng(0)
    sizes = {"w": (4, 8), "k": (4, 8), "v": (4, 6)}
    used = {name for node in nodes for name in node.input}
    constants = [
        numpy_helper.from_array(rng.normal(size=size).astype(np.float32), name)
        for name, size in sizes.items()
        if name in used and name not in inputs
    ]
    graph = helper.make_graph(nodes, "g", given, [output], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


@pytest.mark.parametrize(
    ("equation", "operators"),
    [
        ("ab,bc->ac", ["dense"]),
        ("ab,bc", ["dense"]),
        ("abc,abd->acd", ["batch_matmul"]),
        ("cab,dab->dc", ["dense"]),
        ("ab,ab->ab", ["multiply"]),
        ("ab,bc->bac", ["multiply"]),
        ("ab,cd->acbd", ["multiply"]),
        ("abcd,bd->ca", ["dense"]),
        ("...ab,...bc->...ac", ["batch_matmul"]),
        ("...b,bc->...c", ["dense"]),
        ("abc->ca", ["sum"]),
        ("a...->...a", ["transpose"]),
        ("ab,ab", ["dense"]),
        ("ab,bc,cd->ad", ["dense"]),
    ],
)
@pytest.mark.parametrize("opset", [12, 18])
def test_an_einsum_is_what_numpy_says(
    equation: str, operators: list[str], opset: int, tmp_path: Path
) -> None:
    terms = equation.partition("->")[0].replace("...", "de").split(",")
    rng = np.random.default_rng(0)
    values = {
        f"x{place}": rng.normal(size=[SIZES[letter] for letter in term])
        for place, term in enumerate(terms)
    }
    node = helper.make_node("Einsum", [*values], ["y"], "product", equation=equation)

    shapes = {name: value.shape for name, value in values.items()}
    model = read_file(saved(tmp_path, [node], shapes, opset))

    calls = {each.op for each in post_order(model.result) if isinstance(each, Call)}
    assert {*operators} <= calls
    found = evaluated(model.result, {end.expr: values[end.name] for end in model.inputs})
    wanted = np.einsum(equation, *values.values())
    np.testing.assert_allclose(found[model.outputs[0].expr], wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("equation", "found"),
    [
        ("aa->a", "each index once in an operand"),
        ("...abc->a", "2 indices"),
        ("ab->ac", "indices of the operands"),
        ("abc->a", "2 indices"),
        ("ab,bc->ac", "a term for each"),
    ],
)
def test_another_einsum_is_refused_with_the_reason(
    equation: str, found: str, tmp_path: Path
) -> None:
    """Also where onnx's own inference would take the process along."""
    node = helper.make_node("Einsum", ["x"], ["y"], "product", equation=equation)

    model = read_file(saved(tmp_path, [node], {"x": (3, 3)}, 18))

    (call,) = (each for each in post_order(model.result) if isinstance(each, Call))
    assert isinstance(call.origin, Unread)
    assert found in f"{call.origin.refusal.found} {call.origin.refusal.allowed}"


@pytest.mark.parametrize("equation", ["abc->a", "...abc->a"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_bad_einsum_of_an_old_opset_does_not_end_the_process(
    equation: str, inside: bool, tmp_path: Path
) -> None:
    node = helper.make_node("Einsum", ["x"], ["y"], "product", equation=equation)
    if inside:
        branch = helper.make_graph([node], "branch", [], [helper.make_empty_tensor_value_info("y")])
        branches = {"then_branch": branch, "else_branch": branch}
        node = helper.make_node("If", ["open"], ["y"], "choice", **branches)
    nodes = [helper.make_node("Cast", ["x"], ["open"], "cast", to=TensorProto.BOOL), node]

    file = saved(tmp_path, nodes, {"x": (3, 3)}, 12)
    with pytest.raises(TinyAIError):
        tinyai.quantize_file(file, [{"x": np.ones((3, 3), np.float32)}] * 2)
    with pytest.raises(TinyAIError):
        tinyai.compile(file, tmp_path / "net.so")
    read_file(file)


@pytest.mark.parametrize(
    ("operator", "operands", "attributes", "opset"),
    [
        ("CenterCropPad", [[4, 9]], {"axes": [2, 3]}, 18),
        ("CenterCropPad", [[3, 2, 8, 5]], {}, 18),
        ("ReduceLogSum", [[1, -1]], {"keepdims": 0}, 18),
        ("ReduceLogSum", [], {}, 18),
        ("ReduceLogSumExp", [[2]], {}, 19),
        ("ReduceL1", [[0, 3]], {}, 20),
        ("ReduceSumSquare", [[]], {"noop_with_empty_axes": 0}, 18),
        ("MeanVarianceNormalization", [], {"axes": [0, 2]}, 13),
        ("MeanVarianceNormalization", [], {}, 18),
    ],
)
def test_what_onnx_defines_by_others_is_read_as_onnx_runtime_computes_it(
    operator: str,
    operands: list[list[int]],
    attributes: dict[str, object],
    opset: int,
    tmp_path: Path,
) -> None:
    numbers = [numpy_helper.from_array(np.array(each, np.int64)) for each in operands]
    constants = [helper.make_node("Constant", [], ["c"], "c", value=each) for each in numbers]
    names = ["x", *("c" for _ in operands)]
    node = helper.make_node(operator, names, ["y"], "defined", **attributes)
    file = saved(tmp_path, [*constants, node], {"x": (2, 3, 6, 7)}, opset)
    x = np.random.default_rng(0).uniform(0.1, 2, (2, 3, 6, 7)).astype(np.float32)

    model = read_file(file)

    values = evaluated(model.result, {model.inputs[0].expr: x.astype(np.float64)})
    (wanted,) = run(onnx.load(file), {"x": x})
    np.testing.assert_allclose(values[model.outputs[0].expr], wanted, rtol=1e-5, atol=1e-5)


def test_an_attribute_that_a_definition_forgets_is_right_or_refused(tmp_path: Path) -> None:
    """As those of onnx 1.18 do."""
    axes = numpy_helper.from_array(np.array([], np.int64))
    node = helper.make_node("ReduceL1", ["x", "c"], ["y"], "defined", noop_with_empty_axes=1)
    constant = helper.make_node("Constant", [], ["c"], "c", value=axes)

    model = read_file(saved(tmp_path, [constant, node], {"x": (2, 3)}, 18))

    (call,) = (each for each in post_order(model.result) if isinstance(each, Call))
    refused = isinstance(call.origin, Unread) and "noop_with_empty_axes" in str(call.origin)
    assert refused or call.op == "abs"


def test_what_is_spelled_out_has_no_reader() -> None:
    assert {("", name) for name in SPELLINGS}.isdisjoint(READERS)
