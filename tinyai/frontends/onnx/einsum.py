"""Einsum and Mean, spelled out by the operators that they stand for."""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyai.frontends.onnx.nodes import Nodes
from tinyai.frontends.onnx.reader import Site, fixed_sizes
from tinyai.ir import Array
from tinyai.source import require


def as_sum(site: Site, names: Iterable[str]) -> list[Any]:
    """The nodes of a Mean: a sum, times one number; of a single operand, itself."""
    nodes, operands = Nodes.inside_of(site.name, names), site.node.input
    if len(operands) == 1:
        nodes.add("Identity", site.node.output[0], *operands)
        return nodes.made
    total = nodes.value("Sum", "sum", *operands)
    share = nodes.constant("share", 1 / len(operands), site.expr(0).type.dtype)
    nodes.add("Mul", site.node.output[0], total, share)
    return nodes.made


def as_products(site: Site, names: Iterable[str]) -> list[Any]:
    """The nodes of an Einsum: its operands are taken from left to right, two at a time, by a
    product of matrices, or of elements where no index is summed over.

    Raises ``Refusal`` for an index that an operand has twice, and where "..." are dimensions of
    several sizes.
    """
    equation = str(site.attr("equation")).replace(" ", "")
    shapes = [fixed_sizes(site.expr(place)) for place, _ in enumerate(site.node.input)]
    terms, result = _terms(equation, [len(shape) for shape in shapes])
    for term in (*terms, result):
        require(len({*term}) == len(term), "equation", equation, "each index once in an operand")
    sizes: dict[str, int] = {}
    for shape, term in zip(shapes, terms, strict=True):
        require(len(shape) == len(term), "equation", equation, f"{len(shape)} indices in {term!r}")
        for letter, size in zip(term, shape, strict=True):
            same = sizes.setdefault(letter, size) == size
            require(same, f"sizes of index {letter}", (sizes[letter], size), "one size")
    require({*result} <= sizes.keys(), "equation", equation, "indices of the operands")
    work = _Product(Nodes.inside_of(site.name, names), sizes, site.facts.opset)
    values = [
        _Term(site.operand(place), term, site.known(place)) for place, term in enumerate(terms)
    ]
    while len(values) > 1:
        first, second, *rest = values
        kept = {*result, *(letter for term in rest for letter in term.letters)}
        values = [work.of_two(first, second, kept), *rest]
    last = work.summed(values[0], {*result})
    order = [last.letters.index(letter) for letter in result]
    moves = {"perm": order} if order != sorted(order) else {}
    work.nodes.add("Transpose" if moves else "Identity", site.node.output[0], last.value, **moves)
    return work.nodes.made


def _terms(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The indices of each operand and of the result, with letters in place of "..."."""
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    require(len(terms) == len(ranks), "equation", equation, f"a term for each of {len(ranks)}")
    if not arrow:
        letters = {*left} - {*",."}
        once = sorted(letter for letter in letters if left.count(letter) == 1)
        result = "".join([*["..."][: "..." in left], *once])
    free = [letter for letter in string.ascii_letters if letter not in equation]
    counts = [rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True) if "." in term]
    most = max(0, *counts, 0)
    require(most <= len(free), "equation", equation, f"at most {len(string.ascii_letters)} indices")

    def spelled(term: str, rank: int) -> str:
        return term.replace("...", "".join(free[most - (rank - len(term) + 3) : most]))

    whole = len(result) - 3 + most
    operands = [spelled(term, rank) for term, rank in zip(terms, ranks, strict=True)]
    return operands, spelled(result, whole)


@dataclass(frozen=True)
class _Term:
    """A ``value`` with an index for each dimension; ``known`` are the numbers of a constant."""

    value: str
    letters: str
    known: Array | None = None


@dataclass
class _Product:
    nodes: Nodes
    sizes: Mapping[str, int]
    opset: int
    count: int = 0

    def of_two(self, left: _Term, right: _Term, kept: set[str]) -> _Term:
        """The product of two terms, summed over what is not ``kept``."""
        left, right = (
            self.summed(left, {*right.letters, *kept}),
            self.summed(right, {*left.letters, *kept}),
        )
        shared = [each for each in left.letters if each in right.letters]
        batch = "".join(each for each in shared if each in kept)
        inner = "".join(each for each in shared if each not in kept)
        rows = "".join(each for each in left.letters if each not in shared)
        columns = "".join(each for each in right.letters if each not in shared)
        if not inner:
            operands = (
                self.arranged(left, [*batch, *rows, *("" for _ in columns)]),
                self.arranged(right, [*batch, *("" for _ in rows), *columns]),
            )
            return _Term(self.value("Mul", *operands), batch + rows + columns)
        # Without a batch the rows of the first may have several dimensions.
        groups = [*batch, rows] if batch else [*rows]
        operands = (
            self.arranged(left, [*groups, inner]),
            self.arranged(right, [*batch, inner, columns]),
        )
        product = self.value("MatMul", *operands)
        whole = batch + rows + columns
        if len(columns) != 1 or (batch and len(rows) != 1):
            product = self.reshaped(product, whole)
        return _Term(product, whole)

    def summed(self, term: _Term, kept: set[str]) -> _Term:
        """A term without the indices that are not ``kept``."""
        axes = [place for place, letter in enumerate(term.letters) if letter not in kept]
        letters = "".join(letter for letter in term.letters if letter in kept)
        if not axes:
            return term
        if self.opset < 13:
            return _Term(self.value("ReduceSum", term.value, axes=axes, keepdims=0), letters)
        along = self.nodes.constant(self.name("axes"), axes, np.int64)
        return _Term(self.value("ReduceSum", term.value, along, keepdims=0), letters)

    def arranged(self, term: _Term, groups: Sequence[str]) -> str:
        """A term whose dimensions are in the order of ``groups``, each of which is one dimension;
        "" is one of one element."""
        order = [term.letters.index(letter) for group in groups for letter in group]
        shape = [math.prod(self.sizes[letter] for letter in group) for group in groups]
        if term.known is not None:
            known = term.known.transpose(order).reshape(shape)
            return self.nodes.constant(self.name("constant"), known, known.dtype)
        value = term.value
        if order != sorted(order):
            value = self.value("Transpose", value, perm=order)
        if any(len(group) != 1 for group in groups):
            value = self.nodes.reshaped(self.name("reshaped"), value, shape)
        return value

    def reshaped(self, value: str, letters: str) -> str:
        return self.nodes.reshaped(
            self.name("reshaped"), value, [self.sizes[letter] for letter in letters]
        )

    def value(self, op: str, *operands: str, **attrs: Any) -> str:
        return self.nodes.value(op, self.name(op.lower()), *operands, **attrs)

    def name(self, what: str) -> str:
        """One that no other node has."""
        self.count += 1
        return f"{what}{self.count}"
