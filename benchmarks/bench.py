"""`make bench`: our libraries against LiteRT, ONNX Runtime and TVM's own int8, network by network.

    python benchmarks/bench.py [options] [FILE.tflite | FILE.onnx ...]

Same network, same input, same number of threads, in short slices that take turns in one process.
Results are compared before anything is timed. Prints two tables and writes a JSON file; the exit
code is 1 where a result differs or a network could not be measured.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Generic, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks import workloads
from benchmarks.bench_beside import OTHERS, BesideRows, beside_table, measured_beside
from benchmarks.bench_busy import BusyRows, Condition, busy_table, measured_busy
from benchmarks.bench_measure import Figures, Row, Settings, measured
from benchmarks.bench_networks import MODELS, Case, chosen, known, of_files
from benchmarks.demo import cpu_name
from benchmarks.peers import has_openvino, versions
from tinyai.errors import OptionError, TinyAIError
from tinyai.runtime.peak import product_peak
from tinyai.runtime.timing import geometric_mean
from tinyai.safe_text import safe
from tinyai.target import ROUNDINGS, Target

PICTURE = workloads.ROOT / "docs" / "bench.svg"
NOTHING = "–"
BUSY = 0.05  # a spread from which on a ratio is noise
WIDTH = 170
MOST_BUSY = 64  # processes
# Settings that the report repeats.
SAID = ("seconds", "isa", "rounding", "peers", "peer_isa", "tvm_target", "oracle")
# Beside the framework of a file.
PEERS = ("openvino", "tvm")
PEER_ISAS = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI",
             "AVX512_CORE_BF16", "AVX512_CORE_AMX")  # fmt: skip
T = TypeVar("T")
R = TypeVar("R", BusyRows, BesideRows)
Peaks = dict[int, tuple[float | None, str]]


@click.command(help=__doc__.split("\n")[0])
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--networks", default="", help="Names, with commas; all that are known by default.")
@click.option("--threads", default="1,2", show_default=True, help="Numbers, with commas.")
@click.option("--isa", default=None, help="-isa= of the target instead of its default.")
@click.option(
    "--rounding",
    type=click.Choice(["peer", *ROUNDINGS]),
    default="peer",
    show_default=True,
    help="-rounding= of the target; peer: the one with the peer's integers, tflite for a TFLite "
    "file and onnx for an ONNX file. upward, whose integers are TVM's, is timed beside it.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=2.0,
    show_default=True,
    help="Time for each contender on each network.",
)
@click.option(
    "--peers",
    default="openvino",
    show_default=True,
    help="Peers beside the framework of a file, with commas: openvino; tvm for TVM's own int8, "
    "which takes minutes a network to build. An empty word: none.",
)
@click.option(
    "--peer-isa",
    type=click.Choice(PEER_ISAS, case_sensitive=False),
    help="Hold OpenVINO to an instruction set, as its oneDNN spells it.",
)
@click.option(
    "--tvm-target", help="What TVM compiles for: its own int8, our host code. [default: this CPU]"
)
@click.option(
    "--busy",
    default="",
    help="Numbers, with commas: time single calls beside so many busy processes, against the peer "
    "and our own on one thread.",
)
@click.option("--pinned", is_flag=True, help="With --busy: on one CPU as well.")
@click.option(
    "--beside",
    default="",
    help=f"Runtimes, with commas: time single calls in turns with {', '.join(OTHERS)} in the same "
    "process, each on as many threads.",
)
@click.option("--relay", is_flag=True, help="Networks of relay.quantize, against TVM, as well.")
@click.option(
    "--oracle",
    type=click.Choice(["auto", "tvm", "peer"]),
    default="auto",
    show_default=True,
    help="Compare with TVM's integers, or with the peer's within limits; auto: TVM if cheap.",
)
@click.option(
    "--models",
    type=click.Path(file_okay=False, path_type=Path),
    default=MODELS,
    help="Folder of TFLite files whose README.md names them.",
)
@click.option(
    "--json",
    "output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=workloads.BUILD / "bench.json",
    help="Where the figures go (build/bench.json).",
)
@click.option("--picture", is_flag=True, help="Draw docs/bench.svg.")
@click.option("--list", "only_list", is_flag=True, help="Print the names of the networks.")
def main(
    files: tuple[Path, ...],
    networks: str,
    threads: str,
    isa: str | None,
    rounding: str,
    seconds: float,
    busy: str,
    pinned: bool,
    beside: str,
    relay: bool,
    peers: str,
    peer_isa: str | None,
    tvm_target: str | None,
    oracle: str,
    models: Path,
    output: Path,
    picture: bool,
    only_list: bool,
) -> None:
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")
    wide = max(WIDTH, Console().width)  # a narrow terminal wraps lines; cells would be unreadable
    console = Console(highlight=False, width=wide)
    try:
        counts = [Target(threads=each).threads for each in words(threads)]  # type: ignore[arg-type]
        if isa is not None:
            Target(isa=isa)
        conditions = conditions_of(words(busy), pinned=pinned)
        cases, notes = cases_of(files, words(networks), models, relay=relay)
        others = others_of(words(beside))
        wanted, missing = peers_of(words(peers))
    except TinyAIError as error:
        raise click.UsageError(str(error)) from None
    notes += missing
    for note in notes:
        console.print(note)
    if only_list:
        console.print("\n".join(case.name for case in cases))
        return
    settings = Settings(
        seconds=seconds,
        isa=isa,
        rounding=rounding,
        peers=wanted,
        peer_isa=peer_isa,
        tvm_target=tvm_target or workloads.host_target(),
        oracle=oracle,
        cache=workloads.BUILD / "cache",
        folder=workloads.BUILD / "bench",
    )
    for kind, wanted_conditions in ((BUSY_CALLS, conditions), (BESIDE_CALLS, others)):
        if wanted_conditions:
            sys.exit(bench_calls(kind, cases, counts, settings, wanted_conditions, output, console))
    sys.exit(bench(cases, counts, settings, notes, output, PICTURE if picture else None, console))


def words(text: str) -> list[str]:
    """What stands between the commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def cases_of(
    files: Sequence[Path], names: Sequence[str], models: Path, *, relay: bool
) -> tuple[list[Case], list[str]]:
    """The user's files, and the networks that he names; all known ones where he names neither."""
    own = of_files(files)
    if own and not names and not relay:
        return own, []
    cases, notes = known(models, relay=relay or any(name.startswith("relay_") for name in names))
    return own + chosen(cases, names), notes if not names else []


