"""``tinyai.check``: compiled code beside a framework, output by output, and where these differ
layer by layer."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from tinyai.checking.arithmetic import arithmetic
from tinyai.checking.built import Built, load_built, types_of
from tinyai.checking.code import REFERENCE, Code, Values, compiled_code, layer_of
from tinyai.checking.difference import difference
from tinyai.checking.ends import EndsOfCode
from tinyai.checking.litert import LiteRTOracle
from tinyai.checking.onnxruntime import OnnxRuntimeOracle
from tinyai.checking.opponents import Opponent, Sample, batches, need
from tinyai.checking.result import ArithmeticLine, Comparison, FirstDifference, Output
from tinyai.checking.samples import drawn, given
from tinyai.errors import OptionError
from tinyai.frontends.model import network_of
from tinyai.frontends.tflite.litert import AbortedError
from tinyai.ir import Array, DType, Graph, Node, Type
from tinyai.model_file import FileOptions, InputShapes
from tinyai.network import Network
from tinyai.ops import Elementwise
from tinyai.reference import run_node
from tinyai.runtime.toolchain import Toolchain
from tinyai.safe_text import safe
from tinyai.stages import stage
from tinyai.target import Target, split_target

# Whose integers are compared, and the rounding that has them.
ROUNDINGS = {"tvm": "upward", "litert": "tflite", "onnxruntime": "onnx"}
# TVM's Relax VM with tinyai's regions, of a file that TVM imported: it has the file's integers.
RELAX = "relax"
# Who runs a file, by how its name ends.
OWN = {".tflite": "litert", ".onnx": "onnxruntime"}
SAMPLES = 10
# A model with state is called so many times in a row for a sample.
CALLS = 25
Path_ = str | os.PathLike[str]


def check(
    model: Any,
    target: str | Target | None = None,
    *,
    built: Path_ | None = None,
    against: str = "",
    samples: int = SAMPLES,
    inputs: Sequence[Path_] = (),
    params: dict[str, Any] | None = None,
    input_shapes: InputShapes = "",
    signature: str = "",
    state: Mapping[str, str] | None = None,
    backend: str = "",
    toolchain: Toolchain | None = None,
) -> Comparison:
    """Compile ``model`` and compare its integers with those of another program, bit for bit.

    ``model`` is the path of a file, or a module of TVM's with its ``params``. ``built`` is code of
    it that is there already, which is compared instead: a library, or a C package as a folder or
    .tar, which is compiled by ``toolchain``. ``against`` is "tvm",
    "litert" (TFLite files, in its reference kernels), "onnxruntime" (ONNX files) or "relax" (what
    ``tinyai.relax.build`` makes of either); without it a file's own framework, else TVM. It sets
    the target's rounding. ``samples`` are drawn with a
    fixed seed; ``inputs`` names .npz and .npy files of further ones, which come first.
    ``input_shapes``, ``signature``, ``state`` and ``backend`` are those of ``tinyai.compile``. Of
    a model with state each of ``samples`` is a row of ``CALLS`` calls from its initial state, and
    all of ``inputs`` are one such row.

    Raises ``OptionError`` for an option, a model or an input that does not fit, ``FormatError`` for
    ``built`` that is no such code, ``EnvironmentProblem`` where the other program is missing or
    cannot run the model, ``BoundaryError`` where an operator has no code.
    """
    file = Path(model) if isinstance(model, str | os.PathLike) else None
    whose = opponent_of(file, against)
    if samples < 0 or (samples == 0 and not inputs):
        raise OptionError(
            "samples", found=samples, allowed="1 or more; 0 beside input files", hint=str(SAMPLES)
        )
    if isinstance(model, Graph):
        raise OptionError(
            "model to compare",
            found="a tinyai.Graph",
            allowed="what another program reads: a file or a tvm.IRModule",
            hint="tinyai.run_graph computes a graph",
        )
    Toolchain.of(toolchain).check()
    options = FileOptions(input_shapes, signature, state or {})
    read: Callable[..., Network] = functools.partial(
        network_of, model, params=params, **asdict(options), backend=backend
    )
    if built is None:
        target = _target(target, whose)
        network = code_network = read(target)
        with stage("compile"):
            code = compiled_code(network, target, toolchain)
    else:
        there = load_built(Path(built), toolchain)
        target = _target_of_built(there.target, target, whose)
        network, code_network = _networks(there, read)
        code = there.code(code_network)
    first = given(network, [Path(each) for each in inputs])
    samples *= CALLS if network.states else 1
    opponent = _opponent(whose.name, model, network, params, options)
    comparing = _Comparing(EndsOfCode(network, code_network), code, opponent)
    comparing.run(first, samples)
    if isinstance(opponent, OnnxRuntimeOracle):
        comparing.notes += opponent.saturation()
    return Comparison(
        model=str(model) if file else network.name,
        checked=code.name,
        opponent=comparing.opponent.name,
        rounding=target.rounding,
        samples=len(first) + samples,
        given=len(first),
        outputs=tuple(comparing.outputs),
        first=comparing.first,
        notes=tuple(comparing.notes),
    )


@dataclass(frozen=True)
class Whose:
    """The program whose integers are compared, and the rounding that has them."""

    name: str
    rounding: str


def target_of(options: Mapping[str, str], whose: Whose) -> Target:
    """The target of options by name, for this machine where they name no other. Raises
    ``OptionError`` for a rounding that is not the other program's."""
    given = {**options, "rounding": options.get("rounding") or whose.rounding}
    if not {"isa", "arch"} & set(given):
        given["isa"] = "native"
    if given["rounding"] != whose.rounding:
        raise _other_rounding(given["rounding"], whose)
    return Target.from_options(given)


