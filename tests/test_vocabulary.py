"""The vocabulary: its page says what it has, and a call that is none of it is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.support.paths import ROOT
from tinyai.ops import OPERATORS
from tinyai.source import Expr, SourceType
from tinyai.vocabulary import FLOATS, call, constant, signature

PAGE = (ROOT / "docs" / "vocabulary.md").read_text()
X = Expr((SourceType((2, 3), "int8"),))


def test_the_page_has_a_row_for_each_operator_with_its_operands_and_attributes() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \| ([\w, ]*) \| .+ \|$", PAGE, flags=re.MULTILINE)
    found = {name: (operands, attributes.strip()) for name, operands, attributes in rows}
    known = {name: signature(name) for name in (*OPERATORS, *FLOATS)}
    assert found == {
        name: (", ".join(of.operands), ", ".join(of.attributes)) for name, of in known.items() if of
    }
    assert len(rows) == len(known)


def test_a_call_names_its_operands_and_keeps_its_attributes() -> None:
    bias = constant([1, 2, 3], "int8")
    node = call("bias_add", X.type, X, bias, name="b", axis=1)
    assert (node["data"], node["bias"], node.attrs) == (X, bias, {"axis": 1})
    assert (node.spelled, node.name, node.type) == ("bias_add", "b", X.type)
    assert bias.type == SourceType((3,), "int8")
    assert np.array_equal(bias.value, [1, 2, 3])


@pytest.mark.parametrize(
    ("operator", "args", "attributes", "message"),
    [
        ("einsum", (X,), {}, "no operator of the vocabulary: einsum"),
        ("bias_add", (X,), {"axis": 1}, r"bias_add\(data, bias, axis=\): found 1 operands, axis="),
        ("relu", (X,), {"alpha": 1}, r"relu\(data\): found 1 operands, alpha="),
        ("clip", (X,), {"low": 1}, r"clip\(data, low=, high=\): found 1 operands, low="),
    ],
)
def test_a_call_that_is_not_the_operators_is_an_error(
    operator: str, args: tuple[Expr, ...], attributes: dict[str, object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        call(operator, X.type, *args, **attributes)
