"""A float .onnx file with the quantizer's pairs put in, in the form of ONNX Runtime's quantizer.

Nodes and values keep their names. Constants of layers become integers behind a DequantizeLinear,
biases int32 in the steps of their sums. What was folded into a layer, such as a batch norm, is in
its constants: the layer makes the value of the last node that was folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import onnx
from onnx import helper

from tinyai.errors import OptionError
from tinyai.frontends.onnx.accepted import of_all_axes, without
from tinyai.frontends.onnx.facts import CONTRIB, opset_of
from tinyai.frontends.onnx.functions import graphs_of
from tinyai.frontends.onnx.layer_constants import bias_of, dequantized, turned
from tinyai.frontends.onnx.load import OnnxFile
from tinyai.frontends.onnx.new_nodes import WITH_16_BITS, NewNodes
from tinyai.frontends.onnx.sums import LAYERS, Sums
from tinyai.frontends.onnx.unread import names_around, names_made, names_read, renamed
from tinyai.ir import Array
from tinyai.qdq.moves import MOVES
from tinyai.qdq.operands import Grid, is_call, operator_name
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.quantize import Result
from tinyai.safe_text import safe
from tinyai.source import Call, Constant, Expr, Field, Tuple, post_order, tensors_of

# The first opset whose pairs have an axis. From opset 21 on a pair may name its type. ONNX Runtime
# 1.31 makes pairs of int8 itself, whose zero points it turns into uint8 and whose types it does
# not, and fails to load the file: values are uint8 there.
OLDEST = 13
# Names that ONNX Runtime's optimizer gives to shapes. Version 1.31 gives them again where a file
# has them already, and fails to load it.
_LIKE_THEIRS = ("gemm_input_shape", "gemm_output_shape")
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# What may be folded into the layer before it; the line of a HardSigmoid may.
_STEPS = ("BatchNormalization", "Mul", "Div", "Add", "Sum", "Sub", "HardSigmoid")
_MOVES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
_BEFORE = (*_STEPS, *_MOVES)


def as_stored(config: QuantConfig, file: OnnxFile) -> QuantConfig:
    """What is asked for, with the dtype that the pairs of ``file`` have: so halves are rounded in
    memory as they are by the file."""
    return config.of_dtype(_stored_dtype(config.dtype, opset_of(file.proto)))


def _stored_dtype(dtype: str, opset: int) -> str:
    return "uint8" if dtype == "int8" and opset >= WITH_16_BITS else dtype


def with_pairs(file: OnnxFile, result: Result) -> onnx.ModelProto:
    """The model of a float file, quantized as in ``result``.

    Raises ``OptionError`` for a layer that has no form with pairs. The file is of ``OLDEST`` or
    later.
    """
    return _Pairs(file, result, opset_of(file.proto)).model()


def _refusal(kind: str, name: str) -> OptionError:
    return OptionError(
        "a layer to write with pairs",
        found=f"{kind} {safe(name, 60)!r}, which reads what is no value of the file",
        allowed="layers as they are, such as a Gemm with alpha 1",
        hint="float_layers, --float-layers leave it in float",
    )


class _Pairs:
    """The nodes of the new model, found from its outputs on; the nodes of the file that nothing
    reads any more are left out."""

    def __init__(self, file: OnnxFile, result: Result, opset: int) -> None:
        self._file, self._written, self._opset = file, result.written, opset
        points = result.written.points
        sources, self._view = points.sources, points.view
        self._exprs = {name: sources.get(expr, expr) for name, expr in file.exprs.items()}
        self._first: dict[Expr, str] = {}
        for name, expr in self._exprs.items():
            self._first.setdefault(expr, name)
        grids = self._written.grids
        self._at = {point.expr: self._stored(grids[point.grid]) for point in points.points}
        graph = file.proto.graph
        self._makers = {name: node for node in graph.node for name in node.output}
        self._outputs = {each.name for each in graph.output}
        graphs = [*graphs_of(graph)]
        taken = {*file.exprs, *(node.name for each in graphs for node in each.node)}
        taken.update(name for each in graphs for name in names_made(each))
        self._new = NewNodes(taken, opset)
        self._ends: dict[Expr, tuple[str, str, str]] = {}
        self._needed = set(self._outputs)
        self._nodes: list[onnx.NodeProto] = []
        self._weights_written: set[Expr] = set()

    def model(self) -> onnx.ModelProto:
        made = onnx.ModelProto()
        made.CopyFrom(self._file.proto)
        graph = made.graph
        for node in reversed(graph.node):
            if not self._needed.isdisjoint(node.output):
                self._nodes[:0] = [*self._rewritten(node), *self._pairs_of(node.output)]
        self._require_all_layers()
        own = [end.name for end in self._file.source.inputs]
        self._nodes[:0] = [*self._new.of_constants, *self._pairs_of(own)]
        read = {name for node in self._nodes for name in names_read(node)} | self._outputs
        kept = [each for each in graph.initializer if each.name in read]
        self._rename(kept)
        inputs = [each for each in graph.input if each.name in own]
        for field, values in (
            (graph.node, self._nodes),
            (graph.initializer, [*kept, *self._new.constants.values()]),
            (graph.input, inputs),
            (graph.value_info, []),
        ):
            copied = [type(each).FromString(each.SerializeToString()) for each in values]
            del field[:]
            field.extend(copied)
        if self._new.has_16_bits and CONTRIB not in {each.domain for each in made.opset_import}:
            made.opset_import.append(helper.make_opsetid(CONTRIB, 1))
        return made

    def _rename(self, constants: Sequence[onnx.TensorProto]) -> None:
        """Other names for constants that ONNX Runtime could not tell from those it makes."""
        new = {
            each.name: self._new.name(f"{each.name}_kept")
            for each in constants
            if each.name.startswith(_LIKE_THEIRS)
        }
        for each in constants:
            each.name = new.get(each.name, each.name)
        self._nodes = [renamed(node, new) for node in self._nodes] if new else self._nodes

    def _require_all_layers(self) -> None:
        """Refuse a layer whose integers no node has: it would stay in float without a word."""
        known = {*self._exprs.values(), *self._weights_written}
        layers = (each for each in post_order(self._written.result) if is_call(each, *LAYERS))
        for layer in layers:
            weight = layer["weight"]
            stored = is_call(weight, "dequantize") and isinstance(weight["data"], Constant)
            if stored and weight not in known:
                raise _refusal(operator_name(layer), layer.name)

    # --- Values ---

    def _read(self, name: str, *, quantized: bool) -> str:
        """What a node reads for a value of the file."""
        expr = self._exprs.get(name)
        if expr is None or isinstance(expr, Constant):
            self._needed.add(name)
            return name
        base = self._first[expr]
        self._needed.add(base)
        if expr not in self._at or not (quantized or self._is_for_all(expr)):
            return base
        return self._names_of(expr)[2]

    def _read_inside(self, name: str) -> str:
        """What graphs inside of a node read: a value before its pair. Where they read what a
        DequantizeLinear makes, ONNX Runtime 1.31 ends the process."""
        read, expr = self._read(name, quantized=False), self._exprs.get(name)
        return self._names_of(expr)[0] if expr is not None and expr in self._at else read

    def _is_paired_behind(self, expr: Expr) -> bool:
        """Whether a pair is behind a value, or behind moves of it: ONNX Runtime goes past these."""
        users = [user for user in self._written.points.users.get(expr, ()) if user is not None]
        moved = (user for user in users if isinstance(user, Tuple | Field) or is_call(user, *MOVES))
        return expr in self._at or any(map(self._is_paired_behind, moved))

    def _is_for_all(self, expr: Expr) -> bool:
        """Whether operators of floats read what is quantized too."""
        return self._written.is_taken(expr)

    def _pairs_of(self, names: Sequence[str]) -> list[onnx.NodeProto]:
        """The pairs behind the values of a node, or of the inputs."""
        made: list[onnx.NodeProto] = []
        for name in names:
            expr = self._exprs.get(name)
            if expr is None or expr not in self._at or self._first[expr] != name:
                continue
            made += self._new.pair(name, self._at[expr], *self._names_of(expr))
        return made

    def _stored(self, at: Grid) -> Grid:
        """That of a value of the file, which may have int8 pairs of its own."""
        dtype = _stored_dtype(at.dtype, self._opset)
        return at if dtype == at.dtype else Grid(dtype, at.scale, at.zero_point + 128)

    def _names_of(self, expr: Expr) -> tuple[str, str, str]:
        """What a pair reads, hands on and makes; an output keeps its name."""
        if expr not in self._ends:
            name, middle = self._first[expr], "_QuantizeLinear_Output"
            between = self._new.name(f"{name}{middle}")
            if name in self._outputs and self._is_for_all(expr):
                names = self._new.name(f"{name}_QuantizeLinear_Input"), between, name
            else:
                names = name, between, self._new.name(f"{name}_DequantizeLinear_Output")
            self._ends[expr] = names
        return self._ends[expr]

    # --- Nodes ---

    def _rewritten(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """A node of the file on what it reads now, or the layer that it was folded into."""
        expr = self._exprs[next(filter(None, node.output))]
        sums = None
        if expr in self._written.unpaired and not self._hands_on(node):
            sums = Sums.of(self._written.unpaired[expr], self._view)
        made = self._layer(node, expr, sums) if sums else self._within_bounds(node, expr)
        if made is None:
            of_floats = sums is not None and not sums.is_quantized
            product = node.op_type in _PRODUCTS and not of_floats
            if product and (self._has_integers(node, expr) or self._scales_inside(node)):
                raise _refusal(node.op_type, node.name)
            made = [self._copied(node, expr)]
        if node.op_type in ("Relu", "Clip") and made[0].input:
            made = [*self._integers_before(node, expr, made[0]), *made]
        outputs = made[-1].output
        for place, name in enumerate(outputs):
            of = self._exprs.get(name)
            if of in self._at and self._first[of] == name:
                outputs[place] = self._names_of(of)[0]
        return made

    def _integers_before(
        self, node: onnx.NodeProto, expr: Expr, bounded: onnx.NodeProto
    ) -> list[onnx.NodeProto]:
        """A pair between a product with an addition and its bounds, on the grid of the result.
        Without one ONNX Runtime 1.31 computes the product in floats: it makes a Gemm between two
        Reshapes of both, and looks for a pair next to them before it leaves out the bounds."""
        data, at = self._exprs[node.input[0]], self._at.get(expr)
        if at is None or data in self._at or data not in self._written.unpaired:
            return []
        sums = Sums.of(self._written.unpaired[data], self._view)
        if sums is None or not sums.is_quantized or sums.bias is None:
            return []
        if not is_call(sums.product, "dense") or len(data.type.shape) == 2:
            return []
        name = self._new.name(f"{node.input[0]}_bounded")
        result = self._new.name(f"{name}_DequantizeLinear_Output")
        between = self._new.name(f"{name}_QuantizeLinear_Output")
        source, bounded.input[0] = bounded.input[0], result
        return self._new.pair(name, at, source, between, result)

    def _hands_on(self, node: onnx.NodeProto) -> bool:
        """Whether a node only gives its input another name, as an Identity does."""
        data, result = (self._exprs.get(next(iter(of), "")) for of in (node.input, node.output))
        return data is not None and data is result

    def _has_integers(self, node: onnx.NodeProto, expr: Expr) -> bool:
        """Whether the weights of a layer became integers."""
        known = isinstance(self._exprs[node.input[1]], Constant)
        return known and self._written.is_taken(expr)

    def _scales_inside(self, node: onnx.NodeProto) -> bool:
        """Whether the factor of a Gemm has a grid in memory, which its node has no place for."""
        inner = (each for each in self._at if each not in self._first)
        name = node.name or node.output[0]
        return any(is_call(each, "multiply") and each.name == name for each in inner)

    def _copied(self, node: onnx.NodeProto, expr: Expr) -> onnx.NodeProto:
        if is_call(expr, "softmax") and node.op_type == "Div":  # of powers that are spelled out
            data, axis = [self._first[expr["data"]]], expr.attrs["axis"]
            node = helper.make_node("Softmax", data, node.output, node.name, axis=axis)
        copied: onnx.NodeProto = renamed(
            node, {name: self._read_inside(name) for name in names_around(node)}
        )
        unit = self._file.inside.get(expr, expr)
        unit = self._written.points.sources.get(unit, unit)
        quantized = self._written.is_taken(getattr(unit, "call", unit))
        constants = self._constants_of(expr, self._written.unpaired.get(expr))
        left = self._left_constant(node, expr)
        for place, name in enumerate(node.input):
            found = constants.get(self._exprs.get(name))  # type: ignore[arg-type]
            floats = node.op_type in ("Softmax", "AveragePool") and not quantized
            if floats and self._is_paired_behind(expr):
                # With pairs around it ONNX Runtime would make integers of it.
                copied.input[place] = self._read_inside(name)
            elif left is not None and place == 0:
                copied.input[place] = self._left_matrix(name, left)
            elif name:
                copied.input[place] = (
                    self._read(name, quantized=quantized)
                    if found is None
                    else dequantized(self._new, name, found)
                )
        self._make_acceptable(copied, node)
        return copied

    def _left_constant(self, node: onnx.NodeProto, expr: Expr) -> Call | None:
        """The integers of a constant first operand of a product of matrices, which the file has
        as floats; those of a pair in the file stay as they are."""
        if node.op_type not in ("MatMul", "Gemm"):
            return None
        if not isinstance(self._exprs[node.input[0]], Constant):
            return None
        at = self._written.unpaired[expr]
        while isinstance(at, Call) and not is_call(at, "dense", "batch_matmul"):
            (at, *_) = (each for each in at.args if not self._view.is_constant(each))
        stored = at["data"] if isinstance(at, Call) else at
        if is_call(stored, "dequantize") and isinstance(stored["data"], Constant):
            return stored
        return None

    def _left_matrix(self, name: str, stored: Call) -> str:
        """The constant that is multiplied by a value of run time: one matrix or many."""
        _, scale, zero = (arg.value for arg in stored.args if isinstance(arg, Constant))
        at = self._stored(Grid(stored["data"].type.dtype, scale.item(), zero.item()))
        matrix = self._exprs[name]
        assert isinstance(matrix, Constant)
        steps = at.quantize(matrix.value)
        return self._new.dequantized(name, steps, scale, np.array(at.zero_point, at.dtype), None)

    def _make_acceptable(self, copied: onnx.NodeProto, node: onnx.NodeProto) -> None:
        """Change what ONNX Runtime fails on in the copy of a node of the file."""
        exprs = {name: self._exprs.get(name) for name in node.input}
        known = {name: e.value for name, e in exprs.items() if isinstance(e, Constant)}
        data = exprs.get(next(iter(node.input), ""))
        shape = [int(dim or 0) for dim in data.type.shape] if data is not None else []
        if (found := of_all_axes(node, known, shape)) is not None:
            place, numbers = found
            name = f"{node.output[0]}_of_all_axes"
            copied.input[place] = self._new.number(name, numbers, numbers.dtype.name)
            del copied.input[3 if node.op_type == "Pad" else 4 :]
            without(copied, "axes")
        dilations = [a.ints for a in node.attribute if a.name == "dilations"]
        if node.op_type == "AveragePool" and {*chain(*dilations)} == {1}:
            without(copied, "dilations")  # which its pooling of integers does not know

    def _constants_of(self, expr: Expr, made: Expr | None) -> dict[Expr, Call]:
        """The constant operands of a sum, a product or a concatenation of tensors that became
        integers, and of what else is in one node."""
        if not isinstance(expr, Call) or not isinstance(made, Call) or made.op != expr.op:
            return {}
        both = ([t for arg in call.args for t in tensors_of(arg)] for call in (expr, made))
        found: dict[Expr, Call] = {}
        for old, new in zip(*both, strict=True):
            if isinstance(old, Constant) and is_call(new, "dequantize"):
                found[old] = new
            elif old in self._written.points.parts:
                found |= self._constants_of(old, new)
        return found

    def _within_bounds(self, node: onnx.NodeProto, expr: Expr) -> list[onnx.NodeProto] | None:
        """The layer that a HardSigmoid's line was folded into, and a Clip, behind a pair where it
        stays in float."""
        made = self._written.unpaired.get(expr)
        if node.op_type != "HardSigmoid" or made is None or not is_call(expr, "clip"):
            return None
        if not is_call(made, "clip"):
            return None
        value, at = made["data"], self._at.get(expr["data"])
        if at is not None and is_call(value, "dequantize") and is_call(value["data"], "quantize"):
            value = value["data"]["data"]
        sums = Sums.of(value, self._view)
        layer = self._layer(node, expr["data"], sums) if sums else None
        if layer is None:
            return None
        (result,) = layer[-1].output
        line = layer[-1].output[0] = self._new.name(f"{result}_without_bounds")
        if at is not None and value is not made["data"]:
            names = (
                self._new.name(f"{line}_{kind}Linear_Output") for kind in ("Quantize", "Dequantize")
            )
            layer += self._new.pair(line, at, line, *names)
            line = layer[-1].output[0]
        low, high = (
            self._new.number(f"{result}_{end}", made.attrs[end], "float32")
            for end in ("low", "high")
        )
        return [*layer, helper.make_node("Clip", [line, low, high], [result], node.name)]

    def _layer(self, node: onnx.NodeProto, expr: Expr, sums: Sums) -> list[onnx.NodeProto] | None:
        """The layer that makes the value of ``node``: of the node, or of one before it that it was
        folded into."""
        source = Sums.of(expr, self._view)
        base, is_moved = node, False
        while base.op_type in (_STEPS if base is node else _BEFORE) or self._hands_on(base):
            data = [n for n in base.input if not isinstance(self._exprs.get(n), Constant)]
            if source is None or len(data) != 1:
                return None
            is_moved |= base.op_type in _MOVES
            if source.reads(self._exprs[data[0]]):
                return None if is_moved else [self._depthwise(base, node, data[0], sums)]
            if data[0] not in self._makers:
                return None
            base = self._makers[data[0]]
        if source is None or base.op_type not in _PRODUCTS:
            return None
        if base is node and not sums.is_quantized and self._has_weights(base, sums):
            return None
        if not source.reads(self._exprs[base.input[0]]):
            return None
        made = self._product(base, node, sums)
        return self._reshaped(made, expr) if is_moved else made

    def _reshaped(self, layer: Sequence[onnx.NodeProto], expr: Expr) -> list[onnx.NodeProto]:
        """A layer whose result has the shape of ``expr``."""
        (result,) = layer[-1].output
        shape = self._new.number(f"{result}_shape", expr.type.shape, "int64")
        moved = layer[-1].output[0] = self._new.name(f"{result}_before_reshape")
        return [*layer, helper.make_node("Reshape", [moved, shape], [result])]

    def _has_weights(self, base: onnx.NodeProto, sums: Sums) -> bool:
        """Whether floats of a layer are those of its node: equalization changes them."""
        own, weight = self._exprs[base.input[1]], sums.product["weight"]
        if not isinstance(own, Constant) or not isinstance(weight, Constant):
            return True
        known = turned(weight.value, _is_turned(base))
        return known.size == own.value.size and np.array_equal(known.ravel(), own.value.ravel())

    def _product(
        self, base: onnx.NodeProto, last: onnx.NodeProto, sums: Sums
    ) -> list[onnx.NodeProto]:
        """A layer of the file with other constants, and ``last``'s result."""
        made = onnx.NodeProto()
        made.CopyFrom(base)
        del made.input[2:], made.output[:]
        made.output.append(last.output[0])
        made.input[0] = self._read(base.input[0], quantized=sums.is_quantized)
        shape = tuple(int(dim or 0) for dim in self._exprs[base.input[1]].type.shape)
        made.input[1] = self._weights(base.input[1], sums, _is_turned(base), shape)
        name = base.input[2] if len(base.input) > 2 and base.input[2] else f"{last.output[0]}_bias"
        without(made, "alpha", "beta")
        if sums.bias is None:
            return [made]
        if base.op_type == "MatMul" and len(self._exprs[base.input[0]].type.shape) != 2:
            return self._with_addition(made, name, sums.bias)
        made.op_type = "Gemm" if base.op_type == "MatMul" else made.op_type
        made.input.append(bias_of(self._new, name, sums))
        return [made]

    def _with_addition(
        self, product: onnx.NodeProto, name: str, bias: Array
    ) -> list[onnx.NodeProto]:
        """A product that has no bias, and its addition."""
        (result,) = product.output
        product.output[0] = self._new.name(f"{result}_without_bias")
        added = self._new.number(name, bias, "float32")
        return [product, helper.make_node("Add", [product.output[0], added], [result])]

    def _depthwise(
        self, base: onnx.NodeProto, last: onnx.NodeProto, data: str, sums: Sums
    ) -> onnx.NodeProto:
        """What a batch norm without a layer before it became."""
        shape = sums.product["weight"].type.shape
        weights = f"{last.output[0]}_weight"
        inputs = [
            self._read(data, quantized=sums.is_quantized),
            self._weights(weights, sums, False, tuple(int(dim or 0) for dim in shape)),
        ]
        if sums.bias is not None:
            inputs.append(bias_of(self._new, f"{last.output[0]}_bias", sums))
        groups = int(sums.product.attrs["groups"])
        return helper.make_node("Conv", inputs, last.output[:1], base.name, group=groups)

    # --- Constants ---

    def _weights(self, name: str, sums: Sums, is_turned: bool, shape: tuple[int, ...]) -> str:
        weight = sums.product["weight"]
        if isinstance(weight, Constant):
            return self._new.number(name, turned(weight.value, is_turned).reshape(shape), "float32")
        assert isinstance(weight, Call)
        self._weights_written.add(weight)
        return dequantized(self._new, name, weight, is_turned=is_turned, shape=shape)


def _is_turned(product: onnx.NodeProto) -> bool:
    """Whether a node has inputs before outputs in its weights."""
    if product.op_type == "Gemm":
        return not any(a.name == "transB" and a.i for a in product.attribute)
    return product.op_type == "MatMul"
