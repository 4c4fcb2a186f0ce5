"""Which operators of a model tinyai takes: those that its builders can build.

There is no list of conditions. Operators that were read are grouped (``groups.py``), each group is
built up to its C (``trial.py``), and what fails leaves it with the reason, until nothing fails.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic

from tinyai.backend.pipeline import Compiled
from tinyai.errors import TinyAIError, owning_faults
from tinyai.ir import Graph
from tinyai.own import NO_BACKEND
from tinyai.partition.groups import groups_of, without_loose_ends
from tinyai.partition.model import Item, ItemModel, UnfitInput
from tinyai.partition.own import idle
from tinyai.partition.reasons import Language
from tinyai.partition.trial import to_blame, tried, unbuilt
from tinyai.qdq.operands import tuple_of
from tinyai.report import Reason
from tinyai.source import Expr, Refusal, Tuple, tensors_of
from tinyai.target import Target


@dataclass(frozen=True)
class Region(Generic[Item]):
    """What is built together: its operators in the order of the model, and its C. ``ends`` are
    those whose values are read outside: the outputs of its graph, in their order."""

    items: tuple[Item, ...]
    compiled: Compiled
    ends: tuple[Item, ...] = ()


@dataclass(frozen=True)
class Division(Generic[Item]):
    """What of a model tinyai takes, and why not the rest."""

    model: ItemModel[Item]
    target: Target
    regions: tuple[Region[Item], ...]
    reasons: Mapping[Item, Reason] = field(repr=False)

    @property
    def left(self) -> tuple[Item, ...]:
        """The operators outside of regions that are computed at run time."""
        inside = {item for region in self.regions for item in region.items}
        return tuple(
            item
            for item in self.model.order
            if item not in inside
            and self.model.kind(item) not in ("input", "part")
            and not self.model.is_known(item)
        )


def divide(
    model: ItemModel[Item], target: Target, barred: Mapping[Item, Refusal]
) -> Division[Item]:
    """The regions of a model. No region has operators that are ``barred``."""
    reasons = {item: model.reason(item, refusal) for item, refusal in barred.items()}
    operators = {item for item in model.order if model.kind(item) != "input"}
    while True:
        taken = without_loose_ends(model, operators - reasons.keys())
        groups = groups_of(model, taken)
        found = {items: _BuildGroup(model, items).tried(target) for items in groups}
        regions = [
            Region(items, made, tuple(_BuildGroup(model, items).ends))
            for items, made in found.items()
            if isinstance(made, Compiled)
        ]
        if len(regions) == len(found):
            _tell_idle(model, regions)
            return Division(model, target, tuple(regions), reasons)
        for items, why in found.items():
            if not isinstance(why, Compiled):
                leaving = {
                    each: reason for item, reason in why.items() for each in model.together(item)
                }
                if taken.isdisjoint(
                    leaving
                ):  # so that something leaves each time, and an end comes
                    leaving = dict.fromkeys(items, next(iter(why.values())))
                reasons |= leaving


def _tell_idle(model: ItemModel[Item], regions: Sequence[Region[Item]]) -> None:
    """Warn of a back end of one's own that is in none of the regions."""
    if model.own is NO_BACKEND:
        return
    with warnings.catch_warnings():  # which were given when the regions were built
        warnings.simplefilter("ignore")
        lowered = [model.part(each.items).integers(each.ends) for each in regions]
    source = tuple_of(
        *(t for item in model.order if item in model.outputs for t in tensors_of(model(item)))
    )
    if (told := idle(model.own, lowered, source, model.rounding, Language())) is not None:
        warnings.warn(told, stacklevel=3)


class _Left(Exception):
    """What cannot be read and has to leave a group: ``reasons`` by items."""

    def __init__(self, reasons: Any) -> None:
        super().__init__(f"{len(reasons)} operators")
        self.reasons = reasons


