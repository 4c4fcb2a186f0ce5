"""Where weights may live: in the emitted source, or handed over when the library is loaded.

    python benchmarks/weights.py

Three ways for one region, each through TVM's own ``relay.build`` and ``export_library``:

- ``list``: the source holds lists of numbers.
- ``string``: the source holds string literals, as tinyai emits them.
- ``const_vars``: TVM keeps the arrays, and calls ``__init_SYMBOL`` with them at the first look-up.

The region adds up all weights, so that a run shows that they have arrived. Prints a table and
leaves the figures in build/weights.json. The list of 25 MB takes the compiler 3 GB of memory.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file

import numpy as np
import psutil
import tvm
from rich.console import Console
from rich.table import Table
from tvm import relay

from benchmarks import workloads
from benchmarks.workloads import Array
from tinyai.codegen.constants import ConstantArray
from tinyai.frontends.relay import partition_for_tinyai, regions
from tinyai.frontends.relay.source import graph_from_region

COMPILER = "weightbench"
SYMBOL = "weightbench_region"
LOADS = 5

# Run by a process that has neither tinyai nor this file: seconds from the file to the first result.
LOADER = """
import json, sys, time
import numpy as np, tvm
from tvm.contrib import graph_executor
start = time.perf_counter()
library = tvm.runtime.load_module(sys.argv[1])
executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
executor.run(x=np.zeros(1, "int32"))
result = int(executor.get_output(0).numpy()[0])
print(json.dumps([time.perf_counter() - start, result]))
"""

ABI = """
#include <stddef.h>
#include <stdint.h>
#if defined(__GNUC__)
#define TINYAI_ALIGNED __attribute__((aligned(64)))
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif
typedef union { int64_t v_int64; double v_float64; void *v_handle; } value;
typedef struct { void *data; } tensor; /* the first member of a DLTensor */
#define ENTRY(name) int32_t name(value *args, int32_t *codes, int32_t count, value *ret, \\
    int32_t *ret_code, void *resource)
#ifdef __cplusplus
extern "C" {
#endif
int TVMFuncGetGlobal(const char *name, void **function);
int TVMFuncCall(void *function, value *args, int *codes, int count, value *ret, int *ret_code);
"""

RUN = """
static const int64_t sizes[] = { @SIZES@ };
ENTRY(@SYMBOL@) {
    uint32_t sum = 0;
    for (int i = 0; i < @COUNT@; ++i) {
        for (int64_t j = 0; j < sizes[i]; ++j) {
            sum += (uint32_t)weights[i][j];
        }
    }
    *(int32_t *)((tensor *)args[1].v_handle)->data = (int32_t)sum;
    return 0;
}
#ifdef __cplusplus
}
#endif
"""

# The references that ArrayGetItem returns are kept: the weights are needed as long as the library.
INIT = """
static const int8_t *weights[@COUNT@];
ENTRY(__init_@SYMBOL@) {
    void *get;
    if (TVMFuncGetGlobal("runtime.ArrayGetItem", &get) != 0) {
        return -1;
    }
    for (int i = 0; i < @COUNT@; ++i) {
        value item[2], found;
        int item_codes[2] = { 8, 0 }, found_code;
        item[0] = args[0];
        item[1].v_int64 = i;
        if (TVMFuncCall(get, item, item_codes, 2, &found, &found_code) != 0 || found_code != 13) {
            return -1;
        }
        weights[i] = (const int8_t *)((tensor *)found.v_handle)->data;
    }
    ret->v_int64 = 0;
    *ret_code = 0;
    return 0;
}
"""


@dataclass(frozen=True)
class Figures:
    """One network, one way. Sizes in bytes; ``compile_seconds`` is the compiler's processor time,
    ``compiler_mib`` the RSS of its processes; ``load_seconds`` reach from the file to the first
    result (median)."""

    network: str
    way: str
    weight_bytes: int
    source_bytes: int
    compile_seconds: float
    compiler_mib: float
    library_bytes: int
    load_seconds: float


def main() -> None:
    """Measure both networks in all three ways."""
    console = Console(highlight=False)
    figures = []
    with workloads.without_tuning_advice():
        for network, weights in (("MobileNetV1", mobilenet_weights()), ("25 MB", synthetic())):
            for way, source in WAYS.items():
                console.print(f"{network}: {way} …")
                figures.append(measure(network, weights, way, source))
    path = workloads.BUILD / "weights.json"
    workloads.write_whole(path, json.dumps([asdict(each) for each in figures], indent=2) + "\n")
    console.print(table(figures))
    console.print(f"The figures are in {path.relative_to(workloads.ROOT)}.")


def mobilenet_weights() -> list[Array]:
    """The int8 constants of MobileNetV1's region."""
    quantized = workloads.mobilenet_v1(workloads.BUILD / "cache").quantized
    graphs = map(graph_from_region, regions(partition_for_tinyai(quantized)).values())
    return [v for graph in graphs for v in graph.constants.values() if v.dtype == np.int8]


def synthetic() -> list[Array]:
    """25 arrays of 1 MB, distributed as quantized weights are."""
    random = np.random.default_rng(0)
    draw = (random.normal(0, 32, 1_000_000) for _ in range(25))
    return [values.round().clip(-127, 127).astype(np.int8) for values in draw]


