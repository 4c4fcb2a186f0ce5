"""All figures of one network on one number of threads: built, compared, and only then timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import tvm
from tvm import relay

from benchmarks import workloads
from benchmarks.bench_networks import Array, Case, Network, Values, alive_part, load
from benchmarks.peers import ReferenceKernels, TvmPeer
from benchmarks.timing import c_calls
from tinyai.checking.onnxruntime import exact_session
from tinyai.checking.peers import LiteRT, OnnxRuntime, OpenVino, Peer, PeerTime, apart
from tinyai.frontends.relay import partition_for_tinyai, regions
from tinyai.frontends.relay.functions import region_target
from tinyai.frontends.relay.qdq import integers_from_qdq
from tinyai.frontends.relay.report import report_of
from tinyai.frontends.relay.source import graph_from_region
from tinyai.report import Report
from tinyai.runtime.runner import BoundCall, Runner
from tinyai.runtime.timing import SETTLE_SECONDS, Contender, in_turn, loop

# TVM gives the same integers at every level of LLVM's, and this one is the quickest to build.
ORACLE_TARGET = "llvm -opt-level=1"
# The rounding that gives a peer's integers, by the kind of file; of relay.quantize's networks any.
OWN_ROUNDING = {"tflite": "tflite", "onnx": "onnx", "relay": "upward"}
# What tinyai computes where a qnn.requantize does not say; TVM's default depends on the CPU.
ORACLE_REQUANTIZE = {"rounding": "UPWARD", "compute_dtype": "int64"}
# What ONNX Runtime computes in floats between dequantize and quantize: a step apart near a tie.
FLOAT_LAYERS = ("nn.conv2d_transpose", "subtract", "mean")
# Up to here TVM's oracle is a matter of seconds; above it of minutes, for its code is unrolled.
CHEAP_MACS = 20_000_000
# How far a network's output may be from another framework's, in steps of 255 over its range. They
# round differently at each layer, and differ from each other: kws_ref_model's softmax by up to 28.
PEER_LIMIT = 32.0
# What may stand between the last dequantization and an output.
MOVES = ("reshape", "nn.batch_flatten", "squeeze", "expand_dims", "transpose")


@dataclass(frozen=True)
class Settings:
    """What the user chose.

    ``isa`` is None for the target's default. ``rounding`` is one of the target's, or "peer": the
    one that gives the peer's integers. ``peers`` are those beside the framework of a file:
    "openvino", "tvm". ``peer_isa`` is the instruction set that OpenVINO is held to, as oneDNN
    spells it. TVM's own int8, and what TVM runs of our networks, is built for ``tvm_target``.
    ``oracle`` is "tvm", "peer", or "auto":
    TVM where that is cheap. ``cache`` keeps what takes long, ``folder`` gets our libraries.
    """

    seconds: float
    isa: str | None
    rounding: str
    peers: tuple[str, ...]
    tvm_target: str
    oracle: str
    cache: Path
    folder: Path
    peer_isa: str | None = None

    def rounding_of(self, case: Case) -> str:
        """The target's option for a network."""
        return OWN_ROUNDING[case.kind] if self.rounding == "peer" else self.rounding


@dataclass(frozen=True)
class Check:
    """How the results were compared before anything was timed.

    ``largest`` is the largest difference, in the steps of ``difference``; ``limit`` is what is
    allowed, 0 for equality of every value. ``distinct`` is how many values the results take: one
    would prove nothing.
    """

    against: str
    inputs: int
    largest: float
    limit: float
    distinct: int

    @property
    def problem(self) -> str | None:
        """What differs; None where nothing does."""
        if self.largest <= self.limit:
            return None
        return f"differs from {self.against} by {self.largest:g}, allowed {self.limit:g}"