@dataclass(frozen=True)
class _BuildGroup(Generic[Item]):
    """Operators, in the order of the model, that are to be built together."""

    model: ItemModel[Item]
    items: tuple[Item, ...]

    def tried(self, target: Target) -> Compiled | Mapping[Item, Reason]:
        """The C; or what has to leave the group, and why."""
        made = self._trial(self.items, self.ends, target)
        return made if not isinstance(made, TinyAIError) else self._without_code(made, target)

    @property
    def ends(self) -> list[Item]:
        """The operators whose values are read outside of the group."""
        inside = set(self.items)
        return [item for item in self.items if self._is_read_outside(item, inside)]

    def _is_read_outside(self, item: Item, inside: set[Item]) -> bool:
        return item in self.model.outputs or not inside.issuperset(self.model.users(item))

    def _trial(
        self, items: Collection[Item], ends: Sequence[Item], target: Target
    ) -> Compiled | TinyAIError | Mapping[Item, Reason]:
        try:
            kernels = self.model.own.kernels
            return tried(lambda: self._graph(items, ends), target, named=False, kernels=kernels)
        except _Left as left:
            return left.reasons  # type: ignore[no-any-return]

    def _graph(self, items: Collection[Item], ends: Sequence[Item]) -> Graph:
        """The graph of some operators, from what they read from outside. Raises ``_Left``."""
        with owning_faults(f"the graph of {self.model.name(ends[-1])}", _Left):
            part = self.model.part(items)
            several = [end for end in ends if isinstance(part.values[end], Tuple)]
            if several:
                why = Refusal("result", "several tensors", "one tensor")
                raise _Left({end: self.model.reason(end, why) for end in several})
            integers = part.integers(ends)
            if floats := self._floats(integers):
                raise _Left(floats)
            try:
                return part.graph(integers, part.inputs)
            except Refusal as refusal:
                blamed = self._blamed(refusal)
                raise _Left({item: self.model.reason(item, refusal) for item in blamed}) from None

    def _floats(self, integers: Expr) -> dict[Item, Reason]:
        """The operators that stayed float in what was made of them, and why."""
        model, by_name = self.model, {self.model.name(item): item for item in self.items}
        return {
            item: model.reason(item, model.why_float(item, refusal, self.items))
            for call, refusal in model.floats(integers)
            if (item := by_name.get(call.name)) is not None
        }

    def _blamed(self, refusal: Refusal) -> Sequence[Item]:
        """What a refusal is about: the operator of a call, or those that read an input of no known
        type."""
        if refusal.call is not None:
            named = [each for each in self.items if self.model.name(each) == refusal.call.name]
        else:
            unfit = refusal.item if isinstance(refusal, UnfitInput) else None
            named = [item for item in self.items if unfit in self.model.reads(item)]
        return named or [self.items[-1]]

    def _without_code(self, whole: TinyAIError, target: Target) -> dict[Item, Reason]:
        """What has to leave a group that can be read and not be built."""

        def failure(stages: Sequence[_Stage[Item]]) -> TinyAIError | None:
            items = {item for stage in stages for item in stage.items}
            ends = [each.end for each in stages if self._is_read_outside(each.end, items)]
            made = self._trial(items, ends, target)
            # What cannot be read outside of the whole group is another matter.
            return made if isinstance(made, TinyAIError) else None

        blamed = to_blame(self._stages(), whole, lambda stage: failure([stage]), failure)
        return {
            item: unbuilt("operator", self.model.operator(item), len(stage.blamed), error)
            for stage, error in blamed
            for item in stage.blamed
        }

    def _stages(self) -> list[_Stage[Item]]:
        """What a group can be cut into: no float goes from one to another."""
        model, inside, found = self.model, set(self.items), []
        for end in self.items:
            if model.kind(end) == "quantize" or self._is_read_outside(end, inside):
                items = self._before(end)
                computing = (item for item in items if model.kind(item) == "computes")
                blamed = tuple(item for item in computing if not model.is_known(item))
                found.append(_Stage(end, items, blamed or (end,)))
        return found

    def _before(self, end: Item) -> tuple[Item, ...]:
        """What of the group makes a value from others that are quantized."""
        seen, todo, inside = {end}, [end], set(self.items)
        while todo:
            for each in self.model.reads(todo.pop()):
                if each in inside and each not in seen and self.model.kind(each) != "quantize":
                    seen.add(each)
                    todo.append(each)
        return tuple(item for item in self.items if item in seen)


@dataclass(frozen=True)
class _Stage(Generic[Item]):
    """The operators that make the value of one of them, ``end``, which comes last. Those of
    ``blamed`` leave a group where a stage has no C; its pairs go with them."""

    end: Item
    items: tuple[Item, ...]
    blamed: tuple[Item, ...]
