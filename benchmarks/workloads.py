"""The networks that the demo, the measurements, the tutorials and the tests share, quantized by TVM
itself; and what runs them."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import psutil
import tvm
from tvm import relay
from tvm.contrib import graph_executor
from tvm.relay.testing import mobilenet, resnet

from benchmarks.digits.data import load_split
from tinyai.doctor import instruction_sets

Array = npt.NDArray[Any]
ROOT = Path(__file__).resolve().parents[1]
DIGITS_ONNX = ROOT / "benchmarks/digits/digits.onnx"
BUILD = ROOT / "build"
CALIBRATION_IMAGES = 64
MEBI = 2**20
SAMPLING_SECONDS = 0.02
# The pass multiplies the scale that ends a region into the weights of a float layer after it, and
# that rounds differently; without it TVM computes the floats as the module is written.
DISABLED_PASSES = ("FoldScaleAxis",)
# For AVX2 without VNNI this pass chooses products of bytes that are added in 16 bits, two at a
# time, and saturate.
AVX2 = "llvm -mcpu=haswell"
SATURATING_PASS = "Legalize"


@dataclass(frozen=True, eq=False)
class Workload:
    """A network with one float32 input and one output, before and after ``relay.quantize``.

    - ``float_module``, ``quantized``: batch 1, parameters bound.
    - ``input``: name of the input.
    - ``samples``: float32 [n, 1, …], inputs to compare results on.
    - ``labels``: int64 [n], the class of each sample; None where there is nothing to learn.
    """

    name: str
    title: str
    float_module: tvm.IRModule
    quantized: tvm.IRModule
    input: str
    samples: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64] | None = None


def digits(cache: Path | None = None) -> Workload:
    """The trained digits network, calibrated (KL divergence) on images of its training part; the
    samples are the 599 held-out images."""
    split = load_split()
    model = onnx.load(DIGITS_ONNX)
    mod, params = relay.frontend.from_onnx(model, shape={"image": (1, 1, 8, 8)})
    mod = bind(mod, params)
    images = split.train.images[::18][:CALIBRATION_IMAGES]
    quantized = quantize(
        mod,
        [{"image": image[np.newaxis]} for image in images],
        cache=cache,
        calibrate_mode="kl_divergence",
        weight_scale="max",
        skip_conv_layers=[],
    )
    samples = split.held_out.images[:, np.newaxis]
    return Workload(
        "digits", "digits", mod, quantized, "image", samples, labels=split.held_out.labels
    )


def mobilenet_v1(cache: Path | None = None) -> Workload:
    """The forum's case: MobileNetV1 224 NHWC of relay.testing under one global scale; parameters
    and the eight samples are random numbers of fixed seeds."""
    shape = (1, 224, 224, 3)
    mod, _ = mobilenet.get_workload(1, 1000, shape[1:], layout="NHWC")
    return _under_one_scale("mobilenet_v1", "MobileNetV1 224", mod, shape, cache)


def mobilenet_v1_nchw(cache: Path | None = None) -> Workload:
    """The same network in TVM's own layout."""
    shape = (1, 3, 224, 224)
    mod, _ = mobilenet.get_workload(1, 1000, shape[1:])
    return _under_one_scale("mobilenet_v1_nchw", "MobileNetV1 224 NCHW", mod, shape, cache)


def resnet18(cache: Path | None = None) -> Workload:
    """ResNet-18 of relay.testing (224, NCHW); parameters and samples as ``mobilenet_v1``'s."""
    shape = (1, 3, 224, 224)
    mod, _ = resnet.get_workload(1, 1000, 18, shape[1:])
    return _under_one_scale("resnet18", "ResNet-18 224", mod, shape, cache)


def _under_one_scale(
    name: str, title: str, mod: tvm.IRModule, shape: tuple[int, ...], cache: Path | None
) -> Workload:
    mod = bind(mod, he_parameters(mod))
    quantized = quantize(
        mod, cache=cache, calibrate_mode="global_scale", global_scale=8.0, skip_conv_layers=[]
    )
    samples = np.random.default_rng(1).standard_normal((8, *shape), np.float32)
    return Workload(name, title, mod, quantized, "data", samples)


