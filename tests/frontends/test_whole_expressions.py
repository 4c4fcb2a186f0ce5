"""Expressions of a reader of files become one network, or all that stays out is named."""

from __future__ import annotations

import numpy as np
import pytest

from tinyai.errors import BoundaryError, OptionError
from tinyai.frontends.source_model import End, SourceModel, unread
from tinyai.frontends.whole import network_of
from tinyai.ir import DType, QParams
from tinyai.partition.reasons import Language
from tinyai.reference import run_graph
from tinyai.source import Call, Expr, Refusal, SourceType
from tinyai.vocabulary import call, constant

INT8, FLOAT = SourceType((2, 4), "int8"), SourceType((2, 4), "float32")
SCALE = constant(0.5, "float32"), constant(3, "int32")


def model(*outputs: Expr, inputs: tuple[Expr, ...]) -> SourceModel:
    def ends(exprs: tuple[Expr, ...], letter: str) -> tuple[End, ...]:
        return tuple(End(f"{letter}{n}", expr) for n, expr in enumerate(exprs))

    return SourceModel(ends(inputs, "x"), ends(outputs, "y"), Language())


def floats(x: Expr, name: str = "") -> Call:
    return call("dequantize", FLOAT, x, *SCALE, name=name, axis=-1)


def quantized(x: Expr, name: str = "") -> Call:
    return call("quantize", INT8, x, *SCALE, name=name, axis=-1)


def test_pairs_become_integers_and_ports_keep_the_names_of_the_source() -> None:
    x = Expr((INT8,))
    total = quantized(call("add", FLOAT, floats(x), floats(x), name="sum"))
    network = network_of(model(total, x, inputs=(x, Expr((INT8,)))), "net", "onnx")
    assert [port.name for port in network.inputs] == ["x0", "x1"], "an idle one too"
    assert [port.name for port in network.outputs] == ["y0", "y1"]
    assert network.outputs[0].quant == QParams((0.5,), 3)
    data = np.arange(8, dtype=np.int8).reshape(2, 4)
    found = run_graph(network.graph, [data, data])
    assert np.array_equal(found[0], 2 * data - 3)
    assert np.array_equal(found[1], data)


def test_integer_ends_leave_out_pairs_at_the_ends() -> None:
    x, flat = Expr((FLOAT,)), SourceType((8,), "float32")
    result = call("reshape", flat, floats(quantized(x)))
    whole = model(result, inputs=(x,))
    assert network_of(whole, "net").inputs[0].type.dtype is DType.FLOAT32
    network = network_of(whole, "net", ends="int8")
    assert str(network.inputs[0].type) == "int8[2,4]"
    assert str(network.outputs[0].type) == "int8[8]"
    assert network.inputs[0].quant == network.outputs[0].quant == QParams((0.5,), 3)
    with pytest.raises(OptionError, match="input 'x0': read by exp"):
        network_of(model(quantized(call("exp", FLOAT, x)), inputs=(x,)), "net", ends="int8")


def test_all_that_stays_out_is_named_once_a_kind() -> None:
    x = Expr((INT8,))
    refusal = Refusal("operator", "STRANGE", "one that is read")
    first = unread("STRANGE", (INT8,), (x,), refusal, "one")
    second = unread("STRANGE", (INT8,), (first,), refusal, "two")
    other = call("clip", INT8, second, name="three", low=5, high=-5)
    with pytest.raises(BoundaryError) as caught:
        network_of(model(other, inputs=(x,)), "net", "onnx")
    text = str(caught.value)
    assert "found:   STRANGE 'one': operator: STRANGE" in text
    assert "2 STRANGE 'one, two'" in text
    assert "clip 'three'" in text
    assert [row.name for row in caught.value.report.host] == ["one", "two", "three"]
    assert "--rounding" not in text


def test_a_float_model_is_told_to_be_one() -> None:
    x = Expr((FLOAT,))
    with pytest.raises(BoundaryError, match="a float model: no value of 8 bits, but float32"):
        network_of(model(call("relu", FLOAT, x), inputs=(x,)), "net")


def test_the_rounding_that_takes_all_is_named() -> None:
    x = Expr((INT8,))
    inner = quantized(call("exp", FLOAT, floats(x, "exp"), name="exp"), "exp")
    whole = model(inner, inputs=(x,))
    assert network_of(whole, "net").rounding == "upward"
    with pytest.raises(BoundaryError, match=r"--rounding upward, in Python .*TFLite's"):
        network_of(whole, "net", "tflite")


def test_a_float_between_integers_is_named_alone() -> None:
    x = Expr((INT8,))
    kept = call("exp", FLOAT, floats(x, "exp"), name="exp")
    with pytest.raises(BoundaryError) as caught:
        network_of(model(kept, quantized(kept), inputs=(x,)), "net", "tflite")
    assert [row.name for row in caught.value.report.host] == ["exp"]
