"""The reason for every boundary: planted operators, each with the clause that kept it out."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import tvm
from click.testing import CliRunner
from rich.console import Console
from tvm import relay

import tests.support.relay_nets as nets
import tinyai
from tests.support.paths import DIGITS, ROOT
from tinyai.cli import main
from tinyai.errors import BoundaryError, OptionError
from tinyai.frontends.relay.hints import hint
from tinyai.frontends.relay.source import Source
from tinyai.frontends.relay.spelling import supported
from tinyai.match import AnyConstant, Anything, AnyTuple, nearest_miss, operators
from tinyai.partition.macs import macs
from tinyai.partition.reasons import Whole, known_operators
from tinyai.partition.rows import boundary_bytes, bytes_of
from tinyai.partition.told import DivisionReport
from tinyai.patterns import PATTERNS
from tinyai.report import Reason, Report
from tinyai.safe_text import safe
from tinyai.source import SourceType


def named(call, name):
    span = relay.Span(relay.SourceName(name), 1, 1, 1, 1)
    return relay.Call(call.op, call.args, call.attrs, span=span)


def explain(body, **options):
    return tinyai.explain(nets.module(body), **options)


def only(report, operator):
    (row,) = [row for row in report.host if row.operator == operator]
    return row


def clause(row):
    return row.reason.clause, row.reason.found, row.reason.allowed


# --- Modules with one thing planted ------------------------------------------------------------


def with_einsum():
    inner = relay.cast(nets.layers(1), "int32")
    joined = relay.einsum([inner, relay.const(np.ones((4, 4), "int32"))], "nhwc,cd->nhwd")
    return nets.layers(1, relay.cast(named(joined, "attention/einsum"), "int8"))


def with_dynamic_shape():
    x = relay.var("x", shape=(relay.Any(), 4), dtype="int32")
    return relay.add(x, x)


def with_float_island():
    inner = relay.cast(nets.layers(1), "float32")
    scaled = relay.nn.relu(relay.divide(inner, relay.const(3.0)))
    return nets.layers(1, relay.cast(relay.clip(relay.round(scaled), -127, 127), "int8"))


def with_computed_weight():
    weight = relay.var("w", shape=(3, 3, 4, 4), dtype="int8")
    return nets.requantize(nets.conv(nets.layers(1), weight=weight))


def with_int4():
    x = relay.var("x", shape=(2, 3), dtype="int4")
    return relay.add(x, x)


def with_odd_layout():
    x = relay.var("x", shape=(1, 1, 8, 8, 4), dtype="int8")
    weight = relay.const(np.ones((1, 1, 3, 3, 4, 4), "int8"))
    conv = relay.nn.conv2d(
        x,
        weight,
        channels=4,
        kernel_size=(3, 3),
        padding=(1, 1),
        data_layout="NCHW4c",
        kernel_layout="OIHW4i4o",
        out_dtype="int32",
    )
    return nets.requantize(conv)


def quantize(x, scale=None, bound=127, dtype="int8"):
    scale = relay.const(16.0) if scale is None else scale
    return relay.cast(relay.clip(relay.round(relay.multiply(x, scale)), -bound, bound), dtype)


PLANTED = {
    "einsum": with_einsum,
    "dynamic shape": with_dynamic_shape,
    "float island": with_float_island,
    "computed weight": with_computed_weight,
    "int4": with_int4,
    "odd layout": with_odd_layout,
}


@functools.cache
def report_of_planted(name):
    return explain(PLANTED[name]())


# --- Reasons -----------------------------------------------------------------------------------


def test_a_network_that_is_taken_whole_has_no_host_rows():
    report = explain(nets.residual())
    assert report.host == report.computing == ()
    (region,) = report.regions
    assert dict(region.composites) == {"conv2d": 2, "add": 1}
    assert region.macs == 2 * 8 * 8 * 4 * 36
    assert region.layers > 0
    assert region.weight_bytes > 0
    assert region.arena_bytes >= region.arena_lower_bound > 0


def test_an_operator_that_no_row_knows():
    row = only(report_of_planted("einsum"), "einsum")
    assert (row.reason.row_kind, row.reason.row, row.reason.calls) == ("none", "", 0)
    assert clause(row) == ("operator", "einsum", "an operator of tinyai/patterns.py")
    assert row.name == "attention/einsum"
    assert row.type == "int32[1,8,8,4]"
    assert row.boundary_bytes == 2 * 4 * 8 * 8 * 4, "int32 from the first region, to the second"
    assert row.computes
    assert "add a row" in row.hint


@pytest.mark.parametrize("place", ["between dequantize and quantize", "in a float network"])
def test_what_is_left_to_the_host_says_why(place):
    q, scale = relay.qnn.op, (relay.const(0.1), relay.const(0))
    quantized = place == "between dequantize and quantize"
    x = nets.data((1, 8, 8, 4), "int8" if quantized else "float32", "x")
    value = relay.nn.lrn(q.dequantize(x, *scale) if quantized else x, size=3, axis=3)
    report = explain(q.quantize(value, *scale) if quantized else value)
    row = only(report, "nn.lrn")
    assert row.reason.row_kind == "none"
    assert "C library" in row.reason.found
    assert row.reason.allowed == "results that are proven equal for every value of the inputs"
    assert row.hint == "nothing has to change, for the host computes it as TVM does"
    assert [each.operator for each in report.computing] == ["nn.lrn"]
    text = " ".join(str(report).split())
    assert "clause: equality of the result" in text


def test_a_dynamic_shape():
    row = only(report_of_planted("dynamic shape"), "add")
    assert clause(row) == ("result: shape", "int32[?,4]", "fixed dimensions")
    assert (row.reason.row_kind, row.reason.row) == ("operator", "add")
    assert "fixed shapes" in row.hint


def test_a_float_island():
    report = report_of_planted("float island")
    assert [row.operator for row in report.host] == [
        "cast",
        "divide",
        "nn.relu",
        "round",
        "clip",
        "cast",
    ]
    relu = only(report, "nn.relu")
    allowed = "integers; float32 only where a region begins or ends"
    assert clause(relu) == ("dtype of nn.relu", "float32", allowed)
    assert "quantize" in relu.hint
    *_, cast = report.host
    assert (cast.reason.row_kind, cast.reason.row) == ("composite", "quantize")
    assert clause(cast) == ("pattern: argument 1 of round", "nn.relu", "multiply")
    assert cast.reason.calls == 3


def test_a_weight_that_is_not_constant():
    row = only(report_of_planted("computed weight"), "nn.conv2d")
    assert clause(row) == ("weights", "computed at run time", "a constant")
    assert (row.reason.row_kind, row.reason.row) == ("operator", "nn.conv2d")
    assert row.macs == 8 * 8 * 4 * 36
    assert row.boundary_bytes == 8 * 8 * 4 + 4 * 8 * 8 * 4
    assert "params" in row.hint
    params = {"w": tvm.nd.array(nets.weights(3, (3, 3, 4, 4)))}
    assert tinyai.explain(nets.module(with_computed_weight()), params).host == ()


def test_an_int4_tensor():
    row = only(report_of_planted("int4"), "add")
    assert clause(row)[:2] == ("result: dtype", "int4")
    assert "int8" in row.reason.allowed
    assert "cast" in row.hint


def test_an_odd_layout_is_told_by_the_composite_that_fits_around_it():
    row = only(report_of_planted("odd layout"), "nn.conv2d")
    assert (row.reason.row_kind, row.reason.row) == ("composite", "conv2d")
    assert row.reason.calls == 6, "the requantization after it, though a region holds it"
    assert clause(row) == ("data layout", "NCHW4c", "NHWC, NCHW")
    assert row.reason.at == ""
    assert row.macs == 8 * 8 * 4 * 36
    assert "ConvertLayout" in row.hint


def test_a_composite_of_floats_tells_which_of_its_operators_failed():
    x = nets.data((1, 8), "float32", "x")
    report = explain(quantize(x, bound=1e9, dtype="int32"))
    assert [row.operator for row in report.host] == ["multiply", "round", "clip", "cast"]
    assert {row.reason.row for row in report.host} == {"quantize"}
    assert [row.reason.at for row in report.host] == ["cast", "cast", "cast", ""]
    assert {row.reason.clause for row in report.host} == {"cast of a float"}


def test_a_pattern_that_fits_in_part_tells_where_it_ends():
    x, scale = nets.data((1, 8), "float32", "x"), relay.var("s", shape=(), dtype="float32")
    for row in explain(quantize(x, scale)).host:
        assert (row.reason.row, row.reason.calls) == ("quantize", 4)
        place = "pattern: argument 2 of multiply"
        assert clause(row) == (place, "a value computed at run time", "a constant")


@pytest.mark.parametrize("output", [False, True])
def test_a_composite_whose_inner_value_is_read_elsewhere(output):
    clipped = quantize(nets.data((1, 8), "float32", "x")).args[0]
    other = clipped if output else relay.exp(clipped)
    report = explain(relay.Tuple([relay.cast(clipped, "int8"), other]))
    row = only(report, "cast")
    found = "an output" if output else "exp"
    assert clause(row) == ("other readers", found, "none outside of the composite")
    assert (row.reason.row, row.reason.at) == ("quantize", "clip")


def idle():
    x = nets.data((2, 4), "int8", "x")
    y = relay.reshape(relay.annotation.stop_fusion(relay.cast(x, "int32")), (4, 2))
    return relay.nn.softmax(relay.cast(y, "float32"))


def test_an_idle_region_that_was_given_back():
    report = explain(idle())
    found = {row.operator: clause(row)[:2] for row in report.host if "int" in row.type}
    names = "only annotation.stop_fusion, cast, reshape"
    assert found == dict.fromkeys(
        ("cast", "annotation.stop_fusion", "reshape"), ("idle region", names)
    )
    assert [row.operator for row in report.computing] == ["nn.softmax"]
    kept = explain(idle(), prune=False)
    assert [row.operator for row in kept.host] == ["cast", "nn.softmax"]
    assert len(kept.regions) == 1


@pytest.mark.parametrize("before", [False, True])
def test_a_piece_that_is_cut_off_from_its_region_by_an_operator_of_the_host(before):
    """The region would wait for abs, and abs for the region. What comes before is not to blame."""
    x = nets.data((2, 4), "int32", "x")
    moved = relay.reshape(relay.sign(x) if before else x, (8,))
    report = explain(relay.add(moved, relay.abs(moved)))
    row = only(report, "reshape")
    symbol = report.regions[0].symbol
    assert clause(row)[:2] == ("detour", f"reshape, cut off from {symbol} by abs between them")
    assert row.boundary_bytes == 32
    assert not row.computes


def test_an_operator_that_nobody_annotated():
    """A partition by patterns alone, without the predicates for single operators."""
    from tinyai.frontends.relay.report import report_of

    mod = relay.transform.InferType()(nets.module(nets.conv(nets.data())))
    row = only(report_of(mod), "nn.conv2d")
    assert clause(row)[:2] == ("partition", "not annotated for tinyai")


def test_attributes_without_a_class_in_python_are_read():
    pooled = relay.nn.adaptive_avg_pool1d(nets.data((1, 4, 9), "float32"), [1])
    call = Source()(typed(pooled))
    assert call.attrs == {"layout": "NCW", "out_layout": "", "output_size": (1,)}
    assert only(explain(pooled), "nn.adaptive_avg_pool1d").reason.clause == "operator"


def test_branches_and_closures_of_the_host_are_looked_into():
    x = nets.data((2,), "float32", "x")
    flag = relay.var("flag", shape=(), dtype="bool")
    body = relay.If(flag, relay.exp(x), relay.Call(relay.Function([], relay.sqrt(x)), []))
    assert {row.operator for row in explain(body).host} == {"exp", "sqrt"}


def test_what_other_compilers_hold_is_not_the_hosts():
    x, y = nets.data((4,), "int32", "x"), nets.data((4,), "int32", "y")
    theirs = relay.Function([x], relay.abs(x), relay.TensorType((4,), "int32"))
    for key, value in {"Compiler": "someone", "global_symbol": "someone_0", "Primitive": 1}.items():
        theirs = theirs.with_attr(key, value)
    name = relay.GlobalVar("someone_0")
    main_ = relay.Function([y], relay.exp(relay.cast(name(y), "float32")))
    mod = relay.transform.InferType()(tvm.IRModule({name: theirs, relay.GlobalVar("main"): main_}))
    assert [row.operator for row in tinyai.explain(mod).host] == ["cast", "exp"]


def test_a_deep_network_is_explained():
    y = nets.data((16,), "int32", "x")
    for i in range(600):
        y = relay.nn.relu(relay.add(y, relay.const(i))) if i % 50 else relay.abs(y)
    report = explain(y)
    assert [row.operator for row in report.host] == ["abs"] * 12
    assert len(report.regions) == 12


@pytest.mark.parametrize("name", PLANTED)
def test_the_partition_result_has_the_same_host_rows(name):
    mod = nets.module(PLANTED[name]())
    before = tvm.ir.structural_hash(mod)
    report = tinyai.explain(mod)
    assert tvm.ir.structural_hash(mod) == before, "the argument was changed"
    assert report == report_of_planted(name)
    partitioned = tinyai.partition_for_tinyai(mod)
    assert tinyai.explain(partitioned).host == report.host
    saved = tvm.ir.load_json(tvm.ir.save_json(partitioned))
    assert tinyai.explain(saved) == report


def test_what_is_above_a_limit_is_marked_and_no_error():
    (free,) = explain(nets.layers(1)).regions
    assert free.exceeds == ()
    fits = explain(nets.layers(1), weight_limit=free.weight_bytes, arena_limit=10**9)
    assert fits.exceeding == ()
    assert "ABOVE" not in str(fits)
    for options in (
        {"weight_limit": free.weight_bytes - 1},
        {"target": f"tinyai -weight_limit={free.weight_bytes - 1}"},
        {"target": tinyai.Target(weight_limit=free.weight_bytes - 1)},
    ):
        above = explain(nets.layers(1), **options)
        assert above.exceeding == above.regions
        assert above.regions[0].exceeds == ("weight_limit",)
        assert f"ABOVE weight_limit {free.weight_bytes - 1:,}" in str(above)
        assert "1 region above a limit" in str(above)
        assert Report.from_json(above.json()) == above
    partitioned = tinyai.partition_for_tinyai(nets.module(nets.residual()), arena_limit=1)
    assert tinyai.explain(partitioned).regions[0].exceeds == ("arena_limit",)


def test_arguments_of_the_partition_are_arguments_of_the_report():
    plain = explain(nets.residual())
    assert explain(nets.residual(), sealed=True) == plain
    assert explain(nets.residual(), sealed=True, prune=False, strict=True) == plain


def test_unknown_options_are_errors():
    with pytest.raises(OptionError, match="speed"):
        explain(nets.layers(1), speed="fast")


# --- strict ------------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [True, "True", "1"])
def test_strict_raises_with_the_report(strict):
    mod = nets.module(with_einsum())
    with pytest.raises(BoundaryError, match="found:   1 einsum") as raised:
        tinyai.partition_for_tinyai(mod, strict=strict)
    report = tinyai.explain(mod)
    assert raised.value.report == report
    assert str(raised.value).endswith(str(report))
    assert "host: einsum 'attention/einsum'" in str(raised.value)


@pytest.mark.parametrize("strict", [True, False, "0"])
def test_strict_lets_pass_what_computes_nothing_on_the_host(strict):
    for body in (nets.layers(1), relay.reshape(nets.data(), (-1,))):
        mod = tinyai.partition_for_tinyai(nets.module(body), strict=strict)
        tinyai.partition_for_tinyai(mod, strict=strict)


def test_a_bad_value_of_strict_is_an_error():
    with pytest.raises(OptionError, match="strict"):
        tinyai.partition_for_tinyai(nets.module(nets.layers(1)), strict="perhaps")


def test_strict_through_a_target_string():
    with pytest.raises(BoundaryError):
        tinyai.build(nets.module(with_einsum()), target="tinyai -strict=1, llvm")


# --- Renderings --------------------------------------------------------------------------------


def shown(report, width=100):
    console = Console(width=width, force_terminal=True, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(report.table())
    return capture.get()


@pytest.mark.parametrize("name", PLANTED)
def test_json_makes_the_round_trip_and_is_the_same_each_time(name):
    report, again = report_of_planted(name), explain(PLANTED[name]())
    assert report.json() == again.json()
    assert report.json().isascii()
    assert json.loads(report.json()) == report.to_dict()
    assert Report.from_json(report.json()) == report
    assert report.json() == json.dumps(json.loads(report.json()), indent=2, sort_keys=True)
    assert (str(report), shown(report)) == (str(again), shown(again))


def test_json_does_not_depend_on_the_hash_seed():
    script = (
        "import tests.frontends.test_explain as t\n"
        "print(t.explain(t.relay.Tuple([t.with_float_island(), t.idle()])).json())\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    (text,) = outputs
    assert len(Report.from_json(text.decode()).host) > 8


def test_the_keys_of_the_schema():
    data = report_of_planted("einsum").to_dict()
    assert sorted(data) == ["host", "regions", "schema"]
    assert data["schema"] == "tinyai.report/2"
    assert sorted(data["host"][0]) == [
        "boundary_bytes",
        "computes",
        "hint",
        "macs",
        "name",
        "operator",
        "reason",
        "type",
    ]
    assert sorted(data["host"][0]["reason"]) == [
        "allowed",
        "at",
        "calls",
        "clause",
        "found",
        "row",
        "row_kind",
    ]
    assert data["regions"][0]["composites"] == {"conv2d": 1}


def test_another_schema_is_refused():
    with pytest.raises(ValueError, match="schema 'other'"):
        Report.from_json('{"schema": "other"}')


def test_text_and_table_tell_the_same():
    report = report_of_planted("computed weight")
    text, table = str(report), shown(report, 200)
    for part in ("nn.conv2d", "weights", "computed at run time", "9,216 MACs", "1 conv2d"):
        assert part in text, part
        assert part in table, part
    assert text.startswith("2 regions (9,216 MACs); on the host 1 operator that computes")


HOSTILE = {
    "control": "a\x1b[31mred\x07\x7f\x9b",
    "lines": "first\nsecond\r\nthird\u2028fourth",
    "markup": "[red]no[/red] [link=http://x]y[/] :smile:",
    "direction": "abc\u202edef\u2066\u200b",
    "backslash": "\\x1b[31m",
    "long": "x" * 5_000 + "\n" * 100 + "y" * 5_000,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_names_are_shown_safely(kind):
    name = HOSTILE[kind]
    x = named(relay.exp(nets.data((4,), "float32", "x")), name)
    report = explain(x)
    (row,) = report.host
    assert row.name == name
    assert Report.from_json(report.json()) == report
    for text in (str(report), shown(report, 200)):
        # force_terminal lets rich set the bold of heads, and nothing else.
        plain = text.replace("\x1b[1m", "").replace("\x1b[0m", "")
        assert {c for c in plain if unicodedata.category(c)[0] == "C"} <= {"\n"}
        assert max(map(len, plain.splitlines())) <= 250
    line = next(line for line in str(report).splitlines() if "host: exp" in line)
    assert line == f"host: exp '{safe(name, 60)}' -> float32[4]"


def test_markup_in_a_name_is_not_taken_for_markup():
    (row,) = explain(named(relay.exp(nets.data((4,), "float32", "x")), HOSTILE["markup"])).host
    table = shown(Report((row,), ()), 200)
    assert HOSTILE["markup"] in table


def test_hostile_values_of_a_reason_are_shown_safely_too():
    reason = Reason("operator", "a\nb", 1, "c\x1b", "[red]\r" + "z" * 10_000, "\u202e", "at\n")
    (row,) = explain(relay.exp(nets.data((4,), "float32", "x"))).host
    row = dataclasses.replace(row, reason=reason, operator="o\n", type="t\n", hint="h\n" * 999)
    text = str(Report((row,), ()))
    assert len(text.splitlines()) == 9
    assert len(text) < 1_500
    assert "[red]\\r" in text
    assert "\\u202e" in text


def test_safe_keeps_what_is_printable_and_shortens_the_middle():
    assert safe("conv/größe 1") == "conv/größe 1"
    assert safe("a" * 50 + "b" * 50, 21) == "a" * 13 + "…" + "b" * 7
    assert len(safe("\U000e0001" * 100, 30)) == 30


# --- Parts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: relay.nn.dense(nets.data((3, 5)), nets.data((7, 5), name="w")), 3 * 5 * 7),
        (lambda: relay.nn.batch_matmul(nets.data((2, 3, 5)), nets.data((2, 7, 5))), 2 * 3 * 5 * 7),
        (
            lambda: relay.nn.matmul(
                nets.data((5, 3)), nets.data((5, 7), name="w"), transpose_a=True
            ),
            3 * 5 * 7,
        ),
        (
            lambda: relay.nn.conv2d(
                nets.data((1, 6, 9, 9)), nets.data((6, 1, 3, 3), name="w"), groups=6
            ),
            7 * 7 * 6 * 9,
        ),
        (
            lambda: relay.nn.conv2d_transpose(
                nets.data((1, 6, 4, 4)), nets.data((6, 5, 2, 2), name="w"), strides=(2, 2)
            ),
            4 * 4 * 6 * 5 * 4,
        ),
        (
            lambda: relay.nn.conv1d(nets.data((1, 6, 9)), nets.data((8, 6, 3), name="w")),
            7 * 8 * 6 * 3,
        ),
        (lambda: relay.abs(nets.data((4,))), None),
        (
            lambda: relay.nn.dense(
                relay.var("x", shape=(relay.Any(), 5), dtype="int8"), nets.data((7, 5), name="w")
            ),
            None,
        ),
    ],
)
def test_macs(call, expected):
    mod = relay.transform.InferType()(nets.module(call()))
    assert macs(Source()(mod["main"].body)) == expected


def test_bytes_of_a_tensor():
    found = {
        text: bytes_of(SourceType(shape, text))
        for text, shape in {
            "int4": (3, 3),
            "bool": (5,),
            "bfloat16": (2,),
            "float32": (),
            "FuncType": (),
        }.items()
    }
    assert found == {"int4": 5, "bool": 5, "bfloat16": 4, "float32": 4, "FuncType": None}
    assert bytes_of(SourceType((None, 3), "int8")) is None


def test_names_that_are_like_an_unknown_operator():
    known = functools.partial(known_operators, taken=tuple(supported()))
    assert "nn.conv2d" in known("qnn.conv2d")
    assert "nn.conv2d" in known("nn.conv2d_transpose")
    assert "nn.global_avg_pool2d" in known("nn.global_avg_pool1d")
    assert known("einsum") == "an operator of tinyai/patterns.py"


def test_what_an_operator_computes_is_not_to_be_handed_over():
    """A parameter's values can be bound; of an activation there are none before run time."""
    q, x = relay.qnn.op, nets.data((1, 8), "int8", "x")
    value = q.dequantize(x, relay.const(0.1), relay.const(0))
    slope = relay.reshape(relay.sigmoid(value), (8,))
    sloped = q.quantize(relay.nn.prelu(value, slope), relay.const(0.1), relay.const(0))
    row = only(explain(sloped), "nn.prelu")
    assert (row.reason.found, row.reason.allowed) == ("reshape, computed at run time", "a constant")
    assert "quantize this part" in row.hint
    weights = relay.clip(relay.var("w", shape=(4, 8), dtype="int8"), 0, 3)
    row = only(explain(relay.nn.dense(x, weights, out_dtype="int32")), "nn.dense")
    assert row.reason.found == "clip, computed at run time"
    assert "FoldConstant" in row.hint
    weights = relay.var("w", shape=(4, 8), dtype="int8")
    row = only(explain(relay.nn.dense(x, weights, out_dtype="int32")), "nn.dense")
    assert "hand its values over" in row.hint


