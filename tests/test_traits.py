"""What operators and steps answer passes is true of their numpy references.

The cases are the operators' own examples, so a new operator's traits are held against its reference
without a line here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

import tinyai
from tests.support.random_graphs import random_array
from tinyai.ir import Array, DType, Example, Op, Operand, Step, Type
from tinyai.ops import OPS, steps
from tinyai.ops.contraction import Contraction
from tinyai.ops.steps import STEP_KINDS
from tinyai.ops.steps.logic import COMPARISONS, LOGIC
from tinyai.traits import NONE, Dims

CHANNELS = 5
OPERAND = Operand("c")
INTERPOLATIONS = ("interpolate", "float_interpolate")
STEPS: dict[str, tuple[Step, ...]] = {
    **{
        kind.name: (kind(operand=OPERAND),)
        for kind in STEP_KINDS.values()
        if issubclass(kind, steps.Binary) and not issubclass(kind, steps.MultiplyAdd)
    },
    "clip": (steps.Clip(-7, 90), steps.Clip(-128, 127), steps.Clip(-(2.0**31), 2.0**31 - 1)),
    "cast": tuple(map(steps.Cast, DType)),
    "relu": (steps.Relu(),),
    "leaky_relu": tuple(map(steps.LeakyRelu, (0.1, -0.5, 2.0, -3.0))),
    "multiply_add": (steps.MultiplyAdd(0.3, operand=OPERAND),),
    "add_product": (steps.AddProduct(-0.3, operand=OPERAND),),
    "round": tuple(map(steps.Round, ("away", "even", "floor", "cut"))),
    "fixed_point_multiply": tuple(
        steps.FixedPointMultiply((3 << 29, 5 << 28, 7, 0, -(1 << 30)), (-3, 0, 2, 1, -9), 1, how)
        for how in ("upward", "tonearest", "twice")
    ),
    "real_multiply": (
        steps.RealMultiply((0.5, 0.25, 3.0, 1e-3, 0.1), 1, "cut", 3, -100, 90),
        steps.RealMultiply((0.3,), None, "away", 0, -128, 127),
    ),
    "lookup": (steps.Lookup(tuple((i * 37) % 251 for i in range(256)), DType.UINT8),),
    "function": (steps.Function("sqrt"),),
    "compare": tuple(steps.Compare(sign, operand=OPERAND) for sign in COMPARISONS),
    "logic": tuple(steps.Logic(word, operand=OPERAND) for word in LOGIC),
    "not": (steps.Not(),),
    "fill": (steps.Fill(1, operand=OPERAND), steps.Fill(0, when=False, operand=OPERAND)),
}


def cases(*dtypes: DType) -> Iterator[tuple[Step, Array, Array]]:
    """Steps with values of a type that they take, and an operand: at the edges and at random."""
    for name, kinds in STEPS.items():
        for step in kinds:
            for dtype in dtypes or tuple(DType):
                rng = np.random.default_rng(1)
                value = random_array(rng, Type((40, CHANNELS), dtype))
                if not dtype.is_float:
                    value[:4].T[:] = [*dtype.range, 0, -1 if dtype.range[0] else 1]
                operand = random_array(rng, Type((1, CHANNELS), step.operand_type(dtype)))
                if "shift" in name or name == "divide":
                    operand = np.arange(1, CHANNELS + 1).astype(dtype.numpy).reshape(1, -1)
                try:
                    step.result(dtype)
                except ValueError:
                    continue
                yield step, value, operand


def test_every_kind_of_step_is_tried() -> None:
    assert set(STEPS) == set(STEP_KINDS)
    assert {step.name for step, _, _ in cases()} == set(STEP_KINDS)


def test_a_commuted_step_gives_the_same_where_value_and_operand_change_places() -> None:
    found = set()
    for step, value, operand in cases():
        if step.commuted is not None:
            found.add(step.name)
            other = step.commuted
            there = step.reference(value, np.broadcast_to(operand, value.shape))
            back = other.reference(np.broadcast_to(operand, value.shape), value)
            np.testing.assert_array_equal(there, back)
    arithmetic = {"add", "multiply", "maximum", "minimum", "subtract", "subtract_from"}
    assert found == arithmetic | {"compare", "logic"}


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if not dtype.is_float])
def test_what_is_an_identity_changes_no_integer(dtype: DType) -> None:
    found = set()
    for step, value, operand in cases(dtype):
        for other in (operand, np.zeros_like(operand)):
            if step.is_identity(dtype, None if step.operand is None else other):
                found.add(step.name)
                np.testing.assert_array_equal(step.reference(value, other), value)
                assert step.result(dtype) is dtype
    assert {"cast", *(("add", "subtract") if dtype.is_integer else ())} <= found
    assert steps.Clip(*dtype.range).is_identity(dtype, None)


def test_what_commutes_with_widening_gives_the_same_in_64_bits() -> None:
    found = set()
    for step, value, operand in cases(DType.INT32):
        if step.commutes_with_widening():
            found.add(step.name)
            narrow, wide = (step.reference(v, operand) for v in (value, value.astype(np.int64)))
            np.testing.assert_array_equal(narrow, wide)
    assert found == {"fixed_point_multiply", "relu", "cast", "clip"}


def test_numbers_along_a_dimension_belong_to_elements() -> None:
    found = set()
    elements = [3, 0, 4]
    for step, value, operand in cases():
        if step.along is not None:
            found.add(step.name)
            some = step.with_elements(elements, 1)
            np.testing.assert_array_equal(
                some.reference(value[:, elements], operand),
                step.reference(value, operand)[:, elements],
            )
            turned = step.with_elements(range(CHANNELS), 0)
            np.testing.assert_array_equal(
                turned.reference(value.T, operand), step.reference(value, operand).T
            )
            if not step.keeps_channels:
                same, numbers = step.apart()
                other, fewer = some.apart()
                assert same == other
                np.testing.assert_array_equal(numbers[elements], fewer)
    assert found == {"fixed_point_multiply", "real_multiply"}


def test_no_result_is_larger_than_the_largest() -> None:
    for step, value, operand in cases(DType.INT32):
        few = value // 2**20
        size, most = (int(np.abs(each.astype(np.int64)).max()) for each in (few, operand))
        largest = step.largest(size, most, operand)
        if largest is not None and not step.result(DType.INT32).is_float:
            wide = step.reference(few.astype(np.int64), operand.astype(np.int64))
            fits = not isinstance(step, steps.Cast) or step.to.bytes >= 4
            assert not fits or np.abs(wide).max() <= largest, step


def test_a_step_without_traits_answers_what_is_true_of_any() -> None:
    step = steps.Function("sqrt")
    assert (step.commuted, step.along) == (None, None)
    assert not step.is_identity(DType.INT32, None)
    assert not step.commutes_with_widening()
    assert step.largest(1, 0, None) is None


# --- Operators -----------------------------------------------------------------------------------


def examples(*dims: Dims) -> list[tuple[Op, tuple[Type, ...]]]:
    """The examples of all operators, or of those with these ``dims``."""
    every: list[Example] = [example for kind in OPS for example in kind.examples()]
    return [(op, types) for op, types in every if not dims or op.dims in dims]


def inputs_of(types: tuple[Type, ...]) -> list[Array]:
    rng = np.random.default_rng(3)
    return [random_array(rng, of) for of in types]


def outcome(op: Op, *inputs: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.array(op.reference(*inputs))


def same_bits(left: Array, right: Array) -> bool:
    return left.shape == right.shape and left.tobytes() == right.tobytes()


def test_an_operator_gives_the_same_in_another_order_of_dimensions() -> None:
    found = set()
    for op, types in examples(Dims.ALIGNED, Dims.REDUCED):
        rank = len(types[0].shape)
        result = op.infer(*types)
        if any(len(of.shape) != rank for of in types) or len(result.shape) > rank:
            continue  # passes make all inputs of one rank first
        whole = outcome(op, *inputs_of(types))
        for dims in permutations(range(rank)):
            kept = [dim for dim in range(rank) if dim not in op.dropped_dims()]
            after = [kept.index(dim) for dim in dims if dim in kept]
            turned = op.permuted(dims, tuple(result.shape[dim] for dim in after))
            if turned is not None:
                found.add(op.name)
                inputs = (value.transpose(dims) for value in inputs_of(types))
                assert same_bits(outcome(turned, *inputs), whole.transpose(after)), (op, dims)
    assert {op.name for op, _ in examples(Dims.ALIGNED, Dims.REDUCED)} == found


def test_images_are_the_same_in_another_layout() -> None:
    found = set()
    for op, types in examples(Dims.FIXED):
        for dims in ((0, 2, 3, 1), (0, 3, 1, 2)):
            turned = op.permuted(dims, ()) if len(types[0].shape) == 4 else None
            if turned is not None:
                found.add(op.name)
                data, *weights = inputs_of(types)
                whole = outcome(op, data, *weights).transpose(dims)
                assert same_bits(outcome(turned, data.transpose(dims), *weights), whole)
    pools = {"max_pool2d", "avg_pool2d", "float_avg_pool2d", "adaptive_pool2d"}
    assert found == {"conv2d", *INTERPOLATIONS, *pools}


def test_what_is_contracted_meets_weights_in_any_order() -> None:
    found = examples(Dims.CONTRACTED)
    assert found
    for op, types in found:
        data, weights = inputs_of(types)
        order = np.random.default_rng(4).permutation(data.shape[-1])
        assert isinstance(op, Contraction)
        turned = outcome(op, data[..., order], weights[..., order])
        assert same_bits(turned, outcome(op, data, weights))


def test_elements_all_meet_the_same_along_a_dimension_that_is_not_bound() -> None:
    found = set()
    for op, types in examples(Dims.ALIGNED):
        result = op.infer(*types)
        free = set(range(len(result.shape))) - set(op.bound_dims())
        inputs, rank = inputs_of(types), len(result.shape)
        for dim in free:
            sizes = {of.shape[dim] for of in (*types, result) if len(of.shape) == rank}
            if len(sizes) == 1 and all(len(of.shape) == rank for of in types):
                found.add(op.name)
                order = np.random.default_rng(4).permutation(sizes.pop())
                turned = outcome(op, *(value.take(order, dim) for value in inputs))
                assert same_bits(turned, outcome(op, *inputs).take(order, dim)), (op, dim)
    assert found == {op.name for op, _ in examples(Dims.ALIGNED)} - {"resize"}  # of an image: all


def test_a_channel_is_made_of_the_channels_that_the_map_names() -> None:
    found = set()
    for op, types in examples():
        channels = op.channel_map(*types)
        if channels is None:
            continue
        found.add(op.name)
        inputs = inputs_of(types)
        before = outcome(op, *inputs)
        for number, place in enumerate(channels.places):
            assert place.shape == before.shape[-1:], op
            for channel in range(inputs[number].shape[-1]):
                other = [value.copy() for value in inputs]
                other[number][..., channel] = 1 - other[number][..., channel]
                after = outcome(op, *other)
                untouched = place != channel
                assert same_bits(after[..., untouched], before[..., untouched]), (op, channel)
                assert set(place) <= {NONE, *range(inputs[number].shape[-1])}
    moves = {"elementwise", "reshape", "transpose", "concatenate", "strided_slice", "pad", "resize"}
    pools = {"max_pool2d", "avg_pool2d", "float_avg_pool2d", "adaptive_pool2d"}
    assert found == {"conv2d", "sum", *INTERPOLATIONS, *moves, *pools}


def larger(values: np.ndarray) -> np.ndarray:
    """int8 as uint8, each 128 larger."""
    return (values.astype(np.int16) + 128).astype(np.uint8)


def test_data_that_is_larger_gives_what_a_shifted_operator_says() -> None:
    found = set()
    for op, types in examples():
        shifted = op.shifted(128, types[0])
        if shifted is None or types[0].dtype is not DType.INT8:
            continue
        found.add(op.name)
        other, more = shifted
        data, *rest = inputs_of(types)
        result = outcome(op, data, *rest)
        if result.dtype == np.int8:  # all that it is made of is larger
            rest = [larger(each) if each.dtype == np.int8 else each for each in rest]
            expected = larger(result)
            assert more == 128
        else:
            expected = result if not more else (result + np.int64(more)).astype(result.dtype)
        assert same_bits(outcome(other, larger(data), *rest), expected), op
    pools = {"max_pool2d", "avg_pool2d", "float_avg_pool2d", "adaptive_pool2d"}
    moves = {"reshape", "transpose", "concatenate", "strided_slice", "gather", "elementwise"}
    moves |= {"resize", "interleave"}
    assert found == {"conv2d", "dense", "sum", *INTERPOLATIONS, *pools, *moves}


def test_an_operator_pads_as_a_pad_in_front_of_it() -> None:
    found = set()
    for op, types in examples():
        for value in (0, -128):
            rank = len(types[0].shape)
            for widths in ((0, 0), (1, 2), (0, 3), (0, 0)), ((0, 0), (0, 0), (1, 0), (2, 1)):
                padding = op.padded(widths, value) if rank == 4 else None
                if padding is not None:
                    found.add(op.name)
                    data, *rest = inputs_of(types)
                    wide = np.pad(data, widths, constant_values=value)
                    assert same_bits(outcome(padding, data, *rest), outcome(op, wide, *rest))
    assert found == {"conv2d"}


# --- Whoever asks --------------------------------------------------------------------------------

ROOT = Path(tinyai.__file__).parent
ASKING = [*ROOT.glob("passes/*.py"), *ROOT.glob("codegen/*.py")]
BY_NAME = {"Elementwise", "Reshape", "Transpose", "Concatenate", "Pad"}
MADE = {"separate_phases.py": {"Conv2d"}, "interleave_planes.py": {"Interleave"}}


@pytest.mark.parametrize("path", sorted(ASKING), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_passes_name_no_operators_but_those_that_they_make_or_take_away(path: Path) -> None:
    imported = {
        alias.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tinyai.ops")
        for alias in node.names
    }
    made = BY_NAME | MADE.get(path.name, set())
    assert imported & {kind.__name__ for kind in OPS} <= made