def _target(target: str | Target | None, whose: Whose) -> Target:
    """With the rounding of the other program. Raises ``OptionError`` where it says another."""
    if isinstance(target, str):
        return target_of(split_target(target)[0], whose)
    target = target or Target(isa="native")
    if target.rounding not in ("", whose.rounding):
        raise _other_rounding(target.rounding, whose)
    return replace(target, rounding=whose.rounding)


def _other_rounding(found: str, whose: Whose) -> OptionError:
    return OptionError(
        f"rounding of code to compare with {whose.name}",
        found=safe(found),
        allowed=whose.rounding,
        hint="leave it out: the program that the code is compared with sets it",
    )


def opponent_of(file: Path | None, against: str) -> Whose:
    """Whom to compare with. Raises ``OptionError`` for one that does not run the model."""
    kind = file.suffix.lower() if file else ""
    own = OWN.get(kind, "tvm")
    against = against or own
    if against not in (*ROUNDINGS, RELAX):
        raise OptionError(
            "program to compare with",
            found=repr(against),
            allowed=", ".join((*ROUNDINGS, RELAX)),
        )
    if against not in (own, "tvm", RELAX if own != "tvm" else own):
        reads = [suffix for suffix, name in OWN.items() if against in (name, RELAX)]
        raise OptionError(
            f"model to compare with {against}",
            found=safe(file.name) if file else "no file",
            allowed=" or ".join(f"*{suffix}" for suffix in reads),
            hint=f"--against {own}",
        )
    return Whose(against, ROUNDINGS[own if against == RELAX else against])


def _target_of_built(own: Target, target: str | Target | None, whose: Whose) -> Target:
    """The target that code was built for. Raises ``OptionError`` for another one, and for a
    rounding that is not the other program's."""
    if target is not None:
        raise OptionError(
            "options of the target beside code that is built",
            found=str(target),
            allowed="none: it has its own",
            hint="leave them out, or leave out --with",
        )
    if own.rounding != whose.rounding:
        fits = [f"--against {name}" for name, mode in ROUNDINGS.items() if mode == own.rounding]
        raise OptionError(
            f"rounding of code to compare with {whose.name}",
            found=own.rounding,
            allowed=whose.rounding,
            hint=", or ".join([*fits, f"compile with --rounding {whose.rounding}"]),
        )
    return own


def _networks(there: Built, read: Callable[..., Network]) -> tuple[Network, Network]:
    """The model as a network, and that with the ends that the code has. Raises ``OptionError``
    where there is none."""
    network = read(there.target, name=there.library.name)
    if there.fits(network):
        return network, network
    try:
        other = read(there.target, name=there.library.name, ends="int8")
    except OptionError:
        other = network
    if not there.fits(other):
        raise OptionError(
            "code to check",
            found=f"{safe(str(there.path))}: {there.types}",
            allowed=f"code of the model: {types_of(network)}",
            hint="is it of another model?",
        )
    return network, other


def _opponent(
    against: str, model: Any, network: Network, params: Any, options: FileOptions
) -> Opponent:
    states = {state.port.name: state.value for state in network.states}
    names = [*(port.name for port in network.inputs), *states]
    if against == "litert":
        from tinyai.frontends.tflite.signatures import content_of

        return LiteRTOracle(content_of(Path(model).read_bytes(), options.signature))
    if against == "onnxruntime":
        initial = list(states.values())
        shapes = options.input_shapes
        return OnnxRuntimeOracle(Path(model), names, options.state, initial, shapes)
    if against == RELAX:
        options.require_only((), "TVM's Relax")
        need("tvm_ffi", "apache-tvm", "TVM with Relax", "relax")
        from tinyai.frontends.relax.built import RelaxBuilt

        return RelaxBuilt(Path(model))
    from tinyai.frontends.relay.load import load_model
    from tinyai.frontends.relay.modules import module_of
    from tinyai.frontends.relay.oracle import TvmOwn

    if isinstance(model, str | os.PathLike):
        return TvmOwn(*load_model(model, options.shapes_for_tvm()), names)
    return TvmOwn(*module_of(model, params), names)