def peers_of(names: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """The peers of ``--peers`` that are installed, and a note on what is not. Raises
    ``OptionError``."""
    if unknown := {*names} - {*PEERS}:
        raise OptionError("--peers", found=", ".join(sorted(unknown)), allowed=", ".join(PEERS))
    if "openvino" in names and not has_openvino():
        kept = tuple(name for name in names if name != "openvino")
        return kept, ['not compared with OpenVINO, which is missing: pip install "tinyai[bench]"']
    return tuple(names), []


def others_of(names: Sequence[str]) -> tuple[str, ...]:
    """The runtimes of ``--beside``. Raises ``OptionError``."""
    if unknown := {*names} - {*OTHERS}:
        raise OptionError("--beside", found=", ".join(sorted(unknown)), allowed=", ".join(OTHERS))
    if "openvino" in names and not has_openvino():
        raise OptionError(
            "--beside", found="no OpenVINO", allowed="one", hint='pip install "tinyai[bench]"'
        )
    return tuple(names)


def conditions_of(busy: Sequence[str], *, pinned: bool) -> list[Condition]:
    """The conditions of ``--busy``; none without it. Raises ``OptionError``."""
    numbers = [int(each) if each.isdecimal() else -1 for each in busy]
    if any(number not in range(MOST_BUSY + 1) for number in numbers):
        allowed = f"numbers from 0 to {MOST_BUSY}, with commas"
        raise OptionError("--busy", found=",".join(busy), allowed=allowed)
    if pinned and not numbers:
        raise OptionError("--pinned", found="no --busy", allowed="with --busy", hint="--busy 0")
    places = (False, True) if pinned else (False,)
    return [Condition(number, place) for place in places for number in numbers]


def bench(
    cases: Sequence[Case],
    threads: Sequence[int],
    settings: Settings,
    notes: Sequence[str],
    output: Path,
    picture: Path | None,
    console: Console,
) -> int:
    """Measure every case on every number of threads; print, write ``output``; the exit code."""
    peaks = {count: product_peak(count, settings.isa or "auto") for count in threads}
    rows = []
    for number, case in enumerate(cases):
        for count in threads:
            what = f"{number + 1} of {len(cases)}: {shown(case.name)}, {_plural(count, 'thread')}"
            with console.status(f"{what} …"):
                row = in_a_process(measured, case, count, settings)
            if isinstance(row, str):
                row = Row(case.name, case.kind, count, None, row, settings.rounding_of(case))
            rows.append(row)
            console.print(f"{what}: {_summary(rows[-1])}")
    report = {
        "schema": "tinyai.bench/1",
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "versions": versions()},
        "settings": {name: getattr(settings, name) for name in SAID},
        "left_out": list(notes),
        "peak_gmacs": {str(count): peak for count, (peak, _) in peaks.items()},
        "networks": [_with_share(row, peaks) for row in rows],
        "geometric_means": means(rows),
        "least_ratios": {
            name: {count: min(each) for count, each in counts.items()}
            for name, counts in ratios(rows).items()
        },
        "largest_spread": spread(rows),
    }
    workloads.write_whole(output, json.dumps(report, indent=2) + "\n")
    for table in (latencies(rows, peaks), kernels(rows), costs(rows)):
        console.print(table)
    _print_means(rows, console)
    _print_spread(rows, console)
    for count, (peak, what) in peaks.items():
        console.print(
            f"Peak of products, {_plural(count, 'thread')}: "
            + (f"{peak:.0f} GMAC/s, {what}" if peak else f"not measured, {what}")
        )
    console.print(f"The figures are in {output}.")
    if picture is not None:
        from benchmarks.bench_picture import draw  # brings matplotlib, which takes a while

        draw(rows, picture, cpu_name())
        console.print(f"The picture is {picture}.")
    return int(any(row.problem for row in rows))


