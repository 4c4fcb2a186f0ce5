"""tinyai as a back end of ExecuTorch: edge programs in, blobs and a library of machine code out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend import backend_details
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.utils import DelegateMappingBuilder
from executorch.exir.tensor import scalar_type_enum
from torch.export.exported_program import ExportedProgram

from tinyai import backend
from tinyai.backend.details import check_specs
from tinyai.backend.tinyai_backend import BINARY, TRACED, BackendOptions, preprocess_all
from tinyai.codegen.c import identifier
from tinyai.errors import DefectError, OptionError
from tinyai.frontends.executorch.blob import Blob, PortSpec
from tinyai.frontends.executorch.edge import EdgeGraph, EdgePort, graph_of
from tinyai.frontends.executorch.names import LONGEST, names_of
from tinyai.frontends.executorch.partitioner import OWN, STATIC
from tinyai.ir import DType, Graph
from tinyai.network import c_name, network_of_graph
from tinyai.own import NO_BACKEND, OwnBackend, backend_of
from tinyai.package import Package, package_of
from tinyai.safe_text import safe
from tinyai.stages import stage

# The library is copied before it is used: its place in the program does not matter.
_ALIGNMENT = 16
_OWN_SPECS = (backend.CompileSpec("abi", TRACED.encode()), backend.CompileSpec(BINARY, b"1"))


class TinyAIExecuTorchBackend(backend_details.BackendDetails):  # type: ignore[misc]
    """tinyai as a back end of ExecuTorch, by the name of this class. A compile spec is the name of
    an option of ``tinyai.Target`` and its value as UTF-8 text, or

    - ``static``: ``1``, or a C identifier that names of networks begin with (else "net"): they
      become C packages, which an application links (``write_static``);
    - ``backend``: the name of a back end of one's own (``tinyai.register_backend``).
    """

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
        prefixes = {_prefix(each) for several in compile_specs.values() for each in several}
        if len(prefixes) > 1:
            found = ", ".join(map(repr, sorted(prefixes)))
            raise OptionError(f"compile specs {STATIC!r}", found=found, allowed="one for all")
        static = "".join(prefixes)
        prefix = static or "net"
        asked = {
            method: [_Asked.of(each) for each in several]
            for method, several in compile_specs.items()
        }
        entries = _entries(prefix, edge_programs)
        with stage("delegates to graphs"):
            read = {
                method: [
                    graph_of(program, each.options.target, next(entries), each.own)
                    for program, each in zip(programs, asked[method], strict=True)
                ]
                for method, programs in edge_programs.items()
            }
        graphs = {method: [each.graph for each in several] for method, several in read.items()}
        with stage("C packages" if static else "machine code of all delegates"):
            results = _linked(graphs, asked) if static else _loaded(graphs, asked)
        return {
            method: [
                made.of(each, names_of(program))
                for made, each, program in zip(
                    results[method], several, edge_programs[method], strict=True
                )
            ]
            for method, several in read.items()
        }


@dataclass(frozen=True)
class _Asked:
    """What the compile specs of a delegate say, and the back end of one's own, if they name one."""

    options: BackendOptions
    own: OwnBackend

    @classmethod
    def of(cls, specs: Sequence[CompileSpec]) -> _Asked:
        """Raises ``OptionError`` for specs that are none."""
        names = {bytes(spec.value).decode(errors="replace") for spec in specs if spec.key == OWN}
        if len(names) > 1:
            found = ", ".join(map(repr, sorted(names)))
            raise OptionError(f"compile specs {OWN!r}", found=found, allowed="one for a delegate")
        own = backend_of(*names) if names else NO_BACKEND
        rest = (spec for spec in specs if spec.key not in (STATIC, OWN))
        given = [backend.CompileSpec(spec.key, bytes(spec.value)) for spec in rest]
        options = BackendOptions.of([*given, *_OWN_SPECS])
        return cls(replace(options, kernels=own.kernels), own)


Graphs = Mapping[str, Sequence[Graph]]
Asked = Mapping[str, Sequence[_Asked]]


@dataclass(frozen=True)
class _Network:
    """What was made of a graph: its entry, where it is found, and the nodes of its layers."""

    key: str
    entry: str
    sources: Mapping[int, Sequence[str]]
    library: bytes = b""
    package: Package | None = None

    def of(self, read: EdgeGraph, names: Mapping[str, str]) -> backend_details.PreprocessResult:
        """ExecuTorch's form of it; ``names`` are those that nodes have in traces."""
        layers = _layers(self.sources, names)
        inputs, outputs = ports_of(read)
        blob = Blob(self.key, self.entry, inputs, outputs, layers, self.library)
        store = NamedDataStore()
        if self.library:
            store.add_named_data(self.key, self.library, _ALIGNMENT)
        return backend_details.PreprocessResult(
            processed_bytes=blob.to_bytes(),
            debug_handle_map=_debug_handles(read.handles, layers, self.sources),
            data_store_output=store.get_named_data_store_output(),
            _delegate_info_meta=self.package,
        )


