"""Calibration's memory as samples grow, and its time on one worker and on two.

    python -m benchmarks.calibration            both, with the verdicts
    python -m benchmarks.calibration grow       memory alone; times: the workers alone
    python -m benchmarks.calibration memory 100 this process: its peak in MiB
    python -m benchmarks.calibration file 100   MobileNetV2 at 224 by ONNX Runtime, without TVM:
                                                calibrated and compiled

Memory: a thin network with inputs of 224 x 224 x 3, from a generator; each count in a process of
its own. Time: the first stages of MobileNetV2, a quarter as wide, at 224; a folder of .npy; workers
of one thread each (``TVM_NUM_THREADS=1``), after the model was read and they have built it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

COUNTS = (100, 1000)
GROWTH = 50  # MiB
SPEEDUP = 1.6
TIMED = 400  # samples


def thin() -> Any:
    """Three convolutions, each of half the size of the one before."""
    import tvm
    from tvm import relay

    rng, value = np.random.default_rng(0), relay.var("image", shape=(1, 3, 224, 224))
    for inputs, channels in ((3, 8), (8, 8), (8, 16)):
        weight = relay.const(0.2 * rng.standard_normal((channels, inputs, 3, 3)), "float32")
        shape = {"channels": channels, "kernel_size": (3, 3), "strides": (2, 2), "padding": (1, 1)}
        value = relay.nn.relu(relay.nn.conv2d(value, weight, **shape))
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(value), value))


def samples(count: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield {"image": rng.standard_normal((1, 3, 224, 224), np.float32)}


def peak(count: int) -> float:
    """The most memory of this process, in MiB, after so many samples."""
    import tinyai

    tinyai.calibrate(thin(), None, samples(count))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def of_file(count: int, size: int = 224) -> str:
    """What it takes to calibrate MobileNetV2 on so many samples, and to compile it, without TVM."""
    import onnx

    import tinyai
    from benchmarks.onnx_networks import mobilenet_v2

    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "net.onnx"
        onnx.save(mobilenet_v2(size=size, norm=True), file)
        (end,) = onnx.load(file).graph.input
        begin = time.perf_counter()
        renamed = ({end.name: sample["image"][..., :size, :size]} for sample in samples(count))
        quantized = tinyai.quantize_file(file, renamed)
        tinyai.compile(quantized.model, file.with_suffix(".so"))
        wall = time.perf_counter() - begin
    own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    spent = sum(each.ru_utime + each.ru_stime for each in (own, children))
    memory = own.ru_maxrss / 1024
    return f"{count} samples: {wall:.1f} s, {spent:.1f} of a CPU, at most {memory:.1f} MiB"


def seconds(workers: int, folder: Path, model: Any) -> float:
    """Of a calibration by so many workers, which have built the model before."""
    from distributed import Client, LocalCluster

    import tinyai

    settings = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(**settings) as cluster, Client(cluster) as client:
        few = samples(6 * 2 * workers)
        tinyai.calibrate(*model, few, client=client)
        begin = time.perf_counter()
        tinyai.calibrate(*model, folder, client=client)
        return time.perf_counter() - begin


def memory_of(count: int) -> float:
    command = [sys.executable, "-m", "benchmarks.calibration", "memory", str(count)]
    return float(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def memory() -> bool:
    peaks = {count: memory_of(count) for count in COUNTS}
    for count, found in peaks.items():
        print(f"{count:5} samples: {found:6.1f} MiB at most")
    grown = peaks[COUNTS[-1]] - peaks[COUNTS[0]]
    print(f"growth {grown:.1f} MiB, allowed {GROWTH}")
    return grown <= GROWTH


def times() -> bool:
    from tvm import relay

    from benchmarks.onnx_networks import MOBILENET_V2, mobilenet_v2

    os.environ["TVM_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as name:
        network = mobilenet_v2(width=0.25, stages=MOBILENET_V2[:3], norm=True)
        model, folder = relay.frontend.from_onnx(network), Path(name)
        for number, sample in enumerate(samples(TIMED)):
            np.save(folder / f"{number:04}.npy", sample["image"])
        one, two = (seconds(workers, folder, model) for workers in (1, 2))
    print(f"{TIMED} samples: {one:.2f} s on one worker, {two:.2f} s on two: {one / two:.2f} times")
    return one / two >= SPEEDUP


def main() -> int:
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")
    if sys.argv[1:2] == ["memory"]:
        print(peak(int(sys.argv[2])))
        return 0
    if sys.argv[1:2] == ["file"]:
        print(of_file(int(sys.argv[2])))
        return 0
    asked = sys.argv[1:] or ["grow", "times"]
    return 0 if all({"grow": memory, "times": times}[each]() for each in asked) else 1


if __name__ == "__main__":
    sys.exit(main())
