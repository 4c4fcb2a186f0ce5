"""What ONNX Runtime's optimizers make of several nodes, spelled out by ONNX's own operators again.

They are of the domain ``com.microsoft``, but for two norms that ONNX Runtime knows in ONNX's own:
SimplifiedLayerNormalization, and LayerNormalization before opset 17. Formulas and defaults are
those of ONNX Runtime's document of contributed operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from tinyai.frontends.onnx.attention import as_attention
from tinyai.frontends.onnx.facts import CONTRIB
from tinyai.frontends.onnx.nodes import Nodes
from tinyai.frontends.onnx.reader import Site, Spelling, fixed_sizes
from tinyai.source import Call, require

FUSED: dict[tuple[str, str], Spelling] = {}
# What is spelled out in its turn, in a domain that no file has.
_INNER = ("tinyai", "Attention")
# The first opset with LayerNormalization, and the first whose ReduceMean has axes as an operand.
_WITH_LAYER_NORM, _AXES_AS_OPERAND = 17, 18
_ACTIVATIONS = {
    **dict.fromkeys(("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"), ()),
    **dict.fromkeys(("Elu", "LeakyRelu", "ThresholdedRelu"), ("alpha",)),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
    "Clip": ("min", "max"),
}
_PRODUCTS = ("MatMul", "Gemm")
_BOOL = 9  # of onnx.TensorProto
Spell: TypeAlias = "Callable[[Site, Nodes], None]"


def spellings_of(opset: int) -> dict[tuple[str, str], Spelling]:
    """How each is spelled out in a file of an opset."""
    own = ("", "LayerNormalization")
    known = {key: spell for key, spell in FUSED.items() if key != own or opset < _WITH_LAYER_NORM}
    return {**known, _INNER: as_attention}


def _fused(operator: str, domain: str = CONTRIB) -> Callable[[Spell], Spell]:
    """The decorated function adds the nodes of an operator, of which one makes its result."""

    def add(spell: Spell) -> Spell:
        def spelled(site: Site, names: Iterable[str]) -> list[Any]:
            nodes = Nodes.inside_of(site.name, names)
            spell(site, nodes)
            site.require_all_read()
            made = {name for node in nodes.made for name in node.output}
            for name in site.node.output:
                lost = name in site.reading.used and name not in made
                require(not lost, "a further result", name, "none that is used")
            return nodes.made

        FUSED[domain, operator] = spelled
        return spell

    return add


# --- Functions -----------------------------------------------------------------------------------


@_fused("BiasGelu")
def _bias_gelu(site: Site, nodes: Nodes) -> None:
    value = nodes.value("Add", "added", site.operand(0), site.operand(1))
    nodes.add("Gelu", site.node.output[0], value, domain=CONTRIB)


@_fused("FastGelu")
def _fast_gelu(site: Site, nodes: Nodes) -> None:
    value = site.operand(0)
    if site.has(1):
        value = nodes.value("Add", "added", value, site.operand(1))
    cube = nodes.value("Pow", "cube", value, nodes.constant("three", 3))
    part = nodes.value("Mul", "part", cube, nodes.constant("factor", 0.044715))
    both = nodes.value("Add", "both", value, part)
    root = nodes.constant("root", math.sqrt(2 / math.pi))
    tanh = nodes.value("Tanh", "tanh", nodes.value("Mul", "scaled", both, root))
    below = nodes.value("Add", "below", tanh, nodes.constant("one", 1))
    half = nodes.value("Mul", "half", value, nodes.constant("a_half", 0.5))
    nodes.add("Mul", site.node.output[0], half, below)


# --- Layers --------------------------------------------------------------------------------------


@_fused("FusedMatMul")
def _fused_matmul(site: Site, nodes: Nodes) -> None:
    for name in ("transBatchA", "transBatchB"):
        require(not site.attr(name, 0), name, site.attr(name), 0)
    operands = []
    for place, name in enumerate(("transA", "transB")):
        value, rank = site.operand(place), len(site.expr(place).type.shape)
        if site.attr(name, 0) and rank > 1:  # of one dimension there is nothing to swap
            perm = [*range(rank - 2), rank - 1, rank - 2]
            value = nodes.value("Transpose", f"operand{place}", value, perm=perm)
        operands.append(value)
    alpha, result = float(site.attr("alpha", 1.0)), site.node.output[0]
    if alpha == 1:
        nodes.add("MatMul", result, *operands)
        return
    product = nodes.value("MatMul", "product", *operands)
    nodes.add("Mul", result, product, nodes.constant("alpha", alpha))


@_fused("FusedConv")
def _fused_conv(site: Site, nodes: Nodes) -> None:
    parameters = [float(each) for each in site.attr("activation_params", ())]
    kept = _attributes_of_layer(site)
    operands = [site.operand(place) for place in range(3)]
    value = nodes.value("Conv", "layer", *filter(None, operands), **kept)
    if site.has(3):
        value = nodes.value("Add", "added", value, site.operand(3))
    _activate(site, nodes, value, parameters)


@_fused("FusedGemm")
def _fused_gemm(site: Site, nodes: Nodes) -> None:
    asked = _ACTIVATIONS.get(site.attr("activation", ""), ())
    given = [site.attr(f"activation_{name}") for name in asked]
    parameters = [float(each) for each in given if each is not None]
    kept = _attributes_of_layer(site)
    operands = [site.operand(place) for place in range(3)]
    value = nodes.value("Gemm", "layer", *filter(None, operands), **kept)
    _activate(site, nodes, value, parameters)


def _attributes_of_layer(site: Site) -> dict[str, Any]:
    """All but those of the activation; the layer's own reader looks at them."""
    given = [attribute.name for attribute in site.node.attribute]
    return {name: site.attr(name) for name in given if not name.startswith("activation")}


