"""Operators that move values and compute nothing: reshape, transpose, concatenate, slice, pad, and
the source operators that are made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tinyai.builders import Lowering, OperatorRow
from tinyai.ir import Array, DType, Example, Move, Op, Type
from tinyai.source import Call, Tuple, constant_of, fixed_type, require, sources
from tinyai.traits import NONE, ChannelMap, Dims, Range


@dataclass(frozen=True)
class Reshape(Move):
    """The same elements in the same order under another shape. Costs nothing inside a region."""

    name: ClassVar[str] = "reshape"
    dims: ClassVar[Dims] = Dims.REGROUPED
    shape: tuple[int, ...]

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        result = Type(self.shape, x.dtype)
        if result.elements != x.elements:
            raise ValueError(f"reshape of {x} to {self.shape}")
        return result

    def reference(self, *inputs: Array) -> Array:
        return inputs[0].reshape(self.shape)

    def permuted(self, dims: Sequence[int], shape: tuple[int, ...]) -> Op:
        return replace(self, shape=shape)

    def channel_map(self, *inputs: Type) -> ChannelMap | None:
        """Of what keeps the last dimension, or makes one of it and of those in front."""
        (data,) = inputs
        count = max(data.channels, 1)
        if not (data.shape and self.shape) or self.shape[-1] % count:
            return None
        channels = np.arange(self.shape[-1])
        return ChannelMap((channels % count,), pieces=channels // count)

    def with_channels(self, kept: Array, count: int) -> Op:
        return replace(self, shape=(*self.shape[:-1], count))

    @staticmethod
    def examples() -> Iterator[Example]:
        yield Reshape((6, 4)), (Type((2, 3, 4), DType.INT8),)
        yield Reshape((1, 1, 5)), (Type((5,), DType.FLOAT32),)


@dataclass(frozen=True)
class Transpose(Move):
    """Dimension i of the result is dimension ``axes[i]`` of the input. Any type."""

    name: ClassVar[str] = "transpose"
    dims: ClassVar[Dims] = Dims.PERMUTED
    axes: tuple[int, ...]

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        if sorted(self.axes) != list(range(len(x.shape))):
            raise ValueError(f"axes {self.axes} do not permute {x}")
        return Type(tuple(x.shape[axis] for axis in self.axes), x.dtype)

    def reference(self, *inputs: Array) -> Array:
        return inputs[0].transpose(self.axes)

    def channel_map(self, *inputs: Type) -> ChannelMap | None:
        stays = self.axes and self.axes[-1] == len(self.axes) - 1
        return ChannelMap((np.arange(inputs[0].channels),)) if stays else None

    @staticmethod
    def examples() -> Iterator[Example]:
        yield Transpose((0, 2, 3, 1)), (Type((2, 3, 4, 5), DType.INT8),)
        yield Transpose((1, 0)), (Type((7, 3), DType.INT32),)
        yield Transpose((2, 0, 1)), (Type((2, 3, 4), DType.INT64),)
        yield Transpose((1, 0, 2)), (Type((2, 3, 4), DType.INT8),)


@dataclass(frozen=True)
class Concatenate(Move):
    """The inputs one after the other along ``axis``. Any type, the same for all."""

    name: ClassVar[str] = "concatenate"
    keeps_scale: ClassVar[bool] = False  # its parts may have scales of their own
    dims: ClassVar[Dims] = Dims.ALIGNED
    axis: int

    def infer(self, *inputs: Type) -> Type:
        first, *others = inputs
        if not 0 <= self.axis < len(first.shape):
            raise ValueError(f"axis {self.axis} of {first}")
        for other in others:
            around = [s[: self.axis] + s[self.axis + 1 :] for s in (first.shape, other.shape)]
            same = other.dtype == first.dtype and len(other.shape) == len(first.shape)
            if not same or around[0] != around[1]:
                raise ValueError(f"{first} and {other} along axis {self.axis}")
        length = sum(x.shape[self.axis] for x in inputs)
        shape = (*first.shape[: self.axis], length, *first.shape[self.axis + 1 :])
        return Type(shape, first.dtype)

    def reference(self, *inputs: Array) -> Array:
        return np.concatenate(inputs, self.axis)

    def permuted(self, dims: Sequence[int], shape: tuple[int, ...]) -> Op:
        return replace(self, axis=dims.index(self.axis))

    def bound_dims(self) -> tuple[int, ...]:
        return (self.axis,)

    def channel_map(self, *inputs: Type) -> ChannelMap:
        counts = [of.channels for of in inputs]
        if self.axis < len(inputs[0].shape) - 1:
            return ChannelMap((np.arange(counts[0]),) * len(inputs))
        places = []
        for number, count in enumerate(counts):
            place = np.full(sum(counts), NONE)
            begin = sum(counts[:number])
            place[begin : begin + count] = np.arange(count)
            places.append(place)
        return ChannelMap(tuple(places))

    @staticmethod
    def examples() -> Iterator[Example]:
        def types(dtype: DType, *shapes: tuple[int, ...]) -> tuple[Type, ...]:
            return tuple(Type(shape, dtype) for shape in shapes)

        yield Concatenate(1), types(DType.INT8, (2, 3, 4), (2, 1, 4), (2, 5, 4))
        yield Concatenate(0), types(DType.INT32, (2, 3), (1, 3))
        yield Concatenate(2), types(DType.INT8, (1, 2, 3), (1, 2, 2))
        yield Concatenate(0), types(DType.INT8, (3,))


@dataclass(frozen=True)
class Slice(Move):
    """Element i of a dimension of the result is element begin + i·stride of the input."""

    name: ClassVar[str] = "strided_slice"
    dims: ClassVar[Dims] = Dims.ALIGNED
    begin: tuple[int, ...]
    strides: tuple[int, ...]
    shape: tuple[int, ...]

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        if not len(x.shape) == len(self.begin) == len(self.strides) == len(self.shape):
            raise ValueError(f"slice of {x} with {len(self.begin)} dimensions")
        for size, begin, stride, count in zip(
            x.shape, self.begin, self.strides, self.shape, strict=True
        ):
            if not (0 <= begin < size and 0 <= begin + stride * (count - 1) < size):
                raise ValueError(f"slice {self} reaches outside of {x}")
        return Type(self.shape, x.dtype)

    def reference(self, *inputs: Array) -> Array:
        rows = zip(self.begin, self.strides, self.shape, strict=True)
        index = np.ix_(*(begin + stride * np.arange(count) for begin, stride, count in rows))
        result: Array = inputs[0][index]
        return result

    def permuted(self, dims: Sequence[int], shape: tuple[int, ...]) -> Op:
        begin, strides = (tuple(each[dim] for dim in dims) for each in (self.begin, self.strides))
        return replace(self, begin=begin, strides=strides, shape=shape)

    def bound_dims(self) -> tuple[int, ...]:
        """One that only gets shorter at its end is not: it is no part of another one anyway."""
        rows = enumerate(zip(self.begin, self.strides, strict=True))
        return tuple(dim for dim, row in rows if row != (0, 1))

    def channel_map(self, *inputs: Type) -> ChannelMap | None:
        if not self.shape:
            return None
        return ChannelMap((self.begin[-1] + self.strides[-1] * np.arange(self.shape[-1]),))

    def with_channels(self, kept: Array, count: int) -> Op | None:
        if self.strides[-1] != 1:
            return None
        begin = int(kept[: self.begin[-1]].sum())
        return replace(self, begin=(*self.begin[:-1], begin), shape=(*self.shape[:-1], count))

    def without_channels(self) -> Op:
        return replace(self, begin=(*self.begin[:-1], 0), strides=(*self.strides[:-1], 1))

    @staticmethod
    def examples() -> Iterator[Example]:
        yield Slice((0, 1, 2), (1, 1, 1), (2, 3, 2)), (Type((2, 5, 4), DType.INT8),)
        yield Slice((4, 0), (-2, 3), (3, 2)), (Type((6, 5), DType.INT32),)


@dataclass(frozen=True)
class Pad(Op):
    """The input with a border of ``value``; ``widths`` holds (before, after) of a dimension."""

    name: ClassVar[str] = "pad"
    keeps_scale: ClassVar[bool] = True
    dims: ClassVar[Dims] = Dims.ALIGNED
    widths: tuple[tuple[int, int], ...]
    value: float = 0

    def infer(self, *inputs: Type) -> Type:
        (x,) = inputs
        if len(self.widths) != len(x.shape) or any(min(width) < 0 for width in self.widths):
            raise ValueError(f"pad of {x} by {self.widths}")
        if not x.dtype.is_float and not x.dtype.range[0] <= self.value <= x.dtype.range[1]:
            raise ValueError(f"pad value {self.value} is no {x.dtype}")
        shape = tuple(d + sum(width) for d, width in zip(x.shape, self.widths, strict=True))
        return Type(shape, x.dtype)

    def reference(self, *inputs: Array) -> Array:
        return np.pad(inputs[0], self.widths, constant_values=inputs[0].dtype.type(self.value))

    def permuted(self, dims: Sequence[int], shape: tuple[int, ...]) -> Op:
        return replace(self, widths=tuple(self.widths[dim] for dim in dims))

    def bound_dims(self) -> tuple[int, ...]:
        return tuple(dim for dim, width in enumerate(self.widths) if any(width))

    def channel_map(self, *inputs: Type) -> ChannelMap | None:
        stays = self.widths and self.widths[-1] == (0, 0)
        return ChannelMap((np.arange(inputs[0].channels),)) if stays else None

    def infer_range(
        self, types: Sequence[Type], data: Sequence[Range], constants: Sequence[Array | None]
    ) -> Range:
        apart = self.channel_map(*types) is not None
        inside = data[0] if apart else data[0].spread(self.infer(*types).channels)
        return inside.hull(self.value) if np.any(self.widths) else inside

    @staticmethod
    def examples() -> Iterator[Example]:
        yield Pad(((0, 0), (1, 2), (0, 1), (0, 0)), -7), (Type((1, 3, 4, 2), DType.INT8),)
        yield Pad(((2, 0),), 0.5), (Type((5,), DType.FLOAT32),)


def _chain(call: Call, lowering: Lowering, *ops: Op) -> str:
    """The first argument through ``ops``, one after the other."""
    value = lowering.tensor(call["data"])
    for op in ops:
        value = lowering.builder.add(op, [value], sources=sources(call))
    return value


def lower_reshape(call: Call, lowering: Lowering) -> str:
    """reshape: the type of the result says it all."""
    shape = fixed_type(call.type, "result").shape
    if shape == lowering.type(call["data"]).shape:
        return lowering.tensor(call["data"])
    return _chain(call, lowering, Reshape(shape))


def lower_transpose(call: Call, lowering: Lowering) -> str:
    rank = len(lowering.type(call["data"]).shape)
    axes = call.attrs["axes"]
    order = tuple(int(axis) % rank for axis in axes) if axes else tuple(reversed(range(rank)))
    if order == tuple(range(rank)):
        return lowering.tensor(call["data"])
    return _chain(call, lowering, Transpose(order))


def _parts(call: Call, lowering: Lowering) -> list[str]:
    """The tensors of an argument that is a tuple."""
    parts = call["parts"]
    require(isinstance(parts, Tuple), "argument", "a tuple made elsewhere", "a tuple made here")
    assert isinstance(parts, Tuple)
    inputs = [lowering.tensor(part) for part in parts.fields]
    require(len(inputs) > 0, "parts", 0, "at least one")
    return inputs


def lower_concatenate(call: Call, lowering: Lowering) -> str:
    inputs = _parts(call, lowering)
    axis = int(call.attrs["axis"]) % len(lowering.builder.type(inputs[0]).shape)
    return lowering.builder.add(Concatenate(axis), inputs, sources=sources(call))


def lower_stack(call: Call, lowering: Lowering) -> str:
    """stack: each part with one dimension more, then one after the other."""
    inputs = _parts(call, lowering)
    shape = lowering.builder.type(inputs[0]).shape
    axis = int(call.attrs["axis"]) % (len(shape) + 1)
    spread = Reshape((*shape[:axis], 1, *shape[axis:]))
    wide = [lowering.builder.add(spread, [part], sources=sources(call)) for part in inputs]
    return lowering.builder.add(Concatenate(axis), wide, sources=sources(call))


def lower_split(call: Call, lowering: Lowering) -> tuple[str, ...]:
    """split: a slice for each field of the result, as long as its type says."""
    value = lowering.tensor(call["data"])
    rank = len(lowering.builder.type(value).shape)
    axis = int(call.attrs["axis"]) % rank
    begin, fields = [0] * rank, []
    for of in call.types:
        shape = fixed_type(of, "result").shape
        op = Slice(tuple(begin), (1,) * rank, shape)
        fields.append(lowering.builder.add(op, [value], sources=sources(call)))
        begin[axis] += shape[axis]
    return tuple(fields)


def lower_reverse(call: Call, lowering: Lowering) -> str:
    """reverse: a slice from the last element backwards."""
    shape = lowering.type(call["data"]).shape
    begin, strides = [0] * len(shape), [1] * len(shape)
    axis = int(call.attrs["axis"]) % len(shape)
    begin[axis], strides[axis] = shape[axis] - 1, -1
    return _chain(call, lowering, Slice(tuple(begin), tuple(strides), shape))


def lower_strided_slice(call: Call, lowering: Lowering) -> str:
    data = lowering.type(call["data"])
    shape = fixed_type(call.type, "result").shape
    rank = len(data.shape)
    begins = [int(v) for v in call.attrs["begin"]]
    axes = call.attrs.get("axes")
    targets = [int(a) % rank for a in axes] if axes is not None else list(range(len(begins)))
    given = [int(v) for v in call.attrs["strides"] or ()]
    by_size = call.attrs["slice_mode"] == "size"
    begin, strides = [0] * rank, [1] * rank
    for position, axis in enumerate(targets):
        # TVM takes strides that are not given for 1.
        stride = 1 if by_size or position >= len(given) else given[position]
        size, start = data.shape[axis], begins[position]
        start += size if start < 0 else 0
        begin[axis] = min(max(start, 0), size - 1) if stride < 0 else max(start, 0)
        strides[axis] = stride
    op = Slice(tuple(begin), tuple(strides), shape)
    try:
        op.infer(data)
    except ValueError as error:
        require(False, "slice", error, "elements that exist")
    return _chain(call, lowering, op)


def lower_pad(call: Call, lowering: Lowering) -> str:
    """pad by a constant."""
    require(call.attrs["mode"] == "constant", "mode", call.attrs["mode"], "constant")
    value = constant_of(call, "value", "pad value") if len(call.args) > 1 else np.zeros(())
    require(value.size == 1, "pad value", value.shape, "one number")
    widths = tuple((int(before), int(after)) for before, after in call.attrs["widths"])
    require(all(min(width) >= 0 for width in widths), "pad width", widths, ">= 0")
    number = float(value.reshape(-1)[0])
    dtype = lowering.type(call["data"]).dtype
    require(
        dtype.is_float or (dtype.range[0] <= number <= dtype.range[1] and number.is_integer()),
        "pad value",
        number,
        f"a value of {dtype}",
    )
    return _chain(call, lowering, Pad(widths, number))


def lower_layout_transform(call: Call, lowering: Lowering) -> str:
    """layout_transform between orders of the same plain axes (no blocked layouts)."""
    source, target = str(call.attrs["source"]), str(call.attrs["target"])
    require(
        sorted(source) == sorted(target) and source.isalpha() and source.isupper(),
        "layouts",
        f"{source} to {target}",
        "the same plain axes in another order",
    )
    return _chain(call, lowering, Transpose(tuple(source.index(axis) for axis in target)))


# The dimensions of an image whose height and width are cut into blocks of Y by X.
_BLOCKS = {"NCHW": "NCHYWX", "NHWC": "NHYWXC"}


def _blocks(call: Call, image: tuple[int, ...], channels: str) -> tuple[str, str, dict[str, int]]:
    """Dimensions of ``image``, which is in blocks, before and after: apart, and with block and
    channel in one, in the order of ``channels``; and how large each is."""
    layout, block = str(call.attrs["layout"]), int(call.attrs["block_size"])
    require(layout in _BLOCKS, "layout", layout, ", ".join(_BLOCKS))
    sizes = dict(zip(layout, image, strict=True)) | {"Y": block, "X": block}
    fits = sizes["H"] % block == 0 and sizes["W"] % block == 0
    require(fits, "height and width", image, f"multiples of {block}")
    sizes |= {"H": sizes["H"] // block, "W": sizes["W"] // block}
    return _BLOCKS[layout], layout.replace("C", channels), sizes


def _rearranged(
    call: Call, lowering: Lowering, source: str, target: str, sizes: dict[str, int]
) -> str:
    """The argument with its dimensions apart, brought from one order to another, in the result's
    shape."""
    return _chain(
        call,
        lowering,
        Reshape(tuple(sizes[dim] for dim in source)),
        Transpose(tuple(source.index(dim) for dim in target)),
        Reshape(fixed_type(call.type, "result").shape),
    )


def lower_depth_to_space(call: Call, lowering: Lowering) -> str:
    """depth_to_space: a channel holds a block's place and then a channel (DCR), or reversed."""
    channels = "YXC" if call.attrs["mode"] == "DCR" else "CYX"
    image = fixed_type(call.type, "result").shape
    blocks, joined, sizes = _blocks(call, image, channels)
    return _rearranged(call, lowering, joined, blocks, sizes)


def lower_space_to_depth(call: Call, lowering: Lowering) -> str:
    """space_to_depth: a channel of the result holds a block's place and then a channel."""
    blocks, joined, sizes = _blocks(call, lowering.type(call["data"]).shape, "YXC")
    return _rearranged(call, lowering, blocks, joined, sizes)


OPERATORS = {
    "pad": OperatorRow(lower_pad, "data value", "mode widths"),
    "concatenate": OperatorRow(lower_concatenate, "parts", "axis"),
    "strided_slice": OperatorRow(lower_strided_slice, "data", "begin strides axes slice_mode"),
    "split": OperatorRow(lower_split, "data", "axis"),
    "stack": OperatorRow(lower_stack, "parts", "axis"),
    "reverse": OperatorRow(lower_reverse, "data", "axis"),
    "depth_to_space": OperatorRow(lower_depth_to_space, "data", "block_size layout mode"),
    "space_to_depth": OperatorRow(lower_space_to_depth, "data", "block_size layout"),
    "transpose": OperatorRow(lower_transpose, "data", "axes"),
    "layout_transform": OperatorRow(lower_layout_transform, "data", "source target"),
    "reshape": OperatorRow(lower_reshape, compute=False),
}
