"""Graph + MemoryPlan + Target -> one C file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from jinja2 import Environment, PackageLoader, StrictUndefined

from tinyai.codegen.c import C_TYPES, comment_text, identifier, indent
from tinyai.codegen.constants import constant
from tinyai.codegen.kernels import Kernel, choose
from tinyai.codegen.steps import HELPERS, Epilogue
from tinyai.ir import Array, DType, Graph, Node, format_steps
from tinyai.plan import Location, MemoryPlan, Room
from tinyai.target import Target

_TEMPLATES = Environment(
    loader=PackageLoader("tinyai.codegen"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # C, not HTML; every name passes codegen.c first
)


@dataclass(frozen=True)
class CSource:
    """Emitted code. ``symbol`` is the entry; sizes in bytes."""

    symbol: str
    text: str
    arena_bytes: int
    weight_bytes: int

    @property
    def lines(self) -> int:
        return self.text.count("\n")


def choose_kernels(graph: Graph, target: Target) -> dict[str, Kernel]:
    """The kernel of each node, by the node's output."""
    return {node.output: choose(graph, node, target) for node in graph.nodes}


def scratch_bytes(graph: Graph, kernels: Mapping[str, Kernel]) -> dict[str, int]:
    """Working memory that each node's kernel asks for, by the node's output."""
    return {node.output: kernels[node.output].scratch(graph, node) for node in graph.nodes}


def emit(
    graph: Graph, plan: MemoryPlan, kernels: Mapping[str, Kernel], target: Target, *, abi: str
) -> CSource:
    """The C file of a region. ``abi`` names the entry: a template ``entry_*.c.j2``.

    The file is C99 and C++17, includes nothing but the standard's headers, and is the same,
    byte for byte, for the same arguments.
    """
    writer = _File(graph, plan, kernels)
    calls = [writer.call(number, node) for number, node in enumerate(graph.nodes)]
    symbol = identifier(graph.name, "name of a region")
    text = _TEMPLATES.get_template("file.c.j2").render(
        symbol=symbol,
        target=str(target),
        graph=graph,
        inputs=[_port(graph, name) for name in graph.inputs],
        outputs=[_port(graph, name) for name in graph.outputs],
        helpers=[HELPERS[name] for name in sorted(writer.helpers)],
        functions=[text for _, text in writer.functions.values()],
        calls=calls,
        plan=plan,
        macs=graph.macs(),
        abi=abi,
    )
    constants = "\n".join(writer.constants.values())
    text = indent(text).replace("@CONSTANTS@\n", constants, 1)
    return CSource(symbol, text, plan.arena_bytes, writer.weight_bytes)


@dataclass(frozen=True)
class Port:
    """An input or output as the entry's templates need it."""

    c_type: str
    shape: tuple[int, ...]
    code: int
    bits: int
    text: str


def _port(graph: Graph, name: str) -> Port:
    of = graph.type(name)
    kind = 2 if of.dtype.is_float else int(of.dtype.startswith("u"))  # DLDataTypeCode
    return Port(C_TYPES[of.dtype], of.shape, kind, 8 * of.dtype.bytes, str(of))