def test_every_reason_has_a_hint():
    reason = Reason("operator", "clip", 1, "bounds of clip", "2 .. 1", "low <= high")
    assert hint(reason).endswith("bounds of clip, low <= high")
    layout = dataclasses.replace(reason, clause="data layout")
    assert "ConvertLayout" in hint(layout)


def test_the_clauses_that_hints_are_for_are_those_of_builders():
    ops = "".join(path.read_text() for path in Path(tinyai.__file__).parent.glob("ops/*.py"))
    for text in ("data layout", "output layout", "kernel layout", "layout", "layouts"):
        assert f'"{text}"' in ops, text


def test_the_operators_that_a_pattern_mentions():
    by_name = {row.name: operators(row.pattern) for row in PATTERNS}
    assert by_name["quantize"] >= {"cast", "clip", "round", "multiply", "pad"}
    assert {"concatenate", "clip", "fixed_point_multiply"} <= by_name["concatenate"]
    assert operators(Anything()) == operators(AnyConstant()) == operators(AnyTuple()) == set()


def test_a_pattern_misses_exactly_where_it_does_not_match():
    for row in PATTERNS:
        miss = nearest_miss(row.pattern, Source()(typed(nets.data())))
        assert miss is not None
        assert (miss.calls, miss.found) == ((), "a value computed at run time")
    rows = {row.name: row.pattern for row in PATTERNS}
    whole = Source()(typed(quantize(nets.data((4,), "float32"))))
    assert nearest_miss(rows["quantize"], whole) is None
    miss = nearest_miss(rows["dequantize"], whole)
    assert miss.found == "cast"
    assert "multiply" in miss.allowed
    exit_ = relay.multiply(relay.cast(nets.data((4,)), "float16"), relay.const(2.0, "float16"))
    miss = nearest_miss(rows["dequantize"], Source()(typed(exit_)))
    assert (miss.found, miss.allowed) == ("cast(dtype=float16)", "cast(dtype=float32)")


