"""The pipeline for every front end: a graph and options in, C out. Knows no TVM."""

from __future__ import annotations

import hashlib
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tinyai.codegen.borders import with_borders
from tinyai.codegen.c_source import CSource
from tinyai.codegen.concatenate_in_place import plan_in_place
from tinyai.codegen.emit import emit
from tinyai.codegen.isa import variants_of
from tinyai.codegen.kernels import Kernel, choose_kernels
from tinyai.codegen.lowered import Lowered, for_package, verify_lowered
from tinyai.codegen.plan import MemoryPlan
from tinyai.codegen.schedules import read_tuning, with_schedules
from tinyai.codegen.shapes.schedule import Schedule
from tinyai.errors import LimitError, UnsupportedError, UsageWarning, owning_faults
from tinyai.ir import Array, Graph, Node, verify
from tinyai.lowering import has_function
from tinyai.network import Network
from tinyai.passes import drop_idle_steps, make_unsigned, optimize
from tinyai.target import Target

# Multiply-accumulates for which a thread more is worth it: some 20 microseconds of work, where
# sending for a thread takes 10; and for each layer, after which threads meet, about one.
MACS_OF_A_THREAD, MACS_OF_A_LAYER = 4_000_000, 250_000


@dataclass(frozen=True)
class Key:
    """What code depends on: a digest of the ``content`` of a graph and of the options, and the
    ``names`` of the graph and of the source model's nodes, each once."""

    content: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return hashlib.sha256(repr((self.content, self.names)).encode()).hexdigest()


# Of code that nobody keeps.
NO_KEY = Key("", ())


@dataclass(frozen=True)
class Compiled:
    """The stages' results: the graph with a kernel and a schedule for each node (``chosen``), then
    with how tensors are stored (``graph``), where they live, and the C.

    ``key`` tells what these depend on, and ``kept`` finds them by it; ``origin`` is what a front
    end read the graph from, if it has kept that too.
    """

    chosen: Lowered
    graph: Lowered
    plan: MemoryPlan
    source: CSource
    key: Key = NO_KEY
    origin: object = None


def compile_graph(
    graph: Graph,
    target: str | Target,
    *,
    abi: str | None = None,
    hooked: bool = False,
    ports_in_arena: bool = False,
    kernels: Sequence[Kernel] = (),
    states: Sequence[Array] = (),
) -> Compiled:
    """The pipeline: ``prepare``, ``lower`` for as many threads as have work, ``write``. ``kernels``
    go before the kernel table's; ``states`` are ``emit``'s.

    Raises ``UnsupportedError`` or ``LimitError``; ``OptionError`` for a tuning file that is no such
    or does not fit; ``DefectError`` for whatever else goes wrong.
    """
    target = Target.of(target)
    with owning_faults(f"the code of {graph.name}"):
        chosen = choose(graph, target, kernels)
        useful = with_useful_threads(chosen, target)
        compiled = write(
            chosen, useful, abi=abi, hooked=hooked, ports_in_arena=ports_in_arena, states=states
        )
    check_limits(compiled, target)
    return compiled


def compile_network(
    network: Network, target: Target, *, abi: str = "plain", ports_in_arena: bool = False
) -> Compiled:
    """``compile_graph`` of a whole model, with its own kernels and states, whose layers can be
    watched."""
    return compile_graph(
        network.graph,
        target,
        abi=abi,
        hooked=True,
        ports_in_arena=ports_in_arena,
        kernels=network.kernels,
        states=[state.value for state in network.states],
    )


def tell_unused(compiled: Compiled, kernels: Sequence[Kernel]) -> None:
    """Warn of kernels of one's own of which none serves a layer of a whole network."""
    served = [each.kernel for rows in compiled.chosen.variants.values() for each in rows.values()]
    if kernels and not any(kernel in served for kernel in kernels):
        told = UsageWarning(
            f"the kernels of one's own serve no layer of {compiled.chosen.name}",
            found=", ".join(kernel.name for kernel in kernels),
            allowed="one that takes a layer's operator, types and shapes",
            hint="tinyai bench --json has the kernel of each layer, and why no other served it",
        )
        warnings.warn(told, stacklevel=3)


