"""A network from torch to ExecuTorch's runtime, by tinyai's delegate and by XNNPACK's.

    python benchmarks/executorch_demo.py [NETWORK]

One quantized graph and two programs, on one thread: what their outputs differ by, how long a call
takes, and how long each layer of tinyai's does. `bench_executorch.py` measures all networks.
"""

# ruff: noqa: E402  # warnings are silenced before torch is imported
from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file
warnings.simplefilter("ignore")  # torch and ExecuTorch warn of each other
logging.disable(logging.WARNING)

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.devtools import Inspector
from executorch.exir import to_edge_transform_and_lower
from executorch.extension.pybindings import portable_lib
from executorch.runtime import Runtime
from torch.export import ExportedProgram

from benchmarks.torch_networks import NETWORKS, quantized
from tinyai import executorch as tinyai
from tinyai.runtime.timing import in_turn, loop

SAMPLES = 8
RUNS = 20
SLOWEST = 5  # layers that are shown


def step(what: str, work: Callable[[], Any]) -> Any:
    begin = time.perf_counter()
    result = work()
    print(f"{what:<48}{time.perf_counter() - begin:6.1f} s", flush=True)
    return result


def lowered(exported: ExportedProgram, partitioner: Any) -> bytes:
    edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
    return bytes(edge.to_executorch().buffer)


def layer_times(program: bytes, inputs: Sequence[torch.Tensor]) -> tuple[float, dict[str, float]]:
    """Median microseconds of the delegates' calls, and of each of their layers, by ETDump."""
    loaded = Runtime.get().load_program(program, enable_etdump=True)
    method = loaded.load_method("forward")
    for _ in range(RUNS):
        method.execute(inputs)
    with tempfile.TemporaryDirectory() as folder:
        dump, debug = Path(folder) / "net.etdp", Path(folder) / "debug.bin"
        loaded.write_etdump_result_to_file(str(dump), str(debug))
        blocks = Inspector(etdump_path=str(dump)).event_blocks
    events = [event for block in blocks if block.name == "Execute" for event in block.events]
    times = [(e.name, e.is_delegated_op, 1e3 * e.perf_data.p50) for e in events if e.perf_data]
    whole = sum(micros for name, _, micros in times if name == "DELEGATE_CALL")
    return whole, {name: micros for name, inside, micros in times if inside}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", nargs="?", default="resnet8", choices=NETWORKS)
    network = NETWORKS[parser.parse_args().network]()
    torch.set_num_threads(1)
    portable_lib._unsafe_reset_threadpool(1)
    samples = network.samples(SAMPLES)

    step("native part compiled, or found", tinyai.load)
    quantizer = tinyai.TinyAIQuantizer().set_global(tinyai.quantization_config())
    exported = step(
        f"{network.name}: exported and quantized",
        lambda: quantized(network.module, samples, quantizer),
    )
    ours = step("lowered by tinyai", lambda: lowered(exported, tinyai.TinyAIPartitioner()))
    theirs = step("lowered by XNNPACK", lambda: lowered(exported, XnnpackPartitioner()))
    print(f"programs of {len(ours) / 1e3:.0f} and {len(theirs) / 1e3:.0f} kB\n")

    modules = [portable_lib._load_for_executorch_from_buffer(each) for each in (ours, theirs)]
    differ = values = same = 0
    for sample in samples:
        mine, other = (module.run_method("forward", sample)[0] for module in modules)
        differ += int((mine != other).sum())
        values += mine.numel()
        same += int(mine.argmax() == other.argmax())
    print(f"outputs: {differ} of {values} differ; {same} of {len(samples)} first choices equal")
    calls = [loop(lambda m=module: m.plan_execute("forward")) for module in modules]
    times = [1e6 * each.median for each in in_turn(calls, 1.0, settle=0.02)]
    print(
        f"a call: tinyai {times[0]:.1f} µs, XNNPACK {times[1]:.1f} µs: {times[1] / times[0]:.2f}x"
    )

    whole, layers = layer_times(ours, samples[0])
    tracing = 100 * layers.pop("writing the trace") / whole
    share = 100 * sum(layers.values()) / whole
    print(
        f"\nETDump: {len(layers)} layers are {share:.1f} % of the call, the trace {tracing:.1f} %"
    )
    for name in sorted(layers, key=layers.__getitem__, reverse=True)[:SLOWEST]:
        print(f"{layers[name]:8.1f} µs  {name}")


if __name__ == "__main__":
    main()