def _loaded(graphs: Graphs, asked: Asked) -> dict[str, list[_Network]]:
    """Networks of one library."""
    options = {method: [each.options for each in several] for method, several in asked.items()}
    results = preprocess_all(graphs, options)

    def network(graph: Graph, result: backend.PreprocessResult) -> _Network:
        key, data = result.processed_bytes.decode(), result.data_store_output
        assert data is not None  # BINARY says so
        handles = result.debug_handle_map or {}
        sources = {int(n): [*map(str, each)] for n, each in handles.items()}
        return _Network(key, graph.name, sources, data[key])

    return {
        method: [network(*each) for each in zip(several, results[method], strict=True)]
        for method, several in graphs.items()
    }


def _linked(graphs: Graphs, asked: Asked) -> dict[str, list[_Network]]:
    """Networks as C packages."""

    def network(graph: Graph, each: _Asked) -> _Network:
        whole = replace(network_of_graph(graph), kernels=each.own.kernels)
        package = package_of(whole, each.options.target)
        layers = {row.number: row.sources for row in package.report.layers if row.sources}
        return _Network(package.report.hash, package.name, layers, package=package)

    return {
        method: [network(*each) for each in zip(several, asked[method], strict=True)]
        for method, several in graphs.items()
    }


def _prefix(specs: Sequence[CompileSpec]) -> str:
    """What names of linked networks begin with; nothing where they are not to be linked. Raises
    ``OptionError`` for what C does not take."""
    values = [bytes(spec.value).decode(errors="replace") for spec in specs if spec.key == STATIC]
    found = values[0] if values else "0"
    if found in ("0", "1"):
        return "net" if found == "1" else ""
    return identifier(found, f"compile spec {STATIC!r}")


def _entries(prefix: str, programs: Mapping[str, Sequence[ExportedProgram]]) -> Iterator[str]:
    """A C identifier for each program of each method, like the method's name. No two differ in case
    alone: they become macros and folders."""
    taken: set[str] = set()
    for method, several in programs.items():
        for number in range(len(several)):
            like = entry = c_name(f"{prefix}_{method}_{number}")
            while entry.lower() in taken:
                entry = f"{like}_{len(taken)}"
            taken.add(entry.lower())
            yield entry


def ports_of(read: EdgeGraph) -> tuple[list[PortSpec], list[PortSpec]]:
    """Inputs and outputs of a program as the runtime passes them. Raises ``DefectError`` where the
    graph's are others."""
    for kind, ports, tensors in (
        ("inputs", read.inputs, read.graph.inputs),
        ("outputs", read.outputs, read.graph.outputs),
    ):
        found = [(DType(port.dtype), math.prod(port.shape)) for port in ports]
        types = read.graph.types(tensors)
        allowed = [(of.dtype, math.prod(of.shape)) for of in types]
        if found != allowed:
            raise DefectError(f"{kind} of {read.graph.name}", found=found, allowed=allowed)
    return [*map(_port, read.inputs)], [*map(_port, read.outputs)]


def _port(port: EdgePort) -> PortSpec:
    dtype = getattr(torch, port.dtype)
    return PortSpec(int(scalar_type_enum(dtype)), port.shape, port.dim_order)


def _layers(sources: Mapping[int, Sequence[str]], names: Mapping[str, str]) -> dict[int, str]:
    """A name for each layer that came from nodes: those of its operators, or of the nodes where it
    has none but quantization; and its number where another layer has the same."""
    layers: dict[int, str] = {}
    for number, nodes in sources.items():
        operators = [names[node] for node in nodes if node in names]
        name = safe(" + ".join(operators or nodes), LONGEST)
        while name in layers.values():
            name = f"{name}, layer {number}"
        layers[number] = name
    return layers


def _debug_handles(
    handles: Mapping[str, int],
    layers: Mapping[int, str],
    sources: Mapping[int, Sequence[str]],
) -> dict[str, tuple[int, ...]]:
    """For each layer, by its name, the debug handles of its nodes; nothing for those without."""
    builder = DelegateMappingBuilder()
    for number, names in sources.items():
        found = [handles[name] for name in names if name in handles]
        if found:
            builder.insert_delegate_mapping_entry(handles=found, identifier=layers[number])
    return dict(builder.get_delegate_mapping())