def typed(body):
    return relay.transform.InferType()(nets.module(body))["main"].body


def test_a_whole_looks_through_tuples():
    x = nets.data((1, 2), name="x")
    joined = typed(relay.concatenate([x, relay.abs(x)], axis=0))
    source = Source()
    call = source(joined)
    whole = Whole.of([call], [], {})
    assert whole.users_of(source(joined.args[0].fields[1])) == (call,)
    assert whole.users_of(source(joined.args[0].fields[0]))[-1].op in ("concatenate", "abs")
    assert whole.outputs == {call}


def test_a_whole_tells_the_fields_of_a_split_apart():
    x = nets.data((4, 6), "float32", name="x")
    parts = relay.split(x, (2,), axis=0)
    body = typed(relay.Tuple([relay.abs(parts[1]), relay.exp(parts[1]), parts[0]]))
    source = Source()
    reader, other = map(source, body.fields[:2])
    (field,) = reader.args
    split = field.call
    whole = Whole.of([source(body)], [split], {reader: "region"})
    assert other.args == (field,)
    assert whole.users_of(field) == whole.users_of(split) == (reader, other)
    assert whole.outputs == {reader, other, split}
    assert boundary_bytes(split, whole) == 2 * 6 * 4
    assert (
        boundary_bytes(reader, dataclasses.replace(whole, regions={split: "region"})) == 2 * 6 * 4
    )


