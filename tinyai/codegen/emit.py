"""Lowered + MemoryPlan + Target -> one C file."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tinyai.c_head import Head
from tinyai.codegen.c import C_TYPES, comment_text, identifier
from tinyai.codegen.c_source import CSource, Microkernel, Part, Piece, Served
from tinyai.codegen.constants import ConstantArray
from tinyai.codegen.ctree import INDENT, Assign, CallStatement, Code, Comment, If, text
from tinyai.codegen.definitions import Definition, collect, in_order
from tinyai.codegen.helpers import CALLER, MATH, NOW
from tinyai.codegen.isa.variant import IsaVariant
from tinyai.codegen.kernels import Kernel
from tinyai.codegen.kernels.work_stealing import team
from tinyai.codegen.lowered import KernelChoice, Lowered
from tinyai.codegen.plan import Location, MemoryPlan, Space
from tinyai.codegen.run_function import EntryPort, RunFunction
from tinyai.codegen.state import states_of
from tinyai.codegen.steps import Epilogue
from tinyai.codegen.templates import render, tidy
from tinyai.errors import owning_faults
from tinyai.ir import Array, DType, Node, format_steps
from tinyai.ops import Concatenate, Reshape
from tinyai.target import Target


def emit(
    graph: Lowered,
    plan: MemoryPlan,
    target: Target,
    *,
    abi: str,
    hooked: bool = False,
    by_content: bool = False,
    states: Sequence[Array] = (),
) -> CSource:
    """The C file of a region. ``abi`` names the entry: a template ``entry_*.c.j2``; with
    "traced" the code tells, where the caller asks, when each layer ended. ``hooked``:
    compiled with ``-DTINYAI_HOOK`` it calls a function of the user's after each layer.
    ``by_content``: functions are named by what they are, not by their number in the file.
    ``states`` are the initial values of the last inputs, which the last outputs are in the next
    call: entries "plain" and "package" keep them.

    The file is C99 and C++17, includes nothing but the standard's headers (and the intrinsics
    where it has SIMD code; those of POSIX threads where it is written for several), and is the
    same, byte for byte, for the same arguments.
    """
    symbol = identifier(graph.name, "name of a region")
    package, timed = abi == "package", abi == "traced"
    isas = list(graph.variants)
    ports = [EntryPort.of(graph, plan, name) for name in (*graph.inputs, *graph.outputs)]
    split = 0 if graph.ports_in_arena else len(graph.inputs)
    outputs = [] if graph.ports_in_arena else ports[split:]
    run = RunFunction(ports[:split], outputs, timed, graph.threads)
    values: dict[str, Any] = {
        "symbol": symbol,
        "network": f"{symbol}_{'network' if package else 'run'}",
        "run": run,
        "inputs": run.inputs,
        "outputs": run.outputs,
        "ports": ports,
        "graph": graph,
        "plan": plan,
        "dropped": str(graph.dropped),
        "target": str(replace(target, tuning="")),  # each layer says how it is cut up
        "threads": graph.threads,
        "isas": isas,
        "units": len(isas),
        "macs": graph.macs(),
        "forced": isas[0].features if len(isas) == 1 else (),
        "package": package,
        "portable": package and all(isa.architecture is None for isa in isas),
        "timed": timed,
        "hooked": hooked,
    }
    constants = _Constants(symbol if package else "")
    counts = len(graph.inputs), len(graph.outputs)
    values["states"], state_bytes = states_of(states, *counts, constants.add)
    values["state_bytes"] = state_bytes
    variants = [
        _Variant(graph, plan, isa, rows, constants, by_content=by_content)
        for isa, rows in graph.variants.items()
    ]
    # Before all else, for the variants' code says what is needed in front of it.
    code = [part for number, each in enumerate(variants) for part in each.parts(number, values)]
    # All variants with intrinsics are of one architecture.
    intrinsics = (each.isa.architecture for each in variants if each.has_intrinsics)
    values |= {
        "constants": tuple(constants.found.values()),
        "intrinsics": next(intrinsics, None),
    }
    entry = tidy(render(f"entry_{abi}.c.j2", **values))
    # Each part in front of what names it.
    parts: list[Part] = [
        render("top.c.j2", **values),
        *_definitions_of_constants(values),
        *_spaced(_portable(variants, graph.threads, timed=timed)),
        render("hook.c.j2", **values) if hooked else "",
        *code,
        render("dispatch.c.j2", **values, entry=entry),
    ]
    return CSource(
        Head(symbol, tuple(isa.name for isa in isas) if len(isas) > 1 else ()),
        tuple(parts),
        arena_bytes=plan.arena_bytes,
        weight_bytes=constants.bytes,
        variants={variant.isa: tuple(variant.served) for variant in variants},
        hooks=tuple(line for variant in variants for line in variant.hooks),
        weights=tidy(render("weights.c.j2", **values)) if package else "",
        state_bytes=2 * state_bytes,
    )


def _definitions_of_constants(values: Mapping[str, Any]) -> Iterator[Part]:
    """The constants, or what the file knows of those that another one defines: of all where it is
    a package's, else where it is compiled as a unit that is not the last."""
    if values["package"]:
        yield render("declarations.h.j2", **values)
        return
    if values["units"] > 1:
        yield f"#if TINYAI_HAS({values['units']})\n"
    yield from _spaced(values["constants"])
    if values["units"] > 1:
        yield render("elsewhere.c.j2", **values)