@dataclass(frozen=True)
class CompileCost:
    """Seconds from the quantized module to the loaded library, by stage, and the most memory that
    this process and its compilers took meanwhile.

    ``codegen`` is ``relay.build``: our C, and TVM's code for the host; ``compiler`` is
    ``export_library`` with its default arguments.
    """

    partition: float
    codegen: float
    compiler: float
    load: float
    peak_mib: float

    @property
    def seconds(self) -> float:
        return self.partition + self.codegen + self.compiler + self.load


@dataclass(frozen=True)
class Figures:
    """Latencies are medians in milliseconds, of runs in turn.

    - ``run_ms``: the graph executor's ``run`` by TVM's ``time_evaluator``; ratios are to this.
      ``spread`` is the distance of its quartiles as a share of it.
    - ``upward_ms``: the same under ``rounding=upward``; None where that is measured.
    - ``entry_ms``: the C entry without TVM in a loop in C; None where the host computes too.
    - ``python_ms``: the executor's ``run`` called from Python.
    - ``macs``: of one run; ``gmacs`` 10**9 of them a second, in the graph executor.
    - sizes in bytes; ``arena_bytes`` of the largest region, as they run one after the other.
    """

    run_ms: float
    spread: float
    upward_ms: float | None
    entry_ms: float | None
    python_ms: float
    peers: tuple[PeerTime, ...]
    macs: int
    gmacs: float
    regions: int
    host_operators: int
    arena_bytes: int
    arena_lower_bound: int
    weight_bytes: int
    compile: CompileCost
    check: Check


@dataclass(frozen=True)
class Row:
    """A network on a number of threads: its figures, or why there are none."""

    name: str
    kind: str
    threads: int
    figures: Figures | None = None
    problem: str | None = None
    rounding: str = "upward"


class Differs(Exception):
    """The results are not what they should be."""


def measured(case: Case, threads: int, settings: Settings) -> Row:
    """``measure``; what it raises is the row's problem, for not every error survives the way from
    one process to another."""
    try:
        return measure(case, threads, settings)
    except Exception as error:  # importers, compilers and peers raise what they like
        problem = f"{type(error).__name__}: {error}"
        return Row(case.name, case.kind, threads, None, problem, settings.rounding_of(case))


def measure(case: Case, threads: int, settings: Settings) -> Row:
    """Load, build, compare and time. ``TVM_NUM_THREADS`` is ``threads`` already.

    Raises ``Differs`` where results differ; what loading, building or a peer raises passes.
    """
    with workloads.without_tuning_advice():
        network = load(case, settings.cache)
        rounding = settings.rounding_of(case)
        ours = build(network, threads, settings, rounding)
        upward = None if rounding == "upward" else build(network, threads, settings, "upward")
        peers = peers_of(network, threads, settings)
        check = checked(network, ours, peers, threads, settings)
        distances = differences(network, ours, peers)
    settle = SETTLE_SECONDS if threads > 1 else 0.0
    beside = list(zip(peers, distances, strict=True))
    figures = _figures(network, ours, upward, beside, check, settings.seconds, settle=settle)
    return Row(case.name, case.kind, threads, figures, rounding=rounding)


