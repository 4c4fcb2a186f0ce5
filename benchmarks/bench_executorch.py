"""Times of tinyai's delegate beside XNNPACK's: the same quantized graphs, one thread, in turns.

    python benchmarks/bench_executorch.py [NETWORK ...] [--quantizer xnnpack|tinyai] [--seconds S]

A run is a call of the program's method, whose inputs are where it reads them. Both programs come
from one quantized graph; what their results differ by is told in steps of the last quantization.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.exir import to_edge_transform_and_lower
from executorch.extension.pybindings import portable_lib
from torch.export import ExportedProgram

from benchmarks.torch_networks import NETWORKS, Network, quantized
from tinyai import executorch as tinyai
from tinyai.runtime.timing import geometric_mean, in_turn, loop

CALIBRATION = 8
SAMPLES = 4
SECONDS = 2.0


def xnnpacks_quantizer() -> Any:
    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))


def tinyais_quantizer() -> Any:
    return tinyai.TinyAIQuantizer().set_global(tinyai.quantization_config())


QUANTIZERS: dict[str, Callable[[], Any]] = {
    "xnnpack": xnnpacks_quantizer,
    "tinyai": tinyais_quantizer,
}


@dataclass(frozen=True)
class Result:
    """Median microseconds of both, the delegates of each, and the largest difference in steps."""

    network: str
    ours: float
    theirs: float
    delegates: tuple[int, int]
    steps: int

    @property
    def ratio(self) -> float:
        return self.theirs / self.ours


class Program:
    """A lowered graph in ExecuTorch's runtime."""

    def __init__(self, exported: ExportedProgram, partitioners: Sequence[Any]) -> None:
        edge = to_edge_transform_and_lower(exported, partitioner=list(partitioners))
        graph = edge.exported_program().graph
        self.delegates = sum("executorch_call_delegate" in str(node.target) for node in graph.nodes)
        self._buffer = edge.to_executorch().buffer  # which the runtime reads from
        self._module = portable_lib._load_for_executorch_from_buffer(self._buffer)

    def __call__(self, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
        (result,) = self._module.run_method("forward", inputs)
        return result

    def run(self) -> None:
        """Once more on the inputs of the last call, which the program has a copy of."""
        self._module.plan_execute("forward")


def compared(network: Network, quantizer: str, seconds: float) -> Result:
    calibration = network.samples(CALIBRATION, seed=5)
    exported = quantized(network.module, calibration, QUANTIZERS[quantizer]())
    ours = Program(exported, [tinyai.TinyAIPartitioner(threads=1)])
    theirs = Program(exported, [XnnpackPartitioner()])
    steps = 0
    for sample in network.samples(SAMPLES):
        difference = (ours(sample) - theirs(sample)).abs().max().item()
        steps = max(steps, round(difference / last_scale(exported)))
    times = in_turn([loop(ours.run), loop(theirs.run)], seconds, settle=0.02)
    mine, other = (each.median * 1e6 for each in times)
    return Result(network.name, mine, other, (ours.delegates, theirs.delegates), steps)


def last_scale(exported: ExportedProgram) -> float:
    nodes = (node for node in exported.graph.nodes if "dequantize_per_tensor" in str(node.target))
    return float([*nodes][-1].args[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("networks", nargs="*", default=[], help=", ".join(NETWORKS))
    parser.add_argument("--quantizer", choices=QUANTIZERS, default="xnnpack")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each contender")
    options = parser.parse_args()
    unknown = [name for name in options.networks if name not in NETWORKS]
    if unknown:
        parser.error(f"no network {unknown[0]}: {', '.join(NETWORKS)}")
    torch.set_num_threads(1)
    portable_lib._unsafe_reset_threadpool(1)
    tinyai.load()
    print("| network | tinyai µs | XNNPACK µs | ratio | delegates | steps apart |")
    print("|---|---|---|---|---|---|")
    found = []
    for name in options.networks or NETWORKS:
        result = compared(NETWORKS[name](), options.quantizer, options.seconds)
        found.append(result)
        row = f"{result.ours:.1f} | {result.theirs:.1f} | {result.ratio:.2f}"
        parts = f"{result.delegates[0]} and {result.delegates[1]} | {result.steps}"
        print(f"| {result.network} | {row} | {parts} |", flush=True)
    print(f"\ngeometric mean {geometric_mean([each.ratio for each in found]):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
