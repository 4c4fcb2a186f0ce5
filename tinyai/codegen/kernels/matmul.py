"""Kernels of products of two matrices that are computed at run time."""

from __future__ import annotations

import abc
import functools
from dataclasses import dataclass

from tinyai.codegen.c import less
from tinyai.codegen.ctree import Assign, CallStatement, Code, Comment, Declare, For, If, let, nest
from tinyai.codegen.index import Axis
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.isa.microkernels import ByteProducts, Microkernels, Pairs
from tinyai.codegen.isa.vectors import Vectors, write_lanes
from tinyai.codegen.kernels.image import turned
from tinyai.codegen.kernels.work_stealing import own_scratch, share
from tinyai.codegen.lowered import (
    Kernel,
    Lowered,
    Prepared,
    aligned,
    result_at_strides,
    written,
)
from tinyai.codegen.placed import stored_index
from tinyai.codegen.steps import Epilogue, StepChain
from tinyai.ir import DType, Node
from tinyai.ops import BatchMatmul

# Between uint8 and int8. Where a machine has dot products of both and the number of products is
# known, gcc 12 adds up those of (uint8 - 128) and int8 wrong.
_MIDDLE = 128
_HIDDEN: Code = (
    Comment("The compiler does not know this number: with it gcc 12 adds up wrong."),
    Declare("const volatile int32_t", "kept", _MIDDLE),
    Declare("const int32_t", "middle", "kept"),
)


def _code(graph: Lowered, node: Node, epilogue: Epilogue) -> Code:
    op = node.op
    assert isinstance(op, BatchMatmul)
    data, other = graph.types(node.inputs)
    axes = [Axis(f"i{dim}", (size,)) for dim, size in enumerate(graph.type(node.output).shape)]
    k = data.shape[2]
    image, other_image = (of.strides[0] if of.shape[0] > 1 else 0 for of in (data, other))
    zero_points = op.zero_point, op.other_zero_point
    hides = data.dtype != other.dtype and _MIDDLE in zero_points
    less_x, less_y = (
        " - middle" if hides and zero_point == _MIDDLE else less(zero_point)
        for zero_point in zero_points
    )
    x = f"in0[i0 * {image} + i1 * {k} + k]{less_x}"
    y = f"in1[i0 * {other_image} + i2 * {k} + k]{less_y}"
    return _HIDDEN if hides else (), nest(
        axes,
        Declare("int32_t", "acc", 0),
        For("k", 0, k, Assign("acc", f"({x}) * ({y})", "+=")),
        epilogue.write("acc", DType.INT32, axes),
    )


@dataclass(frozen=True)
class Shares:
    """What threads share of a product: whole matrices, or rows of each, so many ``together``."""

    matrices: int
    rows: int
    threads: int
    together: int = 1

    @property
    def by_matrices(self) -> bool:
        even = self.matrices % self.threads == 0 or self.matrices >= 4 * self.threads
        return self.threads > 1 and even

    @property
    def ends(self) -> Code:
        """Variables for a thread's share."""
        if self.threads == 1:
            return None
        return share(self.matrices) if self.by_matrices else share(self.rows, self.together)

    def of_matrices(self, *body: Code) -> Code:
        ends = ("begin", "end") if self.by_matrices else (0, self.matrices)
        return For("i0", *ends, *body)

    def of_rows(self, var: str, *body: Code) -> Code:
        """A loop over the first of those rows that come together."""
        shared = self.threads > 1 and not self.by_matrices
        ends = ("begin", "end") if shared else (0, self.rows)
        return For(var, *ends, *body, step=self.together)

    def of_blocks(self, fill: Code, several: bool, sums: Code, *row: Code) -> Code:
        """The other matrix, filled in once or for each of ``several``; then the sums of the rows
        ``q`` to ``until``, that come together, and the code of each ``row``, ``i1``."""
        most, rows = self.together, self.rows
        return self.of_matrices(
            fill if several else If(self.is_first, fill),
            self.of_rows(
                "q",
                let("until", f"{rows} - q < {most} ? {rows} : q + {most}"),
                sums,
                For("i1", "q", "until", *row),
            ),
        )

    @property
    def is_first(self) -> str:
        """Whether a matrix is the first of a thread."""
        return f"i0 == {'begin' if self.by_matrices else 0}"


