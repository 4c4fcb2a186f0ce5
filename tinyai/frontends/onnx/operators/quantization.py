"""Pairs: what quantizes and dequantizes."""

from __future__ import annotations

from dataclasses import replace

from tinyai.frontends.onnx.facts import dtype_of
from tinyai.frontends.onnx.operators.rows import pair_of, reads, reads_contrib
from tinyai.frontends.onnx.reader import Site
from tinyai.frontends.source_model import DYNAMIC
from tinyai.source import Constant, Expr, Refusal, require


@reads("QuantizeLinear")
@reads_contrib("QuantizeLinear", axis=1)
def _quantize(site: Site) -> Expr:
    site.attr("saturate")  # of floats of 8 bits
    asked = dtype_of(site.attr("output_dtype", 0))
    dtype = site.facts.dtype(site.operand(2)) or asked or "uint8"
    data, (scale, zero) = site.expr(0), pair_of(site, 1, dtype)
    require(data.type.dtype == "float32", "dtype of the data", data.type.dtype, "float32")
    require(asked in ("", dtype), "output_dtype", asked, f"{dtype}, as the zero point")
    of = replace(data.type, dtype=dtype)
    return site.call("quantize", data, scale, zero, of=of, axis=_axis(site, data, scale, zero))


@reads("DequantizeLinear")
@reads_contrib("DequantizeLinear", axis=1)
def _dequantize(site: Site) -> Expr:
    data = site.expr(0)
    scale, zero = pair_of(site, 1, data.type.dtype)
    if isinstance(data, Constant) and data.type.dtype in ("int4", "uint4"):
        data = replace(data, types=(replace(data.type, dtype=data.value.dtype.name),))
    of = replace(data.type, dtype="float32")
    return site.call("dequantize", data, scale, zero, of=of, axis=_axis(site, data, scale, zero))


def _axis(site: Site, data: Expr, scale: Expr, zero: Expr) -> int:
    """Along which the scales are; -1 where there is one. Before opset 13 there is no axis."""
    rank, axis = len(data.type.shape), int(site.attr("axis", 1))
    count = max((each.type.shape or (1,))[0] or 1 for each in (scale, zero))
    if count == 1:
        return -1
    require(-rank <= axis < rank, "axis", axis, f"one of {rank} dimensions")
    for each in (scale, zero):
        sizes = each.type.shape
        require(sizes in ((), (data.type.shape[axis],)), "scales", sizes, data.type.shape[axis])
    return axis % rank


@reads("DynamicQuantizeLinear", "MatMulInteger", "ConvInteger")
@reads_contrib("DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "MatMulIntegerToFloat")
def _dynamic(site: Site) -> Expr:
    raise Refusal(
        DYNAMIC,
        f"{site.node.op_type}: scales that are computed at run time",
        "static: onnxruntime.quantization.quantize_static, with samples for calibration",
    )
