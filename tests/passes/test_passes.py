"""The passes: what each one does to a graph, and that none of them changes what it computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tinyai.passes
from tests.support.pass_graphs import (
    CONV,
    FLOAT32,
    INT8,
    INT32,
    SHAPE,
    Pass,
    Small,
    add,
    assert_becomes,
    assert_same_meaning,
    without_names,
)
from tests.support.random_graphs import graphs
from tinyai.errors import GraphError
from tinyai.ir import Graph, Operand, Type, print_graph, verify
from tinyai.ops import Transpose
from tinyai.ops.steps import (
    Cast,
    Clip,
    Multiply,
    Relu,
    Round,
)
from tinyai.passes import (
    PIPELINE,
    RESULT,
    RULES,
    drop_idle_steps,
    fold_constants,
    fuse_epilogues,
    make_tables,
    make_unsigned,
    optimize,
    permute,
    remove_unused,
    sink_widening,
    tabulate_functions,
)
from tinyai.passes.rules import Fact, check_order

PASSES: tuple[Pass, ...] = (*dict.fromkeys(PIPELINE), make_unsigned, drop_idle_steps, optimize)


@pytest.mark.parametrize("run", PASSES, ids=lambda run: run.__name__)
@settings(deadline=None, derandomize=True, max_examples=80)
@given(graph=graphs(), seed=st.integers(0, 2**16))
def test_a_pass_keeps_signature_and_meaning_of_any_graph(
    run: Pass, graph: Graph, seed: int
) -> None:
    after = verify(run(graph))
    assert (after.name, after.inputs, after.outputs) == (graph.name, graph.inputs, graph.outputs)
    assert after.types(after.outputs) == graph.types(graph.outputs)
    assert_same_meaning(graph, after, seed)


@settings(deadline=None, derandomize=True, max_examples=120)
@given(graph=graphs(), seed=st.integers(0, 2**16))
def test_passes_keep_the_meaning_on_what_those_before_them_leave(graph: Graph, seed: int) -> None:
    before = graph
    for run in (*PIPELINE, *PIPELINE):
        after = verify(run(before))
        assert_same_meaning(graph, after, seed)
        before = after


@settings(deadline=None, derandomize=True, max_examples=60)
@given(graphs())
def test_a_pass_is_deterministic_and_leaves_its_argument_alone(graph: Graph) -> None:
    text = print_graph(graph)
    for run in PASSES:
        assert print_graph(run(graph)) == print_graph(run(graph))
        assert print_graph(graph) == text


@settings(deadline=None, derandomize=True, max_examples=60)
@given(graphs())
def test_no_source_name_of_what_is_computed_gets_lost_by_fusion(graph: Graph) -> None:
    graph = remove_unused(graph)
    names = {name for node in graph.nodes for name in node.sources}
    fused = fuse_epilogues(graph)
    assert {name for node in fused.nodes for name in node.sources} == names


@settings(deadline=None, derandomize=True, max_examples=60)
@given(graphs())
def test_fusion_never_adds_nodes_and_sinking_never_widens(graph: Graph) -> None:
    fused = fuse_epilogues(graph)
    assert len(fused.nodes) <= len(graph.nodes)
    sunk = sink_widening(fused)
    for node in sunk.nodes:
        assert sunk.type(node.output).bytes <= fused.type(node.output).bytes


def apart_by_transpositions() -> Graph:
    """A convolution, two transpositions that undo one another, and a step."""
    b = Small()
    x = b.conv(b.input(Type(SHAPE, INT8)))
    for _ in range(2):
        x = b.add(Transpose((0, 2, 1, 3)), [x])
    return b.graph([b.step(x, Relu())])


@settings(deadline=None, derandomize=True, max_examples=80)
@example(apart_by_transpositions())
@given(graphs())
def test_what_a_rule_says_of_a_graph_holds_of_it(graph: Graph) -> None:
    """A fact holds as long as the pass that makes it finds nothing more to do."""
    makers = {fact: run for run in reversed(PIPELINE) for fact in RULES[run].makes}
    holding = set[Fact]()
    for run in PIPELINE:
        graph = run(graph)
        holding = (holding - RULES[run].ends) | RULES[run].makes
        for fact in sorted(holding, key=list(Fact).index):
            assert without_names(makers[fact](graph)) == without_names(graph), (fact, run)


# --- The pipeline ------------------------------------------------------------------------------


def test_a_residual_fork_is_stored_once_as_int8() -> None:
    """As ``tvm.relay.quantize`` leaves it: one int32 clip, cast once for each of its users."""
    b = Small()
    x = b.input(Type(SHAPE, INT8))
    fork = b.step(b.step(b.conv(x), Relu()), Clip(-127, 127))
    main = b.conv(b.step(fork, Cast(INT8)))
    shortcut = b.step(b.step(b.step(fork, Cast(INT8)), Cast(INT32)), add(b.number(5)))
    out = b.step(b.step(b.step(shortcut, add(main)), Clip(-127, 127)), Cast(INT8))
    after = assert_becomes(
        optimize,
        b.graph([out]),
        f"""
        %t5: int8[1,2,2,2] = {CONV} [%in0, %c1] >> relu() >> clip(-127, 127) >> cast(int8)
        %t14: int8[1,2,2,2] = {CONV} [%t5, %c1] >> add(%t5 >> cast(int32) >> add(%c10))\
 >> clip(-127, 127) >> cast(int8)
        """,
    )
    assert all(after.type(node.output).dtype is INT8 for node in after.nodes)


def test_the_entry_of_a_quantized_network_becomes_one_node() -> None:
    b = Small()
    x = b.input(Type(SHAPE, FLOAT32))
    scale = b.constant(np.array(16, np.float32))
    y = b.step(x, Multiply(operand=Operand(scale)))
    y = b.step(b.step(b.step(y, Round()), Clip(-127, 127)), Cast(INT8))
    assert_becomes(
        optimize,
        b.graph([y]),
        "%t5: int8[1,2,2,2] = elementwise [%in0]"
        " >> multiply(%c1) >> round() >> clip(-127, 127) >> cast(int8)",
    )


def test_optimize_refuses_a_graph_that_breaks_a_rule() -> None:
    b = Small()
    graph = b.graph([b.step(b.input(Type((3,), INT32)), Relu())])
    with pytest.raises(GraphError, match="is read"):
        optimize(replace(graph, inputs=()))


def test_optimize_tells_a_pass_that_breaks_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(graph: Graph) -> Graph:
        return replace(graph, nodes=())

    b = Small()
    graph = b.graph([b.step(b.input(Type((3,), INT32)), Relu())])
    monkeypatch.setattr(tinyai.passes, "PIPELINE", (breaks, *PIPELINE))
    with pytest.raises(GraphError, match="output %t1 of graph g"):
        optimize(graph)


# --- Their order ---------------------------------------------------------------------------------


def moved(run: Pass, before: Pass) -> list[Pass]:
    """The passes, one of them in front of another."""
    passes = [each for each in PIPELINE if each is not run]
    passes.insert(passes.index(before), run)
    return passes


@pytest.mark.parametrize(
    ("passes", "found", "allowed"),
    [
        (
            moved(fuse_epilogues, remove_unused),
            "tabulate_functions ended it",
            "for fuse_epilogues: an output",
        ),
        (moved(make_tables, sink_widening), "no pass before", "for make_tables: what is stored is"),
        (
            moved(permute, fuse_epilogues),
            "no pass before",
            "for permute: elementwise nodes are steps",
        ),
        (
            moved(tabulate_functions, permute),
            "no pass before",
            "for sink_reshapes: a function from",
        ),
        (moved(fold_constants, permute), "no pass", "for eliminate_common_subexpressions: what"),
        (
            PIPELINE[:-1],
            "drop_channels ended it",
            "for the result: an output depends on every node",
        ),
    ],
    ids=["unused", "tables", "transpositions", "functions", "constants", "end"],
)
def test_a_wrong_order_of_passes_is_an_error_that_says_why(
    passes: Sequence[Pass], found: str, allowed: str
) -> None:
    check_order(PIPELINE, RULES, RESULT)
    with pytest.raises(GraphError, match="order of the passes") as raised:
        check_order(passes, RULES, RESULT)
    assert str(raised.value.found).startswith(found)
    assert str(raised.value.allowed).startswith(allowed)
