"""What ExecuTorch makes of a quantized program, beside what the program means in float64.

Every quantize of the program becomes a result, so that each stretch is evaluated on the integers
that it really read: by torch's own operators in float64, on torch's own graph, and by
``float_meaning`` on what tinyai read of it. Both are of the same floats, so an operator that was
misread shows apart from one that was computed wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from executorch.exir.backend.partitioner import PartitionResult
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import GraphModule, Interpreter, Node
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import Quantizer

from benchmarks.torch_networks import quantized
from tests.executorch.edge_programs import by_runtime, edge_of
from tests.support.float_meaning import MEANING, evaluated
from tests.support.random_stretches import DISTINCT
from tests.support.stretches import FLOAT32, ONE, allowed, operators_of
from tinyai.executorch import TinyAIPartitioner
from tinyai.frontends.executorch.operators import READERS
from tinyai.frontends.executorch.reader import Reading, operator_of
from tinyai.ir import Array
from tinyai.source import Call, Expr

# What a program returns in float is computed by float32 kernels: so much off float64's, relatively.
RELATIVE = 1e-4


@dataclass(frozen=True)
class Stretch:
    """A result beside its meaning, in steps. ``bound`` are those that it may be off, ``misread``
    those by which the reading's meaning is off torch's; ``delegated`` is whether tinyai made it."""

    name: str
    branch: str
    operators: tuple[str, ...]
    off: float
    bound: float
    misread: float
    telling: bool
    delegated: bool

    @property
    def wrong(self) -> bool:
        return self.off > self.bound or self.misread > 0.01

    def __str__(self) -> str:
        return (
            f"{self.branch} {self.name}: {' -> '.join(self.operators)}: {self.off:.3f} steps off, "
            f"{self.bound:.3f} allowed; read {self.misread:.3f} steps off"
        )


class Meaning(Interpreter):
    """torch's operators in float64, on integers that were found by others. ``meant`` has the value
    that each of ``found`` rounds, in steps of its grid."""

    def __init__(self, module: GraphModule, found: Mapping[Node, Tensor]) -> None:
        super().__init__(module)
        self.found = found
        self.meant: dict[Node, Tensor] = {}
        self.floats: tuple[Tensor, ...] = ()

    def run_node(self, node: Node) -> object:
        if node.op == "get_attr":
            return _doubled(super().run_node(node))
        if node in self.found:
            args, _ = self.fetch_args_kwargs_from_env(node)
            value, scale, zero_point, least, most = args[:5]
            self.meant[node] = (value / scale + zero_point).clamp(least, most)
            return self.found[node]
        if ".dequantize_per_" in str(node.target):
            args, _ = self.fetch_args_kwargs_from_env(node)
            return _dequantized(str(node.target), *args)
        return _doubled(super().run_node(node))


def _dequantized(name: str, integers: Tensor, scale: object, zero: object, *more: int) -> Tensor:
    if "per_channel" in name:
        along = [1] * integers.dim()
        along[more[0]] = -1
        scale, zero = (torch.as_tensor(each).double().reshape(along) for each in (scale, zero))
    return (integers.double() - zero) * scale


def _doubled(value: object) -> object:
    if isinstance(value, tuple | list):
        return type(value)(map(_doubled, value))
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


@dataclass(frozen=True)
class Observed:
    """A quantized module of which every quantize is a result, before those it has."""

    module: GraphModule
    rounded: tuple[Node, ...]
    program: ExportedProgram


def observed(
    program: ExportedProgram, sample: tuple[Tensor, ...], dynamic_shapes: object = None
) -> Observed:
    module = program.module(check_guards=False)
    rounded = tuple(
        node
        for node in module.graph.nodes
        if ".quantize_per_tensor" in str(node.target) and node.args[0].op != "get_attr"
    )
    output = module.graph.output_node()
    output.args = ((*rounded, *output.all_input_nodes),)
    module.graph.set_codegen(torch.fx.graph.CodeGen())
    module.recompile()
    exported = torch.export.export(module, sample, dynamic_shapes=dynamic_shapes)
    return Observed(module, rounded, exported)


def _quantized(
    module: nn.Module,
    samples: Sequence[tuple[Tensor, ...]],
    quantizer: Quantizer,
    sizes: tuple[object, ...] | None,
) -> ExportedProgram:
    """With dynamic dimensions of each input, where they are said. torch has them inside of a tuple
    for a function of ``*inputs``, and as they are for a graph."""
    if sizes is None:
        return quantized(module, samples, quantizer)
    exported = torch.export.export(module, samples[0], dynamic_shapes=(sizes,))
    prepared = prepare_pt2e(exported.module(), quantizer)
    for sample in samples:
        prepared(*sample)
    return torch.export.export(convert_pt2e(prepared), samples[0], dynamic_shapes=sizes)


def stretches(
    module: nn.Module,
    samples: Sequence[tuple[Tensor, ...]],
    quantizer: Quantizer,
    isa: str = "scalar",
    *,
    dynamic: bool = False,
    whole: bool = False,
) -> Iterator[Stretch]:
    """Each stretch of a module that is quantized, lowered and run, on the last sample. With
    ``dynamic`` the first dimension of each input is, where torch can have it. With ``whole`` the
    program is lowered once more as a user does, with its own results alone: they are the same."""
    sample = samples[-1]
    sizes = tuple({0: torch.export.Dim.AUTO(max=8)} for _ in sample) if dynamic else None
    program = _quantized(module, samples[:-1], quantizer, sizes)
    seen = observed(program, sample, sizes)
    partitioner = _Reading(isa=isa)
    edge = edge_of(seen.program, partitioner)
    results = by_runtime(edge)(*sample)
    if whole:
        alone = by_runtime(edge_of(program, TinyAIPartitioner(isa=isa)))(*sample)
        assert all(map(torch.equal, alone, results[len(seen.rounded) :]))
    delegated = [
        _is_delegated(node) for node in edge.exported_program().graph.output_node().args[0]
    ]
    integers = results[: len(seen.rounded)]
    meaning = Meaning(seen.module, dict(zip(seen.rounded, integers, strict=True)))
    with torch.no_grad():
        floats = meaning.run(*sample)[len(seen.rounded) :]
    for found, wanted in zip(results[len(seen.rounded) :], floats, strict=True):
        limit = RELATIVE * max(1.0, float(wanted.abs().max()))
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=limit)
    read = _Read(partitioner, integers, sample)
    for place, (node, result) in enumerate(zip(seen.rounded, integers, strict=True)):
        meant = meaning.meant[node]
        assert (result.shape, result.dtype) == (meant.shape, node.meta["val"].dtype), node
        least, most = node.args[3:5]
        inner = result[(result > least) & (result < most)]
        yield Stretch(
            node.name,
            _branch_of(node),
            read.operators(place),
            float((result - meant).abs().max()),
            read.bound(place),
            read.misread(place, meant.numpy()),
            inner.unique().numel() >= DISTINCT,
            delegated[place],
        )


def _is_delegated(node: Node) -> bool:
    return operator_of(node) == "getitem" and "call_delegate" in str(node.args[0].target)


def _branch_of(node: Node) -> str:
    """The module that a quantize is of: that of what it rounds."""
    source = node.args[0]
    stack = source.meta.get("nn_module_stack") or {"": ("", None)}
    paths = [path for path, _ in stack.values() if "branches." in path]
    return paths[0].partition("branches.")[2].partition(".")[0] if paths else str(source.name)


class _Reading(TinyAIPartitioner):
    """Keeps what tinyai reads of a program: its inputs, and its results."""

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        reading = Reading(exported_program, READERS)
        reading.read()
        graph = exported_program.graph
        self.inputs = [reading.parameters[n] for n in graph.nodes if n in reading.parameters]
        self.results = [reading(node) for node in graph.output_node().args[0]]
        return super().partition(exported_program)


class _Read:
    """The quantizes of a program as tinyai reads them."""

    def __init__(
        self, read: _Reading, integers: Sequence[Tensor], sample: Sequence[Tensor]
    ) -> None:
        self.quantizes = read.results[: len(integers)]
        pairs = [
            *zip(read.inputs, sample, strict=True),
            *zip(self.quantizes, integers, strict=True),
        ]
        self.known: dict[Expr, Array] = {expr: value.numpy() for expr, value in pairs}

    def _calls(self, place: int) -> list[Call]:
        """None of a quantize that the edge dialect found to be the same as one before it."""
        quantize = self.quantizes[place]
        if quantize in self.quantizes[:place] or quantize.op != "quantize":
            return []
        return operators_of(quantize, self.known)

    def operators(self, place: int) -> tuple[str, ...]:
        return tuple(call.op for call in self._calls(place))

    def bound(self, place: int) -> float:
        if self.quantizes[place].op != "quantize":  # not read: the runtime's kernels of floats
            return ONE + FLOAT32
        return allowed(self.quantizes[place], self._calls(place), "torch")

    def misread(self, place: int, meant: Array) -> float:
        """How far what was read is from what torch means; 0 where ``float_meaning`` has no meaning
        of an operator: those of no row, and torch's own functions."""
        quantize, calls = self.quantizes[place], self._calls(place)
        taken = quantize.op == "quantize" and all(call.op in MEANING for call in calls)
        if not calls or not taken:
            return 0.0
        floats = evaluated(quantize["data"], self.known)[quantize["data"]]
        scale, zero_point = (float(quantize[f"output_{n}"].value) for n in ("scale", "zero_point"))
        limits = np.iinfo(quantize.type.dtype)
        read = np.clip(floats / scale + zero_point, limits.min, limits.max)
        return float(np.abs(read - meant).max())