class _Comparing:
    """A comparison at work."""

    def __init__(self, ends: EndsOfCode, code: Code, opponent: Opponent) -> None:
        self._ends, self._code, self.opponent = ends, code, opponent
        self._network = ends.model
        self.outputs = [Output(each.name, str(each.type), 0) for each in ends.model.outputs]
        self.first: FirstDifference | None = None
        self.notes: list[str] = []
        self._looked = False

    def run(self, first: Sequence[Sample], drawn_ones: int) -> None:
        """Compare on the first samples, of the model's, and on so many drawn ones."""
        number = 0
        for inner in self._batches(first, drawn_ones):
            batch = [self._ends.to_model(each) for each in inner]
            with stage(f"{len(batch)} samples by {self.opponent.name}"):
                results = self._expected(batch)
            self._code.reset()
            for place, (mine, expected) in enumerate(zip(inner, results, strict=True)):
                found = self._ends.results(self._code.run(mine))
                if isinstance(self.opponent, LiteRTOracle) and self.opponent.cut:
                    known = self._known(batch, place)
                    found, expected = self._with_cut(self.opponent.cut, known, found, expected)
                if not self._compare(number, found, expected) and not self._looked:
                    self._looked = True
                    with stage("look for the first layer that differs"):
                        self._look(inner, batch, place)
                number += 1

    def _batches(self, first: Sequence[Sample], drawn_ones: int) -> Iterator[list[Sample]]:
        """Samples that are computed together; of a model with state, the calls of one sequence."""
        given, code = list(map(self._ends.to_code, first)), self._ends.code
        if not self._network.states:
            return batches(chain(given, drawn(code, drawn_ones)))
        sequences = batches(drawn(code, drawn_ones), CALLS)
        return chain([given] if given else [], sequences)

    def _known(self, batch: Sequence[Sample], place: int) -> Sample:
        """The inputs of the model's graph in a call: the sample, and the states before it."""
        if not self._network.states:
            return batch[place]
        states = [state.value for state in self._network.states]
        for results in self._network.run(batch[:place]):
            states = results[len(self._network.outputs) :]
        return (*batch[place], *states)

    def _expected(self, batch: Sequence[Sample]) -> list[list[Array]]:
        """The other program's results. Where LiteRT aborts it is asked for what the last operator
        reads, and that is compared as one more output."""
        try:
            return self.opponent.results(batch)
        except AbortedError:
            if not isinstance(self.opponent, LiteRTOracle) or self.opponent.cut:
                raise
            cut = self.opponent.without_last()
            found = cut.results(batch)
            self.opponent = cut
            (value,) = found[0]
            assert cut.cut is not None
            self.outputs.insert(
                0, Output(cut.cut, str(Type(value.shape, DType(value.dtype.name))), 0)
            )
            self.notes.append(
                f"{cut.name} abort in the model's last operator: compared up to what it reads, "
                f"{cut.cut!r}; the last operator is compared with its reference"
            )
            return found

    def _with_cut(
        self, tensor: str, sample: Sample, found: list[Array], expected: list[Array]
    ) -> tuple[list[Array], list[Array]]:
        """What the last operator reads, by the references and by LiteRT, and the outputs, by the
        code and by the references."""
        graph = self._network.graph
        shown = last_makers(graph, self.opponent, {tensor: expected[0]})
        if not shown:
            raise OptionError(
                "tensor that the model's last operator reads",
                found=safe(tensor),
                allowed="one that an operator of the graph makes",
                hint="--against tvm",
            )
        values, made = Values(graph, sample), graph.nodes[next(iter(shown))].output
        outputs = graph.outputs[: len(self._network.outputs)]
        ends: dict[str, Array] = {}
        for number, node in enumerate(graph.nodes):
            result = run_node(node, values.known)
            if node.output in (made, *outputs):
                ends[node.output] = result
            values.add(number, result)
        return [ends[made], *found], [*expected, *(ends[name] for name in outputs)]

    def _compare(self, number: int, found: Sequence[Array], expected: Sequence[Array]) -> bool:
        """Count what differs in one sample; whether nothing does."""
        equal = True
        for place, (mine, other) in enumerate(zip(found, expected, strict=True)):
            output = self.outputs[place]
            if (mine.shape, mine.dtype) != (other.shape, other.dtype):
                raise OptionError(
                    f"output {safe(output.name)} of {self.opponent.name}",
                    found=f"{other.dtype}{list(other.shape)}",
                    allowed=output.type,
                    hint="--against tvm, which computes the same module",
                )
            wrong, count = difference(mine, other), output.elements + mine.size
            self.outputs[place] = replace(output, elements=count)
            if wrong:
                equal = False
                self.outputs[place] = _with_difference(self.outputs[place], number, wrong)
        return equal

    def _look(self, inner: Sequence[Sample], batch: Sequence[Sample], place: int) -> None:
        """For the first layer that differs: between the code and the references, which finds what
        is wrong in the code; else between the references and the other program."""
        if self._code.graph is None:
            self.notes.append(
                "the code was made by other options, from another model or by another tinyai: its "
                "layers cannot be told apart"
            )
            return
        known, opponent = self._known(batch, place), self.opponent
        before = inner[:place] if self._network.states else ()
        states = known[len(self._network.inputs) :]
        self.first = self._code.first_wrong_layer(inner[place], before, states)
        if self.first is None:
            if isinstance(opponent, LiteRTOracle):
                opponent = opponent.after(batch[:place] if self._network.states else ())
            self.first = first_other_layer(self._network.graph, opponent, known)
            floats = opponent.in_floats() if isinstance(opponent, OnnxRuntimeOracle) else []
            if floats:
                self.notes.append(f"{opponent.name} computes in floats: {', '.join(floats)}")
            if self.first is None:
                self.notes.append(
                    "every layer computes what the operators' references say, and no tensor of "
                    f"{self.opponent.name} that could be found again differs from them"
                )


