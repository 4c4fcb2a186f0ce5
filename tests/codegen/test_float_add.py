"""A sum of two 8-bit tensors as multiply-adds in floats: used where it is exact for every pair."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.example_graphs import Site, onnx_sum, tflite_sum
from tinyai.codegen.float_add import FloatAdd, float_add_of
from tinyai.ir import Builder, DType, Graph, Operand, Step, Type
from tinyai.ops import Elementwise
from tinyai.ops.steps import Add, Cast, Clip, FixedPointMultiply, Relu
from tinyai.reference import run_steps

PAIRS = (256, 256)


def graph_of(kind: str, seed: int) -> Graph:
    """A sum of int8 or uint8 [256, 256], with numbers of its own for each seed."""
    builder = Builder("sum")
    of = Type(PAIRS, DType.INT8 if kind == "tflite" else DType.UINT8)
    site = Site(builder, of, "NHWC", np.random.default_rng(seed))
    steps = tuple((tflite_sum if kind == "tflite" else onnx_sum)(site))
    return builder.graph([builder.add(Elementwise(PAIRS), [builder.input(of)], steps)])


def pairs(form: FloatAdd) -> tuple[np.ndarray, np.ndarray]:
    values = (np.arange(of.range[0], of.range[1] + 1) for of in (form.x_type, form.y_type))
    x, y = np.meshgrid(*values, indexing="ij")
    return x, y


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", ["tflite", "onnx"])
def test_nearly_every_sum_has_the_form_and_it_equals_the_steps_for_every_pair(
    kind: str, fused: bool
) -> None:
    found = 0
    for seed in range(20):
        graph = graph_of(kind, seed)
        (node,) = graph.nodes
        first = graph.type(node.inputs[0]).dtype
        form = float_add_of(graph, node.epilogue, first, fused=fused)
        if isinstance(form, str):
            continue
        found += 1
        x, y = pairs(form)
        tensors = {**graph.constants, form.operand: y.astype(form.y_type.numpy)}
        expected = run_steps(node.epilogue, x.astype(form.x_type.numpy), tensors)
        results = form.results(x.astype(np.float32), y.astype(np.float32))
        assert np.array_equal(results, expected)
        assert (form.low, form.high) == (expected.min(), expected.max())
    assert found >= 18


def test_a_fused_sum_of_onnx_runtime_has_its_own_numbers() -> None:
    graph = graph_of("onnx", 3)
    (node,) = graph.nodes
    form = float_add_of(graph, node.epilogue, DType.UINT8, fused=True)
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
        return str(float_add_of(graph, steps, dtype, fused=True))

    assert "one other tensor" in reason(begin, *tail)
    assert "channel to channel" in reason(begin, second, numbers, *tail)
    assert "int32" in reason(second, *tail, dtype=DType.INT32)
    assert "ends in 8 bits" in reason(begin, second)
    assert "rescaled tensors" in reason(begin, second, many, *tail)
