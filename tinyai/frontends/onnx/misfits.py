"""Nodes whose operands do not fit. onnx's own rules of shapes, in C++, trust some operands and
attributes: where these do not fit, they end the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tinyai.ir import Array

Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Operands:
    """What is known of a node's operands, by their places, and its attributes."""

    node: Any
    shapes: Mapping[str, Shape | None]
    constants: Mapping[str, Array]

    def shape(self, place: int) -> Shape | None:
        names = self.node.input
        return self.shapes.get(names[place]) if place < len(names) else None

    def rank(self, place: int) -> int | None:
        shape = self.shape(place)
        return None if shape is None else len(shape)

    def number(self, name: str, default: int) -> int:
        return next((int(each.i) for each in self.node.attribute if each.name == name), default)

    def count(self, name: str) -> int:
        return next((len(each.ints) for each in self.node.attribute if each.name == name), 0)


# None: the operands are not known well enough.
Fits = bool | None


def fits(operands: Operands) -> Fits:
    """Whether onnx's rule for a node may see it."""
    rule = _RULES.get(operands.node.op_type)
    return True if rule is None else rule(operands)


def _of_ranks(*wanted: int) -> Callable[[Operands], Fits]:
    def rule(of: Operands) -> Fits:
        return _all(
            None if rank is None else rank == want
            for rank, want in zip(map(of.rank, range(len(wanted))), wanted, strict=True)
        )

    return rule


def _all(answers: Iterable[Fits]) -> Fits:
    answers = [*answers]
    return False if False in answers else None if None in answers else True


def _images(data: int, *others: int) -> Callable[[Operands], Fits]:
    """Images, and others with as many dimensions."""

    def rule(of: Operands) -> Fits:
        rank = of.rank(data)
        if rank is None:
            return None
        return rank > 2 and _all(None if (o := of.rank(p)) is None else o == rank for p in others)

    return rule


def _one_hot(of: Operands) -> Fits:
    """Its depth is one number."""
    depth, rank = of.constants.get([*of.node.input, "", ""][1]), of.rank(1)
    if depth is not None:
        return depth.size == 1
    return None if rank is None else rank < 2


def _axis(of: Operands) -> Fits:
    """Where none is told, any will do: each default exists if there is a dimension."""
    rank, axis = of.rank(0), of.number("axis", -1)
    return None if rank is None else -rank <= axis < rank


def _gather_nd(of: Operands) -> Fits:
    data, indices, batch = of.shape(0), of.shape(1), of.number("batch_dims", 0)
    if data is None or not indices:
        return None if indices is None or data is None else False
    whole = 0 <= batch < min(len(data), len(indices))
    return whole and (indices[-1] is None or 0 < indices[-1] <= len(data) - batch)


def _attention(of: Operands) -> Fits:
    ranks = [of.rank(place) for place in range(3)]
    if None in ranks:
        return None
    heads = min(of.number("q_num_heads", 0), of.number("kv_num_heads", 0))
    return ranks == [4, 4, 4] or (ranks == [3, 3, 3] and heads > 0)


def _split(of: Operands) -> Fits:
    """The numbers of parts that are told are those that there are."""
    parts, sizes = len(of.node.output), of.constants.get([*of.node.input, "", ""][1])
    told = {of.number("num_outputs", parts), parts if sizes is None else sizes.size}
    return _all((told == {parts}, _axis(of)))


def _surely(rule: Callable[[Operands], Fits]) -> Callable[[Operands], Fits]:
    """Operators whose rule reads a type that is not known, too."""
    return lambda of: rule(of) is True


_recurrent = _surely(_of_ranks(3, 3, 3))
_is_known = _surely(lambda of: None if of.rank(0) is None else True)
_RULES: dict[str, Callable[[Operands], Fits]] = {
    "Attention": _attention,
    "Conv": _images(0, 1),
    "ConvInteger": _images(0, 1),
    "ConvTranspose": _images(0, 1),
    "DeformConv": _images(0, 1, 2),
    "Einsum": lambda of: False,  # its equation is read beyond its end
    "EyeLike": _is_known,
    "GRU": _recurrent,
    "GatherND": _surely(_gather_nd),
    "Gemm": _of_ranks(2, 2),
    "LSTM": _recurrent,
    "LayerNormalization": _axis,
    "MaxRoiPool": lambda of: _all((_of_ranks(4, 2)(of), of.count("pooled_shape") == 2)) is True,
    "MaxUnpool": _surely(_images(0, 1)),
    "OneHot": _surely(_one_hot),
    "QLinearConv": _images(0, 3),
    "RNN": _recurrent,
    "RegexFullMatch": _is_known,
    "Scan": lambda of: 0 < of.number("num_scan_inputs", 0) <= len(of.node.input),
    "Split": _split,
}
