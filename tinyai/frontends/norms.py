"""Layer norms, RMS norms and softmaxes that a model spells out by their parts, as one call each.

So exporters write them where a format has no operator: ONNX before opset 17 and 23, and TFLite; JAX
writes softmaxes too. Quantized one by one, the squares and powers of such a chain would lose what
is small beside the largest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tinyai.frontends.source_model import SourceModel
from tinyai.ir import Array
from tinyai.qdq.operands import is_call
from tinyai.source import Call, Constant, Expr, children, post_order, rebuilt
from tinyai.vocabulary import call as made
from tinyai.vocabulary import constant

# A length below the one is none of a quantized value, and above the other none of float32.
_TINY, _HUGE = 1e-6, 3e38
# Where the functions of a file are asked what they are.
_POINTS = np.array([-3, -0.5, 0.25, 0.5, 1, 2, 3, 5], np.float32)

_ONE = constant(1, "float32")


@dataclass(frozen=True)
class Norm:
    """``op`` of ``data``; ``inside`` are the calls that it is made of, the last one too."""

    op: str
    data: Expr
    axis: int
    epsilon: float
    inside: frozenset[Expr]
    gamma: Array = field(default_factory=lambda: np.ones((), np.float32))
    beta: Array = field(default_factory=lambda: np.zeros((), np.float32))

    def call(self, last: Call, data: Expr) -> Call:
        if self.op == "softmax":
            return made(self.op, last.type, data, name=last.name, axis=self.axis)
        attrs = {"axis": self.axis, "epsilon": self.epsilon}
        numbers = constant(self.gamma), constant(self.beta)
        return made(self.op, last.type, data, *numbers, name=last.name, **attrs)


@dataclass(frozen=True)
class Norms:
    """``new`` is what became of each expression; ``inside`` has the call that the parts of a norm
    are in now, by what they were."""

    new: Mapping[Expr, Expr]
    inside: Mapping[Expr, Expr]


def norms_in(root: Expr, *, softmaxes: bool = False) -> Norms:
    """``root`` with a call for each norm that it spells out. Values inside of one that others read
    as well keep it as it is. ``softmaxes`` are for a model that is to be quantized: of one that is,
    frameworks compute them in floats where they are spelled out, and in integers where not."""
    forms = [_normalized, _folded_form, _by_moments, _of_unit_length]
    forms += [_softmax] if softmaxes else []
    order = [*post_order(root)]
    users: dict[Expr, list[Expr]] = {expr: [] for expr in order}
    for expr in order:
        for child in dict.fromkeys(children(expr)):
            users[child].append(expr)
    found: dict[Expr, Norm] = {}
    for expr in order:
        for form in forms:
            norm = form(expr)
            if norm is not None:
                last, norm = _with_numbers(expr, norm, users)
                if all(norm.inside.issuperset(users[each]) for each in norm.inside - {last}):
                    found[last] = norm
    new: dict[Expr, Expr] = {}
    inside: dict[Expr, Expr] = {}
    for expr in order:
        new[expr] = rebuilt(expr, [new[child] for child in children(expr)])
        if expr in found and isinstance(expr, Call):
            new[expr] = found[expr].call(expr, new[found[expr].data])
            inside |= {new[each]: new[expr] for each in found[expr].inside - {expr}}
    return Norms(new, inside)


def with_norms(model: SourceModel) -> SourceModel:
    """The model with a call for each norm that it spells out."""
    new = norms_in(model.result).new
    outputs = tuple(replace(end, expr=new[end.expr]) for end in model.outputs)
    return replace(model, outputs=outputs)


def _normalized(expr: Expr) -> Norm | None:
    """Deviations, or values, divided by the root of the mean of their squares."""
    pairs: list[tuple[Expr, Norm | None]] = []
    if is_call(expr, "divide"):
        root = expr.args[1]
        of = _root_of_mean(root, root["data"]) if is_call(root, "sqrt") else None
        pairs.append((expr.args[0], of))
    for value, factor in _both_ways(expr, "multiply"):
        pairs.append((value, _inverse_root(factor)))
    for value, of in pairs:
        if of is not None and _alike(value, of.data):
            return _centered(replace(of, inside=of.inside | {expr}), value)
    return None


def _centered(of: Norm, value: Expr) -> Norm:
    """A layer norm, if the values are deviations from their mean; an RMS norm of any others."""
    if not is_call(value, "subtract"):
        return of
    data, mean = value.args
    if not _is_mean(mean, data, of.axis):
        return of
    deviations = {value, mean, of.data, *children(of.data)} - {data}
    return replace(of, op="layer_norm", data=data, inside=of.inside | deviations)


def _folded_form(expr: Expr) -> Norm | None:
    """TensorFlow's x * factor + (beta - mean * factor), where the factor is gamma by the root."""
    for product, rest in _both_ways(expr, "add"):
        beta, shift = rest.args if is_call(rest, "subtract") else (rest, rest)
        if not isinstance(beta, Constant):
            continue
        for data, factor in _both_ways(product, "multiply"):
            mean = next((m for m, f in _both_ways(shift, "multiply") if _alike(f, factor)), None)
            of, gamma = _scaled_inverse_root(factor)
            of = _centered(of, of.data) if of is not None else None
            if of is None or mean is None or of.op != "layer_norm" or of.data is not data:
                continue
            if _is_mean(mean, data, of.axis) and expr.type.shape == data.type.shape:
                inside = of.inside | {expr, product, rest, shift, factor, mean}
                return replace(of, inside=inside, gamma=gamma, beta=beta.value)
    return None