def _activate(site: Site, nodes: Nodes, value: str, parameters: Sequence[float]) -> None:
    kind, result = str(site.attr("activation", "")), site.node.output[0]
    if not kind:
        nodes.add("Identity", result, value)
        return
    require(kind in _ACTIVATIONS, "activation", kind, ", ".join(_ACTIVATIONS))
    names = _ACTIVATIONS[kind]
    fits = len(parameters) in (0, len(names)) and (kind != "Clip" or len(parameters) == 2)
    require(fits, f"parameters of {kind}", parameters, ", ".join(names) or "none")
    attributes = dict(zip(names, parameters, strict=False))
    if kind == "Clip" and site.facts.opset >= 11:
        bounds = [nodes.constant(name, number) for name, number in attributes.items()]
        nodes.add("Clip", result, value, *bounds)
        return
    nodes.add(kind, result, value, **attributes)


# --- Norms ---------------------------------------------------------------------------------------


@_fused("LayerNormalization", domain="")
@_fused("SimplifiedLayerNormalization", domain="")
def _norm(site: Site, nodes: Nodes) -> None:
    stash = site.attr("stash_type", 1)
    require(stash == 1, "stash_type", stash, "float32, 1")
    rank, axis = len(fixed_sizes(site.expr(0))), int(site.attr("axis", -1))
    require(-rank <= axis < rank, "axis", axis, f"within {rank} dimensions")
    epsilon = float(site.attr("epsilon", 1e-5))
    axes = list(range(axis % rank, rank))
    scale, bias = site.operand(1), site.operand(2)
    centred = site.node.op_type == "LayerNormalization"
    _add_norm(site, nodes, site.operand(0), scale, bias, epsilon, axes, centred=centred)


@_fused("SkipLayerNormalization")
def _skip_norm(site: Site, nodes: Nodes) -> None:
    value, scale = _with_skip(site, nodes, bias=4), site.operand(2)
    _add_skip_norm(site, nodes, value, scale, site.operand(3), centred=True)


@_fused("SkipSimplifiedLayerNormalization")
def _skip_simplified_norm(site: Site, nodes: Nodes) -> None:
    value, scale = _with_skip(site, nodes, bias=3), site.operand(2)
    _add_skip_norm(site, nodes, value, scale, "", centred=False)


def _add_skip_norm(
    site: Site, nodes: Nodes, value: str, scale: str, bias: str, *, centred: bool
) -> None:
    axes, epsilon = [len(fixed_sizes(site.expr(0))) - 1], float(site.attr("epsilon", 1e-12))
    _add_norm(site, nodes, value, scale, bias, epsilon, axes, centred=centred)


