"""Random float .onnx models as people quantize them: the operators of ``random_onnx`` with floats
for weights and inputs, operators that tinyai does not read, older and newer opsets, float16."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from tests.support.random_onnx import (
    CONTRIB,
    OPERATORS,
    SIZES,
    TRIES,
    Operator,
    Site,
    Value,
    grown,
    need,
    run,
)
from tests.support.random_stretches import is_telling
from tinyai.ir import Array

OPSETS = (9, 11, 12, 13, 14, 17, 18, 19, 20, 21, 22, 23)
SAMPLES = 6
HALVES = 0.15  # of the models are in float16
UNREAD_TOO = 0.35  # of the models have an operator that is not read
LAYERS = frozenset(("Conv", "ConvTranspose", "MatMul", "Gemm"))


@dataclass
class FloatSite(Site):
    """A model of floats that grows. Inputs are normal, weights are of other sizes along an axis."""

    def floats(self, shape: Sequence[int]) -> Value:
        name = self.name("x")
        array = self.rng.normal(self.one(0, 0, 0.5), self.factor(), shape).astype(np.float32)
        if self.inputs and self.chance(0.4):
            self.constants[name] = array
        else:
            self.inputs[name] = array
        return Value(name, array)

    def weights(self, shape: Sequence[int], axis: int | None) -> Value:
        spread = np.ones(len(shape), int)
        if axis is not None:
            spread[axis] = shape[axis]
        inner = np.sqrt(max(np.prod(shape) // shape[axis or 0], 1))
        sizes = 2.0 ** self.rng.uniform(-2, 1, spread) / inner
        array = (self.rng.normal(size=shape) * sizes).astype(np.float32)
        return Value(self.constant(array), array)


# --- Operators that no reader takes --------------------------------------------------------------

UNREAD: dict[str, Operator] = {}
# The first opset with such an operator.
FIRST = {"attention": 23, "rotary": 13, "defined": 18, "skip_norm": 13, "norm_of_any_opset": 13}


def unread(function: Operator) -> Operator:
    assert function.__name__ not in OPERATORS, "it would hide the other"
    UNREAD[function.__name__] = function
    return function


@unread
def chosen(site: Site, x: Value) -> Value:
    limit = site.constant(np.median(x.array))
    positive = site.call(site.one("Greater", "Less"), x, limit)
    return site.call("Where", positive, x, limit)


@unread
def unary(site: Site, x: Value) -> Value:
    return site.call(site.one("Hardmax", "LpNormalization", "Not a name"), x)


@unread
def lengths(site: Site, x: Value) -> Value:
    axes = site.axes(x.rank)
    if site.opset >= 18:
        return site.call("ReduceL2", x, site.constant(axes, np.int64))
    return site.call("ReduceL2", x, axes=axes)


@unread
def summed_up(site: Site, x: Value) -> Value:
    return site.call("CumSum", x, site.constant(np.asarray(site.axis(x.rank)), np.int64))


@unread
def largest(site: Site, x: Value) -> Value:
    count = site.constant([max(x.shape[-1] // 2, 1)], np.int64)
    return site.add("TopK", x, count, outputs=2)[0]


@unread
def normed(site: Site, x: Value) -> Value:
    need(x.rank >= 3)
    scale, shift = (site.constant(site.rng.uniform(0.5, 1.5, x.shape[1])) for _ in range(2))
    return site.call("InstanceNormalization", x, scale, shift)


@unread
def einsum(site: Site, x: Value) -> Value:
    need(x.rank >= 2)
    letters = "abcdefgh"[: x.rank]
    rest, last, columns = letters[:-1], letters[-1], site.one(2, 3, 5)
    weights = site.weights((x.shape[-1], columns), 1)
    match site.one("rows", "heads", "places", "elements", "sum", "values", "three"):
        case "rows":
            end = site.one(f"{rest}z", f"z{rest}", f"{rest[::-1]}z")
            return site.call("Einsum", x, weights, equation=f"{letters}, {last}z -> {end}")
        case "heads":
            heads = site.weights((x.shape[-1], 2, columns), None)
            return site.call("Einsum", x, heads, equation=f"{letters},{last}yz->{rest}yz")
        case "places":
            other = site.floats(x.shape)
            end = site.one(rest, letters[: x.rank - 2])
            return site.call("Einsum", x, other, equation=f"{letters},{letters}->{end}")
        case "elements":
            scale = site.weights(x.shape[-1:], None)
            return site.call("Einsum", x, scale, equation=f"{letters},{last}->{letters}")
        case "sum":
            return site.call("Einsum", x, equation=f"{letters}->{last}")
        case "values":
            other = site.floats((*x.shape[:-2], x.shape[-1], columns))
            return site.call("Einsum", x, other, equation="...ij,...jk->...ik")
    third = site.weights((columns, 4), 1)
    return site.call("Einsum", x, weights, third, equation=f"{letters},{last}y,yz->{rest}z")


@unread
def mean_of_several(site: Site, x: Value) -> Value:
    others = [site.floats(x.shape), x, site.weights(x.shape[-1:], None)][: site.one(0, 1, 2, 3)]
    return site.call("Mean", x, *others)


@unread
def defined(site: Site, x: Value) -> Value:
    """What ONNX defines by other operators."""
    reductions = "ReduceL1", "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum"
    op = site.one(*reductions, "CastLike", "MeanVarianceNormalization", "CenterCropPad")
    axes = site.axes(x.rank)
    if op == "CastLike":
        return site.call(op, x, site.floats((1,)))
    if op == "MeanVarianceNormalization":
        return site.call(op, x, axes=axes)
    if op == "CenterCropPad":
        sizes = [max(x.shape[axis] + site.one(-3, -1, 0, 1, 2), 1) for axis in axes]
        return site.call(op, x, site.constant(sizes, np.int64), axes=axes)
    x = site.call("Exp", x) if op == "ReduceLogSum" else x
    return site.call(op, x, site.constant(axes, np.int64), keepdims=site.one(0, 1))


def sequence(site: Site, x: Value) -> Value:
    """A value of three dimensions."""
    need(x.rank > 1)
    shape = [1 if x.rank == 2 else x.shape[0], -1, x.shape[-1]]
    return x if x.rank == 3 else site.call("Reshape", x, site.constant(shape, np.int64))


@unread
def attention(site: Site, x: Value) -> Value:
    x = sequence(site, x)
    heads, size, of_values = site.one(1, 2), site.one(2, 4), site.one(2, 3)
    groups = site.one(1, heads)
    wide = site.call("MatMul", x, site.weights((x.shape[-1], heads * size), 1))
    key, value = (
        site.call("MatMul", x, site.weights((x.shape[-1], groups * width), 1))
        for width in (size, of_values)
    )
    mask = [site.floats((x.shape[1], x.shape[1]))] if site.chance(0.3) else []
    scale = {"scale": 0.25} if site.chance(0.3) else {}
    counts = {"q_num_heads": heads, "kv_num_heads": groups, "is_causal": site.one(0, 1)}
    return site.call("Attention", wide, key, value, *mask, **counts, **scale)


@unread
def rotary(site: Site, x: Value) -> Value:
    x = sequence(site, x)
    heads, size = site.one(1, 2), site.one(2, 4)
    wide = site.call("MatMul", x, site.weights((x.shape[-1], heads * size), 1))
    is_onnx = site.opset >= 23 and site.chance(0.5)
    angles = site.rng.uniform(0, 6, (*(x.shape[:2] if is_onnx else x.shape[1:2]), size // 2))
    tables = [site.constant(function(angles)) for function in (np.cos, np.sin)]
    turned = {"interleaved": site.one(0, 1), "num_heads": heads}
    if is_onnx:
        return site.call("RotaryEmbedding", wide, *tables, **turned)
    places = [0] if site.chance(0.5) else site.rng.integers(0, x.shape[1], x.shape[:2])
    at = site.constant(places, np.int64)
    return site.call("RotaryEmbedding", wide, at, *tables, domain=CONTRIB, **turned)


def vector(site: Site, size: int) -> str:
    return site.constant(site.rng.uniform(0.5, 1.5, size))


@unread
def gelu_of_sum(site: Site, x: Value) -> Value:
    """ONNX Runtime's, as are those that follow."""
    return site.call(site.one("BiasGelu", "FastGelu"), x, vector(site, x.shape[-1]), domain=CONTRIB)