def _by_moments(expr: Expr) -> Norm | None:
    """flax's deviations, times gamma by the root: the variance is the mean of squares less the
    square of the mean."""
    for deviations, factor in _both_ways(expr, "multiply"):
        if not is_call(deviations, "subtract"):
            continue
        data, mean = deviations.args
        center = _mean_along(mean, data)
        for inverse, gamma in [*_both_ways(factor, "multiply"), (factor, _ONE)]:
            variance, root = _below_inverse_root(inverse)
            if center is None or variance is None or not isinstance(gamma, Constant):
                continue
            axis, inside = center
            spread, epsilon = _with_epsilon(variance)
            found = _difference_of_moments(spread, data, axis)
            if found is not None and expr.type.shape == data.type.shape and epsilon >= 0:
                inside |= found | root | {expr, deviations, factor, inverse, variance}
                return Norm("layer_norm", data, axis, epsilon, inside, gamma.value)
    return None


def _difference_of_moments(expr: Expr, data: Expr, axis: int) -> frozenset[Expr] | None:
    """What is inside of a variance, which may be held no less than 0."""
    variance, inside = _stripped(expr, 0.0)
    if not is_call(variance, "subtract"):
        return None
    mean = _rooted(variance.args[1])
    of_squares = _mean_along(variance.args[0], None)
    of_values = _mean_along(mean, data) if mean is not None else None
    if of_squares is None or of_values is None or {of_squares[0], of_values[0]} != {axis}:
        return None
    (squares,) = (each["data"] for each in of_squares[1] if is_call(each, "sum", "mean"))
    if _rooted(squares) is not data:
        return None
    parts = variance, variance.args[1], squares
    return inside.union(parts, of_squares[1], of_values[1])


def _mean_along(expr: Expr, data: Expr | None) -> tuple[int, frozenset[Expr]] | None:
    """The axis of a mean of ``data``, or of any values, and what it is made of: it may be a sum by
    their number, with that axis or without it."""
    mean, inside = _stripped(expr)
    total, number = mean, None
    for below, factor in _both_ways(mean, "multiply"):
        if is_call(below, "sum"):
            total, number = below, _number(factor)
    if not is_call(total, "sum", "mean") or (data is not None and not _alike(total["data"], data)):
        return None
    shape, axis = total["data"].type.shape, _axis_of_any(total)
    if axis is None:
        return None
    wanted = None if total.op == "mean" else np.float32(1 / (shape[axis] or 1))
    shapes = [(*shape[:axis], *size, *shape[axis + 1 :]) for size in ((1,), ())]
    fits = number == wanted and expr.type.shape in shapes
    return (axis, inside | {mean, total}) if fits else None


