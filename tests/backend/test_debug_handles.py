"""Debug handle maps: from nodes of an emitted program to handles of the source model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tinyai.backend import DebugHandleMapBuilder
from tinyai.errors import OptionError


@dataclass(frozen=True)
class Node:
    sources: tuple[str, ...] = ()


def test_identifiers_are_generated_from_0_on() -> None:
    builder = DebugHandleMapBuilder(generated_identifiers=True)
    assert builder.insert(handles=[7, 8]) == 0
    assert builder.insert(nodes=Node(("conv",))) == 1
    assert builder.insert(nodes=[Node(("a", "b")), Node(("b", "c"))]) == 2
    assert builder.output() == {0: (7, 8), 1: ("conv",), 2: ("a", "b", "c")}


@pytest.mark.parametrize("identifiers", [(3, 1), ("node_3", "node_1")])
def test_identifiers_are_given_all_numbers_or_all_text(identifiers: tuple[Any, Any]) -> None:
    builder = DebugHandleMapBuilder()
    for identifier in identifiers:
        assert builder.insert(handles=5, identifier=identifier) == identifier
    assert builder.output() == dict.fromkeys(identifiers, (5,))
    assert list(builder.output()) == list(identifiers)


def test_a_handle_counts_once_in_the_order_given() -> None:
    builder = DebugHandleMapBuilder(generated_identifiers=True)
    builder.insert(handles=[9, 2, 9, "x", 2])
    builder.insert(handles="conv")
    assert builder.output() == {0: (9, 2, "x"), 1: ("conv",)}


Misuse = Callable[[DebugHandleMapBuilder], object]


@pytest.mark.parametrize(
    ("generated", "misuse", "said"),
    [
        (True, lambda b: b.insert(), "found:   neither\n  allowed: either nodes or handles"),
        (True, lambda b: b.insert(nodes=Node(("a",)), handles=1), "found:   both"),
        (
            True,
            lambda b: b.insert(handles=1, identifier=4),
            "builder numbers the nodes",
        ),
        (False, lambda b: b.insert(handles=1), "generated_identifiers=True"),
        (False, lambda b: b.insert(handles=1, identifier=0), "0 a second time"),
        (False, lambda b: b.insert(handles=1, identifier="a"), "found:   'a'\n  allowed: int"),
        (False, lambda b: b.insert(handles=1, identifier=1.5), "a whole number or text"),
        (False, lambda b: b.insert(handles=1, identifier=True), "a whole number or text"),
        (True, lambda b: b.insert(handles=[]), "found:   none\n  allowed: one or more"),
        (True, lambda b: b.insert(nodes=[]), "nodes without sources"),
        (True, lambda b: b.insert(nodes=Node()), "nodes without sources"),
        (True, lambda b: b.insert(handles=[1, None]), "debug handle\n  found:   None"),
    ],
)
def test_misuse_is_an_error_and_changes_nothing(generated: bool, misuse: Misuse, said: str) -> None:
    builder = DebugHandleMapBuilder(generated_identifiers=generated)
    builder.insert(handles=5, **({} if generated else {"identifier": 0}))  # type: ignore[arg-type]
    with pytest.raises(OptionError) as caught:
        misuse(builder)
    assert said in str(caught.value)
    assert builder.output() == {0: (5,)}
    assert builder.insert(handles=6, **({} if generated else {"identifier": 1})) == 1  # type: ignore[arg-type]


def test_what_was_handed_out_does_not_change_any_more() -> None:
    builder = DebugHandleMapBuilder(generated_identifiers=True)
    builder.insert(handles=5)
    before = builder.output()
    builder.insert(handles=6)
    assert before == {0: (5,)}
