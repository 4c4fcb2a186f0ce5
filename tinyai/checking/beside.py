"""``tinyai bench --peers``: compiled code of a model file beside other programs that run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.table import Table
from rich.text import Text

from tinyai.checking.peers import LiteRT, OnnxRuntime, OpenVino, Peer, PeerTime, Values, apart
from tinyai.checking.samples import drawn
from tinyai.errors import EnvironmentProblem, OptionError
from tinyai.ir import Array
from tinyai.model_file import InputShapes
from tinyai.network import Network
from tinyai.runtime.runner import Runner
from tinyai.runtime.timing import SETTLE_SECONDS, in_turn, loop
from tinyai.safe_text import safe
from tinyai.target import Target

# Random inputs on which results are compared; the first is timed.
INPUTS = 4


@dataclass(frozen=True)
class Beside:
    """Median milliseconds of a call, ours and each peer's; ``absent`` says which peers are missing
    and why."""

    network: str
    threads: int
    ms: float
    spread: float
    peers: tuple[PeerTime, ...]
    absent: tuple[str, ...]


def time_beside(
    network: Network,
    file: Path,
    target: Target,
    *,
    seconds: float,
    signature: str = "",
    input_shapes: InputShapes = "",
) -> Beside:
    """Compiled code of a network beside the framework of its file, or of a ``signature`` in it, and
    OpenVINO. Those that read an .onnx file get it with the same ``input_shapes``.

    They take turns in one process, on the target's number of threads, for about ``seconds`` each.
    Raises ``OptionError`` for a model with state, ``EnvironmentProblem`` where no peer is there.
    """
    if network.states:
        raise OptionError(
            "model beside peers",
            found="a model with state",
            allowed="models whose calls do not depend on one another",
            hint="tinyai bench FILE without --peers",
        )
    runner = Runner(network.graph, target, kernels=network.kernels)
    names = [port.name for port in network.inputs]
    samples = list(drawn(network, INPUTS))[::-1]
    values = [dict(zip(names, sample, strict=True)) for sample in samples]
    ours = [runner(*sample) for sample in samples]
    peers, absent = _peers(
        file, _content(file, signature, input_shapes), target.threads, values, ours
    )
    contenders = [loop(runner.bound(*samples[-1])), *(peer.seconds for peer, _ in peers)]
    times = in_turn(contenders, seconds, settle=SETTLE_SECONDS if target.threads > 1 else 0.0)
    own, *others = times
    return Beside(
        network.name,
        target.threads,
        1000 * own.median,
        own.spread,
        tuple(
            PeerTime(
                peer.name,
                1000 * each.median,
                each.median / own.median,
                each.spread,
                peer.runs,
                difference,
            )
            for (peer, difference), each in zip(peers, others, strict=True)
        ),
        tuple(absent),
    )


def beside_table(found: Beside) -> Table:
    """The times of a network for a terminal: a row a program."""
    threads = f"{found.threads} thread{'' if found.threads == 1 else 's'}"
    title = Text(f"{safe(found.network)}, {threads}: medians in ms; ratio = peer / tinyai")
    table = Table(title=title, title_justify="left")
    for column in ("program", "ms", "spread", "ratio", "results", "kernels of its products"):
        right = column in ("ms", "spread", "ratio")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    table.add_row("tinyai", f"{found.ms:.4g}", f"{found.spread:.0%}", "", "", "")
    for peer in found.peers:
        results = f"up to {peer.differs:.1%} of the range apart" if peer.differs else "equal"
        times = f"{peer.ms:.4g}", f"{peer.spread:.0%}", f"{peer.ratio:.2f}"
        table.add_row(*map(Text, (peer.name, *times, results, safe(peer.runs, 240))))
    return table


def _content(file: Path, signature: str, input_shapes: InputShapes) -> bytes:
    """What peers read."""
    if file.suffix.lower() == ".tflite":
        from tinyai.frontends.tflite.signatures import content_of

        return content_of(file.read_bytes(), signature)
    from tinyai.frontends.onnx.framework import model_with

    content: bytes = model_with(file, input_shapes).SerializeToString()
    return content


def _peers(
    file: Path,
    content: bytes,
    threads: int,
    values: Sequence[Values],
    ours: Sequence[Sequence[Array]],
) -> tuple[list[tuple[Peer, float]], list[str]]:
    """The peers that run a file, with how far their results are from ours, and why others do not.
    Raises ``EnvironmentProblem`` where none does."""
    suffix = file.suffix.lower()
    framework: type[OnnxRuntime] | type[LiteRT] = OnnxRuntime if suffix == ".onnx" else LiteRT
    peers: list[tuple[Peer, float]] = []
    absent: list[EnvironmentProblem] = []
    for name, make in (
        (framework.name, framework),
        (OpenVino.name, partial(OpenVino, suffix=suffix)),
    ):
        try:
            peer = make(content, threads)
            peers.append((peer, apart([peer.outputs(each) for each in values], ours)))
        except EnvironmentProblem as missing:
            absent.append(missing)
        except Exception as error:  # peers raise exceptions of any kind
            found = f"{type(error).__name__}: {safe(str(error), 240)}"
            absent.append(EnvironmentProblem(f"{name} does not run {file.name}", found=found))
    if not peers:
        raise absent[0]
    return peers, [f"{each.what}: {each.hint or each.found}" for each in absent]