def in_list(weights: Sequence[Array]) -> str:
    """Source with lists of numbers."""
    arrays = (
        f"static const int8_t w{i}[{w.size}] TINYAI_ALIGNED = {{\n{_numbers(w)}\n}};\n"
        for i, w in enumerate(weights)
    )
    return ABI + "".join(arrays) + _pointers(weights) + _run(weights)


def _numbers(weights: Array) -> str:
    flat = [str(x) for x in weights.reshape(-1).tolist()]
    return ",\n".join(",".join(flat[i : i + 32]) for i in range(0, len(flat), 32))


def in_strings(weights: Sequence[Array]) -> str:
    """Source with string literals, by tinyai's own writer."""
    arrays = "".join(ConstantArray.of(f"w{i}", w).definition for i, w in enumerate(weights))
    return ABI + arrays + _pointers(weights) + _run(weights)


def handed_over(weights: Sequence[Array]) -> str:
    """Source without weights, that asks TVM for them."""
    return ABI + _filled(INIT, weights) + _run(weights)


def _pointers(weights: Sequence[Array]) -> str:
    names = ", ".join(f"w{i}" for i in range(len(weights)))
    return f"static const int8_t *const weights[] = {{ {names} }};\n"


def _run(weights: Sequence[Array]) -> str:
    return _filled(RUN, weights)


def _filled(text: str, weights: Sequence[Array]) -> str:
    sizes = ", ".join(str(w.size) for w in weights)
    for name, value in (("SIZES", sizes), ("COUNT", len(weights)), ("SYMBOL", SYMBOL)):
        text = text.replace(f"@{name}@", str(value))
    return text


WAYS: dict[str, Callable[[Sequence[Array]], str]] = {
    "list": in_list,
    "string": in_strings,
    "const_vars": handed_over,
}


def measure(
    network: str, weights: Sequence[Array], way: str, source: Callable[[Sequence[Array]], str]
) -> Figures:
    """Build, export and load a region with ``weights``; raises where they did not arrive."""
    text = source(weights)
    handed = dict(enumerate(weights)) if way == "const_vars" else {}
    names = {f"{COMPILER}_{i:03}": tvm.nd.array(w.reshape(-1)) for i, w in handed.items()}
    create = tvm.get_global_func("runtime.CSourceModuleCreate")
    tvm.register_func(
        f"relay.ext.{COMPILER}", lambda _: create(text, "c", [SYMBOL], list(names)), override=True
    )
    tvm.register_func(f"relay.ext.{COMPILER}.constant_updater", lambda _, __: names, override=True)
    built = workloads.build_with_tvm(_module(), "llvm")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "library.so"
        with workloads.peak_memory(psutil.Process(), itself=False) as peak:
            before = _children_seconds()
            built.export_library(str(library))
            seconds = _children_seconds() - before
        expected = int(sum(int(w.sum(dtype=np.int64)) for w in weights))
        loads = [_load(library, expected) for _ in range(LOADS)]
        return Figures(
            network=network,
            way=way,
            weight_bytes=sum(w.nbytes for w in weights),
            source_bytes=len(text),
            compile_seconds=seconds,
            compiler_mib=peak[0] / workloads.MEBI,
            library_bytes=library.stat().st_size,
            load_seconds=statistics.median(loads),
        )


def _children_seconds() -> float:
    """Processor time of the processes that this one has waited for: other work does not count."""
    times = os.times()
    return times.children_user + times.children_system


def _module() -> tvm.IRModule:
    """main that calls one region: int32 [1] to int32 [1]."""
    inner = relay.var("y", shape=(1,), dtype="int32")
    region = relay.Function([inner], relay.negative(inner))
    for name, value in (
        ("Compiler", COMPILER),
        ("global_symbol", SYMBOL),
        ("Primitive", tvm.tir.IntImm("int32", 1)),
        ("Inline", tvm.tir.IntImm("int32", 1)),
    ):
        region = region.with_attr(name, value)
    x = relay.var("x", shape=(1,), dtype="int32")
    variable = tvm.ir.GlobalVar(SYMBOL)
    mod = tvm.IRModule({variable: region})
    mod = relay.transform.InferType()(mod)
    mod["main"] = relay.Function([x], mod.get_global_var(SYMBOL)(x))
    return relay.transform.InferType()(mod)


def _load(library: Path, expected: int) -> float:
    """Seconds to the first result in a new process."""
    command = [sys.executable, "-c", LOADER, str(library)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, found = json.loads(run.stdout)
    if found != expected:
        raise RuntimeError(f"the weights did not arrive: sum {found}, not {expected}")
    return float(seconds)


def table(figures: Sequence[Figures]) -> Table:
    """One row a network and way."""
    result = Table(title="Where the weights live")
    columns = "network, way, source, compile, memory, library, first result"
    for name in columns.split(", "):
        result.add_column(name, justify="left" if name in ("network", "way") else "right")
    for each in figures:
        result.add_row(
            each.network,
            each.way,
            f"{each.source_bytes / 1e6:.2f} MB",
            f"{each.compile_seconds:.2f} s",
            f"{each.compiler_mib:,.0f} MiB",
            f"{each.library_bytes / 1e6:.2f} MB",
            f"{1000 * each.load_seconds:.1f} ms",
        )
    return result


if __name__ == "__main__":
    main()