def _spaced(parts: Iterable[Part]) -> Iterator[Part]:
    """Parts with an empty line after each."""
    for part in parts:
        yield from (part, "\n")


def _portable(variants: Sequence[_Variant], threads: int, *, timed: bool) -> list[Piece]:
    """The portable definitions that the file needs, in the order of their names where none needs
    the other."""
    wanted: dict[str, Definition] = {}
    for each in (*([NOW] if timed else []), *([team(threads)] if threads > 1 else [])):
        collect(wanted, each)
    for variant in variants:
        for each in variant.definitions:
            collect(wanted, each)
    ordered = in_order(wanted[name] for name in sorted(wanted))
    return [Piece(each.text) for each in ordered if each.portable]


@dataclass
class _Constants:
    """The arrays of a file, stored once however many kernels read them, named by content: so that
    files of regions may share them, or with the ``prefix`` of a package, so that its code and
    weights of another one do not link."""

    prefix: str = ""
    found: dict[str, ConstantArray] = field(default_factory=dict)
    bytes: int = 0

    def add(self, value: Array) -> str:
        """Name of the array in C."""
        key = hashlib.sha256(f"{value.dtype}".encode() + value.tobytes()).hexdigest()
        name = f"{self.prefix or 'tinyai'}_constant_{key[: 16 if self.prefix else 32]}"
        if name not in self.found:
            self.found[name] = ConstantArray.of(name, value)
            self.bytes += self.found[name].size
        return name