def _with_skip(site: Site, nodes: Nodes, bias: int) -> str:
    """Of two operands, and a bias of which one is a product's; it is the fourth result, too."""
    values = [site.operand(0), site.operand(1)]
    if site.has(bias):
        made = [site.expr(place) for place in (0, 1)]
        by = [each.spelling if isinstance(each, Call) else "" for each in made]
        place = int(by[0] not in _PRODUCTS and by[1] in _PRODUCTS)
        values[place] = nodes.value("Add", "biased", values[place], site.operand(bias))
    result = [*site.node.output, "", "", ""][3]
    return nodes.add("Add", result or f"{nodes.name}/sum", *values)


def _add_norm(
    site: Site,
    nodes: Nodes,
    value: str,
    scale: str,
    bias: str,
    epsilon: float,
    axes: Sequence[int],
    *,
    centred: bool,
) -> None:
    result, opset = site.node.output[0], site.facts.opset
    if centred and opset >= _WITH_LAYER_NORM:
        known = {"axis": axes[0], "epsilon": epsilon}
        nodes.add("LayerNormalization", result, value, scale, *filter(None, [bias]), **known)
        return

    def mean_of(name: str, of: str) -> str:
        if opset < _AXES_AS_OPERAND:
            return nodes.value("ReduceMean", name, of, axes=axes)
        return nodes.value("ReduceMean", name, of, nodes.constant(f"{name}/axes", axes, np.int64))

    if centred:
        value = nodes.value("Sub", "centred", value, mean_of("mean", value))
    square = nodes.value("Pow", "square", value, nodes.constant("two", 2))
    above = nodes.value(
        "Add", "above", mean_of("variance", square), nodes.constant("epsilon", epsilon)
    )
    normal = nodes.value("Div", "normal", value, nodes.value("Sqrt", "root", above))
    if not bias:
        nodes.add("Mul", result, normal, scale)
        return
    nodes.add("Add", result, nodes.value("Mul", "scaled", normal, scale), bias)


@_fused("EmbedLayerNormalization")
def _embed_norm(site: Site, nodes: Nodes) -> None:
    """Rows of words, places and segments, added and normalized."""
    site.attr("mask_index_type")
    site.operand(7)  # a mask, of which only the second result says anything
    ids, table = site.operand(0), site.operand(3)
    length = fixed_sizes(site.expr(0))[-1]
    places = site.operand(8) or nodes.constant("places", np.arange(length), np.int64)
    value = nodes.value("Gather", "words", site.operand(2), ids)
    value = nodes.value("Add", "sum1", value, nodes.value("Gather", "rows", table, places))
    if site.has(1):
        segments = nodes.value("Gather", "segments", site.operand(4), site.operand(1))
        value = nodes.value("Add", "sum2", value, segments)
    result = [*site.node.output, "", ""][2]
    if result:
        value = nodes.add("Identity", result, value)
    epsilon = float(site.attr("epsilon", 1e-12))
    _add_norm(site, nodes, value, site.operand(5), site.operand(6), epsilon, [2], centred=True)


# --- Rotations -----------------------------------------------------------------------------------