def _softmax(expr: Expr) -> Norm | None:
    """Powers of e by their sum, of values less the largest of them."""
    powers, total = expr.args if is_call(expr, "divide") else (expr, expr)
    less = powers["data"] if is_call(powers, "exp") else powers
    if not is_call(less, "subtract"):
        return None
    data, largest = less.args
    inside, axes = frozenset({expr, powers, less}), []
    for part, op, of in ((total, "sum", powers), (largest, "max", data)):
        reduced, around = _stripped(part, -math.inf)
        axis = _axis_of_any(reduced) if is_call(reduced, op) and reduced["data"] is of else None
        if axis is None or part.type.shape != (
            *of.type.shape[:axis],
            1,
            *of.type.shape[axis + 1 :],
        ):
            return None
        inside |= around | {reduced}
        axes.append(axis)
    same = axes[0] == axes[1] and expr.type.shape == data.type.shape
    return Norm("softmax", data, axes[0], 0.0, inside) if same else None


def _stripped(expr: Expr, least: float | None = None) -> tuple[Expr, frozenset[Expr]]:
    """What a value is in another shape, or held no less than a number; and the calls around it."""
    around: set[Expr] = set()
    while True:
        below = expr["data"] if is_call(expr, "reshape", "broadcast_to") else None
        for value, bound in _both_ways(expr, "maximum") if least is not None else ():
            if isinstance(bound, Constant) and (bound.value == least).all():
                below = value
        if below is None:
            return expr, frozenset(around)
        around.add(expr)
        expr = below


def _scaled_inverse_root(factor: Expr) -> tuple[Norm | None, Array]:
    """What ``_inverse_root`` finds of a factor, or of one that is multiplied by a constant, and the
    constant."""
    for inverse, gamma in _both_ways(factor, "multiply"):
        if isinstance(gamma, Constant):
            return _inverse_root(inverse), gamma.value
    return _inverse_root(factor), np.ones((), np.float32)


def _of_unit_length(expr: Expr) -> Norm | None:
    """What is divided by the root of the sum of its squares, which is bounded by next to nothing:
    an RMS norm but for a factor."""
    if not is_call(expr, "divide"):
        return None
    data, root = expr.args
    inside: set[Expr] = {expr}
    while (below := _below_a_bound(root)) is not None:
        inside.add(root)
        root = below
    if not is_call(root, "l2") or not _alike(root["data"], data):
        return None
    axis = _axis_of(root)
    if axis is None:
        return None
    gamma = np.array(1 / math.sqrt(data.type.shape[axis] or 1), np.float32)
    return Norm("rms_norm", data, axis, 0.0, frozenset({*inside, root}), gamma)


def _below_a_bound(root: Expr) -> Expr | None:
    """The length that is spread, or bounded where no length is."""
    if is_call(root, "broadcast_to"):
        return root["data"]
    if is_call(root, "clip") and 0 <= root.attrs["low"] <= _TINY and root.attrs["high"] >= _HUGE:
        return root["data"]
    for length, bound in _both_ways(root, "maximum"):
        if (least := _number(bound)) is not None and 0 <= least <= _TINY:
            return length
    return None


def _with_numbers(
    last: Expr, norm: Norm, users: Mapping[Expr, Sequence[Expr]]
) -> tuple[Expr, Norm]:
    """A norm and the product, then the sum, with constants that alone read it; its new end."""
    if norm.op == "softmax" or norm.beta.any():
        return last, norm
    for op in ("multiply", "add")[norm.gamma.size != 1 :]:
        (user, *others) = users[last] or [last]
        numbers = [of for one, of in _both_ways(user, op) if one is last]
        number = next((each.value for each in numbers if isinstance(each, Constant)), None)
        if others or number is None or user.type.shape != norm.data.type.shape:
            continue
        last, norm = user, replace(norm, inside=norm.inside | {user})
        if op == "multiply":
            norm = replace(norm, gamma=norm.gamma * number)
        else:
            norm = replace(norm, beta=number)
    return last, norm


