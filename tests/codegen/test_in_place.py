"""Kernels whose results take the place of an operand of a step: what is computed twice, as the
last tile of several where it overlaps, must not be written over what it still reads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.support.example_graphs import orders_as_given, random_array, random_inputs
from tests.support.kernel_shapes import ALONE, DRAWS, assert_equal, drawn
from tests.support.machines import is_foreign, require_isa
from tinyai.backend import pipeline
from tinyai.codegen import kernels
from tinyai.codegen.kernels import KERNELS, Kernel
from tinyai.codegen.lowered import Lowered
from tinyai.ir import Builder, DType, Graph, Operand, Step, Type, verify
from tinyai.ops import BatchMatmul, Conv2d, Transpose
from tinyai.ops.steps import Add, Cast, Clip, RightShift, Round
from tinyai.reference import run_graph
from tinyai.runtime.runner import Runner
from tinyai.source import Refusal
from tinyai.target import Target

COUNT = 12  # nodes that a row serves
# Rows whose steps have no operand.
WITHOUT = ("lookup", "planes", "transpose", "pool2d_bytes")
WITH_OPERAND = [
    kernel
    for kernel in ALONE
    if kernel.op in (Conv2d, *DRAWS)
    and not is_foreign(kernel.isa)
    and not any(part in kernel.name for part in WITHOUT)
]


def steps_with(builder: Builder, result: DType, operand: str) -> Iterator[Step]:
    """From a result to int8 with an int8 operand added."""
    if result.is_float:
        yield from (Round("even"), Clip(-1000, 1000), Cast(DType.INT32))
    elif result is not DType.INT32:
        yield Cast(DType.INT32)
    yield RightShift(operand=Operand(builder.constant(np.array(4, np.int32))))
    yield Add(operand=Operand(operand, (Cast(DType.INT32),)))
    yield from (Clip(-128, 127), Cast(DType.INT8))


def overwriting(builder: Builder, kernel: Kernel, rng: np.random.Generator) -> str | None:
    """A node over the operand of its step, between transpositions, which make both live in the
    arena; None where the kernel does not serve what was drawn."""
    op, types = drawn(kernel, rng)
    try:
        result = op.infer(*types)
    except (ValueError, Refusal):
        return None
    if result.dtype is DType.INT64 or not op.takes_epilogue:
        return None
    turn = Transpose(tuple(reversed(range(len(result.shape)))))
    inputs = [builder.input(types[0])]
    for of in types[1:]:
        computed = isinstance(op, BatchMatmul)
        inputs.append(builder.input(of) if computed else builder.constant(random_array(rng, of)))
    other = builder.add(turn, [builder.input(Type(result.shape[::-1], DType.INT8))])
    steps = tuple(steps_with(builder, result.dtype, other))
    node = builder.add(op, inputs, steps)
    builder.add(turn, [node])
    return node


def overwriting_graph(kernel: Kernel) -> Graph:
    rng, builder = np.random.default_rng(5), Builder("region")
    outputs: list[str] = []
    for _ in range(40 * COUNT):
        trial, state = Builder("trial"), rng.bit_generator.state
        if overwriting(trial, kernel, rng) is None:
            continue
        graph = verify(trial.graph([trial.nodes[-1].output]))
        if not isinstance(kernel.prepare(Lowered.of(graph), graph.nodes[-2]), str):
            rng.bit_generator.state = state
            overwriting(builder, kernel, rng)
            outputs.append(builder.nodes[-1].output)
        if len(outputs) == COUNT:
            return verify(builder.graph(outputs))
    raise AssertionError(f"{kernel.name} serves {len(outputs)} of what was drawn")


@orders_as_given()
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kernel", WITH_OPERAND, ids=lambda kernel: kernel.name)
def test_a_kernel_may_write_over_the_operand_of_a_step(
    kernel: Kernel, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_isa(kernel.isa)
    graph = overwriting_graph(kernel)
    rows = (kernel, *(row for row in KERNELS if row.op is Transpose))
    monkeypatch.setattr(kernels, "KERNELS", rows)
    target = Target(isa=kernel.isa, threads=threads)
    compiled = pipeline.compile_graph(graph, target, abi="plain")
    locations = compiled.plan.locations
    nodes = [node for node in compiled.graph.nodes if node.epilogue]
    places = [{locations[name] for name in node.reads() if name in locations} for node in nodes]
    assert all(locations[node.output] in at for node, at in zip(nodes, places, strict=True))
    run = Runner(graph, target)
    for seed in range(2):
        inputs = random_inputs(graph, seed)
        results = zip(graph.outputs, run(*inputs), run_graph(graph, inputs), strict=True)
        for name, found, expected in results:
            assert_equal(found, expected, name)