@dataclass
class _File:
    """What the calls of one file share: constants by content, functions by text, helpers."""

    graph: Graph
    plan: MemoryPlan
    kernels: Mapping[str, Kernel]
    constants: dict[str, str] = field(default_factory=dict)
    functions: dict[str, tuple[str, str]] = field(default_factory=dict)
    helpers: set[str] = field(default_factory=set)
    weight_bytes: int = 0
    _constant_names: dict[bytes, str] = field(default_factory=dict)

    def call(self, number: int, node: Node) -> str:
        """The comment and the call of one node; its function and constants on the way."""
        kernel = self.kernels[node.output]
        if self._is_free(node):
            return f"{self._comment(number, node)}\n/* The same memory: nothing to do. */"
        epilogue = Epilogue(self.graph, node)
        values = kernel.values(self.graph, node, epilogue)
        body = _TEMPLATES.get_template(kernel.template).render(values)
        self.helpers |= epilogue.helpers
        scratch = node.output in self.plan.scratch
        name = self._function(kernel, node, epilogue, body, scratch=scratch)
        arguments = [
            self._read(name, kernel, position) for position, name in enumerate(node.inputs)
        ]
        arguments += [self._read(tensor, kernel) for tensor in epilogue.params]
        arguments += [self._constant(value) for value in epilogue.arrays]
        arguments.append(self._write(node.output))
        arguments += [f"arena + {self.plan.scratch[node.output]}"] if scratch else []
        return f"{self._comment(number, node)}\n{name}({', '.join(arguments)});"

    def _is_free(self, node: Node) -> bool:
        """A reshape whose input and output share memory."""
        locations = self.plan.locations
        return node.op.name == "reshape" and locations[node.inputs[0]] == locations[node.output]

    def _function(
        self, kernel: Kernel, node: Node, epilogue: Epilogue, body: str, *, scratch: bool
    ) -> str:
        """Name of the function with this body; equal layers share one."""
        reads = [(f"in{i}", name) for i, name in enumerate(node.inputs)]
        reads += [(f"p{i}", name) for i, name in enumerate(epilogue.params)]
        parameters = [f"const {self._c_type(tensor)} *{name}" for name, tensor in reads]
        parameters += [
            f"const {C_TYPES[DType(value.dtype.name)]} *a{i}"
            for i, value in enumerate(epilogue.arrays)
        ]
        parameters.append(f"{self._c_type(node.output)} *out")
        parameters += ["void *scratch"] if scratch else []
        signature = f"({', '.join(parameters)})"
        key = hashlib.sha256(f"{kernel.name}{signature}{body}".encode()).hexdigest()
        if key not in self.functions:
            name = f"tinyai_{kernel.name}_{len(self.functions)}"
            title = comment_text(f"{node.op}: {self._types(node)}")
            text = f"/* {title} */\nstatic void {name}{signature} {{\n{body}}}\n"
            self.functions[key] = (name, text)
        return self.functions[key][0]

    def _c_type(self, tensor: str) -> str:
        return C_TYPES[self.graph.type(tensor).dtype]

    def _types(self, node: Node) -> str:
        inputs = ", ".join(map(str, self.graph.types(node.inputs)))
        return f"{inputs} -> {self.graph.type(node.output)}"

    def _comment(self, number: int, node: Node) -> str:
        lines = [f"{number}: {node.op.name}  {self._types(node)}"]
        lines += [f"then {format_steps(node.epilogue, self._show)}"] if node.epilogue else []
        lines += [f"from {', '.join(node.sources)}"] if node.sources else []
        quant = self.graph.tensors[node.output].quant
        lines += [f"quantized: {quant}"] if quant else []
        return "\n".join(f"/* {comment_text(line, 400)} */" for line in lines)

    def _show(self, tensor: str) -> str:
        """A tensor as a reader of the C file knows it: a number, a type, a layer or an input."""
        value = self.graph.constants.get(tensor)
        if value is not None:
            return str(value.reshape(-1)[0]) if value.size == 1 else str(self.graph.type(tensor))
        if tensor in self.graph.inputs:
            return f"in{self.graph.inputs.index(tensor)}"
        made = [node.output for node in self.graph.nodes]
        return f"result {made.index(tensor)}"

    def _read(self, tensor: str, kernel: Kernel, position: int | None = None) -> str:
        location = self.plan.locations[tensor]
        if location.room is Room.CONSTANT:
            value = self.graph.constants[tensor]
            pack = kernel.pack.get(position) if position is not None else None
            return self._constant(pack(value) if pack else value)
        return self._address(tensor, location, "const ")

    def _write(self, tensor: str) -> str:
        return self._address(tensor, self.plan.locations[tensor], "")

    def _address(self, tensor: str, location: Location, const: str) -> str:
        if location.room is Room.ARENA:
            return f"({const}{self._c_type(tensor)} *)(arena + {location.index})"
        name = "in" if location.room is Room.INPUT else "out"
        return f"{name}{location.index}"

    def _constant(self, value: Array) -> str:
        key = hashlib.sha256(f"{value.dtype}".encode() + value.tobytes()).digest()
        if key not in self._constant_names:
            name = f"tinyai_constant_{key.hex()[:32]}"
            self._constant_names[key] = name
            self.constants[name] = constant(name, value)
            self.weight_bytes += value.nbytes
        return self._constant_names[key]