def _with_difference(output: Output, sample: int, wrong: Any) -> Output:
    more = replace(output, differing=output.differing + wrong.count)
    if output.differing:
        return more
    return replace(
        more, sample=sample, index=wrong.index, found=wrong.found, expected=wrong.expected
    )


def first_other_layer(graph: Graph, opponent: Opponent, sample: Sample) -> FirstDifference | None:
    """The first layer of a graph whose references do not give what another program makes, among
    those that the program shows."""
    shown = opponent.tensors(sample)
    wanted = last_makers(graph, opponent, shown)
    values = Values(graph, sample)
    for number, node in enumerate(graph.nodes):
        result = run_node(node, values.known)
        wrong = difference(result, shown[wanted[number]]) if number in wanted else None
        if wrong:
            nodes = _made_at_once(graph, opponent, number)
            lines = _chain(graph, nodes, sample, wrong.index)
            return layer_of(graph, number, wrong, REFERENCE, opponent.name, lines)
        values.add(number, result)
    return None


def last_makers(graph: Graph, opponent: Opponent, shown: Mapping[str, Array]) -> dict[int, str]:
    """The tensors that another program shows, by the number of the last node of the source model's
    operator that makes one; those of other types are left out, and those of an operator with
    several results of that type, of which a name says too little."""
    makers: dict[str, list[int]] = {}
    for number, node in enumerate(graph.nodes):
        tensor = _tensor_of(opponent, node)
        if tensor and tensor in shown:
            makers.setdefault(tensor, []).append(number)
    types = [graph.type(node.output) for node in graph.nodes]
    last: dict[int, str] = {}
    for tensor, numbers in makers.items():
        of = shown[tensor].shape, shown[tensor].dtype
        read = {name for number in numbers for name in graph.nodes[number].inputs}
        ends = [each for each in numbers if (types[each].shape, types[each].dtype.numpy) == of]
        results = [each for each in ends if graph.nodes[each].output not in read]
        if ends and len(results) <= 1:
            last[ends[-1]] = tensor
    return last


def _tensor_of(opponent: Opponent, node: Node) -> str | None:
    return next(filter(None, map(opponent.tensor_of, node.sources)), None)


def _made_at_once(graph: Graph, opponent: Opponent, number: int) -> list[int]:
    """The nodes of one layer of the source model, which compute element by element after the
    first, up to ``number``."""
    numbers = {node.output: place for place, node in enumerate(graph.nodes)}
    tensor, found = _tensor_of(opponent, graph.nodes[number]), [number]
    while True:
        node = graph.nodes[found[0]]
        before = numbers.get(node.inputs[0]) if node.inputs else None
        if (
            before is None
            or graph.type(node.output).shape != graph.type(node.inputs[0]).shape
            or _tensor_of(opponent, graph.nodes[before]) != tensor
            or not isinstance(node.op, Elementwise)
        ):
            return found
        found.insert(0, before)


def _chain(
    graph: Graph, nodes: Sequence[int], sample: Sample, index: tuple[int, ...]
) -> tuple[ArithmeticLine, ...]:
    """The arithmetic of an element through these nodes."""
    values = Values(graph, sample)
    lines: list[ArithmeticLine] = []
    for number, node in enumerate(graph.nodes[: nodes[-1] + 1]):
        if number in nodes:
            more = arithmetic(graph, node, values.known, index)
            lines += more if number == nodes[0] else more[1:]
        values.add(number, run_node(node, values.known))
    return tuple(lines)