# --- Ours --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Ours:
    """Our library in a graph executor, and the entry of its region without TVM.

    ``entry`` is None where the host computes too; else it makes a call for inputs by name, and
    ``picks`` are the region's outputs that are the network's.
    """

    executor: TvmPeer
    entry: Callable[[Values], BoundCall] | None
    picks: tuple[int, ...]
    report: Report
    cost: CompileCost

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one run, those of the host included."""
        return sum(row.macs or 0 for row in (*self.report.regions, *self.report.host))


def build(network: Network, threads: int, settings: Settings, rounding: str) -> Ours:
    """Partition, build, export, load; timed."""
    options = {"threads": threads, "rounding": rounding}
    options |= {"isa": settings.isa} if settings.isa else {}
    path = settings.folder / f"{network.case.name.replace('/', '-')}-{rounding}-{threads}.so"
    moments = [time.perf_counter()]
    with workloads.peak_memory(psutil.Process()) as peak:
        partitioned = partition_for_tinyai(network.mod, sealed=True, **options)
        moments.append(time.perf_counter())
        factory = workloads.build_with_tvm(partitioned, settings.tvm_target)
        moments.append(time.perf_counter())
        workloads.export_whole(factory, path)
        moments.append(time.perf_counter())
        executor = TvmPeer(tvm.runtime.load_module(str(path)))
        moments.append(time.perf_counter())
    stages = [end - begin for begin, end in pairwise(moments)]
    entry, picks = _entry(partitioned)
    return Ours(
        executor,
        entry,
        picks,
        report_of(partitioned),
        CompileCost(*stages, peak_mib=peak[0] / workloads.MEBI),
    )


def _entry(
    partitioned: tvm.IRModule,
) -> tuple[Callable[[Values], BoundCall] | None, tuple[int, ...]]:
    """The region as a function without TVM, where it is the whole network."""
    inside = {variable.name_hint: func for variable, func in regions(partitioned).items()}
    found = _only_call(partitioned["main"].body)
    if found is None or len(inside) != 1 or found[0].op.name_hint not in inside:
        return None, ()
    call, picks = found
    if not all(isinstance(argument, relay.Var) for argument in call.args):
        return None, ()
    (func,) = inside.values()
    runner = Runner(graph_from_region(func), region_target(func))
    names = [argument.name_hint for argument in call.args]
    return (lambda values: runner.bound(*(values[name] for name in names))), picks


def _only_call(body: relay.Expr) -> tuple[relay.Call, tuple[int, ...]] | None:
    """The call of a region that a function is, and which of its outputs in which order."""
    fields = list(body.fields) if isinstance(body, relay.Tuple) else [body]
    calls = [each.tuple_value if isinstance(each, relay.TupleGetItem) else each for each in fields]
    first = calls[0]
    if not (isinstance(first, relay.Call) and isinstance(first.op, tvm.ir.GlobalVar)):
        return None
    if not all(each.same_as(first) for each in calls):
        return None
    if isinstance(first.checked_type, tvm.ir.TupleType) and len(fields) == 1 and first is body:
        return first, tuple(range(len(first.checked_type.fields)))
    return first, tuple(
        each.index if isinstance(each, relay.TupleGetItem) else 0 for each in fields
    )


# --- Peers and the check -----------------------------------------------------------------------


def peers_of(network: Network, threads: int, settings: Settings) -> list[Peer]:
    """Those that ours are compared with, loaded."""
    peers: list[Peer] = []
    if network.content is not None:
        make = OnnxRuntime if network.case.kind == "onnx" else LiteRT
        peers.append(make(network.content, threads))
        if "openvino" in settings.peers:
            peers.append(OpenVino(network.content, threads, f".{network.case.kind}"))
    if "tvm" in settings.peers or not peers:
        own = _integers(network)
        peers.append(TvmPeer(workloads.tvm_library(own, settings.tvm_target, settings.cache)))
    return peers


def _integers(network: Network) -> tvm.IRModule:
    """The module as TVM is to compile it: with int8 operators, of a QDQ file too."""
    return integers_from_qdq(network.mod) if network.case.kind == "onnx" else network.mod


def checked(
    network: Network, ours: Ours, peers: Sequence[Peer], threads: int, settings: Settings
) -> Check:
    """Compare on every input. Raises ``Differs``."""
    found = [ours.executor.outputs(values) for values in network.inputs]
    check = _compare(network, found, _oracle(network, ours, peers, settings))
    if check is None or (not check.problem and check.distinct < 2):
        check = _check_alive_part(network, threads, settings) or check
    if check is None:
        raise Differs("the peer's own reference gives no results")
    if check.problem or check.distinct < 2:
        raise Differs(check.problem or "has died out: its results are all the same")
    if ours.entry is not None:
        for values, result in zip(network.inputs, found, strict=True):
            _check_entry(ours.entry(values), ours.picks, result)
    return check


def differences(network: Network, ours: Ours, peers: Sequence[Peer]) -> list[float]:
    """The largest difference of each peer from ours on all inputs, as a share of the range that an
    output takes on them; the first input is the last that runs, and so the one that is timed."""
    inputs = network.inputs[::-1]
    own = [ours.executor.outputs(values) for values in inputs]
    return [apart([peer.outputs(values) for values in inputs], own) for peer in peers]


@dataclass(frozen=True, eq=False)
class Oracle:
    """Results for a network's inputs, None where there are none, whose they are, and how far ours
    may be from them."""

    name: str
    results: list[list[Array]] | None
    limit: float


def _compare(network: Network, found: Sequence[Sequence[Array]], oracle: Oracle) -> Check | None:
    if oracle.results is None:
        return None
    ours, theirs = (_joined(each) for each in (found, oracle.results))
    return Check(
        against=oracle.name,
        inputs=len(network.inputs),
        largest=difference(ours, theirs, steps(network.mod)),
        limit=oracle.limit,
        distinct=len(np.unique(np.concatenate([each.reshape(-1) for each in ours]))),
    )


def _joined(results: Sequence[Sequence[Array]]) -> list[Array]:
    """Each output for all inputs as one array: the range of a float one is that of all."""
    return [np.stack(each) for each in zip(*results, strict=True)]


def _check_alive_part(network: Network, threads: int, settings: Settings) -> Check | None:
    """The check of the part of a TFLite network that has not died out; None for other networks."""
    found = alive_part(network, settings.cache)
    if found is None or found[0].content is None:
        return None
    part, what = found
    ours = build(part, threads, settings, settings.rounding_of(part.case))
    results = [ours.executor.outputs(values) for values in part.inputs]
    peers = [LiteRT(found[0].content, threads)]
    check = _compare(part, results, _oracle(part, ours, peers, settings))
    return replace(check, against=f"{check.against}, {what}") if check else None


def _oracle(network: Network, ours: Ours, peers: Sequence[Peer], settings: Settings) -> Oracle:
    """What ours are compared with: the peer whose integers ours are; else TVM's integers where they
    are cheap, or the peer's, which are others."""

    def of(peer: Peer, limit: float) -> Oracle:
        return Oracle(peer.name, [peer.outputs(values) for values in network.inputs], limit)

    if network.case.kind == "relay":  # names every rounding itself
        return of(peers[0], 0.0)
    rounding = settings.rounding_of(network.case)
    if rounding == "tflite" and network.case.kind == "tflite" and network.content is not None:
        reference = ReferenceKernels(network.content)
        return Oracle(reference.name, reference.results(network.inputs), 0.0)
    if rounding == "onnx" and network.case.kind == "onnx":
        limit = PEER_LIMIT if _has_float_layers(network) else 0.0
        return Oracle(OnnxRuntime.name, _exact_results(network), limit)
    own = _integers(network)
    arguments: Mapping[str, str] = ORACLE_REQUANTIZE
    path = workloads.tvm_library_path(own, ORACLE_TARGET, settings.cache, **arguments)
    cheap = path.exists() or ours.macs <= CHEAP_MACS
    if settings.oracle == "tvm" or (settings.oracle == "auto" and cheap):
        library = workloads.tvm_library(own, ORACLE_TARGET, settings.cache, **arguments)
        return of(TvmPeer(library), 0.0)
    return of(peers[0], PEER_LIMIT)


