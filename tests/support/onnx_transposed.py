"""Transposed convolutions of QDQ files, which ONNX Runtime runs in float.

It has integer kernels for the other layers of the networks here. A ConvTranspose it leaves between
DequantizeLinear and QuantizeLinear, and sums float32 in an order of its own: where the exact value
is nearer to a tie than the error of such a sum, the quantized result may be a step off. What is
here writes these layers so that ONNX Runtime has an integer kernel for them, and says how near to a
tie their exact values are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import NodeProto, helper, numpy_helper

from tinyai.checking.onnxruntime import exact_session
from tinyai.ir import Array


def session(model: onnx.ModelProto, optimized: Path | None = None) -> onnxruntime.InferenceSession:
    """ONNX Runtime on one thread; int8 activations stay int8 (by default it makes them uint8, and
    runs what it cannot in float). ``optimized``: where to write the graph that it runs."""
    return exact_session(model.SerializeToString(), optimized=optimized)


def executed(model: onnx.ModelProto, folder: Path) -> set[str]:
    """Kinds of the nodes that ONNX Runtime runs, after it put integer kernels where it has some."""
    path = folder / "optimized.onnx"
    session(model, path)
    return {node.op_type for node in onnx.load(path).graph.node}


def quantized_tensors(model: onnx.ModelProto, names: list[str]) -> Callable[[Array], list[Array]]:
    """A function from the image to the results of the QuantizeLinear that are named."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.ClearField("output")
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    (image,) = model.graph.input
    run = session(shown)
    return lambda value: list(run.run(None, {image.name: value}))


def quantized_names(model: onnx.ModelProto) -> list[str]:
    """Results of QuantizeLinear; none depends on a later one."""
    return [node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]


@dataclass(frozen=True, eq=False)
class Transposed:
    """A ConvTranspose of 2×2 weights and stride 2 with its quantization; arrays are by output
    channel where they have one number a channel, else of one number."""

    node: NodeProto
    source: str  # the quantized input and the quantized output
    result: str
    weight: Array  # int8 [inputs, outputs, 2, 2]
    bias: Array  # int32 [outputs]
    weight_scale: Array
    bias_scale: Array
    source_scale: float
    source_zero: int
    result_scale: float
    result_zero: int

    def exact(self, value: Array) -> tuple[Array, Array]:
        """The result in steps from its zero point, before it is rounded, and the same sum over
        magnitudes: both float64 [1, outputs, height, width], exact but for float64's rounding."""
        x = value.astype(np.float64) - self.source_zero
        return (
            self._sum(x, self.weight.astype(np.float64), self.bias),
            self._sum(np.abs(x), np.abs(self.weight.astype(np.float64)), np.abs(self.bias)),
        )

    def _sum(self, x: Array, weight: Array, bias: Array) -> Array:
        """Sums are integers below 2**53: as float64 they are exact in any order."""
        height, width = x.shape[2:]
        flat = np.tensordot(weight, x[0], axes=(0, 0))  # [outputs, 2, 2, height, width]
        pixels = flat.transpose(0, 3, 1, 4, 2).reshape(1, -1, 2 * height, 2 * width)
        scale = self.source_scale * self.weight_scale.astype(np.float64)
        offset = bias * self.bias_scale.astype(np.float64)
        return np.asarray(
            (pixels * scale.reshape(1, -1, 1, 1) + offset.reshape(1, -1, 1, 1)) / self.result_scale
        )


def transposed(model: onnx.ModelProto) -> list[Transposed]:
    """The transposed convolutions of a QDQ file that ``benchmarks.onnx_networks`` made."""
    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    producer = {name: node for node in model.graph.node for name in node.output}
    quantize = {n.input[0]: n for n in model.graph.node if n.op_type == "QuantizeLinear"}
    found = []
    for node in model.graph.node:
        if node.op_type != "ConvTranspose":
            continue
        source, weight, bias = (producer[name] for name in node.input)
        result = quantize[node.output[0]]
        found.append(
            Transposed(
                node,
                source.input[0],
                result.output[0],
                constants[weight.input[0]],
                constants[bias.input[0]],
                constants[weight.input[1]],
                constants[bias.input[1]],
                float(constants[source.input[1]]),
                int(constants[source.input[2]]),
                float(constants[result.input[1]]),
                int(constants[result.input[2]]),
            )
        )
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        assert attributes == {"kernel_shape": [2, 2], "strides": [2, 2]}
        assert all(not constants[each.input[2]].any() for each in (weight, bias))
    return found


def in_integers(model: onnx.ModelProto) -> onnx.ModelProto:
    """The file with each ConvTranspose as a 1×1 convolution to four times the channels, for which
    ONNX Runtime has an integer kernel, and DepthToSpace. The numbers and names of quantized tensors
    stay; there are further ones. A file without ConvTranspose stays as it is."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    layers = {layer.node.output[0]: layer for layer in transposed(model)}
    nodes = list(made.graph.node)
    made.graph.ClearField("node")
    for node in nodes:
        if node.op_type == "ConvTranspose":
            made.graph.node.extend(_as_convolution(made.graph, layers[node.output[0]], nodes))
        else:
            made.graph.node.append(node)
    onnx.checker.check_model(made)
    return made


def _as_convolution(
    graph: onnx.GraphProto, layer: Transposed, nodes: list[NodeProto]
) -> list[NodeProto]:
    """Nodes from the dequantized input to the float output of the layer."""
    name = layer.node.output[0]
    (quantize,) = (n for n in nodes if n.op_type == "QuantizeLinear" and n.input[0] == name)

    def constant(of: str, value: Array) -> str:
        graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), of))
        return of

    def dequantized(of: str, value: Array, scale: Array) -> NodeProto:
        four = np.tile(scale, 4) if scale.ndim else scale
        zero = np.zeros(four.shape, value.dtype)
        names = (of, f"{of}_scale", f"{of}_zero")
        given = [constant(n, v) for n, v in zip(names, (value, four, zero), strict=True)]
        return helper.make_node("DequantizeLinear", given, [f"{of}_float"], axis=0)

    # Channels of the convolution: row and column within the square first, as DepthToSpace has them.
    inputs, outputs, *_ = layer.weight.shape
    weight = layer.weight.transpose(2, 3, 1, 0).reshape(4 * outputs, inputs, 1, 1)
    weights = dequantized(f"{name}_weight", weight, layer.weight_scale)
    bias = dequantized(f"{name}_bias", np.tile(layer.bias, 4), layer.bias_scale)
    flat = [f"{name}_flat{end}" for end in ("", "_quantized", "_dequantized")]
    given = [layer.node.input[0], weights.output[0], bias.output[0]]
    return [
        *(weights, bias),
        helper.make_node("Conv", given, [flat[0]], kernel_shape=[1, 1]),
        helper.make_node("QuantizeLinear", [flat[0], *quantize.input[1:]], [flat[1]]),
        helper.make_node("DequantizeLinear", [flat[1], *quantize.input[1:]], [flat[2]]),
        helper.make_node("DepthToSpace", [flat[2]], [name], blocksize=2, mode="DCR"),
    ]
