"""The interface of a back end: checked when a class is made, its default for several methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.example_graphs import NETWORKS
from tinyai.backend import BackendDetails, CompileSpec, PreprocessResult, TinyAIBackend
from tinyai.errors import OptionError
from tinyai.ir import Graph, print_graph

SCALAR = CompileSpec("isa", b"scalar")


class Printed(BackendDetails):
    """Another back end: the graph as text, and its specs."""

    @staticmethod
    def preprocess(program: Graph, compile_specs: Sequence[CompileSpec]) -> PreprocessResult:
        said = " ".join(f"{spec.key}={spec.value.decode()}" for spec in compile_specs)
        return PreprocessResult(f"{program.name} {said}".encode())


def graph(name: str = "") -> Graph:
    made = next(iter(NETWORKS.values()))()
    return made if not name else Graph(**{**vars_of(made), "name": name})


def vars_of(made: Graph) -> dict[str, Any]:
    names = ("name", "inputs", "outputs", "nodes", "tensors", "constants", "dropped")
    return {name: getattr(made, name) for name in names}


def an_instance_method(self: Any, program: Graph, specs: Sequence[CompileSpec]) -> None:
    raise AssertionError


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({}, "has no preprocess"),
        ({"preprocess": an_instance_method}, "has an instance method as preprocess"),
        ({"preprocess": classmethod(an_instance_method)}, "has a class method as preprocess"),
        ({"preprocess": 7}, "has 7 as preprocess"),
    ],
)
def test_a_class_without_a_static_preprocess_cannot_be_made(
    body: dict[str, Any], found: str
) -> None:
    with pytest.raises(TypeError) as caught:
        type("Wrong", (BackendDetails,), body)
    assert str(caught.value).startswith(f"back end Wrong {found}\n  allowed: a static method")
    with pytest.raises(TypeError, match="back end Wrong"):
        type("Wrong", (Printed,), {**body, "preprocess": an_instance_method})


def test_a_subclass_may_inherit_preprocess() -> None:
    class Other(Printed):
        pass

    assert Other.preprocess(graph("a"), []) == Printed.preprocess(graph("a"), [])


def test_a_result_is_empty_where_nothing_is_said() -> None:
    assert PreprocessResult() == PreprocessResult(b"", None, None)


def test_methods_and_programs_keep_their_names_and_order() -> None:
    programs = {"z": [graph("one"), graph("two")], "a": [graph("three")], "none": []}
    specs = {"a": [[SCALAR]], "z": [[SCALAR], []], "none": []}
    results = Printed.preprocess_multimethod(programs, specs)
    texts = {name: [each.processed_bytes for each in made] for name, made in results.items()}
    assert list(texts.items()) == [
        ("z", [b"one isa=scalar", b"two "]),
        ("a", [b"three isa=scalar"]),
        ("none", []),
    ]


@pytest.mark.parametrize("backend", [Printed, TinyAIBackend])
def test_missing_specs_and_other_numbers_of_them_are_errors(backend: type[BackendDetails]) -> None:
    programs = {"forward": [graph(), graph()]}
    with pytest.raises(OptionError, match="missing compile specs for forward\n  found:   backward"):
        backend.preprocess_multimethod(programs, {"backward": [[], []]})
    with pytest.raises(OptionError, match="found:   3 lists of specs for 2 programs"):
        backend.preprocess_multimethod(programs, {"forward": [[], [], []]})


def test_the_programs_of_the_caller_are_not_changed() -> None:
    program = graph()
    before = print_graph(program)
    constants = {name: value.copy() for name, value in program.constants.items()}
    TinyAIBackend.preprocess(program, [SCALAR])
    TinyAIBackend.preprocess_multimethod({"a": [program, program]}, {"a": [[SCALAR], []]})
    assert print_graph(program) == before
    assert all(np.array_equal(constants[name], value) for name, value in program.constants.items())


def test_the_layers_of_a_program_lead_back_to_the_source_model() -> None:
    program = graph()
    handles = TinyAIBackend.preprocess(program, [SCALAR]).debug_handle_map
    named = {source for node in program.nodes for source in node.sources}
    assert handles
    assert {each for found in handles.values() for each in found} == named


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        ([CompileSpec("colour", b"1")], "found:   colour\n  allowed: isa, arch, threads"),
        ([CompileSpec("isa", b"pink")], "option 'isa'\n  found:   pink\n  allowed: auto"),
        ([CompileSpec("isa", b"\xff")], "UTF-8 text as bytes"),
        ([CompileSpec("isa", "scalar")], "UTF-8 text as bytes"),  # type: ignore[arg-type]
        ([SCALAR, SCALAR], "compile spec 'isa'\n  found:   twice"),
        ([("isa", b"scalar")], 'CompileSpec("isa", b"scalar")'),
    ],
)
def test_specs_that_it_does_not_know_or_cannot_read_are_errors(
    specs: list[CompileSpec], said: str
) -> None:
    with pytest.raises(OptionError) as caught:
        TinyAIBackend.preprocess(graph(), specs)
    assert said in str(caught.value)