# What was compiled and may be asked for again, the oldest first, by the text of its key.
_KEPT: OrderedDict[str, Compiled] = OrderedDict()
_KEPT_BYTES = 2**27  # of C and of constants, all together


def compile_once(
    graph: Graph,
    target: Target,
    *,
    named: bool = True,
    last: bool = False,
    kernels: Sequence[Kernel] = (),
) -> Compiled:
    """``compile_graph`` without its look at limits, remembered in this process for the same graph
    and options: a partition tries what the hook is going to ask for. Where the C need not be
    ``named`` as the graph is, that of an equal graph will do. ``last``: nobody asks again, so it is
    forgotten. What has other ``kernels`` is not remembered."""
    if kernels:
        with owning_faults(f"the code of {graph.name}"):
            chosen = choose(graph, target, kernels)
            return write(chosen, with_useful_threads(chosen, target))
    key = _key(graph, target)
    if not named and (equal := _equal(key)):
        return replace(equal, graph=_renamed(equal.graph, equal.key, key))
    compiled = kept(str(key), last=True)
    if compiled is None:
        with owning_faults(f"the code of {graph.name}"):
            chosen = choose(graph, target)
            compiled = write(chosen, with_useful_threads(chosen, target))
        compiled = replace(compiled, key=key)
    if not last:
        keep(compiled)
    return compiled


def _equal(key: Key) -> Compiled | None:
    """What was compiled of an equal graph, whatever its names, the newest first."""
    return next((c for c in reversed(_KEPT.values()) if c.key.content == key.content), None)


def keep(compiled: Compiled) -> None:
    """Let ``kept`` find what ``compile_once`` compiled, with its origin; the oldest is forgotten
    where all together are too large."""
    _KEPT[str(compiled.key)] = compiled
    _KEPT.move_to_end(str(compiled.key))
    while len(_KEPT) > 1 and sum(map(_kept_bytes, _KEPT.values())) > _KEPT_BYTES:
        _KEPT.popitem(last=False)


def kept(key: str, *, last: bool = False) -> Compiled | None:
    """What is kept under the text of a key; None where it was forgotten. ``last`` as in
    ``compile_once``."""
    return _KEPT.pop(key, None) if last else _KEPT.get(key)


def _kept_bytes(compiled: Compiled) -> int:
    """An origin has the weights once more."""
    copies = 1 + (compiled.origin is not None)
    return compiled.source.code_size + copies * compiled.source.weight_bytes


def _key(graph: Graph, target: Target) -> Key:
    tuning = read_tuning(target.tuning) if target.tuning else {}
    names = dict.fromkeys(name for node in graph.nodes for name in node.sources)
    nodes = _with_sources(graph, {name: str(place) for place, name in enumerate(names)})
    parts = (graph.inputs, graph.outputs, nodes, dict(graph.tensors), target)
    digest = hashlib.sha256(repr((*parts, sorted(graph.constants), tuning)).encode())
    for name in sorted(graph.constants):
        digest.update(np.ascontiguousarray(graph.constants[name]).tobytes())
    return Key(digest.hexdigest(), (graph.name, *names))


def _with_sources(graph: Graph, new: Mapping[str, str]) -> tuple[Node, ...]:
    """The nodes of a graph with other names of the source model's nodes."""
    return tuple(
        replace(node, sources=tuple(new[name] for name in node.sources)) for node in graph.nodes
    )


def choose(graph: Graph, target: Target, kernels: Sequence[Kernel] = ()) -> Lowered:
    """A graph after ``prepare``, and ``lower`` for as many threads as have work. Where an equal
    one was compiled without other ``kernels``, that is found again, under the names of this one."""
    key = _key(graph, target) if _KEPT and not kernels else NO_KEY
    if (equal := _equal(key)) is None:
        graph = prepare(graph, target)
        return lower(graph, with_useful_threads(graph, target), kernels=kernels)
    return _renamed(equal.chosen, equal.key, key)


