"""Networks that ``tvm.relay.quantize`` quantized, with parameters that keep them alive.

Under relay.testing's own random parameters the int8 activations die out to zeros after a few
layers, and "equal" proves nothing. Ours are drawn as He et al. propose (the variance of a layer's
output is that of its input, whatever its size), seeded, and the same on every machine. Quantizing
takes 10 to 95 s a network, so the results are kept on the disk (``tests/support/oracle.py``).
"""

from __future__ import annotations

import fcntl
import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tvm
from tvm import relay
from tvm.relay import testing
from tvm.relay.expr_functor import ExprMutator

import benchmarks.digits.data as digits_data
from tests.support.disk import cache_folder, on_disk
from tests.support.oracle import Array, digest

Workload = tuple[tvm.IRModule, dict[str, Array]]
Dataset = list[dict[str, Array]]

HOST_CLASSIFIER = ("nn.dense", "add", "nn.softmax")
FLOAT_STEM = ("nn.conv2d", "add", "nn.relu", "nn.max_pool2d", "annotation.stop_fusion")
FLOAT_END = (
    *("nn.conv2d", "add", "nn.relu", "annotation.stop_fusion"),
    *("nn.global_avg_pool2d", "nn.batch_flatten", "nn.softmax"),
)

# TVM folds a float factor in front of a dense layer into its weights. The factor with which a
# region ends is out of its reach, so that the host computes another product: not the same bits,
# unless the factor is a power of two. Compare with this pass off on both sides.
SCALES_STAY = ("FoldScaleAxis",)
# And it writes (x + a) * b as x * b + a * b where the host ends with the one and a region begins
# with the other: floats in front of a rounding.
FLOATS_STAY = (*SCALES_STAY, "SimplifyExpr")


@dataclass(frozen=True, eq=False)
class Network:
    """A float network and how it is quantized.

    ``make`` gives the module at batch 1 with its parameters, ``calibration`` images for
    kl_divergence. ``config`` goes to ``relay.quantize.qconfig``. ``regions`` and ``host`` are
    what the partition has to come to: the number of regions, and the operators that stay outside.
    ``passes_off`` are TVM's passes that the host's float layers are compared without.
    """

    name: str
    make: Callable[[], Workload]
    config: Mapping[str, Any] = field(default_factory=dict)
    calibration: Callable[[], Dataset] | None = None
    regions: int = 1
    host: tuple[str, ...] = HOST_CLASSIFIER
    passes_off: tuple[str, ...] = ()
    batches: tuple[int, ...] = (1, 4)
    slow: bool = False

    def __str__(self) -> str:
        return self.name


# --- Float networks --------------------------------------------------------------------------


def live(generator: Any, *, gain: float = 1.0, **arguments: Any) -> Callable[[], Workload]:
    """A network of relay.testing with live parameters.

    ``gain`` scales the weights of convolutions: below 1 where a residual sum would grow, above
    where average pooling takes variance away.
    """

    def make() -> Workload:
        mod, params = generator.get_workload(**{"batch_size": 1, **arguments})
        fans = dict(_fans(mod["main"]))
        rng = np.random.default_rng(0)
        return mod, {
            name: _draw(rng, name, value.shape, gain, fans.get(name)).astype(value.dtype)
            for name, value in sorted(params.items())
        }

    return make