def he_parameters(
    mod: tvm.IRModule, *, seed: int = 0, inputs: Sequence[str] = ("data",)
) -> dict[str, tvm.nd.NDArray]:
    """Random parameters that keep the activations of a ReLU network alive: float32, by name.

    With relay.testing's own the int8 activations of MobileNet are all zero after five layers, and
    zeros are equal to zeros whatever the code does. Weights of a convolution or dense layer are
    normal with the standard deviation sqrt(2 / fan-in); batch norms have gamma 1 and the others
    near to neutral. ``inputs`` names the variables of main that are no parameters.
    """
    mod = relay.transform.InferType()(mod)
    random = np.random.default_rng(seed)
    parameters: dict[str, Array] = {}

    def visit(expr: relay.Expr) -> None:
        for position, argument in enumerate(expr.args if isinstance(expr, relay.Call) else ()):
            if isinstance(argument, relay.Var) and argument.name_hint not in inputs:
                shape = [int(size) for size in argument.checked_type.shape]
                value = _parameter(expr, position, shape, random)
                parameters.setdefault(argument.name_hint, value)

    relay.analysis.post_order_visit(mod["main"].body, visit)
    return {name: tvm.nd.array(value.astype("float32")) for name, value in parameters.items()}


def _parameter(
    call: relay.Call, position: int, shape: list[int], random: np.random.Generator
) -> Array:
    """Value of the parameter at ``position`` of a call."""
    operator = call.op.name
    if operator in ("nn.conv2d", "nn.dense"):
        layout = "NC" if operator == "nn.dense" else call.attrs.data_layout
        outputs = int(call.checked_type.shape[layout.index("C")])
        # Every output channel sees its own share of the weights, grouped convolution or not.
        return random.normal(0, math.sqrt(2 * outputs / math.prod(shape)), shape)
    if operator == "nn.batch_norm" and position in (1, 4):  # gamma, variance
        return np.ones(shape) if position == 1 else random.uniform(0.9, 1.1, shape)
    return random.normal(0, 0.1, shape)


def bind(mod: tvm.IRModule, params: Mapping[str, tvm.nd.NDArray]) -> tvm.IRModule:
    """``mod`` with its parameters as constants."""
    main = relay.build_module.bind_params_by_name(mod["main"], dict(params))
    return relay.transform.InferType()(tvm.IRModule.from_expr(main))


def quantize(
    mod: tvm.IRModule,
    dataset: Sequence[Mapping[str, Array]] = (),
    *,
    cache: Path | None = None,
    **config: object,
) -> tvm.IRModule:
    """``mod`` quantized by ``tvm.relay.quantize`` under ``config`` (its ``qconfig``).

    ``dataset`` holds the inputs to calibrate with. In the folder ``cache`` the result is kept under
    the hash of everything that it depends on.
    """
    digest = hashlib.sha256(tvm.ir.save_json(mod).encode())
    digest.update(repr((tvm.__version__, sorted(config.items()))).encode())
    for inputs in dataset:
        for name, value in sorted(inputs.items()):
            digest.update(name.encode() + value.tobytes())
    kept = cache / f"quantized-{digest.hexdigest()[:32]}.json" if cache else None
    if kept and kept.exists():
        return tvm.ir.load_json(kept.read_text())
    batches = [{name: tvm.nd.array(value) for name, value in each.items()} for each in dataset]
    # Outside of opt_level 3 nn.bias_add is not canonicalized, stays float and cuts the network.
    with tvm.transform.PassContext(opt_level=3), relay.quantize.qconfig(**config):
        result = relay.quantize.quantize(mod, dataset=batches or None)
    result = relay.transform.InferType()(result)
    if kept:
        write_whole(kept, tvm.ir.save_json(result))
    return result


def integer_part(mod: tvm.IRModule) -> tvm.IRModule:
    """A quantized network without its floating-point end: the result is what is dequantized first.

    Two implementations whose integers differ may still agree after softmax and rounding.
    """
    found: list[relay.Expr] = []

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and getattr(expr.op, "name", "") == "cast":
            (value,) = expr.args
            if expr.attrs.dtype == "float32" and value.checked_type.dtype.startswith("int"):
                found.append(value)

    relay.analysis.post_order_visit(mod["main"].body, visit)
    function = relay.Function(relay.analysis.free_vars(found[0]), found[0])
    return relay.transform.InferType()(tvm.IRModule.from_expr(function))