# The bytes of a vector, or of a row of a tile.
VECTOR = 64
# Rows of int16 are filled up with zeros to a multiple of this: no loop has a tail.
FULL = 32


class OwnMatrices(Prepared):
    """Matrices in another form, in the working memory of each thread."""

    @abc.abstractmethod
    def _each(self, graph: Lowered) -> int:
        """The bytes of a thread."""

    def scratch(self, graph: Lowered) -> int:
        return graph.threads * self._each(graph)

    def takes(self, graph: Lowered, name: str) -> bool:
        return result_at_strides(graph, self.node, name)


@dataclass(frozen=True)
class WidenedMatmul(OwnMatrices):
    """Both matrices as int16, less their zero points, in the working memory: the other one whole,
    of the first a row at a time. Compilers make dot products of such rows; a row of sums then takes
    the steps, in lanes where there are ``vectors``."""

    vectors: Vectors | None

    @classmethod
    def of(cls, graph: Lowered, node: Node, vectors: Vectors | None) -> WidenedMatmul:
        return cls(node, vectors)

    def _each(self, graph: Lowered) -> int:
        columns, full = self._sizes(graph)
        size = (columns + 1) * full * DType.INT16.bytes + columns * DType.INT32.bytes
        return aligned(size)

    def _sizes(self, graph: Lowered) -> tuple[int, int]:
        """The columns of the result, and the products of each with those that fill up."""
        _, columns, k = graph.type(self.node.inputs[1]).shape
        return columns, -(-k // FULL) * FULL

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        op, node = self.node.op, self.node
        assert isinstance(op, BatchMatmul)
        columns, full = self._sizes(graph)
        (batches, rows, k), (others, *_) = (of.shape for of in graph.types(node.inputs))
        axes = [Axis(f"i{dim}", (size,)) for dim, size in enumerate(graph.type(node.output).shape)]
        image, other_image = rows * k * (batches > 1), columns * k * (others > 1)

        def widened(to: str, value: str, zero_point: int) -> Code:
            return [
                For("k", 0, k, Assign(f"{to} + k]", f"(int16_t)({value} + k]{less(zero_point)})")),
                For("k", k, full, Assign(f"{to} + k]", 0)) if k < full else None,
            ]

        other = f"in1[i0 * {other_image} + i2 * {k}"
        filled = For("i2", 0, columns, widened(f"other[i2 * {full}", other, op.other_zero_point))
        shares = Shares(axes[0].count, rows, epilogue.threads)
        scratch = own_scratch(self._each(graph), epilogue)
        return [
            Declare("int16_t *const", "other", f"(int16_t *)(void *){scratch}"),
            Declare("int16_t *const", "row", f"other + {columns * full}"),
            Declare("int32_t *const", "acc", f"(int32_t *)(void *)(row + {full})"),
            shares.ends,
            shares.of_matrices(
                filled if others > 1 else If(shares.is_first, filled),
                shares.of_rows(
                    "i1",
                    widened("row[0", f"in0[i0 * {image} + i1 * {k}", op.zero_point),
                    nest(
                        axes[2:],
                        Declare("int32_t", "total", 0),
                        For(
                            "k", 0, full, Assign("total", f"row[k] * other[i2 * {full} + k]", "+=")
                        ),
                        Assign("acc[i2]", "total"),
                    ),
                    _steps_of_a_row(graph, node, epilogue, axes, self.vectors),
                ),
            ),
        ]


@dataclass(frozen=True)
class ByteMatmul(OwnMatrices):
    """Rows of unsigned bytes by columns of signed ones, in the working memory: the other matrix
    whole, its columns packed, of the first some rows at a time. Sums start from what the zero
    points and turned signs change, and each row of them takes the steps, in lanes."""

    micro: Microkernels

    @classmethod
    def of(cls, graph: Lowered, node: Node, micro: Microkernels) -> ByteMatmul:
        return cls(node, micro)

    def _each(self, graph: Lowered) -> int:
        wide, full = self._sizes(graph)
        rows = ByteProducts.rows
        return aligned((wide + rows) * full + (wide + rows + rows * wide) * DType.INT32.bytes)

    def _sizes(self, graph: Lowered) -> tuple[int, int]:
        """The columns, and the bytes of each, with those that fill up."""
        _, columns, k = graph.type(self.node.inputs[1]).shape
        return -(-columns // ByteProducts.columns) * ByteProducts.columns, -(-k // VECTOR) * VECTOR

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        op, node, micro = self.node.op, self.node, self.micro.bytes
        assert isinstance(op, BatchMatmul)
        assert micro is not None
        (wide, full), most = self._sizes(graph), ByteProducts.rows
        data, other = graph.types(node.inputs)
        (batches, rows, k), (others, columns, _) = data.shape, other.shape
        image, other_image = rows * k * (batches > 1), columns * k * (others > 1)
        x, y = (
            turned(op.zero_point, data.dtype, DType.UINT8),
            turned(op.other_zero_point, other.dtype, DType.INT8),
        )
        flips = [
            128 * (of.dtype is not to)
            for of, to in zip((data, other), (DType.UINT8, DType.INT8), strict=True)
        ]
        axes = [Axis(f"i{dim}", (size,)) for dim, size in enumerate(graph.type(node.output).shape)]
        pack, copy, products = map(epilogue.need, (micro.pack, micro.copy, micro.products))
        from_, at = f"in1 + i0 * {other_image}", f"in0 + i0 * {image} + q * {k}"
        numbers = columns, k, full, flips[1], x, f"(int32_t){k * x * y % 2**32}u"
        packed = CallStatement(pack, from_, *numbers, "other", "start")
        shares = Shares(axes[0].count, rows, epilogue.threads, most)
        return [
            Declare(
                "int8_t *const", "other", f"(int8_t *){own_scratch(self._each(graph), epilogue)}"
            ),
            Declare("uint8_t *const", "row", f"(uint8_t *)other + {wide * full}"),
            Declare("int32_t *const", "start", f"(int32_t *)(void *)(row + {most * full})"),
            Declare("int32_t *const", "off", f"start + {wide}"),
            Declare("int32_t *const", "sums", f"off + {most}"),
            shares.ends,
            shares.of_blocks(
                packed,
                others > 1,
                [
                    CallStatement(copy, at, "until - q", k, flips[0], y, "row", "off"),
                    CallStatement(
                        products,
                        *("row", "other", "until - q", wide, k, full, "start", "off", "sums"),
                    ),
                ],
                Declare("const int32_t *const", "acc", f"sums + (i1 - q) * {wide}"),
                _steps_of_a_row(graph, node, epilogue, axes, self.micro.steps.vectors),
            ),
        ]


@dataclass(frozen=True)
class PairedMatmul(OwnMatrices):
    """Both matrices as pairs of int16, less their zero points, in the working memory: the other one
    whole, its columns side by side, of the first some rows at a time. A microkernel makes the sums
    of these rows, and each row of sums takes the steps, in lanes where there are vectors."""

    micro: Microkernels

    @classmethod
    def of(cls, graph: Lowered, node: Node, micro: Microkernels) -> PairedMatmul:
        return cls(node, micro)

    def _each(self, graph: Lowered) -> int:
        pairs, wide = self._sizes(graph)
        words = 2 * pairs * (wide + Pairs.rows)
        size = words * DType.INT16.bytes + Pairs.rows * wide * DType.INT32.bytes
        return aligned(size)

    def _sizes(self, graph: Lowered) -> tuple[int, int]:
        """The pairs of a row, and the columns with those that fill up."""
        assert self.micro.pairs is not None
        _, columns, k = graph.type(self.node.inputs[1]).shape
        return -(-k // 2), -(-columns // self.micro.pairs.columns) * self.micro.pairs.columns

    def code(self, graph: Lowered, epilogue: Epilogue) -> Code:
        op, node, (pairs, wide) = self.node.op, self.node, self._sizes(graph)
        assert isinstance(op, BatchMatmul)
        assert self.micro.pairs is not None
        (batches, rows, k), (others, columns, _) = (of.shape for of in graph.types(node.inputs))
        image, other_image = rows * k * (batches > 1), columns * k * (others > 1)
        axes = [Axis(f"i{dim}", (size,)) for dim, size in enumerate(graph.type(node.output).shape)]
        other = _paired(
            "other", "i2", 2 * wide, f"in1[i0 * {other_image} + i2 * {k}", k, op.other_zero_point
        )
        row = _paired("row", f"r * {pairs}", 2, f"in0[i0 * {image} + i1 * {k}", k, op.zero_point)
        filled = For("i2", 0, columns, other)
        shares = Shares(axes[0].count, rows, epilogue.threads, Pairs.rows)
        scratch = own_scratch(self._each(graph), epilogue)
        return [
            Declare("int16_t *const", "other", f"(int16_t *)(void *){scratch}"),
            Declare("int16_t *const", "row", f"other + {2 * pairs * wide}"),
            Declare(
                "int32_t *const", "sums", f"(int32_t *)(void *)(row + {2 * pairs * Pairs.rows})"
            ),
            # Columns that fill up: nothing of theirs is stored.
            For("i", 0, 2 * pairs * wide, Assign("other[i]", 0)) if wide > columns else None,
            shares.ends,
            shares.of_blocks(
                filled,
                others > 1,
                [
                    Comment("After the last row, the last one again."),
                    For(
                        *("r", 0, Pairs.rows),
                        let("i1", f"q + r < {rows} ? q + r : {rows - 1}"),
                        row,
                    ),
                    CallStatement(
                        self.micro.pairs.write(epilogue), "row", "other", pairs, wide, "sums"
                    ),
                ],
                Declare("const int32_t *const", "acc", f"sums + (i1 - q) * {wide}"),
                _steps_of_a_row(graph, node, epilogue, axes, self.micro.vectors),
            ),
        ]


def _paired(to: str, place: str, step: int, value: str, k: int, zero_point: int) -> Code:
    """The k values of a row as int16, in pairs that are ``step`` apart, the first one at the pair
    ``place``. An odd one is filled up with 0."""

    def word(pair: str | int, half: int, at: str | int | None) -> Assign:
        number = 0 if at is None else f"(int16_t)({value} + {at}]{less(zero_point)})"
        return Assign(f"{to}[2 * ({place}) + {pair} * {step} + {half}]", number)

    return [
        For("p", 0, k // 2, word("p", 0, "2 * p"), word("p", 1, "2 * p + 1")),
        [word(k // 2, 0, k - 1), word(k // 2, 1, None)] if k % 2 else None,
    ]


def _steps_of_a_row(
    graph: Lowered, node: Node, epilogue: Epilogue, axes: list[Axis], vectors: Vectors | None
) -> Code:
    """The steps on a row of sums, ``acc``: in lanes, or one sum after the other."""
    at = stored_index(graph.stored(node.output), axes)
    chain = StepChain(DType.INT32, node.epilogue)
    lanes: Code = None
    if vectors:
        lanes = write_lanes(vectors, epilogue, chain, "i2", at, axes)
    return lanes or nest(axes[2:], epilogue.write("acc[i2]", DType.INT32, axes))


KERNELS = (
    *(
        Kernel(
            name=f"batch_matmul_bytes_{micro.name}",
            op=BatchMatmul,
            isa=micro.name,
            prepare=functools.partial(ByteMatmul.of, micro=micro),
            split=True,
        )
        for micro in MICROKERNELS
        if micro.bytes
    ),
    *(
        Kernel(
            name=f"batch_matmul_pairs_{micro.name}",
            op=BatchMatmul,
            isa=micro.name,
            prepare=functools.partial(PairedMatmul.of, micro=micro),
            split=True,
        )
        for micro in MICROKERNELS
        if micro.pairs
    ),
    *(
        Kernel(
            name=f"batch_matmul_widened_{micro.name}",
            op=BatchMatmul,
            isa=micro.name,
            prepare=functools.partial(WidenedMatmul.of, vectors=micro.vectors),
            split=True,
        )
        for micro in MICROKERNELS
        if micro.base is None and micro.pairs is None and micro.bytes is None
    ),
    Kernel(
        name="batch_matmul_scalar",
        op=BatchMatmul,
        prepare=written(_code, result_at_strides),
    ),
)
