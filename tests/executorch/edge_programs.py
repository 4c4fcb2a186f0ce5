"""Quantized networks in the edge dialect, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, to_edge_transform_and_lower
from executorch.exir.backend.partitioner import Partitioner
from executorch.exir.delegate import executorch_call_delegate
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
from executorch.runtime import Runtime
from torch import Tensor
from torch.export import ExportedProgram

from tinyai.executorch import graph_of, load
from tinyai.frontends.executorch.operators import KEPT_WHOLE
from tinyai.ir import Array
from tinyai.runtime.runner import Runner
from tinyai.target import Target

_WITHOUT_LOWERING = EdgeCompileConfig(_check_ir_validity=False, preserve_ops=list(KEPT_WHOLE))


def edge_of(quantized: ExportedProgram, *partitioners: Partitioner) -> EdgeProgramManager:
    """The edge program of a quantized module; without partitioners nothing of it is lowered."""
    if not partitioners:
        return to_edge_transform_and_lower(quantized, compile_config=_WITHOUT_LOWERING)
    config = EdgeCompileConfig(_check_ir_validity=False)
    return to_edge_transform_and_lower(
        quantized, partitioner=list(partitioners), compile_config=config
    )


def program_of(quantized: ExportedProgram) -> ExportedProgram:
    return edge_of(quantized).exported_program()


def results_by_xnnpack(quantized: ExportedProgram) -> Callable[..., list[Array]]:
    """What XNNPACK's delegate makes of a quantized module: a function of tensors, which refuses a
    module of which anything would stay outside of it."""
    edge = edge_of(quantized, XnnpackPartitioner())
    graph = edge.exported_program().graph
    calls = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    outside = [name for name in calls if "call_delegate" not in name and "getitem" not in name]
    assert outside == [], "outside of XNNPACK's delegate"
    buffer = edge.to_executorch().buffer
    method = _load_for_executorch_from_buffer(buffer)

    def run(*inputs: Tensor) -> list[Array]:
        assert buffer, "it is read in place: it lives as long as this function"
        return [np.array(result.numpy()) for result in method.forward(list(inputs))]

    return run


def by_xnnpack(quantized: ExportedProgram) -> Callable[..., Array]:
    """The one result of a module by XNNPACK's delegate."""
    run = results_by_xnnpack(quantized)

    def one(*inputs: Tensor) -> Array:
        (result,) = run(*inputs)
        return result

    return one


def by_runtime(edge: EdgeProgramManager) -> Callable[..., list[Tensor]]:
    """What ExecuTorch's runtime makes of a lowered program: a function of tensors."""
    load()
    buffer = edge.to_executorch().buffer
    method = Runtime.get().load_program(buffer).load_method("forward")

    def run(*inputs: Tensor) -> list[Tensor]:
        assert buffer, "it is read in place: it lives as long as this function"
        return [result.clone() for result in method.execute(list(inputs))]

    return run


def delegates(edge: EdgeProgramManager) -> list[str]:
    """The back ends of a program's delegates."""
    module = edge.exported_program().graph_module
    calls = (n for n in module.graph.nodes if n.target is executorch_call_delegate)
    return [getattr(module, call.args[0].target).backend_id for call in calls]


def by_tinyai(quantized: ExportedProgram) -> Callable[[Tensor], Array]:
    """What tinyai's code makes of a quantized module of one input and one output."""
    made = graph_of(program_of(quantized))
    (taken,), (given,) = made.inputs, made.outputs
    runner = Runner(made.graph, Target())

    def run(sample: Tensor) -> Array:
        (result,) = runner(np.ascontiguousarray(sample.numpy().transpose(taken.dim_order)))
        return result.transpose(np.argsort(given.dim_order))

    return run


def eager(program: ExportedProgram, *inputs: Tensor) -> Array:
    result = program.module()(*inputs)
    return np.asarray((result[0] if isinstance(result, tuple | list) else result).detach().numpy())
