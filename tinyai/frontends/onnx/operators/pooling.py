"""Poolings, means, sums and extremes."""

from __future__ import annotations

from dataclasses import replace

from tinyai.frontends.onnx import windows
from tinyai.frontends.onnx.operators.rows import reads
from tinyai.frontends.onnx.reader import Site, fixed_sizes
from tinyai.source import Expr, require


@reads("MaxPool")
def _max_pool(site: Site) -> Expr:
    site.attr("storage_order")  # of the places, which nobody reads
    return pooled(site, site.expr(0), "max_pool")


@reads("AveragePool")
def _average_pool(site: Site) -> Expr:
    return pooled(site, site.expr(0), "avg_pool")


def pooled(site: Site, data: Expr, operator: str, *, channels_last: bool = False) -> Expr:
    """Over the windows that the node's attributes describe."""
    kernel, sizes = [int(size) for size in site.attr("kernel_shape") or ()], fixed_sizes(data)
    dims, first = len(kernel), 1 if channels_last else 2
    known = (1, 2, 3) if operator == "max_pool" else (1, 2)
    require(dims in known, "dimensions of pooling", dims, f"1 to {len(known)}")
    require(len(sizes) == dims + 2, "dimensions of the data", len(sizes), dims + 2)
    window = windows.WindowAttributes.of(site, kernel)
    if window.auto.startswith("SAME") and channels_last:
        # ONNX Runtime 1.31 computes other pads here than for channels first.
        site.refuse("auto_pad and channels_last", "one of them", "explicit pads")
    averages, image = operator == "avg_pool", sizes[first : first + dims]
    pads = windows.pads_of_pool(site, window, image, averages=averages)
    site.attr("ceil_mode")
    counted = {"count_include_pad": bool(site.attr("count_include_pad", 0))} if averages else {}
    shape = list(sizes)
    shape[first : first + dims] = window.counts(image, pads)
    axes = "DHW"[-dims:]
    return site.call(
        f"{operator}{dims}d",
        data,
        of=replace(data.type, shape=tuple(shape)),
        kernel=tuple(kernel),
        strides=window.strides,
        padding=tuple(pads),
        dilation=window.dilations,
        ceil_mode=False,
        layout=f"N{axes}C" if channels_last else f"NC{axes}",
        out_layout="",
        **counted,
    )


@reads("GlobalAveragePool", "GlobalMaxPool")
def _of_images(site: Site) -> Expr:
    name = "avg" if site.node.op_type == "GlobalAveragePool" else "max"
    return of_whole_images(site, site.expr(0), name)


def of_whole_images(site: Site, data: Expr, name: str, *, channels_last: bool = False) -> Expr:
    """The average, "avg", or the largest, "max", of each channel."""
    sizes, axes = fixed_sizes(data), "HW"
    require(len(sizes) > 2, "dimensions of the data", len(sizes), "3 and more")
    rank, first = len(sizes), 1 if channels_last else 2
    inside = tuple(range(first, first + rank - 2))
    of = replace(data.type, shape=tuple(1 if d in inside else n for d, n in enumerate(sizes)))
    if rank == 4:
        layout = f"N{axes}C" if channels_last else f"NC{axes}"
        return site.call(f"global_{name}_pool2d", data, of=of, layout=layout, out_layout="")
    operator = "mean" if name == "avg" else "max"
    return site.call(operator, data, of=of, axis=inside, keepdims=True, exclude=False)


@reads("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2")
def _reduction(site: Site) -> Expr:
    data = site.expr(0)
    sizes = fixed_sizes(data)
    given = site.attr("axes") or ()
    axes = [int(axis) for axis in (site.value(1, "axes") if site.has(1) else given)]
    idle, keep = site.attr("noop_with_empty_axes", 0), bool(site.attr("keepdims"))
    rank = len(sizes)
    require(all(-rank <= axis < rank for axis in axes), "axes", axes, f"of {rank} dimensions")
    along = tuple(sorted({axis % rank for axis in axes}))
    if not along and (idle or not rank):
        return data
    along = along or tuple(range(rank))
    whole = [1 if d in along else n for d, n in enumerate(sizes)]
    shape = whole if keep else [n for d, n in enumerate(sizes) if d not in along]
    of, operator = replace(data.type, shape=tuple(shape)), site.node.op_type.removeprefix("Reduce")
    return site.call(operator.lower(), data, of=of, axis=along, keepdims=keep, exclude=False)


@reads("ArgMax", "ArgMin")
def _place(site: Site) -> Expr:
    data, axis = site.expr(0), int(site.attr("axis"))
    rank = len(fixed_sizes(data))
    require(-rank <= axis < rank, "axis", axis, f"one of {rank} dimensions")
    return site.call(
        site.node.op_type.lower(),
        data,
        axis=(axis % rank,),
        keepdims=bool(site.attr("keepdims")),
        exclude=False,
        select_last_index=bool(site.attr("select_last_index")),
    )
