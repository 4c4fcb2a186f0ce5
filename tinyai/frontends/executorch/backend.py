"""tinyai as a back end of ExecuTorch: edge programs in, blobs and a library of machine code out."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend import backend_details
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.utils import DelegateMappingBuilder
from executorch.exir.tensor import scalar_type_enum
from torch.export.exported_program import ExportedProgram
from torch.fx import Node

from tinyai import backend
from tinyai.backend.details import check_specs
from tinyai.backend.tinyai_backend import BINARY, TRACED, BackendOptions
from tinyai.errors import DefectError
from tinyai.frontends.executorch.blob import Blob, PortSpec
from tinyai.ir import Graph
from tinyai.network import c_name
from tinyai.target import Target

_LONGEST_NAME = 100
# The library is copied before it is used: its place in the program does not matter.
_ALIGNMENT = 16
_OWN_SPECS = (backend.CompileSpec("abi", TRACED.encode()), backend.CompileSpec(BINARY, b"1"))


class TinyAIExecuTorchBackend(backend_details.BackendDetails):  # type: ignore[misc]
    """tinyai as a back end of ExecuTorch, by the name of this class. A compile spec is the name of
    an option of ``tinyai.Target`` and its value as UTF-8 text."""

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: Sequence[CompileSpec]
    ) -> backend_details.PreprocessResult:
        """What the native part loads: a blob, and a library as named data; for each layer, by its
        name in traces, the debug handles of the nodes that it came from.

        Raises what ``tinyai.backend.TinyAIBackend.preprocess`` raises.
        """
        programs, specs = {"forward": [edge_program]}, {"forward": [compile_specs]}
        (result,) = TinyAIExecuTorchBackend.preprocess_multimethod(programs, specs)["forward"]
        return result

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: Mapping[str, Sequence[ExportedProgram]],
        compile_specs: Mapping[str, Sequence[Sequence[CompileSpec]]],
    ) -> dict[str, list[backend_details.PreprocessResult]]:
        """``preprocess`` of all partitions of all methods: one library, in which equal weights and
        equal functions are once."""
        check_specs(edge_programs, compile_specs)
        specs = {
            method: [[backend.CompileSpec(s.key, bytes(s.value)) for s in each] for each in several]
            for method, several in compile_specs.items()
        }
        graphs = {
            method: [
                _graph(program, BackendOptions.of(own).target, f"net_{method}_{number}")
                for number, (program, own) in enumerate(zip(programs, specs[method], strict=True))
            ]
            for method, programs in edge_programs.items()
        }
        with_own = {m: [[*each, *_OWN_SPECS] for each in several] for m, several in specs.items()}
        results = backend.TinyAIBackend.preprocess_multimethod(graphs, with_own)
        return {
            method: [
                _result(program, graph, result)
                for program, graph, result in zip(
                    programs, graphs[method], results[method], strict=True
                )
            ]
            for method, programs in edge_programs.items()
        }


def graph_of(program: ExportedProgram, target: Target) -> Graph:
    """The program's graph, as the front end reads it."""
    edge = importlib.import_module("tinyai.frontends.executorch.edge")
    graph: Graph = edge.graph_of(program, target)
    return graph


def _graph(program: ExportedProgram, target: Target, name: str) -> Graph:
    """The program's graph, under a name of its own, which becomes that of a function in C."""
    return replace(graph_of(program, target), name=c_name(name))


def _result(
    program: ExportedProgram, graph: Graph, result: backend.PreprocessResult
) -> backend_details.PreprocessResult:
    """A result of tinyai's in ExecuTorch's form."""
    key, data = result.processed_bytes.decode(), result.data_store_output
    assert data is not None  # BINARY says so
    sources = {int(n): [*map(str, each)] for n, each in (result.debug_handle_map or {}).items()}
    layers = _layers(sources)
    inputs, outputs = ports_of(program, graph)
    blob = Blob(key, graph.name, inputs, outputs, layers, data[key])
    store = NamedDataStore()
    store.add_named_data(key, data[key], _ALIGNMENT)
    return backend_details.PreprocessResult(
        processed_bytes=blob.to_bytes(),
        debug_handle_map=_debug_handles(program, layers, sources),
        data_store_output=store.get_named_data_store_output(),
    )


def ports_of(
    program: ExportedProgram, graph: Graph
) -> tuple[tuple[PortSpec, ...], tuple[PortSpec, ...]]:
    """Inputs and outputs of a program as the runtime passes them. Raises ``DefectError`` where the
    graph's are others."""
    users = set(program.graph_signature.user_inputs)
    nodes = program.graph.nodes
    inputs = [node for node in nodes if node.op == "placeholder" and node.name in users]
    outputs = list(program.graph.output_node().args[0])
    for kind, ports, tensors in (
        ("inputs", inputs, graph.inputs),
        ("outputs", outputs, graph.outputs),
    ):
        found = [node.meta["val"].nbytes for node in ports]
        allowed = [of.bytes for of in graph.types(tensors)]
        if found != allowed:
            raise DefectError(f"{kind} of {graph.name}, in bytes", found=found, allowed=allowed)
    return tuple(map(_port, inputs)), tuple(map(_port, outputs))


def _port(node: Node) -> PortSpec:
    tensor = node.meta["val"]
    order = tuple(map(int, tensor.dim_order()))
    return PortSpec(int(scalar_type_enum(tensor.dtype)), tuple(map(int, tensor.shape)), order)


def _layers(sources: Mapping[int, Sequence[str]]) -> dict[int, str]:
    """A name for each layer that came from nodes: those nodes', and its number where another layer
    has the same."""
    names: dict[int, str] = {}
    for number, each in sources.items():
        name = " + ".join(each)
        name = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."
        names[number] = f"{name} ({number})" if name in names.values() else name
    return names


def _debug_handles(
    program: ExportedProgram,
    layers: Mapping[int, str],
    sources: Mapping[int, Sequence[str]],
) -> dict[str, tuple[int, ...]]:
    """For each layer, by its name, the debug handles of its nodes; nothing for those without."""
    handles = {node.name: node.meta.get("debug_handle") for node in program.graph.nodes}
    builder = DelegateMappingBuilder()
    for number, names in sources.items():
        found = [handles[name] for name in names if handles.get(name) is not None]
        if found:
            builder.insert_delegate_mapping_entry(handles=found, identifier=layers[number])
    return dict(builder.get_delegate_mapping())
