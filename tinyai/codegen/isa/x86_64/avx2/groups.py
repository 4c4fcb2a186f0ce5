"""Weights in groups of words whose sums of products fit into 16 bits, for ``vpmaddubsw``.

The instruction adds two products of an unsigned by a signed byte, and saturates at 16 bits. Where
the positive weights of a lane add up to at most 127, and the negative ones too, no sum of their
products with bytes leaves 16 bits: 255 * 127 < 2^15. So the products of several words (four bytes
of a window) are added in 16 bits, and widened to 32 once for the group.

Which words make a group is free, and so is which bytes of a word are neighbours: it is read from
one of three copies of the input, with its bytes in another order. Words are put into groups
greedily, the largest first, into the fullest group that has room for them. A word that does not fit
by itself, in any order, is widened to 16 bits before its products.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinyai.ir import Array

# Words of a piece of the window, in which groups are made.
PIECE = 128
# Channels of a vector of sums.
CHANNELS = 8
# Orders of the bytes of a word: each byte is beside each other one in one of them.
ORDERS = np.array([(0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2)])
# Bytes from one copy of the input to the next: those in each order, the even bytes, the odd ones.
COPY = 4 * PIECE + 32
# Of weights of one sign in a lane of 16 bits.
MOST = 127
# Words of a group.
LARGEST = 4
# Vectors of channels that are grouped at a time: their numbers fit a cache.
_TOGETHER = 64
_SIGNS = np.uint64(0x8080808080808080)


@dataclass(frozen=True, eq=False)
class Grouped:
    """Weights as streams: one for each piece of the window, of each block of 16 channels. ``sizes``
    counts the words that are widened, and the groups of 1, 2 … words."""

    streams: tuple[tuple[bytes, ...], ...]
    sizes: tuple[int, ...]

    @property
    def wide(self) -> float:
        """The share of words that are widened."""
        return self.sizes[0] / max(1, int(np.dot(self.sizes, (1, *range(1, LARGEST + 1)))))

    def __str__(self) -> str:
        wide, *counts = self.sizes
        groups = ", ".join(f"{count} of {size}" for size, count in enumerate(counts, 1))
        return f"words of weights in groups: {groups}; {wide} widened"


def grouped(taps: Array) -> Grouped:
    """[channels, bytes of the window] -> the same in groups; the channels are whole blocks."""
    halves = taps.reshape(-1, CHANNELS, taps.shape[1] // 4, 4).transpose(0, 2, 1, 3)
    streams: list[list[bytes]] = [[] for _ in halves]
    sizes = np.zeros(LARGEST + 1, np.int64)
    for first in range(0, halves.shape[1], PIECE):
        for begin in range(0, len(halves), _TOGETHER):
            words = halves[begin : begin + _TOGETHER, first : first + PIECE]
            groups, orders, group_sizes = assign(words)
            for i, half in enumerate(words):
                stream, counts = _stream(half, groups[i], orders[i], group_sizes[i])
                streams[begin + i].append(stream)
                sizes += counts
    blocks = zip(streams[::2], streams[1::2], strict=True)
    joined = tuple(tuple(low + high for low, high in zip(*of, strict=True)) for of in blocks)
    return Grouped(joined, tuple(map(int, sizes)))


def loads(words: Array) -> Array:
    """[…, channels, 4] -> […, orders, 32]: the sums of the positive weights of each lane of 16
    bits, and those of the negative ones."""
    lanes = np.moveaxis(words.astype(np.int16)[..., ORDERS], -2, -3)
    lanes = lanes.reshape(*lanes.shape[:-2], 2 * CHANNELS, 2)
    signs = (np.maximum(each, 0).sum(axis=-1, dtype=np.int16) for each in (lanes, -lanes))
    return np.concatenate(list(signs), axis=-1)


def assign(words: Array) -> tuple[Array, Array, Array]:
    """[halves, words, channels, 4] -> the group of each word (-1: it has no weights), the order of
    its bytes (-1: it fits in none), and the words of each group."""
    count, number = words.shape[:2]
    load = loads(words)
    weight = load[:, :, 0].sum(axis=-1)
    # Where a word does not fit by itself, it asks for all the room of a lane, which no group has.
    fits = load.max(axis=-1, keepdims=True) <= MOST
    first_fit = np.where(fits.any(axis=(2, 3)), fits[..., 0].argmax(axis=2), -1)
    asked = np.where(fits, load, MOST).astype(np.uint8).view(np.uint64)
    asked = np.ascontiguousarray(np.moveaxis(asked, (2, 3), (0, 1)))
    # What groups have room for, with a bit above each lane: it stays set where nothing is borrowed.
    room = np.full((len(ORDERS), 4, count, number), _SIGNS)
    filled = np.zeros((count, number), np.int64)
    sizes = np.zeros((count, number), np.int64)
    groups = np.full((count, number), -1)
    orders = np.zeros((count, number), np.int64)
    opener = np.zeros((count, number), np.int64)
    opened = np.zeros(count, np.int64)
    every = np.arange(count)
    for word in np.argsort(-weight, axis=1, kind="stable").T:
        there = weight[every, word] > 0
        width = max(int(opened.max()), 1)
        left = np.full((), ~np.uint64(0))
        for lanes in range(4):
            now = room[:, None, lanes, :, :width]
            left = left & (now - asked[None, :, lanes, every, word][..., None])
        suits = (left & _SIGNS) == _SIGNS
        suits &= (sizes[:, :width] > 0) & (sizes[:, :width] < LARGEST)
        score = np.where(suits.any(axis=(0, 1)), filled[:, :width], -1)
        best = score.argmax(axis=1)
        joins = there & (score[every, best] >= 0)
        at, group = every[joins], best[joins]
        pair = suits[:, :, at, group].reshape(len(ORDERS) ** 2, len(at)).argmax(axis=0)
        first, own = pair // len(ORDERS), pair % len(ORDERS)
        alone = sizes[at, group] == 1
        orders[at[alone], opener[at, group][alone]] = first[alone]
        orders[at, word[at]] = own
        room[0][:, at, group] = (room[first, :, at, group] - asked[own, :, at, word[at]]).T
        room[1:, :, at, group] = _SIGNS
        begins = every[there & ~joins]
        orders[begins, word[begins]] = first_fit[begins, word[begins]]
        new = opened[begins]
        opened[begins] += 1
        opener[begins, new] = word[begins]
        room[:, :, begins, new] = ~asked[:, :, begins, word[begins]]
        groups[at, word[at]] = group
        groups[begins, word[begins]] = new
        for h, g in ((at, group), (begins, new)):
            sizes[h, g] += 1
            filled[h, g] += weight[h, word[h]]
    return groups, orders, sizes


def _stream(words: Array, groups: Array, orders: Array, sizes: Array) -> tuple[bytes, Array]:
    """The groups of one piece and half of a block: how many there are of 4, 3, 2 and 1 words and of
    words that are widened, where each word is read, and its weights, widened ones in 16 bits. The
    weights begin at a whole vector. And the counts, the widened ones first."""
    there = np.flatnonzero(groups >= 0)
    wide = orders[there] < 0
    size = np.where(wide, 0, sizes[groups[there]])
    order = np.lexsort((there, groups[there], -size))
    there, wide = there[order], wide[order]
    counts = np.bincount(size, minlength=LARGEST + 1) // (1, *range(1, LARGEST + 1))
    copies = np.where(wide, len(ORDERS), orders[there])
    numbers = np.concatenate([counts[::-1], COPY * copies + 4 * there]).astype("<u2").tobytes()
    bytes_order = np.where(wide[:, None], (0, 2, 1, 3), ORDERS[orders[there]])[:, None, :]
    weights = np.take_along_axis(words[there], bytes_order, axis=-1)
    widened = weights[wide].reshape(-1, CHANNELS, 2, 2).transpose(0, 2, 1, 3).astype("<i2")
    head = numbers.ljust(-(-len(numbers) // 32) * 32, b"\0")
    return head + weights[~wide].tobytes() + widened.tobytes(), counts
