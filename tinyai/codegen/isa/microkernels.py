"""What an instruction set brings for the kernels that all of them share.

A kernel (``codegen/kernels``) knows the operator: geometry, packing, how threads share the work. A
microkernel is the innermost part of it, in the instructions of one set. What differs between sets
beside its text stands here, so that kernels ask for it by what it is and never by a set's name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from tinyai.codegen.ctree import CallStatement
from tinyai.codegen.definitions import Definition
from tinyai.codegen.isa.vectors import Vectors
from tinyai.codegen.linear_add import FixedAdd, FloatAdd, Form
from tinyai.codegen.quantized_add import QuantizedAdd
from tinyai.codegen.shapes.channel_blocks import ChannelBlocks
from tinyai.codegen.shapes.machine import VECTORS, Machine
from tinyai.codegen.shapes.tiling import Tiling
from tinyai.codegen.steps import Epilogue
from tinyai.ir import Array


@dataclass(frozen=True)
class ConvOptions:
    """What the text of a microkernel for convolutions depends on.

    - ``raw``: sums are stored as they are. Otherwise their requantization is ``shifted`` to the
      left first, rounds ``twice``, is a product of ``floats``, is ``bounded`` by more than the type
      of the result, which is ``unsigned``. It may be ``rounded`` by instructions, the product to
      the ``nearest`` whole number, or ``away`` from zero (see ``requantization.Rounded``); its
      zero point may be the ``least`` value of the type.
    - ``flat``: neighbouring pixels fill the lanes.
    - ``flipped``: the signs of the input are turned.
    - ``masked``: the last block of channels may not be whole.
    - ``ahead``: bytes of weights after the next panel that are fetched in time.
    """

    raw: bool = False
    shifted: bool = False
    twice: bool = False
    floats: bool = False
    rounded: bool = False
    nearest: bool = False
    away: bool = False
    least: bool = False
    bounded: bool = False
    unsigned: bool = False
    flat: bool = False
    flipped: bool = False
    masked: bool = False
    ahead: int = 0

    @property
    def chosen(self) -> list[str]:
        """Their names, as parts of a microkernel's name."""
        return [name for name, value in vars(self).items() if value]


class TileMicrokernel(Protocol):
    """Results of ``pixels`` neighbouring outputs by a weight panel of so many ``blocks``."""

    def __call__(
        self, epilogue: Epilogue, t: Tiling, *, pixels: int, blocks: int, options: ConvOptions
    ) -> str: ...


@dataclass(frozen=True, eq=False)
class Packed:
    """Weights in a form of one set's own: ``blocks`` of channels one after the other, each as the
    bytes of every piece of the window; the ``tile`` microkernel that reads them piece by piece, all
    blocks of a panel in each; and what the comment above the layer says of them (``told``)."""

    blocks: tuple[tuple[bytes, ...], ...]
    tile: TileMicrokernel
    told: str

    @functools.cached_property
    def block_bytes(self) -> int:
        """What each block may take: as much as the longest."""
        return max(sum(map(len, pieces)) for pieces in self.blocks)

    def panel(self, first: int, count: int) -> Array:
        """The weights of neighbouring blocks, filled up by zeros."""
        pieces = zip(*self.blocks[first : first + count], strict=True)
        joined = b"".join(block for piece in pieces for block in piece)
        return np.frombuffer(joined.ljust(count * self.block_bytes, b"\0"), np.int8)


@dataclass(frozen=True)
class OwnWeights:
    """A form of packed weights that one set reads, in files that are for it alone: a ``name`` for
    its row of the kernel table, and how [channels, bytes of the window] are ``packed``, where the
    channels are whole blocks; or why other tiles are as fast."""

    name: str
    packed: Callable[[Array], Packed | str]


class DepthwiseMicrokernel(Protocol):
    """Results of the rows of a block of 64 channels, of which ``lanes`` are computed."""

    def __call__(
        self, epilogue: Epilogue, s: ChannelBlocks, *, lanes: int, options: ConvOptions
    ) -> str: ...


AnyAdd = QuantizedAdd | FixedAdd | FloatAdd