@unread
def skip_norm(site: Site, x: Value) -> Value:
    x = sequence(site, x)
    other = x if site.chance(0.3) else site.floats(x.shape)
    vectors = [vector(site, x.shape[-1]) for _ in range(3)]
    kind = site.one("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
    operands = vectors[: 1 + site.one(0, 1, 2)] if kind == "SkipLayerNormalization" else vectors[:2]
    epsilon = site.one(1e-5, 1e-2)
    return site.call(kind, x, other, *operands, domain=CONTRIB, epsilon=epsilon)


@unread
def norm_of_any_opset(site: Site, x: Value) -> Value:
    vectors = [vector(site, x.shape[-1]) for _ in range(2)]
    if site.chance(0.5):
        return site.call("SimplifiedLayerNormalization", x, vectors[0], epsilon=1e-3)
    return site.call("LayerNormalization", x, *vectors[: site.one(1, 2)], axis=-1)


@unread
def fused_attention(site: Site, x: Value) -> Value:
    x = sequence(site, x)
    heads, size = site.one(1, 2), site.one(2, 4)
    wide = heads * size
    given = {"num_heads": heads, "unidirectional": site.one(0, 1), "domain": CONTRIB}
    seen = np.ones(x.shape[:2], np.int32)
    seen[:, site.one(1, 2) :] = 0
    mask = site.constant(seen, np.int32) if site.chance(0.5) else ""
    if site.chance(0.5):
        weights = site.weights((x.shape[-1], 3 * wide), 1)
        return site.call("Attention", x, weights, vector(site, 3 * wide), mask, **given)
    rows = [site.call("MatMul", x, site.weights((x.shape[-1], wide), 1)) for _ in range(3)]
    return site.call("MultiHeadAttention", *rows, vector(site, 3 * wide), mask, **given)


@unread
def recurrent(site: Site, x: Value) -> Value:
    x = sequence(site, x)
    kind, count = site.one(("GRU", 3), ("LSTM", 4), ("RNN", 1))
    size = site.one(2, 3)
    weights = [site.weights((1, count * size, n), None) for n in (x.shape[-1], size)]
    made = site.add(kind, x, *weights, outputs=2, hidden_size=size)
    return made[site.one(0, 1)]


@dataclass(frozen=True)
class FloatModel:
    """``proto`` with ``samples``, its inputs by name."""

    proto: ModelProto
    samples: list[dict[str, Array]]
    operators: tuple[str, ...]


def random_floats(seed: int) -> FloatModel:
    """A model of up to six operators, of which one is a layer."""
    rng = np.random.default_rng([seed, 2])
    table = {**OPERATORS, **UNREAD}
    for _ in range(TRIES):
        unread = str(rng.choice([*UNREAD])) if rng.random() < UNREAD_TOO else ""
        opset = int(rng.choice([each for each in OPSETS if each >= FIRST.get(unread, 0)]))
        site = FloatSite(rng, opset, "int8")
        sizes = SIZES[int(rng.integers(len(SIZES)))]
        start = site.floats([int(rng.integers(least, most + 1)) for least, most in sizes])
        names = [
            [*OPERATORS][seed % len(OPERATORS)],
            site.one("conv", "matmul", "gemm", "conv_transpose"),
            *rng.choice([*OPERATORS], site.one(0, 1, 2, 3)),
            *filter(None, [unread]),
        ]
        chosen = [str(name) for name in rng.permutation(names)]
        end = grown(site, start, chosen, table)
        made = None if end is start else _model(site, end)
        if made is not None:
            return made
    raise AssertionError(f"no model of seed {seed}")


def _model(site: FloatSite, end: Value) -> FloatModel | None:
    if end.array.dtype != np.float32 or not is_telling(end.array.astype(np.float64)):
        return None
    nodes, needed = _alive(site.nodes, end.name)
    operators = tuple(node.op_type for node in nodes if node.op_type != "Constant")
    inputs = {name: array for name, array in site.inputs.items() if name in needed}
    if not inputs or LAYERS.isdisjoint(operators):
        return None
    constants = {name: array for name, array in site.constants.items() if name in needed}
    proto = site.proto(nodes, inputs, [end.name], constants, {end.name: end.array})
    samples = [_beside(site.rng, inputs) for _ in range(SAMPLES)]
    if site.chance(HALVES):
        proto = in_halves(proto)
        samples = [
            {n: v.astype(np.float16) if v.dtype.kind == "f" else v for n, v in each.items()}
            for each in samples
        ]
    try:
        found = [run(proto, each, plain=False)[0] for each in samples]
    except Exception:  # of ONNX Runtime: no such operator of float16, or another shape of the whole
        return None
    return FloatModel(proto, samples, operators) if np.isfinite(found).all() else None


def _alive(nodes: Sequence[NodeProto], end: str) -> tuple[list[NodeProto], set[str]]:
    """The nodes that a result is made by, and the names that these read."""
    kept: list[NodeProto] = []
    needed = {end}
    for node in reversed(nodes):
        if not needed.isdisjoint(node.output):
            kept.insert(0, node)
            needed.update(node.input)
    return kept, needed


def _beside(rng: np.random.Generator, inputs: dict[str, Array]) -> dict[str, Array]:
    """A sample that is like the one that the model grew by; indices in another order."""
    return {
        name: (array + rng.normal(0, array.std(), array.shape)).astype(np.float32)
        if array.dtype.kind == "f"
        else rng.permutation(array.reshape(-1)).reshape(array.shape)
        for name, array in inputs.items()
    }


def in_halves(proto: ModelProto) -> ModelProto:
    """The same model in float16, but for the scales of Resize."""
    made = ModelProto()
    made.CopyFrom(proto)
    nodes, held = made.graph.node, made.graph.initializer
    scales = {name for node in nodes if node.op_type == "Resize" for name in node.input[1:]}
    of_nodes = [
        attribute.t
        for node in nodes
        if node.op_type == "Constant" and node.output[0] not in scales
        for attribute in node.attribute
    ]
    for tensor in (*of_nodes, *(each for each in held if each.name not in scales)):
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for end in (*made.graph.input, *made.graph.output):
        end.type.tensor_type.elem_type = TensorProto.FLOAT16
    return made
