"""A source model as a front end read it: what a division asks about it."""

from __future__ import annotations

import abc
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tinyai.ir import Graph, verify
from tinyai.lowering import Walk, composed
from tinyai.ops import operators_added
from tinyai.own import NO_BACKEND, OwnBackend
from tinyai.qdq import Rewriting, floats_of
from tinyai.report import Reason
from tinyai.source import (
    Call,
    Expr,
    Refusal,
    Rounding,
    Tuple,
    blaming,
    post_order,
    require,
    tensors_of,
    with_values,
)
from tinyai.vocabulary import signature

Item = TypeVar("Item", bound=Hashable)


class UnfitInput(Refusal):
    """A ``refusal`` of an item from outside of a part, which cannot be an input of it."""

    def __init__(self, item: Hashable, refusal: Refusal) -> None:
        super().__init__(refusal.clause, refusal.found, refusal.allowed)
        self.item = item


class ItemModel(abc.ABC, Generic[Item]):
    """A model, each operator of which was read once. Operators and inputs are *items*.

    ``order`` has them in the order of computation, ``outputs`` those that the model returns;
    ``refused`` says why an operator has no expression of its own: it is a call of an operator that
    the vocabulary does not have. ``own`` is a back end of one's own that goes before tinyai.
    """

    rounding: Rounding
    own: OwnBackend = NO_BACKEND
    order: Sequence[Item]
    outputs: Collection[Item]
    refused: dict[Item, Refusal]

    @abc.abstractmethod
    def __call__(self, item: Item) -> Expr:
        """The expression that an item was read as."""

    @abc.abstractmethod
    def reads(self, item: Item) -> Sequence[Item]:
        """The items that an operator reads, the value that it is about first; constants are none.
        Of an input nothing."""

    @abc.abstractmethod
    def users(self, item: Item) -> Collection[Item]:
        """The items that read one."""

    @abc.abstractmethod
    def name(self, item: Item) -> str:
        """The name that calls of an item have in the vocabulary."""

    @abc.abstractmethod
    def operator(self, item: Item) -> str:
        """What the source language calls an operator."""

    @abc.abstractmethod
    def kind(self, item: Item) -> str:
        """ "input", "quantize", "dequantize", "part" of the result of the operator before,
        "computes", or "" for what moves values."""

    @abc.abstractmethod
    def is_known(self, item: Item) -> bool:
        """Whether an operator is a constant by now: a part of the model has its value."""

    @abc.abstractmethod
    def reason(self, item: Item, refusal: Refusal) -> Reason:
        """A refusal for the report."""

    def together(self, item: Item) -> Collection[Item]:
        """The items that leave a group with one: a part of a result with what makes it."""
        while self.kind(item) == "part":
            item = self.reads(item)[0]
        return (item,)

    def integers(self, result: Tuple) -> Expr:
        """Values of the model, with the composites of one's own and pairs as integers."""
        with operators_added(self.own.operators):
            with_composites = composed(result, self.own.patterns, self.rounding)
            return Rewriting(with_composites, self.rounding).result

    def floats(self, integers: Expr) -> Iterable[tuple[Call, Refusal | None]]:
        """What stayed float in ``integers`` and cannot, with its refusal where there is one."""
        return floats_of(integers, self.rounding)

    @abc.abstractmethod
    def why_float(self, item: Item, refusal: Refusal | None, inside: Collection[Item]) -> Refusal:
        """What keeps an operator of a group from becoming one of integers; ``refusal`` is None
        where nothing quantizes its result."""

    def from_outside(self, item: Item) -> tuple[Expr | None, Expr]:
        """The parameter that a value from outside is as it lies in memory, and the value; no
        parameter where it cannot be one."""
        parameter = Expr(self(item).types)
        return parameter, parameter

    def stored(self, item: Item, value: Expr) -> Expr:
        """The value of an item as it lies in memory."""
        return value

    def part(self, items: Collection[Item]) -> ModelPart[Item]:
        """Some operators, cut out where they read values of others."""
        inside = set(items)
        read = {each for item in items for each in self.reads(item)} - inside
        inputs: dict[Item, Expr] = {}
        values: dict[Item, Expr] = {}
        new: dict[Expr, Expr] = {}
        for item in self.order:
            if item in read:
                parameter, values[item] = self.from_outside(item)
                inputs |= {} if parameter is None else {item: parameter}
            elif item in inside:
                # Of two items that have one expression the one that is read here.
                new |= {self(each): values[each] for each in self.reads(item)}
                values[item] = with_values(self(item), new)
        return ModelPart(self, inputs, values)


@dataclass(frozen=True)
class ModelPart(Generic[Item]):
    """Some operators of a model: ``inputs`` are the items that they read from outside, in the order
    of the model, each with its parameter; ``values`` what items are, from these parameters."""

    model: ItemModel[Item]
    inputs: Mapping[Item, Expr]
    values: Mapping[Item, Expr]

    def integers(self, outputs: Iterable[Item]) -> Expr:
        """The tensors of ``outputs`` as they lie in memory, with pairs as integers."""
        fields = tuple(self.model.stored(item, self.values[item]) for item in outputs)
        result = Tuple(tuple(each.type for each in fields), load=lambda: fields)
        return self.model.integers(result)

    def graph(self, integers: Expr, inputs: Iterable[Item], name: str = "net") -> Graph:
        """The graph that makes ``integers`` of ``inputs``, after the passes of one's own. Raises
        ``Refusal``, which knows its call."""
        own = self.model.own
        why = {self.model.name(item): refusal for item, refusal in self.model.refused.items()}
        walk = Walk(name, self.model.rounding)
        for item in inputs:
            what = f"input {self.model.name(item)!r}"
            try:
                require(item in self.inputs, what, "no tensor", "a tensor")
                walk.input(self.inputs[item], what)
            except Refusal as refusal:
                raise UnfitInput(item, refusal) from None
        for call in post_order(integers):
            if isinstance(call, Call):
                with blaming(call), operators_added(own.operators):
                    if call.name in why and signature(call.op) is None:
                        raise why[call.name]
                    walk.lower(call)
        return own.passed(verify(walk.graph(tensors_of(integers))))
