"""Statements as trees, and what a file holds because they name it."""

from __future__ import annotations

import pytest

from tests.support.c_checks import assert_warning_free
from tinyai.codegen.ctree import (
    Assign,
    Block,
    CallStatement,
    Code,
    Comment,
    Declare,
    For,
    If,
    While,
    let,
    nest,
    text,
)
from tinyai.codegen.definitions import Definition, collect, in_order
from tinyai.codegen.helpers import ADD_BORDER, DOUBLE, STRING_H, WRITE_BORDER
from tinyai.codegen.index import Axis

EXAMPLE = """\
/* All kinds of statements. */
int32_t total = 0;
const int8_t *const from = data + 2;
const ptrdiff_t half = count / 2;
for (ptrdiff_t i = 0; i < count; ++i) {
    for (ptrdiff_t j = i; j < half; j += 2) {
        total += from[j];
    }
    if (total > 7) {
        total = 0;
        continue;
    } else {
        ++total;
    }
}
while (total > 0) {
    {
        note(total, 3);
    }
    if (total < 9) {
        return;
    }

    --total;
}"""


def example() -> Code:
    return [
        Comment("All kinds of statements."),
        Declare("int32_t", "total", 0),
        Declare("const int8_t *const", "from", "data + 2"),
        let("half", "count / 2"),
        For(
            *("i", 0, "count"),
            For("j", "i", "half", Assign("total", "from[j]", "+="), step=2),
            If("total > 7", Assign("total", 0), "continue;", otherwise=["++total;"]),
        ),
        While(
            "total > 0",
            Block(CallStatement("note", "total", 3)),
            If("total < 9", "return;"),
            "",
            "--total;",
        ),
    ]


def test_a_tree_prints_with_its_own_indentation() -> None:
    assert text(example()) == EXAMPLE
    deeper = text(example(), "    ").splitlines()
    assert deeper == [f"    {line}" if line else "" for line in EXAMPLE.splitlines()]


def test_what_a_tree_prints_is_c() -> None:
    body = text(example(), "    ")
    function = f"void f(const int8_t *data, ptrdiff_t count) {{\n{body}\n}}\n"
    note = "#include <stddef.h>\n#include <stdint.h>\nvoid note(int32_t total, int times);\n"
    assert_warning_free(note + "void f(const int8_t *data, ptrdiff_t count);\n" + function)


def test_code_that_is_not_wanted_leaves_nothing() -> None:
    assert text([None, [], ["a;", [None, "b;"]]]) == "a;\nb;"


def test_loops_nest_from_the_outermost_axis_and_one_may_be_a_share() -> None:
    axes = [Axis("i", (2, 3)), Axis("j", (4,))]
    assert text(nest(axes, "f();", cut="j")) == (
        "for (ptrdiff_t i = 0; i < 6; ++i) {\n"
        "    for (ptrdiff_t j = begin; j < end; ++j) {\n"
        "        f();\n"
        "    }\n"
        "}"
    )
    assert text(nest([], "f();")) == "f();"


@pytest.mark.parametrize("wanted", [(ADD_BORDER, DOUBLE), (DOUBLE, ADD_BORDER, STRING_H)])
def test_a_definition_stands_once_and_behind_what_it_needs(wanted: tuple[Definition, ...]) -> None:
    names = [each.name for each in in_order(wanted)]
    assert sorted(names) == ["string.h", "tinyai_add_border", "tinyai_double"]
    assert names[0] == "string.h"


def test_definitions_that_need_each_other_in_a_chain_come_in_its_order() -> None:
    first = Definition("first", "unused")
    second = Definition("second", "unused", (first,))
    third = Definition("third", "unused", (second, WRITE_BORDER))
    names = [each.name for each in in_order([third, first])]
    assert names == ["first", "second", "string.h", "tinyai_write_border", "third"]


def test_what_has_one_name_is_one_thing() -> None:
    found: dict[str, Definition] = {}
    collect(found, Definition("name", "one"))
    collect(found, Definition("name", "one"))
    assert list(found) == ["name"]
    with pytest.raises(ValueError, match="name is two things"):
        collect(found, Definition("name", "other"))
    with pytest.raises(ValueError, match="name is two things"):
        in_order(
            [Definition("name", "one"), Definition("user", "unused", (Definition("name", "two"),))]
        )