@dataclasses.dataclass(frozen=True)
class SingleCalls(Generic[R]):
    """Single calls of a network that are timed under conditions: how, what holds the figures, and
    the table of them."""

    measure: Callable[..., R]
    rows: Callable[..., R]
    table: Callable[[Sequence[R]], Table]


BUSY_CALLS = SingleCalls(measured_busy, BusyRows, busy_table)
BESIDE_CALLS = SingleCalls(measured_beside, BesideRows, beside_table)


def bench_calls(
    kind: SingleCalls[R],
    cases: Sequence[Case],
    threads: Sequence[int],
    settings: Settings,
    conditions: Sequence[Condition] | Sequence[str],
    output: Path,
    console: Console,
) -> int:
    """Measure every case under every condition; print, write ``output``; the exit code."""
    found = []
    for case in cases:
        for count in threads:
            what = f"{shown(case.name)}, {_plural(count, 'thread')}"
            with console.status(f"{what} …"):
                each = in_a_process(kind.measure, case, count, settings, conditions)
            if isinstance(each, str):
                each = kind.rows(case.name, case.kind, count, problem=each)
            if each.problem:
                console.print(f"{what}: [red]{shown(each.problem)}[/red]")
            found.append(each)
    report = {
        "schema": "tinyai.bench.calls/1",
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "versions": versions()},
        "settings": {name: getattr(settings, name) for name in SAID},
        "networks": [dataclasses.asdict(each) for each in found],
    }
    workloads.write_whole(output, json.dumps(report, indent=2) + "\n")
    console.print(kind.table(found))
    console.print(f"The figures are in {output}.")
    return int(any(each.problem for each in found))


def in_a_process(work: Callable[..., T], case: Case, threads: int, *arguments: object) -> T | str:
    """What ``work`` returns in a process of its own, or its problem: TVM reads its number of
    threads once, OpenVINO its instruction set, and a peer that crashes takes nobody along."""
    wanted = {"TVM_NUM_THREADS": str(threads)}
    settings = next((each for each in arguments if isinstance(each, Settings)), None)
    if settings and settings.peer_isa:
        wanted["ONEDNN_MAX_CPU_ISA"] = settings.peer_isa
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            return pool.submit(work, case, threads, *arguments).result()
    except BrokenProcessPool:
        return "the process that measured it crashed"
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


# --- Ratios ------------------------------------------------------------------------------------


