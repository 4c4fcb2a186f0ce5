"""A model of any front end is divided: here one whose operators are calls of the vocabulary."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from tests.support.faults import NO_KERNEL, broken, raises
from tinyai.ops import MaxPool2d, Slice
from tinyai.partition.division import _BuildGroup, divide
from tinyai.partition.groups import groups_of
from tinyai.partition.model import ItemModel
from tinyai.patterns import computes
from tinyai.qdq.operands import tuple_of
from tinyai.report import Reason
from tinyai.source import (
    Call,
    Expr,
    Field,
    Refusal,
    Rounding,
    SourceType,
    children,
    post_order,
    tensors_of,
)
from tinyai.target import Target
from tinyai.vocabulary import call, constant

SCALAR = Target(isa="scalar", rounding="torch")
IMAGE = SourceType((1, 4, 4, 8), "float32")
GRID = constant(0.5, "float32"), constant(0, "int32")


class Calls(ItemModel[Expr]):
    """A model whose items are the calls below a result and its parameters."""

    rounding = Rounding("torch")

    def __init__(self, result: Expr) -> None:
        order = [e for e in post_order(result) if type(e) in (Expr, Call, Field)]
        self.order, self.outputs, self.refused = order, {*tensors_of(result)}, {}

    def __call__(self, item: Expr) -> Expr:
        return item

    def reads(self, item: Expr) -> Sequence[Expr]:
        return [e for e in children(item) if e in self.order]

    def users(self, item: Expr) -> Collection[Expr]:
        return [each for each in self.order if item in self.reads(each)]

    def name(self, item: Expr) -> str:
        return item.name if isinstance(item, Call) else "input"

    def operator(self, item: Expr) -> str:
        return item.op if isinstance(item, Call) else ""

    def kind(self, item: Expr) -> str:
        op = self.operator(item)
        if isinstance(item, Field):
            return "part"
        if op in ("quantize", "dequantize"):
            return op
        return "computes" if op and computes(op) else "" if op else "input"

    def is_known(self, item: Expr) -> bool:
        return False

    def reason(self, item: Expr, refusal: Refusal) -> Reason:
        op = self.operator(item)
        return Reason("operator", op, 1, refusal.clause, refusal.found, refusal.allowed)

    def why_float(self, item: Expr, refusal: Refusal | None, inside: Collection[Expr]) -> Refusal:
        return refusal or Refusal("quantization of the result", "none", "one")


def pair(value: Expr, name: str) -> Expr:
    """A value that is quantized and dequantized."""
    narrow = SourceType(value.type.shape, "int8")
    quantized = call("quantize", narrow, value, *GRID, axis=-1, name=f"{name} quantized")
    return call("dequantize", value.type, quantized, *GRID, axis=-1, name=f"{name} dequantized")


POOLING = {
    "kernel": (2, 2),
    "strides": (2, 2),
    "padding": (0, 0, 0, 0),
    "dilation": (1, 1),
    "ceil_mode": False,
    "layout": "NHWC",
    "out_layout": "",
}


def network() -> Calls:
    """A ReLU, a maximum of its values, and a sum of these with themselves."""
    x = pair(Expr((IMAGE,)), "x")
    above = pair(call("relu", IMAGE, x, name="above"), "above")
    small = SourceType((1, 2, 2, 8), "float32")
    pool = pair(call("max_pool2d", small, above, name="pool", **POOLING), "pool")
    total = pair(call("add", small, pool, pool, name="total"), "total")
    return Calls(total)


def test_a_model_is_one_region() -> None:
    division = divide(network(), SCALAR, {})
    (region,) = division.regions
    assert division.left == ()
    assert len(region.items) == len(network().order) - 1
    assert len(region.compiled.graph.inputs) == 1


def test_what_has_no_code_leaves_with_its_pairs_and_the_rest_is_divided_anew() -> None:
    model = network()
    with broken(raises(NO_KERNEL, MaxPool2d)):
        division = divide(model, SCALAR, {})
    names = [model.name(item) for item in division.left]
    assert names == ["above dequantized", "pool", "pool quantized"]
    assert len(division.regions) == 2
    (reason,) = division.reasons.values()
    assert (reason.row, reason.clause) == ("max_pool2d", "code generation")


def test_what_is_barred_is_in_no_region_and_what_stays_float_leaves() -> None:
    model = network()
    (above,) = (item for item in model.order if model.name(item) == "above")
    division = divide(model, SCALAR, {above: Refusal("taste", "relu", "others")})
    assert division.reasons[above].clause == "taste"
    assert [model.name(item) for item in division.left][:3] == [
        "x quantized",
        "x dequantized",
        "above",
    ]
    floats = Calls(call("add", IMAGE, *[Expr((IMAGE,))] * 2, name="sum"))
    division = divide(floats, SCALAR, {})
    (why,) = division.reasons.values()
    assert (division.regions, why.clause) == ((), "quantization of the result")


class Named(Calls):
    """All inputs have a hostile name; what moves values computes nothing."""

    def name(self, item: Expr) -> str:
        return super().name(item) if isinstance(item, Call) else "it's 'x'"

    def kind(self, item: Expr) -> str:
        return "" if self.operator(item) == "split" else super().kind(item)


def halves() -> Call:
    whole, half = (Expr((SourceType((1, 4, 4, size), "int8"),)) for size in (8, 4))
    split = call("split", half.type, whole, axis=3, name="split")
    return replace(split, types=(half.type, half.type))


def test_what_reads_an_input_of_unknown_shape_leaves_whatever_the_inputs_name() -> None:
    """A part that came last had the blame, left alone, and was tried again for ever."""
    open_ = SourceType((None, 4), "int8")
    reader = call("relu", open_, Expr((open_,)), name="reader")
    plain = SourceType((1, 4), "int8")
    apart = call("relu", plain, Expr((plain,)), name="apart")
    model = Named(tuple_of(reader, apart, *halves().fields))
    division = divide(model, SCALAR, {})
    assert [model.name(item) for item in division.reasons] == ["reader"]
    assert [model.name(item) for item in division.left] == ["reader"]


def test_what_has_no_code_leaves_where_a_part_of_its_result_is_to_blame() -> None:
    """The part would be tried again with what makes it, for ever."""
    plain = SourceType((1, 4), "int8")
    apart = call("relu", plain, Expr((plain,)), name="apart")
    model = Named(tuple_of(*halves().fields, apart))
    with broken(raises(NO_KERNEL, Slice)):
        division = divide(model, SCALAR, {})
    assert [model.name(item) for item in division.left] == ["split"]
    (region,) = division.regions
    assert [model.name(item) for item in region.items] == ["apart"]


def test_a_division_ends_where_the_blame_is_on_what_no_region_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = network()
    whim = {model.order[0]: model.reason(model.order[0], Refusal("a whim", "", ""))}
    monkeypatch.setattr(_BuildGroup, "_floats", lambda *_: whim)
    division = divide(model, SCALAR, {})
    assert division.regions == ()
    assert len(division.left) == len(model.order) - 1


class Edges(Calls):
    """Items that are numbers, which read smaller ones."""

    def __init__(self, reads: dict[int, list[int]]) -> None:
        self.order, self.outputs, self._reads = [*reads], set(), reads

    def reads(self, item: int) -> Sequence[int]:
        return self._reads[item]

    def kind(self, item: int) -> str:
        return "computes"


@pytest.mark.parametrize("seed", range(40))
def test_groups_wait_for_none_that_waits_for_them_and_no_two_could_be_one(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randrange(2, 14)
    model = Edges({n: rng.sample(range(n), min(n, rng.randrange(3))) for n in range(count)})
    taken = {n for n in range(count) if rng.random() < 0.7}
    groups = [*map(set, groups_of(model, taken))]
    assert set().union(*groups) == taken
    assert sum(map(len, groups)) == len(taken)
    assert not _has_circle(model, groups)
    for one in groups:
        for two in groups:
            if one is not two:
                rest = [group for group in groups if group not in (one, two)]
                assert _has_circle(model, [*rest, one | two])


def _has_circle(model: Edges, groups: list[set[int]]) -> bool:
    """Whether groups, and what is in none, cannot be computed one after the other."""
    units = [*groups, *({n} for n in model.order if not any(n in group for group in groups))]
    done: set[int] = set()
    while units:
        ready = [u for u in units if all(r in u or r in done for n in u for r in model.reads(n))]
        if not ready:
            return True
        done |= set().union(*ready)
        units = [unit for unit in units if unit not in ready]
    return False
