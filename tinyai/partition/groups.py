"""Which operators of a model may be built together, as far as its edges tell."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tinyai.partition.model import Item, ItemModel


def without_loose_ends(model: ItemModel[Item], taken: Collection[Item]) -> set[Item]:
    """``taken`` without pairs that belong to operators outside: another back end that knows
    quantization takes these together."""
    fixed: set[Item] = set()
    for item in model.order:  # also those that read nothing at all
        if model.kind(item) != "input" and fixed.issuperset(model.reads(item)):
            fixed.add(item)
    left = set(taken)
    while loose := {item for item in left if _is_loose(model, item, left, fixed)}:
        left -= loose
    return left


def _is_loose(
    model: ItemModel[Item], item: Item, taken: Collection[Item], fixed: Collection[Item]
) -> bool:
    kind, used = model.kind(item), any(user in taken for user in model.users(item))
    if kind == "dequantize":
        return not used and item not in model.outputs
    # A part of a result, and what is made of constants, go with those around them.
    if kind in ("quantize", "part"):
        (source, *_) = (*model.reads(item), item)
        return model.kind(source) != "input" and source not in taken
    return item in fixed and not used


@dataclass(frozen=True)
class _Group:
    """Sets of operators, as numbers with a bit for each: those of a group, those that read what
    they make, and all that comes after them."""

    members: int
    users: int
    below: int

    def __or__(self, other: _Group) -> _Group:
        return _Group(
            self.members | other.members, self.users | other.users, self.below | other.below
        )


def groups_of(model: ItemModel[Item], taken: Collection[Item]) -> Iterator[tuple[Item, ...]]:
    """Groups without a way from one to itself through others; those that compute something.

    From the last operator on, each joins the groups that there are, those nearest to the end first,
    unless that would wait for itself.
    """
    places: dict[Item, int] = {}
    for place, item in enumerate(model.order):
        part = model.kind(item) == "part"
        places[item] = places[model.reads(item)[0]] if part else place
    alone = _alone(model, places)
    groups: list[_Group] = []
    for place in sorted({places[item] for item in taken}, reverse=True):
        apart: list[_Group] = []
        new, at = alone[place], -1
        for number, group in enumerate(groups):
            joined = new | group
            if _leads_back(joined, [*apart, *groups[number + 1 :]], alone):
                apart.append(group)
            else:
                new, at = joined, len(apart) if at < 0 else at
        apart.insert(len(apart) if at < 0 else at, new)
        groups = apart
    for group in sorted(groups, key=lambda group: group.members & -group.members):
        items = tuple(each for each in model.order if group.members >> places[each] & 1)
        if any(model.kind(item) == "computes" for item in items):
            yield items


def _alone(model: ItemModel[Item], places: Mapping[Item, int]) -> dict[int, _Group]:
    """A group of each operator, with the parts of its result."""
    users = dict.fromkeys(places.values(), 0)
    for item, place in places.items():
        for user in model.users(item):
            other = places.get(user, place)  # a result of the model is read by none of its items
            users[place] |= 1 << other if other != place else 0
    found: dict[int, _Group] = {}
    for place in sorted(users, reverse=True):
        below = users[place]
        for reader in _bits(users[place]):
            below |= found[reader].below
        found[place] = _Group(1 << place, users[place], below)
    return found


def _leads_back(joined: _Group, others: Sequence[_Group], alone: Mapping[int, _Group]) -> bool:
    """Whether a way from a group leads to it, through operators outside and through others."""
    reached = joined.users & ~joined.members
    for place in _bits(reached):
        reached |= alone[place].below
    while not reached & joined.members:
        met = [group for group in others if group.members & reached]
        if not met:
            return False
        others = [group for group in others if not group.members & reached]
        for group in met:
            reached |= group.members | group.below
    return True


def _bits(number: int) -> Iterator[int]:
    while number:
        yield (number & -number).bit_length() - 1
        number &= number - 1
