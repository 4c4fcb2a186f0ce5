"""Networks as Relax modules, and how they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from benchmarks import onnx_networks
from tests.support.structure import structure
from tinyai.checking.onnxruntime import exact_session
from tinyai.frontends.files import network_of_file
from tinyai.frontends.relax.built import flat
from tinyai.frontends.relax.division import regions_of
from tinyai.frontends.relax.hook import graph_of
from tinyai.passes import optimize
from tinyai.relax import partition_for_tinyai
from tinyai.target import Target, this_architecture

Array = npt.NDArray[Any]
# One instruction set: what compilers do with the others has tests of its own.
OPTIONS = {"isa": "native" if this_architecture() != "portable" else "generic"}
# ONNX networks by name, small.
ONNX: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "mobilenet_v1": lambda: onnx_networks.mobilenet_v1(size=32, width=0.25),
    "mobilenet_v2": lambda: onnx_networks.mobilenet_v2(size=32, width=0.25),
    "resnet50": lambda: onnx_networks.resnet50(size=32, width=0.125),
    "squeezenet": lambda: onnx_networks.squeezenet(size=64, width=0.25),
    "efficientnet_lite0": lambda: onnx_networks.efficientnet_lite0(size=32, width=0.25),
    "unet": lambda: onnx_networks.unet(size=32, width=0.125),
    "ssd": lambda: onnx_networks.ssd(size=64, width=0.25),
}


def imported(model: onnx.ModelProto) -> tvm.IRModule:
    return from_onnx(model, keep_params_in_input=False)


def regions(mod: tvm.IRModule) -> list[str]:
    """The names of the functions for tinyai."""
    return [
        variable.name_hint
        for variable, function in mod.functions.items()
        if isinstance(function, relax.Function)
        and "Codegen" in (function.attrs or {})
        and function.attrs["Codegen"] == "tinyai"
    ]


def built(mod: tvm.IRModule) -> Any:
    """An executable of a partitioned module."""
    return tvm.compile(relax.transform.RunCodegen()(mod), "llvm")


def run(executable: Any, inputs: Sequence[Array], entry: str = "main") -> list[Array]:
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return flat(machine[entry](*map(tvm.runtime.tensor, inputs)))


def assert_one_graph(mod: tvm.IRModule, file: Path, rounding: str) -> None:
    """Of the only region of a module, and by the reader of the file that it was imported from."""
    (region,) = regions_of(partition_for_tinyai(mod, names=file, sealed=False, **OPTIONS)).values()
    read = network_of_file(file, Target(rounding=rounding)).graph
    assert structure(optimize(graph_of(region))) == structure(optimize(read))


def by_tinyai(mod: tvm.IRModule, inputs: Sequence[Array], **options: Any) -> list[Array]:
    """What a module computes with the regions that tinyai takes of it."""
    return run(built(partition_for_tinyai(mod, **{**OPTIONS, **options})), inputs)


def by_tvm(mod: tvm.IRModule, inputs: Sequence[Array]) -> list[Array]:
    return run(tvm.compile(mod, "llvm"), inputs)


def onnx_runtime(model: onnx.ModelProto | Path) -> Callable[[Sequence[Array]], list[Array]]:
    content = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    session = exact_session(content, keeps_int8=False)
    names = [each.name for each in session.get_inputs()]
    return lambda inputs: session.run(None, dict(zip(names, inputs, strict=True)))


def samples(shape: Sequence[int], count: int) -> list[Array]:
    """Images of several brightnesses, one of zeros."""
    drawn = np.random.default_rng(11)
    scales = [0.0, 0.5, *np.linspace(0.8, 3, max(0, count - 2))][:count]
    return [(s * drawn.standard_normal(shape)).astype(np.float32) for s in scales]


def assert_equal(found: Sequence[Array], allowed: Sequence[Array]) -> None:
    assert len(found) == len(allowed)
    for one, other in zip(found, allowed, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