# --- Parts ---------------------------------------------------------------------------------------


def _both_ways(expr: Expr, op: str) -> Iterator[tuple[Expr, Expr]]:
    if is_call(expr, op):
        yield expr.args[0], expr.args[1]
        yield expr.args[1], expr.args[0]


def _inverse_root(expr: Expr) -> Norm | None:
    """An RMS norm of that of which this is the inverse of the root of the mean of squares."""
    mean, root = _below_inverse_root(expr)
    of = _root_of_mean(expr, mean) if mean is not None else None
    return replace(of, inside=of.inside | root) if of is not None else None


def _below_inverse_root(expr: Expr) -> tuple[Expr | None, frozenset[Expr]]:
    """What this is the inverse of the root of, and the calls that make it so."""
    if is_call(expr, "rsqrt"):
        return expr["data"], frozenset({expr})
    root: Expr | None = None
    if is_call(expr, "function"):  # of a file, which is asked what it is
        made = np.asarray(expr.attrs["compute"](_POINTS))
        root = expr["data"] if np.array_equal(made, 1 / _POINTS) else None
    elif is_call(expr, "divide") and _number(expr.args[0]) == 1:
        root = expr.args[1]
    if root is None or not is_call(root, "sqrt"):
        return None, frozenset()
    return root["data"], frozenset({expr, root})


def _root_of_mean(root: Expr, mean: Expr) -> Norm | None:
    """An RMS norm of that of which ``mean`` is the mean of squares, with an epsilon."""
    inside = {root, mean}
    mean, epsilon = _with_epsilon(mean)
    if not is_call(mean, "mean") or epsilon < 0:
        return None
    squares = mean["data"]
    data, axis = _rooted(squares), _axis_of(mean)
    if data is None or axis is None or data.type.dtype != "float32":
        return None
    return Norm("rms_norm", data, axis, epsilon, frozenset({*inside, mean, squares}))


def _with_epsilon(value: Expr) -> tuple[Expr, float]:
    """A value without the number that is added to it, and the number."""
    for term, other in _both_ways(value, "add"):
        if (number := _number(other)) is not None:
            return term, number
    return value, 0.0


def _rooted(squares: Expr) -> Expr | None:
    """What these are the squares of."""
    if is_call(squares, "multiply") and _alike(squares.args[0], squares.args[1]):
        return squares.args[0]
    if is_call(squares, "power") and _number(squares.args[1]) == 2:
        return squares.args[0]
    return squares["data"] if is_call(squares, "square") else None


def _axis_of(reduction: Call) -> int | None:
    """The one axis of a reduction that keeps it; None of any other."""
    return _axis_of_any(reduction) if reduction.attrs["keepdims"] else None


def _axis_of_any(reduction: Call) -> int | None:
    """The one axis of a reduction."""
    shape, axes = reduction["data"].type.shape, reduction.attrs["axis"]
    axes = (axes,) if isinstance(axes, int) else tuple(axes or ())
    known = None not in shape and not reduction.attrs["exclude"]
    return axes[0] % len(shape) if known and len(axes) == 1 else None


def _is_mean(expr: Expr, data: Expr, axis: int) -> bool:
    return is_call(expr, "mean") and _alike(expr["data"], data) and _axis_of(expr) == axis


def _number(expr: Expr) -> float | None:
    """A constant of one number."""
    if not isinstance(expr, Constant) or expr.value.size != 1:
        return None
    number = float(expr.value.reshape(-1)[0])
    return number if math.isfinite(number) else None


def _alike(one: Expr, other: Expr, deep: int = 3) -> bool:
    """Whether two expressions are the same, or calls of the same on the same."""
    if one is other:
        return True
    if isinstance(one, Constant) and isinstance(other, Constant):
        return np.array_equal(one.value, other.value)
    if not (isinstance(one, Call) and isinstance(other, Call)) or one.op != other.op or not deep:
        return False
    same = len(one.args) == len(other.args) and dict(one.attrs) == dict(other.attrs)
    return same and all(_alike(a, b, deep - 1) for a, b in zip(one.args, other.args, strict=True))
