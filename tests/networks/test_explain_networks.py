"""The report on real networks in which something is planted that no region can hold."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relay

import tests.support.relay_nets as nets
import tinyai
from tests.support.prequantized import from_tflite, tflite_file
from tinyai.errors import BoundaryError

NETWORKS = ("kws_ref_model", "pretrainedResnet_quant", "ad01_int8")


class InFrontOfTheLastDense(relay.ExprMutator):
    """Rewrites the arguments of the last qnn.dense of a network."""

    def __init__(self, body, plant):
        super().__init__()
        self.dense, self.plant = [], plant
        relay.analysis.post_order_visit(body, self.note)

    def note(self, expr):
        if isinstance(expr, relay.Call) and getattr(expr.op, "name", "") == "qnn.dense":
            self.dense.append(expr)

    def visit_call(self, call):
        new = super().visit_call(call)
        if not call.same_as(self.dense[-1]):
            return new
        return relay.Call(new.op, self.plant(list(new.args), call), new.attrs, span=call.span)


def channels(call):
    return int(call.args[0].checked_type.shape[1])


def einsum(args, call):
    """What an FFT is written with: a product of matrices under another name."""
    size = channels(call)
    turned = relay.const(np.eye(size, dtype="int32")[::-1].copy())
    args[0] = relay.cast(relay.einsum([relay.cast(args[0], "int32"), turned], "nc,cd->nd"), "int8")
    return args


def float_island(args, call):
    half = relay.nn.relu(relay.divide(relay.cast(args[0], "float32"), relay.const(3.0)))
    args[0] = relay.cast(relay.clip(relay.round(half), -127, 127), "int8")
    return args


def int4(args, call):
    small = relay.cast(args[0], "int4")
    args[0] = relay.cast(relay.add(small, small), "int8")
    return args


# Operator, clause, a part of what was found, a part of what is allowed.
PLANTED = {
    "einsum": (einsum, "einsum", "operator", "einsum", "an operator of tinyai/patterns.py"),
    "float island": (float_island, "nn.relu", "dtype of nn.relu", "float32", "integers"),
    "int4": (int4, "add", "result: dtype", "int4", "int8"),
}


def planted(network, plant):
    mod = relay.transform.InferType()(from_tflite(tflite_file(network)))
    body = mod["main"].body
    body = InFrontOfTheLastDense(body, plant).visit(body)
    return relay.transform.InferType()(nets.module(body))


def assert_reason(mod, operator, clause, found, allowed):
    report = tinyai.explain(mod)
    reasons = [row.reason for row in report.host if row.operator == operator]
    assert [reason.clause for reason in reasons][:1] == [clause]
    assert found in reasons[0].found
    assert allowed in reasons[0].allowed
    assert report.regions, "the rest of the network is taken"
    with pytest.raises(BoundaryError) as error:
        tinyai.partition_for_tinyai(mod, strict=True)
    assert error.value.report == report


@pytest.mark.long
@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("network", NETWORKS)
def test_the_reason_for_a_planted_operator_is_the_right_one(network, kind):
    plant, *expected = PLANTED[kind]
    assert_reason(planted(network, plant), *expected)


@pytest.mark.parametrize("network", NETWORKS)
def test_the_reason_for_a_planted_dynamic_shape_is_the_right_one(network):
    body = from_tflite(tflite_file(network))["main"].body
    x = relay.var("lengths", shape=(relay.Any(), 4), dtype="int32")
    mod = relay.transform.InferType()(nets.module(relay.Tuple([body, relay.add(x, x)])))
    assert_reason(mod, "add", "result: shape", "int32[?,4]", "fixed dimensions")


@pytest.mark.parametrize("network", NETWORKS)
def test_without_a_planted_operator_nothing_stays_on_the_host(network):
    mod = from_tflite(tflite_file(network))
    assert tinyai.explain(mod).host == ()
    tinyai.partition_for_tinyai(mod, strict=True)
