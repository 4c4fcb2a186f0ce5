"""Small Relay modules for the tests, written as ``tvm.relay.quantize`` would leave them."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relay

import tinyai
from tests.support.disk import on_disk
from tests.support.oracle import digest, pack, unpack
from tinyai.frontends.relay import regions


def weights(seed, shape):
    return np.random.default_rng(seed).integers(-127, 128, shape).astype("int8")


def module(body):
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))


def data(shape=(1, 8, 8, 4), dtype="int8", name="data"):
    return relay.var(name, shape=shape, dtype=dtype)


def conv(x, seed=0, channels=4, weight=None, size=3):
    """3×3 NHWC convolution into int32, of the same size."""
    in_channels = 4
    if weight is None:
        weight = relay.const(weights(seed, (size, size, in_channels, channels)))
    return relay.nn.conv2d(
        x,
        weight,
        padding=(size // 2, size // 2),
        data_layout="NHWC",
        kernel_layout="HWIO",
        out_dtype="int32",
        channels=channels,
        kernel_size=(size, size),
    )


def requantize(x, shift=9, stop_fusion=True):
    x = relay.right_shift(relay.add(x, relay.const(1 << (shift - 1))), relay.const(shift))
    x = relay.cast(relay.clip(x, -127, 127), "int8")
    return relay.annotation.stop_fusion(x) if stop_fusion else x


def layers(count=2, x=None):
    """Convolutions with requantization, ``annotation.stop_fusion`` after each."""
    y = data() if x is None else x
    for seed in range(count):
        y = requantize(conv(y, seed))
    return y


def residual(x=None):
    """A fork: convolution and shortcut meet in an int32 add."""
    start = layers(1, x)
    branch = requantize(conv(start, 7))
    total = relay.add(relay.cast(branch, "int32"), relay.cast(start, "int32"))
    return relay.annotation.stop_fusion(relay.cast(relay.clip(total, -127, 127), "int8"))


def run_tvm(mod, inputs, target="llvm"):
    """Outputs of TVM's CPU for an unpartitioned module, kept on the disk."""

    def make():
        with tvm.transform.PassContext(opt_level=3):
            built = relay.build(mod, target=target)
        return pack(run_factory(built, inputs))

    requantize = relay.qnn.op.qnn.current_requantize_config()
    module = tvm.ir.save_json(relay.transform.InferType()(mod))
    name = digest(module, target, requantize.rounding, requantize.compute_dtype, inputs)
    return unpack(on_disk("oracle", f"{name}.npz", make))


def run_factory(factory, inputs):
    from tvm.contrib import graph_executor

    executor = graph_executor.GraphModule(factory["default"](tvm.cpu()))
    for name, value in inputs.items():
        executor.set_input(name, tvm.nd.array(value))
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def random_inputs(mod, seed=0):
    """A value for each parameter of main: the whole range of integers, floats of a few units."""
    rng = np.random.default_rng(seed)
    values = {}
    for param in mod["main"].params:
        shape = [int(d) for d in param.type_annotation.shape]
        dtype = np.dtype(param.type_annotation.dtype)
        if dtype.kind == "f":
            values[param.name_hint] = rng.normal(scale=3, size=shape).astype(dtype)
        else:
            info = np.iinfo(dtype)
            values[param.name_hint] = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    return values


def host_operators(mod):
    """Names of the operators that main calls itself, in order."""
    names = []

    def visit(expr):
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            names.append(expr.op.name)

    relay.analysis.post_order_visit(mod["main"], visit)
    return names


def composites(func):
    """Names of the composites in a region, in order."""
    names = []

    def visit(expr):
        if isinstance(expr, relay.Function) and expr.attrs and "Composite" in expr.attrs.keys():  # noqa: SIM118
            names.append(str(expr.attrs["Composite"]))

    relay.analysis.post_order_visit(func.body, visit)
    return names


def only_region(mod):
    (func,) = regions(mod).values()
    return func


def assert_equal_to_tvm(mod, params=None, **options):
    """The partitioned module, built and run, gives TVM's integers."""
    inputs = random_inputs(mod)
    for name in params or {}:
        inputs.pop(name, None)
    if params:
        mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    expected = run_tvm(mod, inputs)
    partitioned = tinyai.partition_for_tinyai(mod, **options)
    with tvm.transform.PassContext(opt_level=3):
        found = run_factory(tinyai.runtime.compile(relay.build(partitioned, "llvm")), inputs)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return partitioned
