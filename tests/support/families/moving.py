"""Operators that move values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relay

from tests.support.cases import (
    INTEGERS,
    Family,
    Input,
    Suite,
    const,
    nchw_or_nhwc,
    random,
)


def move_family() -> Family:
    family = Family()
    x = Input((2, 5, 6, 7), "int8")

    def add(name: str, build: Callable[..., relay.Expr], of: Any = x) -> None:
        family.add(name, of, build)

    widths = ((0, 0), (1, 2), (0, 3), (0, 0))
    for dtype, value in (("int8", 0), ("int8", -128), ("uint8", 255), ("int32", 70000)):
        add(
            f"pad {dtype} by {value}",
            lambda x, v=value: relay.nn.pad(x, widths, v),
            Input((2, 5, 6, 7), dtype),
        )
    add("pad by a constant of its type", lambda x: relay.nn.pad(x, widths, const(9, "int8")))
    add("pad a vector in front", lambda x: relay.nn.pad(x, ((2, 0),), 1), Input((3,), "int64"))
    add("pad by nothing", lambda x: relay.nn.pad(x, ((0, 0),) * 4, 1))

    for name, indices, attrs in (
        ("in order", [0, 1, 3], {"axis": 1}),
        ("one index", 2, {"axis": -1}),
        ("shuffled", [0, 3, 1, 4, 2, 2, 2], {"axis": 1}),
        ("backwards, in two dimensions", [[4, 3], [2, 1]], {"axis": 1}),
        ("beyond the ends", [-1, 9, 1], {"axis": 1}),
        ("round and round", [-1, 9, 1], {"axis": 1, "mode": "wrap"}),
        ("of all elements", [5, 7, 9, 0], {}),
        ("fast", [1, 0], {"axis": 0, "mode": "fast"}),
        ("rows of an image", [0, 0, 1, 5, 5, 3], {"axis": 2}),
        ("columns of an image", [6, 6, 0, 1, 9], {"axis": -1}),
        ("a column of an image", [[4]], {"axis": 3}),
    ):
        add(
            f"take {name}",
            lambda x, i=indices, a=attrs: relay.take(x, const(np.array(i), "int32"), **a),
        )

    def part(name: str, *args: Any, **attrs: Any) -> None:
        add(f"slice {name}", lambda x: relay.strided_slice(x, *args, **attrs))

    part("first axes", [0, 1], [2, 4])
    part("negative begin and end", [0, -4, -3], [2, -1, -1])
    part("beyond the end", [1, 2], [100, 100])
    part("strided", [0, 1, 0, 1], [2, 5, 6, 7], [1, 2, 3, 4])
    part("one stride for three begins", [0, 1, 1], [2, 4, 5], [2])
    part("backwards", [1, 4, 5, 6], [-3, -6, -7, -8], [-1, -2, -1, -3])
    part("backwards from the end", [1, -1], [-3, -100], [-1, -2])
    part("backwards from beyond", [1, 50, 9], [-10, 0, 1], [-1, -3, -2])
    part("of axes", [1, 2], [4, 7], [2, 1], axes=[1, 3])
    part("of axes in another order", [2, 1], [7, 4], [3, 1], axes=[3, 0])
    part("by size", [0, 1, 2], [1, 3, 4], slice_mode="size")
    part("by size to the end", [0, -3, 1], [-1, -1, 2], slice_mode="size")
    part("of everything", [0], [2])

    y = Input((2, 3, 6, 7), "int8")
    z = Input((2, 5, 6, 1), "int8")
    constant = random("concatenate", (2, 4, 6, 7))
    join = relay.concatenate
    add("concatenate two", lambda x, y: join([x, y], 1), (x, y))
    add("concatenate three on the last axis", lambda x, z: join([z, x, z], -1), (x, z))
    add("concatenate one", lambda x: join([x], 2))
    add("concatenate a tensor and itself", lambda x: join([x, x], 0))
    add("concatenate with a constant", lambda x: join([x, relay.const(constant)], 1))
    add("concatenate a constant first", lambda x: join([relay.const(constant), x], axis=-3))
    wide = Input((3, 2), "int64")
    add("concatenate int64", lambda a: join([a, a], 1), wide)

    for axes in (None, (0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (1, 0, 2, 3), (0, -1, 1, 2)):
        add(f"transpose {axes}", lambda x, a=axes: relay.transpose(x, a))
    add("transpose int32", lambda x: relay.transpose(x), Input((3, 4, 5), "int32"))
    add("transpose to itself", lambda x: relay.transpose(x, (0, 1, 2, 3)))
    for source, target in (("NCHW", "NHWC"), ("NHWC", "NCHW"), ("NCHW", "CHWN")):
        add(
            f"layout_transform {source} to {target}",
            lambda x, s=source, t=target: relay.layout_transform(x, s, t),
        )
    ones = Input((1, 5, 1, 7, 1), "int32")
    add("squeeze all", relay.squeeze, ones)
    add("squeeze axes", lambda x: relay.squeeze(x, [0, -1]), ones)
    add("expand_dims", lambda x: relay.expand_dims(x, 1, 2))
    add("expand_dims at the end", lambda x: relay.expand_dims(x, -1))
    for shape in ((-1, 7), (0, -1), (2, 30, 7), (0, 0, -1), (-2,), (-3, -2), (-4, 1, 2, -2)):
        add(f"reshape {shape}", lambda x, s=shape: relay.reshape(x, s))
    add("batch_flatten", relay.nn.batch_flatten)
    add(
        "reshape of a computed value",
        lambda x: relay.reshape(relay.add(x, const(1, "int8")), (-1,)),
    )
    return family


def split_family() -> Family:
    """Splits, and what is made of reshapes, transposes and copies."""
    family = Family()
    x = Input((2, 5, 6, 8), "int8")

    def add(name: str, build: Callable[..., relay.Expr], of: Any = x) -> None:
        family.add(name, of, build)

    def split(name: str, sections: Any, axis: int, order: tuple[int, ...], of: Any = x) -> None:
        """The fields of a split, as many as ``order`` names, joined in its order."""

        def build(x: relay.Expr) -> relay.Expr:
            parts = relay.split(x, sections, axis)
            return relay.concatenate([parts[i] for i in order], axis)

        add(f"split {name}", build, of)

    split("in two", 2, 3, (1, 0))
    split("in four, backwards", 4, -1, (3, 2, 1, 0))
    split("in one", 1, 0, (0, 0))
    split("at indices", (1, 4), 1, (2, 0, 1))
    split("at one index of a negative axis", (2,), -2, (1, 0))
    split("with dead fields", 3, 2, (2,))
    split("with a field read twice", 2, 0, (1, 1, 0))
    for dtype in INTEGERS[1:]:
        split(dtype, 2, 1, (1, 0), Input((3, 4), dtype))
    add("split of a split", lambda x: relay.split(relay.split(x, 2, 3)[1], 2, 2)[0])
    add(
        "sum of a split's fields",
        lambda x: relay.add(*(relay.split(x, 2, 1)[i] for i in (1, 0))),
        Input((3, 4), "int32"),
    )

    y = Input((2, 5, 6, 8), "int8")
    constant = random("stack", (2, 5, 6, 8))
    for axis in (0, 2, -1):
        add(f"stack on {axis}", lambda x, y, a=axis: relay.stack([x, y, x], a), (x, y))
    add("stack one", lambda x: relay.stack([x], 1))
    add("stack scalars", lambda a, b: relay.stack([a, b], 0), (Input((), "int32"),) * 2)
    add("stack with a constant", lambda x: relay.stack([relay.const(constant), x], 1))
    for axis in (0, 2, -1):
        add(f"reverse {axis}", lambda x, a=axis: relay.reverse(x, a))
    add("copy", relay.copy)
    for shape in ((2, 5, 6, 8), (3, 2, 5, 6, 8)):
        add(f"broadcast_to {shape}", lambda x, s=shape: relay.broadcast_to(x, s))
    row = Input((3, 1, 4), "int16")
    add("broadcast_to of ones", lambda x: relay.broadcast_to(x, (2, 3, 5, 4)), row)
    add("broadcast_to of a scalar", lambda x: relay.broadcast_to(x, (2, 3)), Input((), "int64"))
    for reps in ((2,), (1, 1), (3, 1, 2), (2, 1, 1, 2, 3)):
        add(f"tile {reps}", lambda x, r=reps: relay.tile(x, r), row)
    for copies, axis in ((2, 0), (3, -1), (1, 1), (4, 1)):
        add(f"repeat {copies} on {axis}", lambda x, c=copies, a=axis: relay.repeat(x, c, a), row)

    for layout in ("NCHW", "NHWC"):
        for block, channels in ((2, 12), (3, 9), (1, 3)):
            of = Input(nchw_or_nhwc(layout, 2, channels, 2, 5), "int8")
            for mode in ("DCR", "CRD"):
                add(
                    f"depth_to_space {mode} {block} {layout}",
                    lambda x, a=(block, layout, mode): relay.nn.depth_to_space(x, *a),
                    of,
                )
            add(
                f"space_to_depth {block} {layout}",
                lambda x, a=(block, layout): relay.nn.space_to_depth(x, *a),
                Input(nchw_or_nhwc(layout, 2, 3, 2 * block, 3 * block), "uint8"),
            )
    return family


RESIZES = ((7, 14), (5, 15), (14, 7), (5, 8), (11, 4), (4, 6), (6, 4), (10, 25), (1, 3), (9, 2))
ROUNDINGS = ("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
COORDINATES = (
    "half_pixel",
    "asymmetric",
    "align_corners",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
)


def resize_family() -> Family:
    family = Family()

    def add(layout: str, sizes: Any, mode: str, rounding: str, dtype: str = "int8") -> None:
        (height, to_height), (width, to_width) = sizes
        family.add(
            f"resize {height}x{width} to {to_height}x{to_width} {mode} {rounding} {layout} {dtype}",
            Input(nchw_or_nhwc(layout, 1, 2, height, width), dtype),
            lambda x: relay.image.resize2d(
                x,
                (to_height, to_width),
                layout=layout,
                method="nearest_neighbor",
                coordinate_transformation_mode=mode,
                rounding_method=rounding,
            ),
        )

    for mode, rounding in itertools.product(COORDINATES, ROUNDINGS):
        for number, sizes in enumerate(zip(RESIZES[::2], RESIZES[1::2], strict=True)):
            whole = any(after % before == 0 for before, after in sizes)
            if whole and mode == "asymmetric" and rounding not in ("", "floor"):
                continue  # where TVM's CPU does not look at the rounding
            add(("NHWC", "NCHW")[number % 2], sizes, mode, rounding)
    for dtype in ("uint8", "int16"):
        add("NHWC", ((3, 6), (4, 12)), "half_pixel", "", dtype)
    add("NCHW", ((3, 3), (4, 4)), "asymmetric", "floor")
    add("NCHW", ((5, 1), (4, 1)), "half_pixel", "ceil")
    for layout in ("NCHW", "NHWC"):
        of = Input(nchw_or_nhwc(layout, 2, 3, 4, 5), "int8")
        for scales in ((2, 2), (3, 1), (1.5, 2.4)):
            for aligned in (False, True):
                attrs = {"layout": layout, "align_corners": aligned}
                family.add(
                    f"upsampling {scales} {layout}{' aligned' if aligned else ''}",
                    of,
                    lambda x, s=scales, a=attrs: relay.nn.upsampling(x, *s, **a),
                )
    return family


SUITE = Suite(
    {
        "move": move_family,
        "split": split_family,
        "resize": resize_family,
    }
)