def _exact_results(network: Network) -> list[list[Array]]:
    """ONNX Runtime's, by sums that do not saturate as those that are timed may."""
    session = exact_session(network.content, keeps_int8=False)
    return [session.run(None, dict(values)) for values in network.inputs]


def _has_float_layers(network: Network) -> bool:
    """Whether ONNX Runtime computes some layers in floats, where we add up integers."""
    found = set()
    relay.analysis.post_order_visit(
        network.mod["main"],
        lambda each: (
            found.add(each.op.name)
            if isinstance(each, relay.Call) and isinstance(each.op, tvm.ir.Op)
            else None
        ),
    )
    return not found.isdisjoint(FLOAT_LAYERS)


def _check_entry(call: BoundCall, picks: Sequence[int], expected: Sequence[Array]) -> None:
    call()
    found = [call.outputs[i] for i in picks]
    if len(found) != len(expected) or difference(found, expected):
        raise Differs("the C entry and the graph executor differ")


def steps(mod: tvm.IRModule) -> list[float | None]:
    """For each output of a module the scale with which it is dequantized in the end; None where
    it is not, or not by one number."""
    body = mod["main"].body
    return [_step(each) for each in (body.fields if isinstance(body, relay.Tuple) else [body])]


def _step(expr: relay.Expr) -> float | None:
    while isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
        if expr.op.name == "qnn.dequantize":
            scale = expr.args[1]
            known = isinstance(scale, relay.Constant) and scale.data.numpy().size == 1
            return float(scale.data.numpy().reshape(())) if known else None
        if expr.op.name not in MOVES:
            return None
        (expr,) = expr.args
    return None