def test_every_operator_of_the_table_is_known():
    for name in supported():
        assert name in known_operators(name, tuple(supported()))


# --- The command -------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    """An ONNX file: a float product of matrices, then a rectifier."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((4, 3), "float32"), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", 3])],
        [weight],
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), str(path))
    return str(path)


def run(*arguments):
    return CliRunner().invoke(main, ["explain", *arguments])


def test_the_command_prints_text_table_and_json(model):
    fixed = (model, "--input-shapes", "x:[2,4]")
    text = run(*fixed, "--format", "text")
    assert text.exit_code == 0, text.output
    assert "1 MatMul, 1 Relu" in text.output
    assert "24 MACs" in text.output
    report = Report.from_json(run(*fixed, "--format", "json").stdout)
    told = DivisionReport(report.host, report.regions)
    assert text.output == f"rounding: onnx (ONNX Runtime's integers)\n{told}\n"
    assert [row.operator for row in report.computing] == ["MatMul", "Relu"]
    table = run(*fixed)
    assert table.exit_code == 0
    assert "On the host" in table.output


@pytest.mark.parametrize("option", [("--strict",), ("--target", "tinyai -strict=1")])
def test_the_commands_exit_code_under_strict(model, option):
    result = run(model, "--input-shapes", "x:[2,4]", *option)
    assert result.exit_code == 1
    assert "On the host" in result.output