def ratios(rows: Iterable[Row]) -> dict[str, dict[str, list[float]]]:
    """The ratios by peer and number of threads; under the peer's rounding those of networks whose
    results are equal to the framework's."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        counts = row.figures and (row.rounding == "upward" or not row.figures.check.limit)
        for peer in row.figures.peers if row.figures and counts else ():
            found.setdefault(peer.name, {}).setdefault(str(row.threads), []).append(peer.ratio)
    return found


def means(rows: Iterable[Row]) -> dict[str, dict[str, float]]:
    """Geometric means of the ratios."""
    return {
        name: {count: mean for count, each in counts.items() if (mean := geometric_mean(each))}
        for name, counts in ratios(rows).items()
    }


def _print_means(rows: Sequence[Row], console: Console) -> None:
    for name, counts in ratios(rows).items():
        text = ", ".join(
            f"{geometric_mean(each):.2f} (least {min(each):.2f}) on {_plural(int(count), 'thread')}"
            for count, each in counts.items()
        )
        console.print(f"Geometric mean of {name} / tinyai: {text}")


def spread(rows: Iterable[Row]) -> float:
    """The largest distance of the quartiles of a latency, as a share of its median."""
    measured = [row.figures for row in rows if row.figures is not None]
    spreads = [each.spread for figures in measured for each in (figures, *figures.peers)]
    return max(spreads, default=0.0)


def _print_spread(rows: Iterable[Row], console: Console) -> None:
    largest = spread(rows)
    console.print(f"Largest distance of the quartiles of a latency: {largest:.0%} of its median")
    if largest > BUSY:
        console.print("[yellow]The machine is busy or unsteady: these ratios are noise in part.")


# --- What is shown -----------------------------------------------------------------------------


def latencies(rows: Sequence[Row], peaks: Peaks) -> Table:
    """One line for each row and peer; ratios below 1 are red."""
    table = Table(title="Latency: medians in ms; ratio = peer / run", title_justify="left")
    for column in ("network", "threads", "rounding", "run", "upward", "C entry", "Python", "peer",
                   "ms", "ratio", "GMAC/s", "of peak", "checked against"):  # fmt: skip
        text = column in ("network", "rounding", "peer", "checked against")
        table.add_column(column, justify="left" if text else "right", overflow="fold")
    for row in rows:
        figures = row.figures
        name = shown(row.name)
        if figures is None:
            problem = f"[red]{shown(row.problem or '')}[/red]"
            table.add_row(name, str(row.threads), row.rounding, *[NOTHING] * 9, problem)
            continue
        own = [name, str(row.threads), row.rounding, *_own_times(figures)]
        rest = [*_rates(figures, peaks[row.threads][0]), _check(figures)]
        for number, peer in enumerate(figures.peers):
            ratio = f"{peer.ratio:.2f}"
            cells = [peer.name, _ms(peer.ms), ratio if peer.ratio >= 1 else f"[red]{ratio}[/red]"]
            table.add_row(
                *(own if not number else [""] * len(own)), *cells, *(rest if not number else [])
            )
    return table


def kernels(rows: Iterable[Row]) -> Table:
    """What each peer computes its products with, and how far its results are from ours."""
    table = Table(title="Peers: kernels of their products, and results", title_justify="left")
    for column in ("network", "threads", "peer", "differs", "kernels"):
        right = column in ("threads", "differs")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        for peer in row.figures.peers if row.figures else ():
            differs = f"{peer.differs:.1%} of the range" if peer.differs else "equal"
            table.add_row(shown(row.name), str(row.threads), peer.name, differs, shown(peer.runs))
    return table


def _own_times(figures: Figures) -> list[str]:
    times = (figures.run_ms, figures.upward_ms, figures.entry_ms, figures.python_ms)
    return [_ms(each) for each in times]


def _rates(figures: Figures, peak: float | None) -> list[str]:
    share = share_of_peak(figures, peak)
    return [f"{figures.gmacs:.1f}", NOTHING if share is None else f"{share:.0%}"]


def costs(rows: Sequence[Row]) -> Table:
    """Memory, and the time to compile."""
    table = Table(
        title="Memory in KiB; seconds from the quantized module to the loaded library",
        title_justify="left",
    )
    table.add_column("network", overflow="fold")
    for column in ("threads", "MMAC", "arena", "lower bound", "weights", "partition", "codegen",
                   "C compiler", "load", "sum", "peak MiB"):  # fmt: skip
        table.add_column(column, justify="right")
    for row in rows:
        figures = row.figures
        if figures is None:
            continue
        cost = figures.compile
        sizes = (figures.arena_bytes, figures.arena_lower_bound, figures.weight_bytes)
        stages = (cost.partition, cost.codegen, cost.compiler, cost.load, cost.seconds)
        table.add_row(
            shown(row.name),
            str(row.threads),
            f"{figures.macs / 1e6:.2f}",
            *(f"{size / 1024:,.1f}" for size in sizes),
            *(f"{stage:.2f}" for stage in stages),
            f"{cost.peak_mib:.0f}",
        )
    return table


def shown(text: str) -> str:
    """Text of the user's on a line of its own, and not as rich's markup."""
    return escape(safe(text, 240))


def share_of_peak(figures: Figures, peak: float | None) -> float | None:
    """Of what the cores could multiply at most, None where that is not known."""
    return figures.gmacs / peak if peak else None


def _check(figures: Figures) -> str:
    check = figures.check
    if check.limit == 0:
        return f"{check.against}: equal, {_plural(check.inputs, 'input')}"
    return f"{check.against}: within {check.largest:.1f} of 255 (allowed {check.limit:g})"


def _ms(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _summary(row: Row) -> str:
    if row.figures is None:
        return f"[red]{shown(row.problem or '')}[/red]"
    others = (f"{peer.name} {_ms(peer.ms)} ms ({peer.ratio:.2f})" for peer in row.figures.peers)
    upward = row.figures.upward_ms
    beside = f" ({row.rounding}; {_ms(upward)} upward)" if upward is not None else ""
    return ", ".join([f"{_ms(row.figures.run_ms)} ms{beside}", *others])


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _with_share(row: Row, peaks: Peaks) -> dict[str, Any]:
    result = dataclasses.asdict(row)
    if row.figures is not None:
        peak, _ = peaks[row.threads]
        result["figures"]["share_of_peak"] = share_of_peak(row.figures, peak)
    return result


if __name__ == "__main__":
    main()