def _fans(func: relay.Function) -> list[tuple[str, int]]:
    """By name of a weight: how many products make one output."""
    found: list[tuple[str, int]] = []

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            if expr.op.name not in ("nn.conv2d", "nn.dense"):
                return
            weight = expr.args[1]
            shape = [int(d) for d in weight.checked_type.shape]
            layout = expr.attrs.kernel_layout if expr.op.name == "nn.conv2d" else "OI"
            found.append((weight.name_hint, int(np.prod(shape)) // shape[layout.index("O")]))

    relay.analysis.post_order_visit(func, visit)
    return found


def _draw(
    rng: np.random.Generator, name: str, shape: tuple[int, ...], gain: float, fan: int | None
) -> Array:
    if fan is not None:
        return rng.normal(0, gain * np.sqrt(2 / fan), shape)
    if name.endswith("_var"):
        return rng.uniform(0.9, 1.1, shape)
    if name.endswith("_gamma"):
        return rng.uniform(0.8, 1.2, shape)
    assert name.endswith(("_beta", "_bias", "_mean")), name
    return rng.normal(0, 0.1, shape)


def digits() -> Workload:
    """The committed network of benchmarks/digits, as trained."""
    file = Path(digits_data.__file__).with_name("digits.onnx")
    with _quiet():
        mod, params = relay.frontend.from_onnx(onnx.load(file), shape={"image": (1, 1, 8, 8)})
    return mod, {name: value.numpy() for name, value in params.items()}


def digits_images() -> Dataset:
    return [{"image": image[None]} for image in digits_data.load_split().train.images[:32]]


def noise(*shape: int) -> Callable[[], Dataset]:
    """Two seeded images for calibration."""

    def images() -> Dataset:
        rng = np.random.default_rng(5)
        return [{"data": rng.normal(size=(1, *shape)).astype("float32")} for _ in range(2)]

    return images


# --- The networks of the tests ---------------------------------------------------------------

# relay.quantize leaves the first convolution in float unless it is told otherwise.
WHOLE = {"skip_conv_layers": [], "global_scale": 8.0}
KL = {"skip_conv_layers": [], "calibrate_mode": "kl_divergence"}
# Weight scales that are no power of two make relay.quantize write int64 fixed_point_multiply.
KL_MAX = {**KL, "weight_scale": "max"}

mobilenet = live(testing.mobilenet)
mobilenet_nhwc = live(testing.mobilenet, image_shape=(224, 224, 3), layout="NHWC")
resnet18 = live(testing.resnet, num_layers=18, gain=0.8)
squeezenet = live(testing.squeezenet, version="1.1")

NETWORKS = (
    Network("mobilenet", mobilenet, {**WHOLE, "global_scale": 4.0}),
    # The forum's network. Its batch norm runs along the height: per-row constants. TVM alone needs
    # minutes for it; its first layers are a test of their own.
    Network("mobilenet_nhwc", mobilenet_nhwc, WHOLE, slow=True),
    # The batch norm of the input stays in float: the first "add".
    Network("resnet18", resnet18, WHOLE, host=("add", *HOST_CLASSIFIER)),
    Network("squeezenet", squeezenet, WHOLE, host=("nn.softmax",), slow=True),
    Network(
        "squeezenet_float_ends",
        squeezenet,
        {**WHOLE, "skip_conv_layers": [0, 25]},  # the first and the last convolution
        host=(*FLOAT_STEM, *FLOAT_END),
        batches=(1,),
    ),
    Network(
        "digits",
        digits,
        KL_MAX,
        digits_images,
        host=("nn.dense", "add"),
        passes_off=SCALES_STAY,
        batches=(1,),
    ),
    Network(
        "resnet50",
        live(testing.resnet, num_layers=50, gain=0.8),
        WHOLE,
        host=("add", *HOST_CLASSIFIER),
        slow=True,
    ),
    Network(
        "vgg11",
        live(testing.vgg, num_layers=11),
        WHOLE,
        host=(*("nn.dense", "add", "nn.relu") * 2, *HOST_CLASSIFIER),
        slow=True,
    ),
    Network(
        "densenet121",
        live(testing.densenet, densenet_size=121, gain=1.1),
        {**WHOLE, "skip_dense_layer": False},
        host=(),
        slow=True,
    ),
    Network("inception_v3", live(testing.inception_v3), WHOLE, slow=True),
    Network("mobilenet_kl", mobilenet, KL, noise(3, 224, 224), passes_off=SCALES_STAY, slow=True),
    Network(
        "mobilenet_nhwc_kl_max",
        mobilenet_nhwc,
        KL_MAX,
        noise(224, 224, 3),
        passes_off=SCALES_STAY,
        slow=True,
    ),
    Network(
        "resnet18_kl_max",
        resnet18,
        KL_MAX,
        noise(3, 224, 224),
        host=("add", *HOST_CLASSIFIER),
        passes_off=FLOATS_STAY,
        slow=True,
    ),
)


# --- Quantizing ------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def quantized(network: Network, batch: int = 1) -> tvm.IRModule:
    """The quantized module. It is quantized at batch 1, once a machine."""
    return rebatched(quantized(network), batch) if batch != 1 else _quantized(network)


def _quantized(network: Network) -> tvm.IRModule:
    mod, params = network.make()
    dataset = network.calibration() if network.calibration else None
    name = f"{network.name}-{digest(tvm.ir.save_json(mod), params, network.config, dataset)}.json"
    with _one_at_a_time(network.name):
        text = on_disk(
            "networks",
            name,
            lambda: tvm.ir.save_json(_quantize(mod, params, network.config, dataset)).encode(),
        )
    return tvm.ir.load_json(text.decode())


def _quantize(
    mod: tvm.IRModule, params: dict[str, Array], config: Mapping[str, Any], dataset: Dataset | None
) -> tvm.IRModule:
    bound = {name: tvm.nd.array(value) for name, value in params.items()}
    # Without opt_level 3 TVM skips CanonicalizeOps, and each bias_add stays in float.
    with (
        _quiet(),
        tvm.transform.PassContext(opt_level=3),
        relay.quantize.qconfig(**config),
    ):
        return relay.quantize.quantize(mod, bound, dataset)


@contextmanager
def _quiet() -> Iterator[None]:
    """TVM's importer and calibration use what numpy, onnx and Python deprecate."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    """Of several test processes one quantizes, the others wait and read its result."""
    folder = cache_folder() / "networks"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def rebatched(mod: tvm.IRModule, batch: int) -> tvm.IRModule:
    """The same network on ``batch`` images at once; its only input has the batch in front."""
    main = mod["main"]
    (data,) = main.params
    _, *image = (int(d) for d in data.type_annotation.shape)
    wide = relay.var(data.name_hint, shape=(batch, *image), dtype=data.type_annotation.dtype)
    body = relay.bind(main.body, {data: wide})
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([wide], body)))


# --- Regions as plain Relay ------------------------------------------------------------------


class _Inline(ExprMutator):  # type: ignore[misc]
    """Calls of functions replaced by their bodies."""

    def visit_call(self, call: relay.Call) -> relay.Expr:
        if not isinstance(call.op, relay.Function):
            return super().visit_call(call)
        bound = dict(zip(call.op.params, call.args, strict=True))
        return self.visit(relay.bind(call.op.body, bound))


def as_plain_module(region: relay.Function) -> tvm.IRModule:
    """A region without its composites and attributes: what TVM compiles itself."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(50_000)  # ExprMutator recurses once an operator
    try:
        body = _Inline().visit(region.body)
    finally:
        sys.setrecursionlimit(before)
    plain = relay.Function(list(region.params), body)
    return relay.transform.InferType()(tvm.IRModule.from_expr(plain))


# --- Inputs ----------------------------------------------------------------------------------

# Standard deviations: two of the inputs hardly leave zero, or saturate.
SPREADS = (1.0,) * 8 + (0.02, 40.0)


def random_inputs(func: relay.Function) -> Iterator[dict[str, Array]]:
    """Ten sets of values for the parameters: floats around zero, integers of the whole range."""
    rng = np.random.default_rng(11)
    for spread in SPREADS:
        yield {param.name_hint: _random(rng, param, spread) for param in func.params}


def _random(rng: np.random.Generator, param: relay.Var, spread: float) -> Array:
    shape = [int(d) for d in param.checked_type.shape]
    dtype = np.dtype(param.checked_type.dtype)
    if dtype.kind == "f":
        return rng.normal(0, spread, shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