def test_an_unknown_option_of_the_commands_target(model):
    result = run(model, "--input-shapes", "x:[2,4]", "--target", "tinyai -speed=9")
    assert result.exit_code == 2
    assert "speed" in result.output


def test_the_command_ends_with_1_where_a_region_is_above_a_limit(tmp_path):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    values = [helper.make_tensor_value_info(name, TensorProto.INT32, [64]) for name in "xy"]
    node = helper.make_node("Add", ["x", "w"], ["y"])
    weight = numpy_helper.from_array(np.arange(64, dtype="int32"), "w")
    graph = helper.make_graph([node], "net", values[:1], values[1:], [weight])
    opset = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "n.onnx")
    for target, code in (("tinyai -weight_limit=10", 1), ("tinyai -weight_limit=10000000", 0)):
        result = run(str(tmp_path / "n.onnx"), "--format", "text", "--target", target)
        assert result.exit_code == code, result.output
        assert ("ABOVE weight_limit" in result.output) == bool(code)


def test_a_file_of_open_shapes_asks_for_them(model):
    result = run(model, "--format", "text", "--target", "tinyai -threads=2, llvm")
    assert result.exit_code == 1
    assert "try:     --input-shapes x:1x4" in result.output


@pytest.mark.parametrize(
    ("name", "content", "options", "message", "code"),
    [
        ("bad.onnx", b"no model", (), "a whole .onnx file", 1),
        ("bad.tflite", b"no model", (), "TFL3 from byte 4 on", 1),
        ("empty.tflite", b"", (), "an empty file", 1),
        ("net.pb", b"", (), "allowed: *.onnx, *.tflite", 2),
        ("absent.onnx", None, (), "no file", 2),
        ("a\nb.onnx", None, (), "a\\nb.onnx", 2),
        ("bad.onnx", b"", ("--target", "llvm"), "exactly one part that begins with tinyai", 2),
        ("net.onnx", DIGITS.read_bytes(), ("--input-shapes", "x"), "input shapes", 2),
    ],
)
def test_bad_files_and_options_are_errors_that_say_what_is_allowed(
    tmp_path, name, content, options, message, code
):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    result = run(str(path), *options)
    assert result.exit_code == code, result.output
    assert message in result.output
    assert "allowed: " in result.output
    assert isinstance(result.exception, SystemExit)


def test_the_command_without_a_tvm_tells_what_it_needs(tmp_path, monkeypatch):
    (tmp_path / "net.relay").write_bytes(b"a model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tinyai.frontends.relay.explain", None)
    result = run("net.relay")
    assert result.exit_code == 2
    assert "explain needs a TVM with Relay" in result.output
    assert "python -m tinyai doctor" in result.output
