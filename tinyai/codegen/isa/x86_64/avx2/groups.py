"""Weights in groups whose sums of products fit into 16 bits, for ``vpmaddubsw``.

The instruction adds two products of an unsigned by a signed byte and saturates at 16 bits. Where the
positive weights of a lane add up to at most 127, and the negative ones too, no sum of their products
with bytes leaves 16 bits: 255 * 127 < 2^15. So the products of several words (four bytes of a
window) are added in 16 bits, and widened to 32 once for the group.

Which words are in a group is free, and so is which bytes of a word are neighbours: it is read from
one of three copies of the input (``ORDERS``). Words are put into groups greedily, the largest first,
into the fullest group with room for them. What a word has too much for itself in every order is a
word more, of the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinyai.ir import Array

# Words of a piece of the window; what several outputs see of it is in the first-level cache.
PIECE = 128
# Channels of a vector of sums.
CHANNELS = 8
# Orders of the bytes of a word: each byte is beside each other one in one of them.
ORDERS = np.array([(0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2)])
# Bytes from an output's copy of a piece in one order to that in the next.
COPY = 4 * PIECE + 32
# Of weights of one sign in a lane.
MOST = 127
# Cycles for a word of a group of so many, in units of a word that is widened before its products.
COSTS = np.array([0, 1 / 1.21, 2 / 1.46, 3 / 1.52, 4 / 1.60])
# The most that groups may cost.
WORTH = 0.97
LARGEST = len(COSTS) - 1
# Vectors of channels that are grouped at a time: their numbers fit a cache.
_TOGETHER = 64
_SIGNS = np.uint64(0x8080808080808080)


@dataclass(frozen=True, eq=False)
class Grouped:
    """Weights as streams: one for each piece of the window, of each block of 16 channels. ``sizes``
    counts the groups of 0, 1, 2 … words; ``words`` are those of the window that have weights,
    ``more`` are those added to them."""

    streams: tuple[tuple[bytes, ...], ...]
    sizes: tuple[int, ...]
    words: int
    more: int

    @property
    def cost(self) -> float:
        """Cycles, by those of words that are widened before their products."""
        return float(np.dot(self.sizes, COSTS)) / max(self.words, 1)

    @property
    def block_bytes(self) -> int:
        """Of the longest block, in whole vectors."""
        return max(sum(map(len, pieces)) for pieces in self.streams)

    @property
    def told(self) -> str:
        """How many groups there are of 1, 2, 3 and 4 words, and how many words more."""
        groups = ", ".join(f"{count} of {size}" for size, count in enumerate(self.sizes) if count)
        return f"weights in groups of words: {groups}; {self.more} words more of {self.words}"

    def panel(self, first: int, blocks: int, block_bytes: int) -> Array:
        """The weights of neighbouring blocks, piece by piece; each may take so many bytes."""
        pieces = zip(*self.streams[first : first + blocks], strict=True)
        joined = b"".join(stream for piece in pieces for stream in piece)
        return np.frombuffer(joined.ljust(blocks * block_bytes, b"\0"), np.int8)


def grouped(taps: Array) -> Grouped:
    """[channels, bytes of the window] -> the same in groups; the channels are whole blocks."""
    halves = taps.reshape(-1, CHANNELS, taps.shape[1] // 4, 4).transpose(0, 2, 1, 3)
    halves = halves.astype(np.int16)
    parts = [halves]
    while parts[-1].any():
        parts[-1:] = split(parts[-1])
    streams: list[list[bytes]] = [[] for _ in halves]
    sizes = np.zeros(LARGEST + 1, np.int64)
    for first in range(0, halves.shape[1], PIECE):
        for begin in range(0, len(halves), _TOGETHER):
            part = slice(begin, begin + _TOGETHER), slice(first, first + PIECE)
            items = np.stack([words[part] for words in parts], axis=1)
            items = items.reshape(len(items), -1, CHANNELS, 4)
            groups, orders, counts = assign(items)
            sizes += np.bincount(counts.reshape(-1), minlength=LARGEST + 1)
            for i, half in enumerate(items):
                streams[begin + i].append(_stream(half, len(parts), groups[i], orders[i], counts[i]))
    blocks = zip(streams[::2], streams[1::2], strict=True)
    words, *more = (int(each.any(axis=(2, 3)).sum()) for each in parts)
    joined = tuple(tuple(low + high for low, high in zip(*of, strict=True)) for of in blocks)
    sizes[0] = 0
    return Grouped(joined, tuple(map(int, sizes)), words, sum(more))


def packed(taps: Array) -> Grouped | str:
    """Weights in groups, or why these would take longer than widened bytes."""
    found = grouped(taps)
    if found.cost <= WORTH:
        return found
    return f"weights too large for sums in 16 bits, {found.more} words more of {found.words}"


def loads(words: Array) -> Array:
    """[…, channels, 4] -> […, orders, 32]: the sums of the positive weights of each lane of 16
    bits, and those of the negative ones."""
    lanes = np.moveaxis(words[..., ORDERS], -2, -3)
    lanes = lanes.reshape(*lanes.shape[:-2], 2 * CHANNELS, 2)
    signs = (np.maximum(each, 0).sum(axis=-1, dtype=np.int16) for each in (lanes, -lanes))
    return np.concatenate(list(signs), axis=-1)


def split(words: Array) -> tuple[Array, Array]:
    """[halves, words, channels, 4] -> what fits in one of the orders, and what is too much."""
    over = np.maximum(loads(words) - MOST, 0).sum(axis=-1)
    order = ORDERS[over.argmin(axis=-1)][:, :, None, :]
    order = np.broadcast_to(order, words.shape)
    pairs = np.take_along_axis(words, order, -1).reshape(*words.shape[:-1], 2, 2)
    for sign in (1, -1):
        parts = np.maximum(sign * pairs, 0)
        # What is over goes from the larger weight, and what is over its value from the other one.
        larger = parts.max(axis=-1)
        too_much = np.maximum(parts.sum(axis=-1) - MOST, 0)
        cut = np.where(
            parts.argmax(axis=-1)[..., None] == (0, 1),
            np.minimum(too_much, larger)[..., None],
            np.maximum(too_much - larger, 0)[..., None],
        )
        pairs = pairs - sign * cut
    fitting = np.empty_like(words)
    np.put_along_axis(fitting, order, pairs.reshape(words.shape), -1)
    return fitting, words - fitting


def assign(items: Array) -> tuple[Array, Array, Array]:
    """[halves, words, channels, 4] -> the group of each word (-1: it has no weights), the order of
    its bytes, and the words of each group."""
    count, words = items.shape[:2]
    load = loads(items)
    weight = load[:, :, 0].sum(axis=-1)
    # A word does not fit in an order where its loads are larger than those that any group takes.
    fits = load.max(axis=-1, keepdims=True) <= MOST
    packed = np.where(fits, load, MOST).astype(np.uint8)
    wanted = np.moveaxis(packed.view(np.uint64), (2, 3), (0, 1))
    # What groups have room for, with a bit above each lane: it stays set where nothing is borrowed.
    room = np.zeros((len(ORDERS), 4, count, words), np.uint64)
    filled = np.zeros((count, words), np.int64)
    sizes = np.zeros((count, words), np.int64)
    groups = np.full((count, words), -1)
    orders = np.zeros((count, words), np.int64)
    opener = np.zeros((count, words), np.int64)
    opened = np.zeros(count, np.int64)
    every = np.arange(count)
    for word in np.argsort(-weight, axis=1, kind="stable").T:
        there = weight[every, word] > 0
        if not there.any():
            break
        item = wanted[:, :, every, word]
        open_groups = max(int(opened.max()), 1)
        left = np.full((), ~np.uint64(0))
        for lanes in range(4):
            now = room[:, None, lanes, :, :open_groups]
            left = left & (now - item[None, :, lanes, :, None])
        suits = (left & _SIGNS) == _SIGNS
        suits &= (sizes[:, :open_groups] > 0) & (sizes[:, :open_groups] < LARGEST)
        score = np.where(suits.any(axis=(0, 1)), filled[:, :open_groups], -1)
        best = score.argmax(axis=1)
        joins = there & (score[every, best] >= 0)
        at, group = every[joins], best[joins]
        pair = suits[:, :, at, group].reshape(len(ORDERS) ** 2, len(at)).argmax(axis=0)
        first, own = pair // len(ORDERS), pair % len(ORDERS)
        alone = sizes[at, group] == 1
        orders[at[alone], opener[at, group][alone]] = first[alone]
        orders[at, word[at]] = own
        room[0][:, at, group] = room[first, :, at, group].T - wanted[own, :, at, word[at]].T
        room[1:, :, at, group] = _SIGNS
        begins = every[there & ~joins]
        new = opened[begins]
        opened[begins] += 1
        opener[begins, new] = word[begins]
        orders[begins, word[begins]] = fits[begins, word[begins], :, 0].argmax(axis=1)
        room[:, :, begins, new] = ~wanted[:, :, begins, word[begins]]
        groups[at, word[at]] = group
        groups[begins, word[begins]] = new
        for h, g in ((at, group), (begins, new)):
            sizes[h, g] += 1
            filled[h, g] += weight[h, word[h]]
    return groups, orders, sizes


def _stream(items: Array, parts: int, groups: Array, orders: Array, sizes: Array) -> bytes:
    """The groups of one piece and half of a block: how many there are of 4, 3, 2 and 1 words, where
    each word is read, and its weights. The weights begin at a whole vector."""
    there = np.flatnonzero(groups >= 0)
    size = sizes[groups[there]]
    there = there[np.lexsort((there, groups[there], -size))]
    counts = np.bincount(sizes, minlength=LARGEST + 1)[:0:-1]
    places = COPY * orders[there] + 4 * (there % (len(items) // parts))
    numbers = np.concatenate([counts, places]).astype("<u2").tobytes()
    order = ORDERS[orders[there]][:, None, :]
    weights = np.take_along_axis(items[there], np.broadcast_to(order, items[there].shape), -1)
    return numbers.ljust(-(-len(numbers) // 32) * 32, b"\0") + weights.astype(np.int8).tobytes()