def _renamed(graph: Lowered, old: Key, new: Key) -> Lowered:
    """A lowered graph that was made under one key, under the names of another."""
    name, *_ = new.names
    new_names = dict(zip(old.names, new.names, strict=True))
    return replace(graph, name=name, nodes=_with_sources(graph, new_names))


def prepare(graph: Graph, target: Target) -> Graph:
    """Graph -> Graph.

    1. ``optimize``: constants folded, elementwise nodes fused into epilogues.
    2. ``make_unsigned``, where products are of unsigned bytes: images that ask for zero points.
    3. ``drop_idle_steps``: zero points of 0 go away.
    """
    graph = optimize(graph)
    _require_tables(graph)
    if variants_of(target)[0].unsigned:
        graph = verify(make_unsigned(graph))
    return verify(drop_idle_steps(graph))


def _require_tables(graph: Graph) -> None:
    """Raise ``UnsupportedError`` for a function that is not part of a table, for it has no C."""
    node = next(filter(has_function, graph.nodes), None)
    if node is not None:
        raise UnsupportedError(
            f"a function without a table at {node.named}",
            found="one of floats that are read as floats, or of more than one value",
            allowed="a function from an int8 or uint8 tensor to a quantized one",
            hint="quantize its result",
        )


def with_useful_threads(graph: Graph, target: Target) -> Target:
    """The target with one thread, and one more for every ``MACS_OF_A_THREAD``, or for every
    ``MACS_OF_A_LAYER`` of each layer, at most: a small or finely cut network is quicker on one."""
    enough = max(MACS_OF_A_THREAD, MACS_OF_A_LAYER * len(graph.nodes))
    return replace(target, threads=min(target.threads, 1 + graph.macs() // enough))


def lower(
    graph: Graph,
    target: Target,
    schedules: Mapping[str, Schedule] | None = None,
    kernels: Sequence[Kernel] = (),
) -> Lowered:
    """A graph that ``prepare`` made with the first decisions of code generation.

    1. ``choose_kernels``: a row of ``kernels`` or of the kernel table for each node and
       instruction set.
    2. ``with_schedules``: how layers are cut up, by ``schedules``, the target's tuning file or a
       cost model.
    """
    tuning = read_tuning(target.tuning) if target.tuning else {}
    return with_schedules(choose_kernels(graph, target, kernels), tuning, schedules)


def write(
    chosen: Lowered,
    target: Target,
    *,
    abi: str | None = None,
    hooked: bool = False,
    by_content: bool = False,
    ports_in_arena: bool = False,
    states: Sequence[Array] = (),
) -> Compiled:
    """C for a graph that ``lower`` made for ``target``.

    1. ``with_borders``: images that are made with the border that their readers need.
    2. ``plan_in_place``: offsets in one arena, where concatenations are made in place.
    3. ``emit``: C, with the entry of ``abi``: the target's, "plain" (pointers and an arena),
       "traced" (the same, and times of layers), or "package" (that of a C package, whose inputs
       and outputs may live in the arena: ``ports_in_arena``); ``hooked`` C can be watched layer by
       layer; ``by_content`` its functions have names that other files may share.
    """
    abi = abi or target.abi
    if abi == "package":
        chosen = for_package(chosen, ports_in_arena=ports_in_arena)
    graph, plan = plan_in_place(with_borders(chosen))
    verify_lowered(graph)
    source = emit(graph, plan, target, abi=abi, hooked=hooked, by_content=by_content, states=states)
    return Compiled(chosen, graph, plan, source)


def check_limits(compiled: Compiled, target: Target) -> None:
    """Raise ``LimitError`` where code needs more memory than the target allows."""
    source = compiled.source
    _check_limit("arena", "arena_limit", source.arena_bytes, target.arena_limit)
    _check_limit("weights", "weight_limit", source.weight_bytes, target.weight_limit)


def _check_limit(what: str, option: str, found: int, limit: int) -> None:
    if limit and found > limit:
        raise LimitError(
            f"{what} of a region",
            found=f"{found} bytes",
            allowed=f"{option}={limit}",
            hint="a smaller network or batch, or a higher limit",
        )