@dataclass
class _Variant:
    """The code of one instruction set: functions by text, and by name what they need."""

    graph: Lowered
    plan: MemoryPlan
    isa: IsaVariant
    choices: Mapping[str, KernelChoice]
    constants: _Constants
    functions: dict[str, tuple[str, str]] = field(default_factory=dict)
    needs: dict[str, Definition] = field(default_factory=dict)
    has_intrinsics: bool = False
    served: list[Served] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)
    by_content: bool = False

    def calls(self) -> list[Code]:
        """The calls of all nodes. Threads meet after a node that they share and in front of it;
        nodes of one thread follow each other without."""
        calls = [self.call(number, node) for number, node in enumerate(self.graph.nodes)]
        if self.graph.threads == 1:
            return calls
        busy = [i for i, node in enumerate(self.graph.nodes) if not self._is_free(node)]
        shared = {i: self.choices[self.graph.nodes[i].output].kernel.split for i in busy}
        for index, behind in zip(busy, [*busy[1:], None], strict=True):
            if shared[index] or (behind is not None and shared[behind]):
                calls[index] = [calls[index], CallStatement("tinyai_barrier", "thread")]
        return calls

    def call(self, number: int, node: Node) -> Code:
        """The comment and the call of one node; its function and constants on the way."""
        with owning_faults(f"the code of {node.named}"):
            return self._call(number, node)

    def _call(self, number: int, node: Node) -> Code:
        choice = self.choices[node.output]
        kernel, threads = choice.kernel, self.graph.threads
        if self._is_free(node):
            self.served.append(Served(""))
            return [self._comment(number, node), Comment("The same memory: nothing to do.")]
        shared = kernel.split and threads > 1
        epilogue = Epilogue(self.graph, node, threads if shared else 1)
        body = text(choice.prepared.code(self.graph, epilogue), INDENT)
        slower = (*choice.rejected, *epilogue.slower)
        needed = in_order(epilogue.needs.values())
        known = self.constants.bytes
        # Of another instruction set the kernel may need some, where this one does not.
        scratch = choice.prepared.scratch(self.graph) > 0
        storage = epilogue.need(CALLER) if epilogue.calls_only else "static"
        for each in epilogue.needs.values():
            collect(self.needs, each)
        self.has_intrinsics |= self.isa.architecture is not None and kernel.isa != "scalar"
        name, function = self._function(
            kernel, node, epilogue, body, storage=storage, scratch=scratch
        )
        packed = choice.prepared.weights(self.graph)
        arguments = [
            self._read(tensor) if packed is None or position != 1 else self.constants.add(packed)
            for position, tensor in enumerate(node.inputs)
        ]
        arguments += [self._read(tensor) for tensor in epilogue.params]
        arguments += [self.constants.add(value) for value in epilogue.arrays]
        arguments.append(self._write(node.output))
        arguments += [f"arena + {self.plan.scratch[node.output]}"] if scratch else []
        arguments += ["thread"] if shared else []
        call = CallStatement(name, *arguments)
        self.served.append(
            Served(
                kernel.name,
                slower,
                math=MATH in needed,
                call=text(call),
                function=function,
                functions=(name, *(each.name for each in needed)),
                constant_bytes=self.constants.bytes - known,
            )
        )
        alone = threads > 1 and not shared
        return [
            self._comment(number, node, [*epilogue.told, *(f"slower: {each}" for each in slower)]),
            If("thread->task == 0", call) if alone else call,
        ]

    @functools.cached_property
    def definitions(self) -> list[Definition]:
        """What the functions need, in order."""
        return in_order(self.needs.values())

    def parts(self, number: int, values: Mapping[str, Any]) -> list[Part]:
        """The microkernels, the functions that call them, and the network that calls those in
        turn; ``number`` is that of the variant."""
        values = {**values, "isa": self.isa, "number": number}
        # First of all, for the calls say which functions there are.
        body = text(self._network(values), INDENT)
        suffix = f"_{self.isa.name}" if values["units"] > 1 else ""
        definitions = [
            Microkernel(each.text, each, self.isa) if each.parameters else Piece(each.text)
            for each in self.definitions
            if not each.portable
        ]
        functions = [Piece(function) for _, function in self.functions.values()]
        network = render("network.c.j2", **values, suffix=suffix, body=body)
        return [
            render("variant_begin.c.j2", **values),
            *_spaced((*definitions, *functions, network)),
            render("variant_end.c.j2", **values),
        ]

    def _network(self, values: Mapping[str, Any]) -> Code:
        """The calls of all layers, and where they are timed, when each ended; where they are
        hooked, what each made."""
        timed, hooked = values["timed"], values["hooked"]
        conditions = ["thread->task == 0"] if self.graph.threads > 1 else []
        conditions.append("times != NULL")

        def ended(layers: int) -> Code:
            return If(" && ".join(conditions), Assign(f"times[{layers}]", "tinyai_now()"))

        calls = enumerate(self.calls(), 1)
        inputs = range(len(self.graph.inputs))
        return [
            ended(0) if timed else None,
            [
                [
                    call,
                    self._hook(layers - 1) if hooked else None,
                    ended(layers) if timed else None,
                    "",
                ]
                for layers, call in calls
            ],
            "(void)arena;",
            "(void)thread;" if self.graph.threads > 1 else None,
            [f"(void)in{number};" for number in inputs if not self.graph.ports_in_arena],
        ]

    def _hook(self, number: int) -> Code:
        """The call of the user's function after a layer."""
        name = self.graph.nodes[number].output
        call = CallStatement(
            "TINYAI_LAYER", number, self._write(name), self.graph.stored(name).seen
        )
        self.hooks.append(text(call, INDENT))
        return call

    def _is_free(self, node: Node) -> bool:
        """A reshape whose input and output share memory, or a concatenation of what is made in its
        place."""
        locations = self.plan.locations
        if isinstance(node.op, Concatenate):
            border = self.graph.stored(node.output).border
            return border is None and not self.graph.copied(node)
        return isinstance(node.op, Reshape) and locations[node.inputs[0]] == locations[node.output]

    def _function(
        self,
        kernel: Kernel,
        node: Node,
        epilogue: Epilogue,
        body: str,
        *,
        storage: str,
        scratch: bool,
    ) -> tuple[str, str]:
        """The function with this body, its name and its text; equal layers share one."""
        reads = [(f"in{i}", name) for i, name in enumerate(node.inputs)]
        reads += [(f"p{i}", name) for i, name in enumerate(epilogue.params)]
        parameters = [f"const {self._c_type(tensor)} *{name}" for name, tensor in reads]
        parameters += [
            f"const {C_TYPES[DType(value.dtype.name)]} *a{i}"
            for i, value in enumerate(epilogue.arrays)
        ]
        parameters.append(f"{self._c_type(node.output)} *out")
        parameters += ["void *scratch"] if scratch else []
        parameters += ["tinyai_thread *thread"] if epilogue.threads > 1 else []
        signature = f"({', '.join(parameters)})"
        key = hashlib.sha256(f"{kernel.name}{signature}{body}".encode()).hexdigest()
        if key not in self.functions:
            compiled_for = "" if kernel.isa == self.isa.name else f"_{self.isa.name}"
            number = key[:16] if self.by_content else len(self.functions)
            name = f"tinyai_{kernel.name}{compiled_for}_{number}"
            title = comment_text(f"{node.op}: {self._types(node)}")
            function = f"/* {title} */\n{storage} void {name}{signature} {{\n{body}\n}}\n"
            self.functions[key] = (name, function)
        return self.functions[key]

    def _c_type(self, tensor: str) -> str:
        return C_TYPES[self.graph.type(tensor).dtype]

    def _types(self, node: Node) -> str:
        inputs = ", ".join(map(str, self.graph.types(node.inputs)))
        return f"{inputs} -> {self.graph.type(node.output)}"

    def _comment(self, number: int, node: Node, more: Sequence[str] = ()) -> Code:
        lines = [f"{number}: {node.op.name}  {self._types(node)}"]
        lines += [f"then {format_steps(node.epilogue, self._show)}"] if node.epilogue else []
        lines += [f"from {', '.join(node.sources)}"] if node.sources else []
        tensor = self.graph.tensors[node.output]
        schedule = self.choices[node.output].prepared.schedule
        lines += [f"cut into {schedule}"] if schedule else []
        lines += [f"quantized: {tensor.quant}"] if tensor.quant else []
        lines += [f"stored: {tensor.stored}"] if tensor.stored else []
        lines += self._places(node)
        lines += more
        return [Comment(comment_text(line, 400)) for line in lines]

    def _places(self, node: Node) -> list[str]:
        """What concatenations leave out, because the makers of their inputs did it."""
        subview = self.graph.stored(node.output).subview
        lines = [f"written into its place in {self._show(subview.whole)}"] if subview else []
        if isinstance(node.op, Concatenate):
            left = self.graph.copied(node)
            made = [str(n) for n in range(len(node.inputs)) if n not in left]
            lines += (
                [f"in their places: inputs {', '.join(made)}"]
                if made and not self._is_free(node)
                else []
            )
        return lines

    def _show(self, tensor: str) -> str:
        """A tensor as a reader of the C file knows it: a number, a type, a layer or an input."""
        value = self.graph.constants.get(tensor)
        if value is not None:
            return str(value.reshape(-1)[0]) if value.size == 1 else str(self.graph.type(tensor))
        if tensor in self.graph.inputs:
            return f"in{self.graph.inputs.index(tensor)}"
        return f"result {list(self.graph.makers).index(tensor)}"

    def _read(self, tensor: str) -> str:
        location = self.plan.locations[tensor]
        if location.space is Space.CONSTANT:
            return self.constants.add(self.graph.constants[tensor])
        return self._address(tensor, location, "const ")

    def _write(self, tensor: str) -> str:
        return self._address(tensor, self.plan.locations[tensor], "")

    def _address(self, tensor: str, location: Location, const: str) -> str:
        if location.space is Space.ARENA:
            # By void *, for the arena is aligned and its pointer's type does not say so.
            wide = self.graph.type(tensor).dtype.bytes > 1
            untyped = f"({const}void *)" if wide else ""
            return f"({const}{self._c_type(tensor)} *){untyped}(arena + {location.index})"
        name = f"{'in' if location.space is Space.INPUT else 'out'}{location.index}"
        first = location.offset // self.graph.type(tensor).dtype.bytes
        return f"{name} + {first}" if first else name
