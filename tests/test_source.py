"""Source expressions: lazy, compared by identity, and typed well enough to refuse with a reason."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tinyai.arithmetic import arithmetic_of
from tinyai.builders import Lowering
from tinyai.ir import Builder, DType, Type
from tinyai.source import (
    TVMS_OWN,
    Call,
    Constant,
    Expr,
    Refusal,
    SourceType,
    Tuple,
    constant_of,
    fixed_type,
    require,
    sources,
)

INT8 = SourceType((2, 3), "int8")


def call(*args: Expr, name: str = "") -> Call:
    return Call(
        (INT8,), op="add", load_attrs=dict, load=lambda: args, operands=("left", "right"), name=name
    )


def test_a_source_type_shows_dynamic_dimensions_and_any_dtype() -> None:
    assert str(SourceType((1, None, 3), "bfloat16")) == "bfloat16[1,?,3]"
    assert str(SourceType((), "bool")) == "bool[]"


def test_an_expression_of_several_tensors_has_no_single_type() -> None:
    assert Expr((INT8,)).type == INT8
    for types in ((), (INT8, INT8)):
        with pytest.raises(Refusal) as raised:
            _ = Expr(types).type
        assert raised.value.found == f"a tuple of {len(types)}"
        assert raised.value.allowed == "one tensor"


@pytest.mark.parametrize("kind", ["constant", "tuple", "call"])
def test_what_an_expression_holds_is_loaded_when_asked_for_and_once(kind: str) -> None:
    loads: list[str] = []

    def loading(value: object) -> Callable[[], object]:
        def load() -> object:
            loads.append(kind)
            return value

        return load

    array, fields = np.zeros(3, np.int8), (Expr((INT8,)),)
    constant = Constant((INT8,), load=loading(array))  # type: ignore[arg-type]
    pair = Tuple((INT8,), load=loading(fields))  # type: ignore[arg-type]
    whole = Call((INT8,), op="add", load_attrs=dict, load=loading(fields))  # type: ignore[arg-type]
    assert loads == []
    ask = {
        "constant": lambda: constant.value is array,
        "tuple": lambda: pair.fields is fields,
        "call": lambda: whole.args is fields,
    }[kind]
    assert ask()
    assert ask()
    assert loads == [kind]


def test_expressions_are_told_apart_by_identity() -> None:
    one, other = Expr((INT8,)), Expr((INT8,))
    assert one != other
    assert len({one, other, one}) == 2
    assert call() != call()


def test_a_refusal_keeps_clause_found_and_allowed() -> None:
    refusal = Refusal("dtype", 3, ("a", "b"))
    assert (refusal.clause, refusal.found, refusal.allowed) == ("dtype", "3", "('a', 'b')")
    assert str(refusal) == "dtype: found 3, allowed ('a', 'b')"


def test_require_refuses_only_where_the_condition_does_not_hold() -> None:
    require(True, "clause", "found", "allowed")
    with pytest.raises(Refusal, match="clause: found 5, allowed 6"):
        require(False, "clause", 5, 6)


@pytest.mark.parametrize(
    ("of", "clause", "allowed"),
    [
        (SourceType((1, None), "int8"), "data: shape", "fixed dimensions"),
        (SourceType((0, 3), "int8"), "data: shape", "at least one element"),
        (SourceType((2,), "int4"), "data: dtype", "int8, uint8, int16, int32, int64, float32"),
        (SourceType((2,), "float64"), "data: dtype", "float32"),
        (SourceType((2,), "uint16"), "data: dtype", "int8"),
        (SourceType((2,), "int8x4"), "data: dtype", "int8"),
    ],
)
def test_a_type_that_the_graph_cannot_have_is_refused(
    of: SourceType, clause: str, allowed: str
) -> None:
    with pytest.raises(Refusal) as raised:
        fixed_type(of, "data")
    assert raised.value.clause == clause
    assert raised.value.found in (str(of), of.dtype)
    assert allowed in raised.value.allowed


@pytest.mark.parametrize("dtype", list(DType))
def test_a_fixed_type_of_a_known_dtype_is_the_graphs_type(dtype: DType) -> None:
    assert fixed_type(SourceType((2, 3), str(dtype))) == Type((2, 3), dtype)
    assert fixed_type(SourceType((), str(dtype))) == Type((), dtype)


def test_the_value_of_a_constant_argument_is_found_and_any_other_refused() -> None:
    weights = np.ones(3, np.int8)
    node = call(Expr((INT8,)), Constant((INT8,), load=lambda: weights))
    assert constant_of(node, "right", "weights") is weights
    with pytest.raises(Refusal, match="weights: found computed at run time, allowed a constant"):
        constant_of(node, "left", "weights")


def test_a_lowering_knows_the_types_of_the_tensors_that_arguments_became() -> None:
    builder, x = Builder("g"), Expr((INT8,))
    names = {x: builder.input(Type((2, 3), DType.INT8))}
    assert Lowering(builder, names.__getitem__, arithmetic_of(TVMS_OWN)).type(x) == Type(
        (2, 3), DType.INT8
    )


def test_a_call_without_a_name_has_no_source() -> None:
    assert sources(call()) == ()
    assert sources(call(name="conv1")) == ("conv1",)
