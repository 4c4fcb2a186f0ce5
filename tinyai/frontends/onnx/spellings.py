"""One spelling of what ONNX can spell in several ways, so that TVM's importer reads a file right.

The importer (seen in TVM 0.17) takes one axis where several are an input, drops a bound of Clip
that stands alone, knows no padding of dilated windows, and more. Each function here has an operator
as its subject and changes a node in place, or puts others before and after it. What has no such
spelling is a ``Fault`` that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyai.frontends.onnx import resizing, windows
from tinyai.frontends.onnx.facts import CONTRIB, Facts
from tinyai.frontends.onnx.site import RespelledNode

Spelling = Callable[[RespelledNode], None]
_SPELLINGS: dict[tuple[str, str], list[Spelling]] = {}


def _spells(*ops: str, domain: str = "") -> Callable[[Spelling], Spelling]:
    def add(function: Spelling) -> Spelling:
        for op in ops:
            _SPELLINGS.setdefault((op, domain), []).append(function)
        return function

    return add


def spelled(model: Any, facts: Facts) -> Any:
    """The model in the spellings that importers read right.

    Raises ``Fault`` for what has none.
    """
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    for node in model.graph.node:
        copied = onnx.NodeProto()
        copied.CopyFrom(node)
        copied.domain = "" if node.domain == "ai.onnx" else node.domain
        site = RespelledNode(copied, facts)
        for spelling in _SPELLINGS.get((copied.op_type, copied.domain), ()):
            spelling(site)
        result.graph.node.extend((*site.before, site.node, *site.after))
        result.graph.initializer.extend(site.constants)
        if any(facts.shape(name) is None for name in node.output if name):
            around = site.before or site.after
            facts = facts.after(node if around else site.node)
    return result


# --- Values --------------------------------------------------------------------------------------


@_spells("Clip")
def _both_bounds(site: RespelledNode) -> None:
    """The importer drops an upper bound that stands alone."""
    low, high = site.operand(1), site.operand(2)
    if site.facts.opset < 11 or bool(low) == bool(high):
        return
    dtype = np.dtype(site.facts.dtype(site.operand(0)) or "float32")
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    low = low or site.constant(np.array(limits.min, dtype), "low")
    high = high or site.constant(np.array(limits.max, dtype), "high")
    site.set_operands(site.operand(0), low, high)


@_spells("QuantizeLinear", "DequantizeLinear")
def _zero_point(site: RespelledNode) -> None:
    """The importer wants one; without it the integers are of uint8, or as they are."""
    if site.attr("block_size", 0):
        site.refuse("scales of blocks", "a scale a tensor or a channel", "quantize it otherwise")
    if site.operand(2):
        return
    if site.node.op_type == "QuantizeLinear":
        kind = site.attr("output_dtype", 0)
        if kind not in (0, 2):
            site.refuse(f"output_dtype {kind} without a zero point", "a zero point", "add one")
        dtype = "uint8"
    else:
        dtype = site.facts.dtype(site.operand(0))
        if not dtype:
            site.refuse("integers of unknown type without a zero point", "a zero point", "add one")
    shape = site.facts.shape(site.operand(1)) or ()
    if None in shape:
        site.refuse("scales of unknown number without a zero point", "a zero point", "add one")
    sizes = [size or 0 for size in shape]
    zeros = np.zeros([] if sizes == [1] else sizes, dtype)
    site.set_operands(site.operand(0), site.operand(1), site.constant(zeros, "zero_point"))


@_spells("QuantizeLinear", "DequantizeLinear")
def _one_scale(site: RespelledNode) -> None:
    """A list of one number is a number: the importer takes any list for those of an axis."""
    names = list(site.node.input)
    for place, use in ((1, "scale"), (2, "zero_point")):
        known = site.facts.constants.get(names[place])
        if known is not None and known.size == 1 and known.ndim:
            names[place] = site.constant(known.reshape(()), f"one_{use}")
    site.set_operands(*names)


@_spells("QLinearLeakyRelu", domain=CONTRIB)
def _slope(site: RespelledNode) -> None:
    """The importer's default of the slope is 1; ONNX Runtime's is 0.01."""
    site.put(alpha=float(site.attr("alpha", 0.01)))


@_spells("Dropout")
def _nothing(site: RespelledNode) -> None:
    """Of inference."""
    if site.operand(2) or len(site.node.output) > 1:
        return  # with a switch, or a mask: the importer's to say
    site.become("Identity", site.operand(0))


@_spells("BatchNormalization")
def _inference(site: RespelledNode) -> None:
    if site.attr("training_mode", 0):
        site.refuse("training_mode 1", "0: statistics that are constants", "export for inference")


@_spells("QLinearSoftmax", domain=CONTRIB)
def _softmax_of_the_rest(site: RespelledNode) -> None:
    """Of an opset before 13 it is of all dimensions from the axis on, together."""
    whole = int(site.attr("opset", 0)) < 13
    axis = int(site.attr("axis", -1))
    if not whole or axis in (-1, site.rank() - 1):
        site.put(axis=axis)
        return
    rank = site.rank()
    sizes, axis = site.sizes(0, range(rank)), axis % rank
    flat = np.array([int(np.prod(sizes[:axis])), int(np.prod(sizes[axis:]))], np.int64)
    data = site.value_before("Reshape", "flat", site.operand(0), site.constant(flat, "flat_shape"))
    site.set_operands(data, *site.node.input[1:])
    site.put(axis=1)
    site.result_through("Reshape", site.constant(np.array(sizes, np.int64), "shape"))


# --- Axes ----------------------------------------------------------------------------------------


@_spells(
    *(f"Reduce{kind}" for kind in ("Max", "Min", "Sum", "Mean", "Prod", "LogSumExp")),
    *(f"Reduce{kind}" for kind in ("SumSquare", "L1", "L2", "LogSum")),
)
def _reduced_axes(site: RespelledNode) -> None:
    """As an attribute, whatever the opset: of an input the importer takes the first axis alone."""
    axes = site.numbers(1, "axes") if site.operand(1) else list(site.attr("axes") or ())
    idle = bool(site.attr("noop_with_empty_axes", 0))
    site.drop("axes", "noop_with_empty_axes")
    site.set_operands(site.operand(0))
    if axes:
        rank = site.rank() if min(axes) < 0 else 0
        site.put(axes=sorted(axis + rank if axis < 0 else axis for axis in axes))
    elif idle:
        if site.node.op_type.removeprefix("Reduce") not in ("Max", "Min", "Sum", "Mean", "Prod"):
            site.refuse("no axes", "some", "leave the operator out, or name its axes")
        site.become("Identity", site.operand(0))


@_spells("Unsqueeze")
def _new_axes(site: RespelledNode) -> None:
    """From the front, in order: the importer inserts them one by one."""
    as_input = site.facts.opset >= 13
    axes = site.numbers(1, "axes") if as_input else [int(a) for a in site.attr("axes", ())]
    if min(axes, default=0) >= 0:
        return
    rank = site.rank() + len(axes)
    ordered = sorted(axis % rank for axis in axes)
    if as_input:
        name = site.constant(np.array(ordered, np.int64), "axes")
        site.set_operands(site.operand(0), name)
    else:
        site.put(axes=ordered)


@_spells("Gather", "GatherElements")
def _gathered_axis(site: RespelledNode) -> None:
    """From the front: the importer counts negative indices from the end of another axis."""
    axis = int(site.attr("axis", 0))
    site.put(axis=axis + site.rank() if axis < 0 else axis)


@_spells("Slice")
def _sliced_axes(site: RespelledNode) -> None:
    if site.facts.opset >= 10:
        return
    axes = [int(axis) for axis in site.attr("axes") or ()]
    if min(axes, default=0) < 0:
        site.put(axes=[axis % site.rank() for axis in axes])


@_spells("Split")
def _parts(site: RespelledNode) -> None:
    """With sizes, where they are not all the same: the importer divides evenly."""
    count = len(site.node.output)
    if site.facts.opset < 18 or site.operand(1):
        return
    axis = int(site.attr("axis", 0))
    (size,) = site.sizes(0, [axis])
    part = -(-size // count)
    site.drop("num_outputs")
    if part * count != size:
        sizes = [part] * (count - 1) + [size - part * (count - 1)]
        split = site.constant(np.array(sizes, np.int64), "split")
        site.set_operands(site.operand(0), split)


@_spells("Pad")
def _padded_axes(site: RespelledNode) -> None:
    """Pads of all axes, none negative: the importer knows no axes, and cuts nothing off."""
    if site.facts.opset < 11:
        pads = [int(each) for each in site.attr("pads", ())]
        if min(pads, default=0) < 0:
            site.refuse(f"pads {pads}", "0 and more", "a Slice where something is cut off")
        return
    if site.operand(1) not in site.facts.constants:
        return  # the importer says so
    pads = site.numbers(1, "pads")
    if site.operand(3):
        rank = site.rank()
        axes = [axis % rank for axis in site.numbers(3, "axes")]
        whole = [0] * (2 * rank)
        for place, axis in enumerate(axes):
            whole[axis], whole[axis + rank] = pads[place], pads[place + len(axes)]
        pads = whole
    value = [site.operand(2)] if site.operand(2) else []
    data = site.operand(0)
    if min(pads) < 0:
        data, pads = _cut(site, data, pads)
    site.set_operands(data, site.constant(np.array(pads, np.int64), "pads"), *value)


def _cut(site: RespelledNode, data: str, pads: Sequence[int]) -> tuple[str, list[int]]:
    """The data without what negative pads take off, and the other pads."""
    if site.attr("mode", "constant") != "constant":
        site.refuse(f"negative pads, mode {site.attr('mode')}", "mode constant", "a Slice before")
    half = len(pads) // 2
    axes = [a for a in range(half) if pads[a] < 0 or pads[a + half] < 0]
    starts = [max(-pads[axis], 0) for axis in axes]
    ends = [pads[a + half] if pads[a + half] < 0 else np.iinfo(np.int32).max for a in axes]
    names = [
        site.constant(np.array(numbers, np.int64), use)
        for use, numbers in (("starts", starts), ("ends", ends), ("axes", axes))
    ]
    return site.value_before("Slice", "cut", data, *names), [max(pad, 0) for pad in pads]


# --- Windows -------------------------------------------------------------------------------------


@_spells("AveragePool", "MaxPool", "LpPool")
@_spells("QLinearAveragePool", domain=CONTRIB)
def _pooled_windows(site: RespelledNode) -> None:
    """Explicit pads and no ceil mode."""
    _channels_first(site)
    if len(site.node.output) > 1 and site.node.output[1]:
        site.refuse("indices as a second result", "one result", "leave the indices out")
    site.drop("storage_order")  # of the indices
    kernel = [int(k) for k in site.attr("kernel_shape")]
    window = windows.WindowAttributes.of(site, kernel)
    if window.auto or site.attr("ceil_mode", 0):
        size = site.sizes(0, range(2, 2 + len(kernel)))
        averages = site.node.op_type in ("AveragePool", "QLinearAveragePool")
        site.put(pads=windows.pads_of_pool(site, window, size, averages=averages))
    site.drop("ceil_mode", "auto_pad")


@_spells("Conv")
def _convolution(site: RespelledNode) -> None:
    _explicit_pads(site, 1)


@_spells("ConvInteger")
def _convolution_of_integers(site: RespelledNode) -> None:
    _explicit_pads(site, 1)


@_spells("QLinearConv")
def _quantized_convolution(site: RespelledNode) -> None:
    _explicit_pads(site, 3)


def _explicit_pads(site: RespelledNode, weight: int) -> None:
    kernel = windows.kernel_of(site, weight)
    window = windows.WindowAttributes.of(site, kernel)
    if window.auto:
        site.put(pads=windows.pads_of_layer(site, window, kernel))
    site.drop("auto_pad")


@_spells("ConvTranspose")
def _transposed_convolution(site: RespelledNode) -> None:
    kernel = windows.kernel_of(site, 1)
    window = windows.WindowAttributes.of(site, kernel)
    if window.auto or site.attr("output_shape"):
        site.put(pads=windows.pads_of_transposed(site, window, kernel))
    site.drop("auto_pad", "output_shape")


# --- Order of dimensions -------------------------------------------------------------------------


@_spells("QLinearGlobalAveragePool", domain=CONTRIB)
def _channels_first(site: RespelledNode) -> None:
    """Transpositions around the operator: the importer does not look at ``channels_last``."""
    if not site.attr("channels_last", 0):
        site.drop("channels_last")
        return
    if site.attr("auto_pad", "NOTSET").startswith("SAME"):
        # ONNX Runtime 1.31 computes other pads here than for channels first.
        site.refuse("auto_pad and channels_last", "one of them", "explicit pads")
    rank = site.rank()
    first = [0, rank - 1, *range(1, rank - 1)]
    data = site.value_before("Transpose", "channels_first", site.operand(0), perm=first)
    size = site.facts.shape(site.operand(0))
    if size is not None:
        site.facts = site.facts.plus(data, tuple(size[axis] for axis in first))
    site.set_operands(data, *site.node.input[1:])
    site.drop("channels_last")
    site.result_through("Transpose", perm=[0, *range(2, rank), 1])


# --- Resizing ------------------------------------------------------------------------------------


@_spells("Resize", "Upsample")
def _resized(site: RespelledNode) -> None:
    """To the nearest neighbour: rows and columns by number, where the importer takes others."""
    if site.node.op_type == "Upsample" and site.facts.opset < 9:
        return
    for name, default in (("antialias", 0), ("keep_aspect_ratio_policy", "stretch")):
        if site.attr(name, default) != default:
            site.refuse(f"{name} {site.attr(name)}", str(default), "resize without it")
    plan = resizing.plan_of(site)
    if plan.is_read_right:
        site.drop("axes", "antialias", "keep_aspect_ratio_policy")
        if site.facts.opset >= 11:
            sizes = site.constant(np.array(plan.sizes, np.int64), "sizes")
            no_scales = site.constant(np.zeros(0, np.float32), "scales")
            site.set_operands(site.operand(0), "", no_scales, sizes)
        return
    if plan.mode != "nearest":
        site.refuse(plan.why, plan.allowed, "resize by sizes instead of scales")
    data = site.operand(0)
    taken = [
        (axis, np.array(places, np.int64))
        for axis, places in enumerate(plan.indices)
        if places != tuple(range(plan.input_sizes[axis]))
    ]
    if not taken:
        site.become("Identity", data)
        return
    for axis, places in taken[:-1]:
        name = site.constant(places, f"places{axis}")
        data = site.value_before("Gather", f"axis{axis}", data, name, axis=axis)
    axis, places = taken[-1]
    site.become("Gather", data, site.constant(places, f"places{axis}"), axis=axis)
