"""What TVM's Relax costs around tinyai's code: times of each step, sizes of libraries, calls.

    python benchmarks/relax_costs.py [NETWORK...]

A network is one of ``NETWORKS``, or the path of a quantized .onnx or .tflite file.

CPU seconds from a module to a loaded library, without compilers' caches and with them; bytes of the
exported library beside the one of ``tinyai compile``; and a call through the virtual machine beside
the same C called directly, in turns, on one thread.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file

import numpy as np
import onnx
import tvm
from tvm import relax

import tinyai
from benchmarks import onnx_networks
from tinyai.frontends.files import network_of_file
from tinyai.frontends.relax.built import imported
from tinyai.frontends.relax.pipeline import GenerateCode
from tinyai.relax import partition_for_tinyai
from tinyai.runtime.runner import Runner
from tinyai.runtime.timing import in_turn, loop
from tinyai.target import Target, default_rounding

NETWORKS: dict[str, Callable[[], Any]] = {
    "squeezenet 96": lambda: onnx_networks.squeezenet(size=96, width=0.5),
    "mobilenet_v2 96": lambda: onnx_networks.mobilenet_v2(size=96, width=0.5),
    "mobilenet_v2 224": lambda: onnx_networks.mobilenet_v2(size=224),
    "resnet18 224": lambda: onnx_networks.resnet18(size=224),
}
ISA = "native"


def cpu_seconds() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def taken(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = cpu_seconds()
    result = work()
    return cpu_seconds() - begin, result


def steps(mod: tvm.IRModule, file: Path, target: Target) -> list[float]:
    """CPU seconds of the partition, of code generation, and of the rest up to the library."""

    def exported() -> None:
        tvm.compile(lowered, "llvm").export_library(str(file))

    first, partitioned = taken(lambda: partition_for_tinyai(mod, target=target))
    generate = tvm.transform.Sequential([GenerateCode()])
    second, lowered = taken(lambda: generate(partitioned))
    return [first, second, taken(exported)[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", help=f"{', '.join(NETWORKS)}, or a file")
    for name in parser.parse_args().networks or NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = folder  # compiled microkernels are kept there
            file = Path(folder, "net.onnx") if name in NETWORKS else Path(name)
            if name in NETWORKS:
                onnx.save(onnx_networks.quantize(NETWORKS[name]()), file)
            measure(file.stem if name not in NETWORKS else name, file, Path(folder))


def measure(name: str, file: Path, folder: Path) -> None:
    library, mod = folder / "relax.so", imported(file)
    target = Target(isa=ISA, rounding=default_rounding(file))
    for isa, when in ((ISA, "first"), (ISA, "again"), ("auto", "first"), ("auto", "again")):
        seconds = steps(mod, library, replace(target, isa=isa))
        told = "{:5.2f} partition, {:5.2f} code, {:5.2f} TVM".format(*seconds)
        print(f"{name:<18}CPU s, isa={isa}, {when}: {told}", flush=True)

    steps(mod, library, target)
    tinyai.compile(file, folder / "own.so", target=target)
    sizes = [each.stat().st_size for each in (library, folder / "own.so")]
    print(f"{name:<18}bytes: {sizes[0]:,} through Relax, {sizes[1]:,} by tinyai compile")

    graph = network_of_file(file, target).graph
    (of,) = graph.types(graph.inputs)
    image = (20 * np.random.default_rng(0).standard_normal(of.shape)).astype(of.dtype.numpy)
    run = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())["main"]
    given, directly = tvm.runtime.tensor(image), Runner(graph, target).bound(image)
    through, alone = in_turn([loop(lambda: run(given)), loop(directly)], 3, settle=0.0)
    more = through.median - alone.median
    print(
        f"{name:<18}a call: {1e6 * through.median:.1f} µs, the C alone {1e6 * alone.median:.1f}: "
        f"{1e6 * more:.1f} more, {100 * more / alone.median:.1f} %"
    )


if __name__ == "__main__":
    main()