def difference(
    found: Sequence[Array], expected: Sequence[Array], steps: Sequence[float | None] | None = None
) -> float:
    """The largest difference of two lists of outputs, in steps of an integer output, of ``steps`` a
    float one, or of 1/255 of its range where its step is None. 0 is equality of every value,
    infinity another number, shape or dtype of outputs."""
    steps = steps or [None] * len(expected)
    if not len(found) == len(expected) == len(steps):
        return float("inf")
    return max(map(_difference, found, expected, steps), default=0.0)


def _difference(found: Array, expected: Array, step: float | None) -> float:
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        return float("inf")
    if np.array_equal(found, expected, equal_nan=found.dtype.kind == "f"):
        return 0.0
    exact = expected.astype(np.float64)
    distance = np.abs(found.astype(np.float64) - exact)
    if not np.isfinite(distance).all():
        return float("inf")
    if expected.dtype.kind in "iu":
        return float(distance.max())
    step = step or float(np.ptp(exact)) / 255
    return float(distance.max()) / step if step else float("inf")


# --- Times -------------------------------------------------------------------------------------


def _figures(
    network: Network,
    ours: Ours,
    upward: Ours | None,
    peers: Sequence[tuple[Peer, float]],
    check: Check,
    seconds: float,
    *,
    settle: float,
) -> Figures:
    contenders: list[Contender] = [ours.executor.seconds, *(peer.seconds for peer, _ in peers)]
    contenders.append(loop(ours.executor.run))
    if ours.entry is not None:
        call = ours.entry(network.inputs[0])
        contenders.append(c_calls(call))
    if upward is not None:
        upward.executor.outputs(network.inputs[0])
        contenders.append(upward.executor.seconds)
    times = in_turn(contenders, seconds, settle=settle)
    run, *others = (1000 * each.median for each in times)
    rows = ours.report.regions
    return Figures(
        run_ms=run,
        spread=times[0].spread,
        upward_ms=others[-1] if upward is not None else None,
        entry_ms=others[len(peers) + 1] if ours.entry is not None else None,
        python_ms=others[len(peers)],
        peers=tuple(
            PeerTime(peer.name, ms, ms / run, each.spread, peer.runs, distance)
            for (peer, distance), ms, each in zip(peers, others, times[1:], strict=False)
        ),
        macs=ours.macs,
        gmacs=ours.macs / run / 1e6,
        regions=len(rows),
        host_operators=len(ours.report.computing),
        arena_bytes=max((row.arena_bytes for row in rows), default=0),
        arena_lower_bound=max((row.arena_lower_bound for row in rows), default=0),
        weight_bytes=sum(row.weight_bytes for row in rows),
        compile=ours.cost,
        check=check,
    )
