"""A sum of two 8-bit tensors as one linear function: used where it is exact for every pair."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.support.example_graphs import Site, onnx_sum, tflite_sum
from tests.support.machines import require_isa
from tinyai.codegen.linear_add import FloatAdd, Form, LinearAdd, linear_add_of
from tinyai.ir import Builder, DType, Graph, Operand, Step, Type
from tinyai.ops import Elementwise
from tinyai.ops.steps import Add, Cast, Clip, FixedPointMultiply, MultiplyAdd, Relu, Round
from tinyai.reference import run_graph, run_steps
from tinyai.runtime.runner import Runner
from tinyai.target import Target

PAIRS = (256, 256)


def graph_of(kind: str, seed: int) -> Graph:
    """A sum of int8 or uint8 [256, 256], with numbers of its own for each seed."""
    builder = Builder("sum")
    of = Type(PAIRS, DType.INT8 if kind == "tflite" else DType.UINT8)
    site = Site(builder, of, "NHWC", np.random.default_rng(seed))
    steps = tuple((tflite_sum if kind == "tflite" else onnx_sum)(site))
    return builder.graph([builder.add(Elementwise(PAIRS), [builder.input(of)], steps)])


def pairs(form: LinearAdd) -> tuple[np.ndarray, np.ndarray]:
    values = (np.arange(of.range[0], of.range[1] + 1) for of in (form.x_type, form.y_type))
    x, y = np.meshgrid(*values, indexing="ij")
    return x, y


@pytest.mark.parametrize("of", ["fixed", "fused", "floats"])
@pytest.mark.parametrize("kind", ["tflite", "onnx"])
def test_nearly_every_sum_has_the_form_and_it_equals_the_steps_for_every_pair(
    kind: str, of: Form
) -> None:
    found = 0
    for seed in range(20):
        graph = graph_of(kind, seed)
        (node,) = graph.nodes
        first = graph.type(node.inputs[0]).dtype
        form = linear_add_of(graph, node.epilogue, first, of)
        if isinstance(form, str):
            continue
        found += 1
        x, y = pairs(form)
        tensors = {**graph.constants, form.operand: y.astype(form.y_type.numpy)}
        expected = run_steps(node.epilogue, x.astype(form.x_type.numpy), tensors)
        results = form.results(x, y)
        assert np.array_equal(results, expected)
        assert (form.low, form.high) == (expected.min(), expected.max())
    assert found >= 18


@pytest.mark.parametrize("isa", ["avx2", "avxvnni", "avx512vnni", "auto"])
def test_microkernels_in_integers_equal_the_steps_for_every_pair(isa: str) -> None:
    if isa != "auto":
        require_isa(isa)
    rng = np.random.default_rng(5)
    builder = Builder("sums")
    each = np.arange(256, dtype=np.uint8)
    x, y = (np.append(values, each[:5]) for values in np.meshgrid(each, each))  # and a rest
    inputs, nodes = [], []
    for x_type, y_type, to in itertools.product((DType.INT8, DType.UINT8), repeat=3):
        tensors = [builder.input(Type(x.shape, of)) for of in (x_type, y_type)]
        inputs += [x.view(x_type.numpy), y.view(y_type.numpy)]
        for low, high in (to.range, (to.range[0] + 7, to.range[1] - 9)):
            chain = sum_in_floats(builder, tensors[1], rng, low, high, to)
            nodes.append(builder.add(Elementwise(x.shape), tensors[:1], chain))
    graph = builder.graph(nodes)
    run = Runner(graph, Target(isa=isa))
    for served in itertools.chain(*run.source.variants.values()):
        assert isa == "auto" or any("add_fixed" in name for name in served.functions), served.slower
    for found, expected in zip(run(*inputs), run_graph(graph, inputs), strict=True):
        assert np.array_equal(found, expected)


def sum_in_floats(
    builder: Builder, other: str, rng: np.random.Generator, low: int, high: int, to: DType
) -> tuple[Step, ...]:
    """``round(a * x + b * y + c)``, as ONNX Runtime computes it."""
    a, b = (float(np.float32(rng.uniform(-1, 1.5))) for _ in range(2))
    c = builder.constant(np.float32(rng.uniform(-90, 90) + 64 * (to is DType.UINT8)))
    inner = (Cast(DType.FLOAT32), MultiplyAdd(b, operand=Operand(c)))
    outer = MultiplyAdd(a, operand=Operand(other, inner))
    return Cast(DType.FLOAT32), outer, Round("even"), Clip(low, high), Cast(to)


def test_a_fused_sum_of_onnx_runtime_has_its_own_numbers() -> None:
    graph = graph_of("onnx", 3)
    (node,) = graph.nodes
    form = linear_add_of(graph, node.epilogue, DType.UINT8, "fused")
    assert isinstance(form, FloatAdd)
    assert form.a == np.float32(node.epilogue[1].factor)  # type: ignore[attr-defined]


def test_other_sums_say_why_they_have_not() -> None:
    builder = Builder("sum")
    x, y, wide = (
        builder.input(Type((4,), dtype)) for dtype in (DType.INT8, DType.INT8, DType.INT32)
    )
    tail: tuple[Step, ...] = (Clip(-128, 127), Cast(DType.INT8))
    second = Add(operand=Operand(y, (Cast(DType.INT32),)))
    many = FixedPointMultiply((2**30,) * 4, (0,) * 4, 0)
    begin = Cast(DType.INT32)
    add = builder.add(Elementwise((4,)), [x], (begin, second, *tail))
    numbers = Add(operand=Operand(builder.constant(np.arange(4, dtype=np.int32))))
    graph = builder.graph([add, builder.add(Elementwise((4,)), [wide], (Relu(),))])

    def reason(*steps: Step, dtype: DType = DType.INT8) -> str:
        return str(linear_add_of(graph, steps, dtype, "fixed"))

    assert "one other tensor" in reason(begin, *tail)
    assert "channel to channel" in reason(begin, second, numbers, *tail)
    assert "int32" in reason(second, *tail, dtype=DType.INT32)
    assert "ends in 8 bits" in reason(begin, second)
    assert "rescaled tensors" in reason(begin, second, many, *tail)