@dataclass(frozen=True)
class Sums:
    """Sums of two 8-bit tensors. Each writer puts a microkernel into the file and returns its name.
    ``forms`` are those of sums in 32 bits, the fastest first."""

    quantized: Callable[[Epilogue, QuantizedAdd], str]
    fixed: Callable[[Epilogue, FixedAdd], str]
    floats: Callable[[Epilogue, FloatAdd], str]
    forms: tuple[Form, ...]

    def call(
        self, epilogue: Epilogue, add: AnyAdd, x: str, y: str, out: str, count: str
    ) -> CallStatement:
        """The statement that adds ``count`` neighbouring elements at these addresses."""
        match add:
            case QuantizedAdd():
                name = self.quantized(epilogue, add)
            case FixedAdd():
                name = self.fixed(epilogue, add)
            case FloatAdd():
                name = self.floats(epilogue, add)
        return CallStatement(name, x, y, out, count, *add.arguments)


@dataclass(frozen=True)
class Pairs:
    """A microkernel of the products of ``rows`` rows and all columns, both of int16 in pairs. The
    pairs of columns stand side by side; their number is a multiple of ``columns``."""

    columns: int
    write: Callable[[Epilogue], str]
    rows: ClassVar[int] = 4


@dataclass(frozen=True)
class ByteProducts:
    """Microkernels of the products of up to ``rows`` rows of unsigned bytes and all columns of
    signed ones, whose number is filled up to a multiple of ``columns``: what packs the columns,
    what copies rows, and what makes sums of them."""

    pack: Definition
    copy: Definition
    products: Definition
    rows: ClassVar[int] = 16
    columns: ClassVar[int] = 32


@dataclass(frozen=True)
class Lookups:
    """A microkernel that reads the results of bytes in a table of 256 (``vectors.table_bytes``),
    and the ``table`` as it wants it."""

    write: Callable[[Epilogue], str]
    table: Callable[[Array], Array] = lambda table: table


@dataclass(frozen=True)
class Microkernels:
    """The microkernels of one instruction set. Each writer puts one into the file and returns its
    name in C.

    - ``name``: what rows of the kernel table that are made of them have as ``Kernel.isa``.
    - ``tall``: tile microkernels are for a number of outputs each; else one takes any number.
    - ``fetches``: tile microkernels fetch weights in time, where they are told how far ahead.
    - ``machine``: the core that they are for, by which layers are cut up and weights packed.
    - ``in_tiles``: whether tiles of two dimensions compute a layer: of any number of outputs,
      whatever a schedule says, and of signed bytes as they are, where others turn their signs.
    - ``rounds``: instructions round products and shifts.
    - ``fewest``: channels of which depthwise microkernels are worth their while; where there are
      fewer, neighbouring pixels fill the lanes.
    - ``fewest_of_stride_2``: so where outputs see every other pixel; 0 where that is not written.
    - ``half``: depthwise microkernels for 32 channels save time where no more are left.
    - ``vectors``: for kernels that write vectors themselves; None where steps are written one by
      one.
    - ``own``: another form of the weights of tiles, which goes first; None where there is none.
    - ``sums``, ``transpose``, ``lookup``, ``dot``: None where there is none. A transposition turns
      squares of so many elements a ``side``, of ``size`` bytes each. A dot takes a number of
      patches of int16, which meet int8 weights, to sums in int32, or in int64.
    - ``bytes``, ``pairs``: of two matrices that are computed at run time, of bytes or of int16;
      None of both where compilers make the dot products.
    - ``base``: another set's microkernels, which serve all but tiles, and layers of fewer
      ``outputs`` than tiles are worth their while for.
    """

    name: str
    tile: TileMicrokernel
    depthwise: DepthwiseMicrokernel | None = None
    tall: bool = False
    fetches: bool = False
    machine: Machine = VECTORS
    in_tiles: Callable[[Tiling], bool] = lambda t: False
    rounds: bool = False
    fewest: int = 64
    fewest_of_stride_2: int = 0
    half: bool = False
    vectors: Vectors | None = None
    sums: Sums | None = None
    transpose: Callable[[Epilogue, int, int], str] | None = None
    own: OwnWeights | None = None
    lookup: Lookups | None = None
    dot: Callable[[Epilogue, int, bool], str] | None = None
    bytes: ByteProducts | None = None
    pairs: Pairs | None = None
    base: Microkernels | None = None
    outputs: int = 1

    @property
    def steps(self) -> Microkernels:
        """Those that take the results of tiles through the steps after them."""
        return self.base or self


def name_of(*parts: str) -> str:
    """A microkernel's name in C, of the parts that are not empty."""
    return "_".join(["tinyai", *filter(None, parts)])
