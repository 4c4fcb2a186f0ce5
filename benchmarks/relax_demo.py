"""A quantized ONNX network through the stock TVM's Relax, with tinyai's regions and without.

    python benchmarks/relax_demo.py [NETWORK]

Both executables run the same inputs; what their outputs differ by from ONNX Runtime's, how long a
call takes on one thread, and how large the libraries are.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from benchmarks import onnx_networks
from tinyai import relax as tinyai
from tinyai.checking.onnxruntime import exact_session
from tinyai.runtime.timing import in_turn, loop

NETWORKS: dict[str, Callable[[], Any]] = {
    "mobilenet_v2": lambda: onnx_networks.mobilenet_v2(size=96, width=0.5),
    "resnet18": lambda: onnx_networks.resnet18(size=64, width=0.5),
    "squeezenet": lambda: onnx_networks.squeezenet(size=96, width=0.5),
}
SAMPLES = 8


def step(what: str, work: Callable[[], Any]) -> Any:
    begin = time.perf_counter()
    result = work()
    print(f"{what:<48}{time.perf_counter() - begin:6.1f} s", flush=True)
    return result


def loaded(executable: Any, folder: Path, name: str) -> tuple[Any, int]:
    """The machine of an exported library, and the library's bytes."""
    file = folder / f"{name}.so"
    executable.export_library(str(file))
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(file)), tvm.cpu())
    return machine, file.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", nargs="?", default="mobilenet_v2", choices=NETWORKS)
    name = parser.parse_args().network
    model = step(f"{name}: made and quantized", lambda: onnx_networks.quantize(NETWORKS[name]()))
    mod = step("imported by TVM", lambda: from_onnx(model, keep_params_in_input=False))
    report = tinyai.explain(mod)
    print(report, "\n")
    ours = step(
        "built with tinyai",
        lambda: tvm.compile(mod, "llvm", relax_pipeline=tinyai.pipeline()),
    )
    theirs = step("built without", lambda: tvm.compile(mod, "llvm"))

    session = exact_session(model.SerializeToString(), keeps_int8=False)
    shape = [int(dim) for dim in mod["main"].params[0].ty.shape.values]
    drawn = np.random.default_rng(0)
    images = [drawn.standard_normal(shape).astype(np.float32) for _ in range(SAMPLES)]
    with tempfile.TemporaryDirectory() as folder:
        for what, executable in (("tinyai", ours), ("TVM", theirs)):
            machine, size = loaded(executable, Path(folder), what)
            differ = values = 0
            for image in images:
                (allowed,) = session.run(None, {"image": image})
                found = machine["main"](tvm.runtime.tensor(image)).numpy()
                differ += int((found != allowed).sum())
                values += allowed.size
            run, tensor = machine["main"], tvm.runtime.tensor(images[0])
            (measured,) = in_turn(
                [loop(lambda run=run, tensor=tensor: run(tensor))], 0.5, settle=0.02
            )
            print(
                f"{what:<8}{differ} of {values} values differ from ONNX Runtime's; a call "
                f"{1e6 * measured.median:9.1f} µs; the library {size / 1e6:.2f} MB"
            )


if __name__ == "__main__":
    main()