def disabled_passes(target: str, *, exact: bool) -> tuple[str, ...]:
    """Those that change floats, and for ``exact`` sums of products that which saturates."""
    saturates = exact and target == AVX2
    return (*DISABLED_PASSES, SATURATING_PASS) if saturates else DISABLED_PASSES


def build_with_tvm(mod: tvm.IRModule, target: str, *, exact: bool = False) -> Any:
    """The factory of ``relay.build`` at opt_level 3 without ``disabled_passes``."""
    disabled = list(disabled_passes(target, exact=exact))
    with tvm.transform.PassContext(opt_level=3, disabled_pass=disabled):
        return relay.build(mod, target=target)


def tvm_library(
    mod: tvm.IRModule, target: str, cache: Path, *, exact: bool = False, **requantize: str
) -> tvm.runtime.Module:
    """TVM's own library of ``mod``, loaded; kept in ``cache`` under the hash of what it is made of.

    ``exact`` sums of products need a pass less for AVX2. ``requantize`` goes to TVM's
    ``requantize_config``. LLVM needs two minutes to turn MobileNetV1 into machine code, whether
    it is run or exported.
    """
    path = tvm_library_path(mod, target, cache, exact=exact, **requantize)
    if not path.exists():
        with relay.qnn.op.qnn.requantize_config(**requantize):
            export_whole(build_with_tvm(mod, target, exact=exact), path)
    return tvm.runtime.load_module(str(path))


def tvm_library_path(
    mod: tvm.IRModule, target: str, cache: Path, *, exact: bool = False, **requantize: str
) -> Path:
    """Where ``tvm_library`` keeps it."""
    options = sorted(requantize.items())
    key = repr(
        (tvm.__version__, target, disabled_passes(target, exact=exact), options)
    ) + tvm.ir.save_json(mod)
    return cache / f"tvm-{hashlib.sha256(key.encode()).hexdigest()[:32]}.so"


def export_whole(factory: Any, path: Path) -> None:
    """``export_library`` with its default arguments, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".export-") as folder:
        beside = Path(folder) / path.name
        factory.export_library(str(beside))
        os.replace(beside, path)


def host_target() -> str:
    """TVM's target string for this machine's CPU, in words that LLVM 10 knows."""
    try:
        isas = instruction_sets(Path("/proc/cpuinfo").read_text())
    except OSError:  # not Linux
        isas = ()
    for isa, cpu in (("avx512vnni", "cascadelake"), ("avx512", "skylake-avx512")):
        if isa in isas:
            return f"llvm -mcpu={cpu}"
    return AVX2 if "avx2" in isas else "llvm"


def executor_of(factory: Any) -> graph_executor.GraphModule:
    """The graph executor of a built factory or of a loaded library."""
    return graph_executor.GraphModule(factory["default"](tvm.cpu()))


def outputs(executor: graph_executor.GraphModule, name: str, samples: Array) -> Array:
    """The first output for each sample: [n, …], samples [n, 1, …] set as input ``name``."""
    results = []
    for sample in samples:
        executor.run(**{name: sample})
        results.append(executor.get_output(0).numpy())
    return np.stack(results)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write beside ``path`` and rename, so that nobody ever reads half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.chmod(beside, 0o644)  # mkstemp makes it private
        os.replace(beside, path)
    except BaseException:
        Path(beside).unlink()
        raise


@contextlib.contextmanager
def peak_memory(process: psutil.Process, *, itself: bool = True) -> Iterator[list[int]]:
    """The largest sum of the RSS of a process and its descendants, in bytes, as the one element.

    Without ``itself`` only the descendants count.
    """
    peak = [0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(SAMPLING_SECONDS):
            watched = [process] if itself else []
            watched += process.children(recursive=True)
            peak[0] = max(peak[0], sum(map(_resident_bytes, watched)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def _resident_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:  # a compiler that has just ended
        return 0


@contextlib.contextmanager
def without_tuning_advice() -> Iterator[None]:
    """Silence TVM's complaints that no operator was tuned: hundreds of lines for one network."""
    loggers = [logging.getLogger(name) for name in ("autotvm", "strategy", "te_compiler")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
