"""What TVM's own CPU code computes for an unpartitioned module, kept on disk.

Results are found again by the hash of module, target, TVM and inputs, so that a second run of the
tests neither builds nor runs TVM's version of a network. ``TINYAI_TEST_CACHE=0`` in the
environment computes everything anew and leaves the disk alone.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from tests.support.disk import on_disk, sha256_of

Result = TypeVar("Result")
Array = npt.NDArray[Any]
Values = Mapping[str, Array]

# Without it TVM looks for tuning logs on the network at every build.
os.environ.setdefault("TOPHUB_LOCATION", "NONE")

TARGET = "llvm"
# A qnn.requantize that names neither means this, on every CPU; TVM's default depends on the CPU.
REQUANTIZE = {"rounding": "UPWARD", "compute_dtype": "int64"}


def oracle(
    mod: tvm.IRModule,
    inputs: Values,
    *,
    target: str = TARGET,
    passes_off: tuple[str, ...] = (),
) -> list[Array]:
    """Outputs of ``mod`` on TVM's CPU for one set of inputs, by name.

    ``mod`` holds no regions. It is built, at opt_level 3 without the passes ``passes_off``, when
    the first of its results is missing on the disk.
    """
    name = digest(_module_digest(mod), target, passes_off, REQUANTIZE, inputs)

    def make() -> bytes:
        return pack(_executor(mod, target, passes_off)(inputs))

    return unpack(on_disk("oracle", f"{name}.npz", make))


def in_a_child(function: Callable[..., Result], *args: Any) -> Result:
    """``function(*args)`` in a process of its own, for TVM may crash.

    Raises ``BrokenProcessPool`` where it does, and what ``function`` raises.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def digest(*parts: object) -> str:
    """``sha256_of`` the parts and the TVM in use."""
    return sha256_of(tvm.__version__, tvm.support.libinfo().get("GIT_COMMIT_HASH"), parts)


@functools.lru_cache(maxsize=4)
def _module_digest(mod: tvm.IRModule) -> str:
    return digest(tvm.ir.save_json(mod))


@functools.lru_cache(maxsize=2)
def _executor(
    mod: tvm.IRModule, target: str, passes_off: tuple[str, ...]
) -> Callable[[Values], list[Array]]:
    with (
        tvm.transform.PassContext(opt_level=3, disabled_pass=list(passes_off)),
        relay.qnn.op.qnn.requantize_config(**REQUANTIZE),
    ):
        return runner(relay.build(mod, target=target))


def runner(factory: Any) -> Callable[[Values], list[Array]]:
    """A built or loaded graph executor factory as a function from inputs by name to outputs."""
    executor = graph_executor.GraphModule(factory["default"](tvm.cpu()))

    def run(inputs: Values) -> list[Array]:
        executor.run(**{name: tvm.nd.array(value) for name, value in inputs.items()})
        return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]

    return run


def pack(arrays: list[Array]) -> bytes:
    file = io.BytesIO()
    np.savez(file, *arrays)
    return file.getvalue()


def unpack(content: bytes) -> list[Array]:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return [arrays[f"arr_{i}"] for i in range(len(arrays.files))]