@_fused("RotaryEmbedding")
def _rotary(site: Site, nodes: Nodes) -> None:
    """The first channels of a head, in pairs, turned by the cosines and sines that two tables have
    for the row's place. A pair is two neighbours, or two that are half of these channels apart."""
    shape, half = fixed_sizes(site.expr(0)), fixed_sizes(site.expr(2))[-1]
    size = _channels_of_a_head(site, shape, half)
    # Of three dimensions the rows are in front of the heads.
    cut = list(shape) if len(shape) == 4 else [*shape[:2], shape[2] // size, size]
    rows = 2 if len(shape) == 4 else 1
    axis = 4 if site.attr("interleaved", 0) else 3
    apart, angles = [half, half], [cut[0], 1, 1, half, half]
    apart[axis - 3], angles[axis], angles[rows] = 2, 1, cut[rows]
    value = nodes.reshaped("heads", site.operand(0), cut)
    pairs = value if 2 * half == size else nodes.part("turned", value, 0, 2 * half, 3)
    pairs = nodes.reshaped("pairs", pairs, [*cut[:3], *apart])
    cosine, sine = (
        nodes.reshaped(f"{name}/turned", _of_places(site, nodes, place, name, cut[rows]), angles)
        for place, name in ((2, "cosine"), (3, "sine"))
    )
    result = _turned(nodes, pairs, axis, cosine, sine)
    if 2 * half < size:
        result = nodes.reshaped("both/flat", result, [*cut[:3], 2 * half])
        rest = nodes.part("rest", value, 2 * half, size, 3)
        result = nodes.value("Concat", "whole", result, rest, axis=3)
    nodes.add("Reshape", site.node.output[0], result, nodes.constant("shape", shape, np.int64))


def _channels_of_a_head(site: Site, shape: tuple[int, ...], half: int) -> int:
    """The first two times ``half`` of them are turned."""
    for name, usual in (("is_packed_batching", 0), ("scale", 1.0)):
        require(site.attr(name, usual) == usual, name, site.attr(name), usual)
    heads, turned = (int(site.attr(each, 0)) for each in ("num_heads", "rotary_embedding_dim"))
    require(turned in (0, 2 * half), "rotary_embedding_dim", turned, f"0 or {2 * half}")
    require(len(shape) in (3, 4), "dimensions of operand 0", shape, "3 or 4")
    size = shape[3] if len(shape) == 4 else shape[2] // heads if heads else 2 * half
    require(2 * half <= size, "channels of a head", size, f"{2 * half} or more, as of the tables")
    return size


def _turned(nodes: Nodes, pairs: str, axis: int, cosine: str, sine: str) -> str:
    """Pairs along ``axis``, each turned by its angle."""
    first, second = (nodes.part(f"part{n}", pairs, n, n + 1, axis) for n in range(2))

    def product(value: str, factor: str) -> str:
        return nodes.value("Mul", f"product{len(nodes.made)}", value, factor)

    before = nodes.value("Sub", "before", product(first, cosine), product(second, sine))
    behind = nodes.value("Add", "behind", product(second, cosine), product(first, sine))
    return nodes.value("Concat", "both", before, behind, axis=axis)


def _of_places(site: Site, nodes: Nodes, table: int, name: str, rows: int) -> str:
    """The rows of a table for each row of a batch; one place is that of the first row."""
    places = site.operand(1)
    if fixed_sizes(site.expr(1)) == (1,):
        batch = fixed_sizes(site.expr(0))[0]
        order = nodes.constant(f"{name}/order", np.tile(np.arange(rows), (batch, 1)), np.int64)
        places = nodes.value("Add", f"{name}/places", places, order)
    return nodes.value("Gather", name, site.operand(table), places)


# --- Attention -----------------------------------------------------------------------------------


@_fused("Attention")
def _attention(site: Site, nodes: Nodes) -> None:
    """Of one operand that three products read: their weights, and their biases, stand side by
    side."""
    batch, rows, _ = _sizes_of_rows(site)
    wide = fixed_sizes(site.expr(1))[-1]
    sizes = [int(size) for size in site.attr("qkv_hidden_sizes", ()) or [wide // 3] * 3]
    fits = len(sizes) == 3 and min(sizes) > 0 and sum(sizes) == wide
    require(fits, "qkv_hidden_sizes", sizes, f"three that are {wide} together")
    operands = []
    for name, (begin, end) in zip(_NAMES, _ranges(sizes), strict=True):
        weights = nodes.part(f"{name}/weights", site.operand(1), begin, end, 1)
        value = nodes.value("MatMul", f"{name}/product", site.operand(0), weights)
        if site.has(2):
            bias = nodes.part(f"{name}/bias", site.operand(2), begin, end, 0)
            value = nodes.value("Add", f"{name}/added", value, bias)
        operands.append(value)
    _attend(site, nodes, operands, _Mask(3, 5, rows, (batch, rows)))


@_fused("MultiHeadAttention")
def _multi_head_attention(site: Site, nodes: Nodes) -> None:
    """Of queries, keys and values; keys and values may have been cut into heads before."""
    batch, rows, wide = _sizes_of_rows(site)
    shapes = [fixed_sizes(site.expr(place)) for place in (1, 2)]
    operands = [site.operand(place) for place in range(3)]
    if site.has(3):
        of_rows = all(len(shape) == 3 for shape in shapes)
        require(of_rows, "keys and values beside a bias", shapes, "of three dimensions")
        sizes = [wide, shapes[0][-1], shapes[1][-1]]
        for place, (begin, end) in enumerate(_ranges(sizes)):
            name = _NAMES[place]
            bias = nodes.part(f"{name}/bias", site.operand(3), begin, end, 0)
            operands[place] = nodes.value("Add", f"{name}/added", operands[place], bias)
    past = [site.operand(place) for place in (6, 7)]
    before = fixed_sizes(site.expr(6))[2] if past[0] else 0
    mask = _Mask(4, 5, rows, (batch, before + shapes[0][-2]), before)
    _attend(site, nodes, operands, mask, past)


_NAMES = ("query", "key", "value")


def _sizes_of_rows(site: Site) -> tuple[int, int, int]:
    sizes = fixed_sizes(site.expr(0))
    require(len(sizes) == 3, "dimensions of operand 0", sizes, "batch, rows, channels")
    return sizes[0], sizes[1], sizes[2]


def _ranges(sizes: Sequence[int]) -> Iterable[tuple[int, int]]:
    ends = list(accumulate(sizes))
    return zip([0, *ends], ends, strict=False)


@dataclass(frozen=True)
class _Mask:
    """Of the places that each of ``rows`` sees: the operand ``seen`` says which of the ``keys`` of
    a batch, or how many of them, and ``added`` has numbers for scores. So many keys are ``past``:
    before the first row."""

    seen: int
    added: int
    rows: int
    keys: tuple[int, int]
    past: int = 0


def _attend(
    site: Site, nodes: Nodes, operands: Sequence[str], mask: _Mask, past: Sequence[str] = ()
) -> None:
    import onnx

    heads, scale = int(site.attr("num_heads", 0)), float(site.attr("scale", 0.0))
    hidden, causal = float(site.attr("mask_filter_value", -10000.0)), site.attr("unidirectional", 0)
    given = [*operands, site.operand(mask.added), *past]
    attributes: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": heads}
    if site.has(mask.seen):
        before = np.ones((1, 1), bool)
        if causal:
            before = np.arange(mask.keys[1]) <= np.arange(mask.rows)[:, None] + mask.past
        shown, least = _seen(site, nodes, mask), float(np.finfo(np.float32).min)
        choice = (
            nodes.constant(f"mask/{name}", np.where(before, number, least))
            for name, number in (("none", 0.0), ("hidden", hidden))
        )
        numbers = nodes.value("Where", "mask", shown, *choice)
        given[3] = nodes.value("Add", "mask/added", numbers, given[3]) if given[3] else numbers
    else:
        attributes["is_causal"] = int(causal)
    if scale:
        attributes["scale"] = scale
    while not given[-1]:
        given.pop()
    (domain, operator), results = _INNER, list(site.node.output)
    nodes.made.append(onnx.helper.make_node(operator, given, results, domain=domain, **attributes))


def _seen(site: Site, nodes: Nodes, mask: _Mask) -> str:
    """What a mask leaves to be seen, as bools that broadcast to scores."""
    keys, shape, given = mask.keys, fixed_sizes(site.expr(mask.seen)), site.operand(mask.seen)
    if shape == keys[:1]:
        counts = nodes.reshaped("mask/counts", given, [keys[0], 1, 1, 1])
        dtype = site.expr(mask.seen).type.dtype
        order = nodes.constant("mask/places", np.arange(keys[1]), dtype)
        return nodes.value("Less", "mask/seen", order, counts)
    fits = len(shape) in (2, 3) and (shape[0], shape[-1]) == keys
    require(fits, "shape of the mask", shape, f"{keys[:1]}, {keys}, or one of each row")
    whole = nodes.value("Cast", "mask/whole", given, to=_BOOL)
    return nodes.reshaped("mask/seen", whole, [keys[0], 1, *(shape[1:-1] or [1]), keys[1]])
