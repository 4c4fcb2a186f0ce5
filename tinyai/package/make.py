"""Network -> package: its C, and the files around it."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.resources import files as resources
from typing import Any

import numpy as np

from tinyai._version import __version__
from tinyai.backend import Compiled, compile_network, tell_unused
from tinyai.c_reserved import is_reserved
from tinyai.codegen.borders import with_borders
from tinyai.codegen.c import C_TYPES, comment_text, literal
from tinyai.codegen.concatenate_in_place import plan_in_place
from tinyai.codegen.lowered import Lowered
from tinyai.codegen.templates import render, tidy
from tinyai.errors import OptionError
from tinyai.frontends.model import Source, read_network, target_for
from tinyai.frontends.page import page_of_network, with_code
from tinyai.ir import Array, DType, Type
from tinyai.model_file import FileOptions, InputShapes, ModelOptions
from tinyai.network import Network, Port
from tinyai.package.measure import bytes_of_functions, measure
from tinyai.package.report import CompiledLayerRow, PackageReport, PortRow
from tinyai.package.value import Package
from tinyai.report.anatomy import Anatomy, TensorRow
from tinyai.report.page import Page
from tinyai.runtime.manifest import SUFFIX, manifest_of
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import Target

RUNS_WITH_STATE = 3  # of NAME_test.c: results that state has come into
_PER_LINE = {1: 24, 2: 16, 4: 12, 8: 6}


def emit_c(
    model: Source,
    folder: str | os.PathLike[str],
    target: str | Target | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    name: str = "",
    ends: str = "model",
    input_shapes: InputShapes = "",
    signature: str = "",
    state: Mapping[str, str] | None = None,
    backend: str = "",
    ports_in_arena: bool = False,
    sample: Sequence[Array] | None = None,
    toolchain: Toolchain | None = None,
) -> Package:
    """Write ``model`` as a C package into ``folder``, for whatever machine ``target`` says;
    ``Target(isa="scalar")`` is portable C.

    ``model`` is what ``tinyai.compile`` takes: the path of a TFLite, ONNX or Relay file, a Relay
    module with its ``params``, a graph or a network.
    ``name``, a C identifier, begins all symbols; without one it is made of the file's. With
    ``ends="int8"`` floats that are quantized first, and dequantized last, are not: inputs and
    outputs are integers. ``backend`` is one of one's own, as in ``tinyai.compile``;
    ``package_of`` explains the others.

    Raises ``BoundaryError`` where a part of the model would stay on a host, ``OptionError`` for bad
    options, files and folders, ``LimitError`` where it needs more memory than the target allows.
    """
    target = target_for(model, target)
    file = FileOptions(input_shapes, signature, state or {})
    network = read_network(model, target, ModelOptions(params, name, ends, file, backend))
    package = package_of(
        network, target, ports_in_arena=ports_in_arena, sample=sample, toolchain=toolchain
    )
    package.write(folder)
    return package


def package_of(
    network: Network,
    target: str | Target | None = None,
    *,
    ports_in_arena: bool = False,
    sample: Sequence[Array] | None = None,
    toolchain: Toolchain | None = None,
) -> Package:
    """The package of a network, not written yet.

    - ``ports_in_arena``: inputs and outputs live in the arena, where NAME_input() and NAME_output()
      say.
    - ``sample``: inputs for NAME_test.c, dense arrays of the inputs' types; random ones if None.
    - ``toolchain``: what measures code and stack for the report; this machine's if None.
    """
    target = target_for(network, target)
    if target.threads != 1:
        raise OptionError(
            "option 'threads' of a C package",
            found=target.threads,
            allowed="1: a package brings no threads of its own",
            hint="an instance for each thread of yours",
        )
    if is_reserved(network.name):
        name = f"net_{network.name}"
        network = replace(network, name=name, graph=replace(network.graph, name=name))
    compiled = compile_network(network, target, abi="package", ports_in_arena=ports_in_arena)
    tell_unused(compiled, network.kernels)
    inputs = _sample(network, sample)
    runs = RUNS_WITH_STATE if network.states else 1
    *_, results = network.run([inputs] * runs)
    outputs = results[: len(network.outputs)]
    made = _Making(network, target, compiled, inputs, outputs, sample is not None)
    return made.package(Toolchain.of(toolchain))


def _sample(network: Network, sample: Sequence[Array] | None) -> list[Array]:
    """Inputs to test with: those given, checked, or others that are the same each time."""
    if sample is None:
        rng, inputs = np.random.default_rng(0), list[Array]()
        for port in network.inputs:
            shape, dtype = port.type.shape, port.type.dtype
            if dtype.is_float:
                inputs.append(rng.normal(size=shape).astype(np.float32))
            else:
                ends = port.limits or dtype.range
                inputs.append(rng.integers(*ends, shape, dtype.numpy, endpoint=True))
        return inputs
    if len(sample) != len(network.inputs):
        raise OptionError("sample", found=f"{len(sample)} inputs", allowed=len(network.inputs))
    for port, value in zip(network.inputs, sample, strict=True):
        expected = port.type
        if (value.shape, value.dtype) != (expected.shape, expected.dtype.numpy):
            raise OptionError(
                f"sample for input {port.name!r}",
                found=f"{value.dtype}{list(value.shape)}",
                allowed=expected,
            )
    return [np.ascontiguousarray(value) for value in sample]


@dataclass(frozen=True)
class _Making:
    """A package in the making."""

    network: Network
    target: Target
    compiled: Compiled
    inputs: Sequence[Array]
    outputs: Sequence[Array]
    sampled: bool

    @property
    def _graph(self) -> Lowered:
        return self.compiled.graph

    @property
    def _portable(self) -> bool:
        return all(isa.architecture is None for isa in self._graph.variants)

    @property
    def _state_bytes(self) -> int:
        """What an instance keeps: each state before a run, and outside of the arena after it."""
        once = sum(state.port.type.bytes for state in self.network.states)
        return once if self._graph.ports_in_arena else 2 * once

    def package(self, toolchain: Toolchain) -> Package:
        name, source = self.network.name, self.compiled.source
        values = self._values()
        plain = render("package.h.j2", **values, hash="0" * 64)
        digest = hashlib.sha256("\0".join((plain, source.text, source.weights)).encode())
        values["hash"] = digest.hexdigest()
        code = {
            f"{name}.h": tidy(render("package.h.j2", **values)),
            f"{name}.c": source.text,
            f"{name}_weights.c": source.weights,
            f"{name}_test.c": self._test(values),
            "Makefile": tidy(render("Makefile.j2", **values)),
            "CMakeLists.txt": tidy(render("CMakeLists.txt.j2", **values)),
            "README.md": tidy(render("README.md.j2", **values)),
        }
        files = {file: text.encode() for file, text in code.items()}
        files["LICENSE"] = resources("tinyai.package").joinpath("LICENSE.txt").read_bytes()
        report = self._report(values["hash"])
        report = replace(report, measured=measure(name, files, toolchain))
        files[f"{name}_report.txt"] = str(report).encode()
        files[f"{name}_report.json"] = report.json().encode()
        files[f"{name}{SUFFIX}"] = manifest_of(self._facts(report), files)

        def page() -> Page:
            return with_code(self._page, bytes_of_functions(name, files, toolchain))

        return Package(name, files, report, page)

    def _facts(self, report: PackageReport) -> dict[str, Any]:
        """What the manifest says."""
        shared = ("name", "hash", "target", "portable", "arena_bytes", "weight_bytes")
        return {
            "tinyai": report.version,
            "entry": f"{report.name}_run",
            **{name: getattr(report, name) for name in shared},
            "ports_in_arena": self._graph.ports_in_arena,
            "layers": self.compiled.source.layers_digest,
            "inputs": [port.to_dict() for port in self.network.inputs],
            "outputs": [port.to_dict() for port in self.network.outputs],
            **({"state_bytes": report.state_bytes} if report.state_bytes else {}),
        }

    def _values(self) -> dict[str, Any]:
        """What the templates say."""
        graph, source, name = self._graph, self.compiled.source, self.network.name
        return {
            "name": name,
            "NAME": name.upper(),
            "version": __version__,
            "portable": self._portable,
            "layers": len(graph.nodes),
            "macs": f"{graph.macs():,}",
            "weight_bytes": source.weight_bytes,
            "arena_bytes": source.arena_bytes,
            "alignment": graph.alignment,
            "ports_in_arena": graph.ports_in_arena,
            "math": any(row.math for row in self._layers()),
            "state_bytes": self._state_bytes,
            "states": [
                self._port("state", number, state.port)
                for number, state in enumerate(self.network.states)
            ],
            "runs": RUNS_WITH_STATE if self.network.states else 1,
            "inputs": [self._port("input", *each) for each in enumerate(self.network.inputs)],
            "outputs": [self._port("output", *each) for each in enumerate(self.network.outputs)],
        }

    def _port(self, kind: str, number: int, port: Port) -> dict[str, Any]:
        of, quant = port.type, port.quant
        return {
            "kind": kind,
            "number": number,
            "name": comment_text(port.name, 80),
            "macro": f"{self.network.name.upper()}_{kind.upper()}{number}",
            "type": C_TYPES[of.dtype],
            "is_float": of.dtype.is_float,
            "is_bool": of.dtype is DType.BOOL,
            "shape": of.shape,
            "bytes": of.bytes,
            "elements": of.bytes // of.dtype.bytes,
            "scales": [_scale(scale) for scale in quant.scale] if quant else [],
            "zero_point": quant.zero_point if quant else None,
            "axis": quant.axis if quant else None,
        }

    def _test(self, values: Mapping[str, Any]) -> str:
        ends = {
            kind: [
                {**port, "elements_text": _numbers(array)}
                for port, array in zip(values[kind], arrays, strict=True)
            ]
            for kind, arrays in (("inputs", self.inputs), ("outputs", self.outputs))
        }
        said = "a real one" if self.sampled else "random numbers"
        return tidy(render("test.c.j2", **{**values, **ends}, source=said))

    # --- The report ------------------------------------------------------------------------------

    def _report(self, digest: str) -> PackageReport:
        graph, plan, source = self._graph, self.compiled.plan, self.compiled.source
        return PackageReport(
            name=self.network.name,
            version=__version__,
            hash=digest,
            target=str(replace(self.target, tuning="")),
            portable=self._portable,
            macs=graph.macs(),
            weight_bytes=source.weight_bytes,
            arena_bytes=source.arena_bytes,
            arena_lower_bound=plan.lower_bound,
            arena_alignment=graph.alignment,
            inputs=tuple(map(_port_row, self.network.inputs)),
            outputs=tuple(map(_port_row, self.network.outputs)),
            layers=tuple(self._layers()),
            tensors=tuple(self._tensors()),
            ports_saved=self._saved(),
            state_bytes=self._state_bytes,
            dropped=graph.dropped,
        )

    @functools.cached_property
    def _page(self) -> Page:
        return page_of_network(self.network, self.compiled, self.target)

    @property
    def _anatomy(self) -> Anatomy:
        (row,) = self._page.regions
        assert row.anatomy is not None
        return row.anatomy

    def _layers(self) -> list[CompiledLayerRow]:
        return [
            CompiledLayerRow(
                each.number,
                each.operator,
                each.sources,
                each.result,
                each.servings[0].kernel,
                each.macs,
                each.servings[0].math,
                each.servings[0].slower,
            )
            for each in self._anatomy.layers
        ]

    def _tensors(self) -> list[TensorRow]:
        names = [each.name for each in fields(TensorRow)]
        return [
            TensorRow(*(getattr(tensor, name) for name in names))
            for tensor in self._anatomy.tensors
        ]

    def _saved(self) -> int | None:
        """What inputs and outputs in the arena save; None where they are outside."""
        graph = self._graph
        if not graph.ports_in_arena:
            return None
        outside = replace(graph, ports_in_arena=False, storage={})
        _, plan = plan_in_place(with_borders(outside))
        ports = (*self.network.inputs, *self.network.outputs)
        apart = plan.arena_bytes + sum(port.type.bytes for port in ports) + self._state_bytes
        return apart - self.compiled.plan.arena_bytes


def _port_row(port: Port) -> PortRow:
    of, quant = port.type, port.quant
    row = PortRow(port.name, C_TYPES[of.dtype], of.shape, of.bytes)
    if quant is None:
        return row
    return replace(row, scale=quant.scale, zero_point=quant.zero_point, axis=quant.axis)


def _scale(scale: float) -> str:
    """The shortest decimal that C reads as this number: a float where it is one, else a double."""
    single = np.float32(scale)
    return literal(single, DType.FLOAT32) if float(single) == scale else repr(float(scale))


def _numbers(value: Array) -> str:
    dtype = Type(value.shape, DType(value.dtype.name)).dtype
    texts = [literal(x, dtype) for x in value.reshape(-1).tolist()]
    step = _PER_LINE[dtype.bytes]
    return ",\n".join(", ".join(texts[i : i + step]) for i in range(0, len(texts), step))
