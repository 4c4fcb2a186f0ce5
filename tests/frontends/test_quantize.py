"""From a float model and samples to integers: ``tinyai.quantize`` as a user calls it."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from click.testing import CliRunner
from tvm import relay

import tinyai
from benchmarks.digits.data import load_split
from tests.support.oracle import oracle, runner
from tests.support.paths import DIGITS
from tinyai import QuantConfig
from tinyai.cli import main
from tinyai.errors import OptionError
from tinyai.frontends.relay import regions
from tinyai.frontends.relay.quantize import Quantized
from tinyai.frontends.relay.source import post_order, span_name
from tinyai.frontends.relay.text import module_of, text_of
from tinyai.quantizer.data import CalibrationError
from tinyai.quantizer.report import SCHEMA

CONFIGS = {
    "mse": QuantConfig(),
    "minmax": QuantConfig(observer="minmax"),
    "average": QuantConfig(observer="average"),
    "percentile": QuantConfig(observer="percentile"),
    "entropy": QuantConfig(observer="entropy"),
    "powers of two": QuantConfig(power_of_two=True),
    "symmetric uint8": QuantConfig(dtype="uint8", symmetric=True, residual="common"),
    "int16": QuantConfig(dtype="int16"),
}
FLOAT_ACCURACY = 98.33  # benchmarks/digits/digits.json


def samples(count: int = 64) -> Iterator[dict[str, Any]]:
    return ({"image": image} for image in load_split().train.images[:count])


@functools.lru_cache
def calibrated(config: QuantConfig) -> tinyai.Calibration:
    return tinyai.calibrate(DIGITS, None, [*samples()], config)


@functools.lru_cache
def digits(name: str) -> Quantized:
    """A histogram serves all observers but the moving average."""
    observer = "average" if name == "average" else "mse"
    return tinyai.quantize(DIGITS, None, calibrated(QuantConfig(observer=observer)), CONFIGS[name])


QUICK = ("mse", "symmetric uint8", "powers of two", "int16")


@pytest.mark.parametrize(
    "name",
    [
        "mse",
        *(
            pytest.param(name, marks=pytest.mark.long if name in QUICK else pytest.mark.slow)
            for name in CONFIGS
            if name != "mse"
        ),
    ],
)
def test_the_digits_are_recognized_as_by_floats(name: str) -> None:
    held_out = load_split().held_out
    run = runner(tinyai.build(digits(name).module))
    results = [int(run({"image": image[None]})[0].argmax()) for image in held_out.images]
    accuracy = 100 * float((np.array(results) == held_out.labels).mean())
    assert accuracy >= FLOAT_ACCURACY - (1.0 if name == "powers of two" else 0.3)


@pytest.mark.long
@pytest.mark.parametrize("name", ["mse", "symmetric uint8", "int16"])
def test_a_quantized_network_is_one_region_equal_to_tvm(name: str) -> None:
    found = digits(name)
    partitioned = tinyai.partition_for_tinyai(found.module, strict=True)
    assert len(regions(partitioned)) == 1
    run, integers = runner(tinyai.build(found.module)), found.integers()
    for sample in (*samples(3), {"image": np.full((1, 8, 8), 9, "float32")}):
        inputs = {"image": sample["image"][None]}
        for ours, theirs in zip(run(inputs), oracle(integers, inputs), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_report_says_what_became_of_each_layer() -> None:
    report = digits("mse").report
    assert (report.samples, report.compared, report.left) == (64, 8, ())
    assert [row.name for row in report.layers][:2] == ["input", "/stem/conv/Conv"]
    assert {row.dtype for row in report.layers} == {"int8"}
    for row in report.layers:
        assert row.sqnr is not None
        assert 25 < row.sqnr < 60
        assert 0.5 < row.used <= 1
        assert 0 <= row.saturated < 0.01
    (output,) = report.outputs
    assert output.agreement == 1
    assert output.sqnr == report.sqnr
    facts = json.loads(report.json())
    assert facts["schema"] == SCHEMA
    assert [row["name"] for row in facts["layers"]] == [row.name for row in report.layers]
    assert "/dense/Gemm" in str(_printed(report.table()))
    assert "result 0: SQNR" in str(report)


def _printed(table: Any) -> str:
    from rich.console import Console

    console = Console(width=200)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def one(body: relay.Expr) -> tvm.IRModule:
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))


def small(last: Any = relay.nn.relu) -> tvm.IRModule:
    weight = relay.const(np.random.default_rng(0).normal(size=(4, 3, 1, 1)).astype("float32"))
    return one(last(relay.nn.conv2d(relay.var("x", shape=(1, 3, 4, 4)), weight)))


def values(count: int = 5) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(1)
    return ({"x": rng.normal(size=(1, 3, 4, 4)).astype("float32")} for _ in range(count))


def test_the_noise_is_that_between_tvms_floats_and_our_integers() -> None:
    sample, mod = next(values()), small()
    found = tinyai.quantize(mod, None, [sample], QuantConfig(observer="minmax"))
    floats = runner(relay.build(mod, target="llvm"))
    (signal,), (integers,) = floats(sample), runner(tinyai.build(found.module))(sample)
    noise = (signal.astype(float) - integers) ** 2
    wanted = 10 * np.log10((signal.astype(float) ** 2).sum() / noise.sum())
    assert found.report.sqnr == pytest.approx(wanted, abs=0.01)


def test_samples_that_come_once_give_what_a_list_gives() -> None:
    mod = small()
    once = tinyai.quantize(mod, None, values())
    listed = tinyai.quantize(mod, None, [*values()])
    assert tvm.ir.save_json(once.module) == tvm.ir.save_json(listed.module)
    assert once.report == listed.report
    assert once.report.samples == once.report.compared == 5


def test_a_sample_that_makes_nan_is_told_with_the_layer() -> None:
    with pytest.raises(CalibrationError, match=r"float values of layer 'log'[^$]*sample 0"):
        tinyai.quantize(small(relay.log), None, values())


@pytest.mark.parametrize(
    ("mod", "data", "error", "part"),
    [
        (small(), [], CalibrationError, "no samples"),
        (small(), [{"y": np.zeros(3)}], CalibrationError, "allowed: x"),
        (
            one(relay.var("x", shape=(2,), dtype="int8") + relay.const(1, "int8")),
            values(),
            OptionError,
            "int8",
        ),
        (one(relay.sin(relay.var("x", shape=(1, 3, 4, 4)))), values(), OptionError, "float"),
        (
            one(relay.nn.relu(relay.var("x", shape=(relay.Any(), 4)))),
            values(),
            OptionError,
            "fixed",
        ),
        (7, values(), OptionError, "int"),
    ],
)
def test_what_cannot_be_quantized_is_told(mod: Any, data: Any, error: Any, part: str) -> None:
    with pytest.raises(error) as caught:
        tinyai.quantize(mod, None, data)
    assert part in str(caught.value)


# --- The command ---------------------------------------------------------------------------------


def command(*arguments: Any) -> Any:
    return CliRunner().invoke(main, [*map(str, arguments)])


@pytest.mark.long
def test_the_command_writes_a_module_that_the_other_commands_compile(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", image=load_split().train.images[:16])
    asked = ("quantize", DIGITS, "--calibrate", tmp_path / "data.npz", "--observer", "minmax")
    more = ("--rank", "--plot", tmp_path / "report.png", "--compared", "2")
    done = command(*asked, "-o", tmp_path / "digits.relay", "--json", *more)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["observer"], report["samples"], report["compared"]) == ("minmax", 16, 2)
    assert report["layers"][1]["alone"] > 25
    made = ["data.npz", "digits.relay", "report.png"]
    assert sorted(each.name for each in tmp_path.iterdir()) == made
    wanted = tinyai.quantize(
        DIGITS, None, [*samples(16)], QuantConfig(observer="minmax"), compared=1
    )
    inputs = {"image": load_split().held_out.images[:1]}
    (integers,) = runner(tinyai.build(wanted.module))(inputs)
    (ours,) = runner(tinyai.build(tmp_path / "digits.relay"))(inputs)
    np.testing.assert_array_equal(ours, integers)


def test_the_name_of_a_file_does_not_steer_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31mred.npy").write_text("no array")
    done = command("quantize", DIGITS, "--calibrate", tmp_path, "-o", tmp_path / "out.relay")
    assert done.exit_code == 2
    assert "calibration file a\\x1b[31mred.npy" in done.stderr


def test_tvmc_compiles_and_runs_a_quantized_text(tmp_path: Path) -> None:
    """Without the shape of its input, which TVM's own reader takes for a weight then."""
    made = tinyai.quantize(small(), None, [*values()], QuantConfig(dtype="int16"), compared=1)
    text, package, given, found = (
        tmp_path / name for name in ("net.relay", "net.tar", "in.npz", "out.npz")
    )
    text.write_text(text_of(made.module))
    sample = next(values())
    np.savez(given, **sample)
    tvmc = [sys.executable, "-m", "tinyai", "tvmc"]
    target = ["--target", "tinyai, llvm"]
    subprocess.run([*tvmc, "compile", *target, "--output", package, text], check=True)
    subprocess.run([*tvmc, "run", package, "--inputs", given, "--outputs", found], check=True)
    (wanted,) = runner(tinyai.build(made.module))(sample)
    with np.load(found) as outputs:
        np.testing.assert_array_equal(outputs["output_0"], wanted)


def test_a_float_model_is_compiled_by_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", image=load_split().train.images[:16])
    done = command(
        *("compile", DIGITS, "--calibrate", tmp_path / "data.npz"), "-o", tmp_path / "digits.so"
    )
    assert done.exit_code == 0, done.output
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data.npz", "digits.so"]
    image = load_split().held_out.images[:1]
    wanted = tinyai.quantize_file(DIGITS, [*samples(16)], compared=1).model
    (integers,) = tinyai.Model(wanted).run(image)
    (ours,) = tinyai.Model(tmp_path / "digits.so").run(image)
    np.testing.assert_array_equal(ours, integers)


@pytest.mark.parametrize("name", ["x.so", "x.relay.so"])
def test_compile_looks_for_its_place_before_it_quantizes(name: str) -> None:
    done = command("compile", DIGITS, "--calibrate", "nowhere.npz", "-o", f"no/folder/{name}")
    assert done.exit_code == 2
    assert "no folder" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--calibrate", "nowhere.npz", "-o", "out.relay"), "nowhere.npz"),
        (("--calibrate", "nowhere.npz", "-o", "out.txt"), ".relay"),
        (("--calibrate", "nowhere.npz", "-o", "no/folder/out.relay"), "no folder"),
        (("--calibrate", "x", "-o", "out.relay", "--observer", "guess"), "minmax or average"),
        (("--calibrate", "x", "-o", "out.relay", "--mixed-agreement", "2"), "0 to 1"),
        (("--calibrate", "x", "-o", "out.relay", "--plot", "x.bmp"), "ends with .png"),
    ],
)
def test_the_command_tells_what_is_wrong(arguments: tuple[str, ...], part: str) -> None:
    done = command("quantize", DIGITS, *arguments)
    assert done.exit_code == 2
    assert part in done.stderr
    assert not Path("out.relay").exists()


@pytest.mark.parametrize("name", ["layer 1", 'a*/ "b\n', "\n/* layers: [] */", "ünï", ""])
def test_names_of_layers_are_in_the_text_and_do_not_end_its_comment(name: str) -> None:
    conv = small()["main"].body.args[0]
    span = relay.Span(relay.SourceName(name), 0, 0, 0, 0) if name else None
    scaled = relay.multiply(conv.args[0], relay.const(1 / 3))  # not whole in the text
    named = one(relay.nn.relu(relay.Call(conv.op, [scaled, conv.args[1]], conv.attrs, None, span)))
    mod = relay.transform.InferType()(named)
    text = text_of(mod)
    again = module_of(text)
    calls = [expr for expr in post_order(again["main"].body) if isinstance(expr, relay.Call)]
    assert [span_name(call) for call in calls] == ["", "", name, ""]
    assert text_of(again) == text
    cut = text.rpartition("\n/* layers")[0]
    assert tvm.ir.structural_equal(again, module_of(cut))
    for others in (cut, f"{cut}\n/* layers: 1 */", f'{cut}\n/* layers: ["one"] */'):
        nameless = module_of(others)
        assert not any(span_name(expr) for expr in post_order(nameless["main"].body))


@pytest.mark.parametrize("name", ["serving_default_x:0", "a b */ \n", "input1", "1", ""])
def test_names_of_inputs_are_kept_beside_the_text_where_it_cannot_hold_them(name: str) -> None:
    first, second = relay.var(name, shape=(1, 3)), relay.var("y:0", shape=(1, 3))
    mod = relay.transform.InferType()(one(relay.add(first, second)))
    text = text_of(mod)
    again = module_of(text)
    assert [param.name_hint for param in again["main"].params] == [name, "y:0"]
    assert tvm.ir.structural_equal(mod, again)
    assert text_of(again) == text
    for edited in (
        text.replace("/* inputs: [", "/* inputs: [1, "),
        text.replace("/* inputs", "/*"),
    ):
        assert tvm.ir.structural_equal(mod, module_of(edited))


def test_a_module_that_the_text_cannot_hold_is_told() -> None:
    x, flag = relay.var("x", shape=(1, 3)), relay.var("flag", shape=(), dtype="bool")
    branches = relay.If(flag, relay.nn.relu(x), x)
    with pytest.raises(OptionError, match="Relay's text"):
        text_of(relay.transform.InferType()(one(branches)))


def test_quantize_takes_the_names_that_tensorflow_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(4, 1, 3, 8, 8)).astype(np.float32)
    weight = onnx.numpy_helper.from_array(x[:, 0, :, :3, :3], "w")
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("serving_default_x:0", [1, 3, 8, 8]), ("Call:0", [1, 4, 6, 6]))
    ]
    conv = onnx.helper.make_node("Conv", [ends[0].name, "w"], [ends[1].name])
    graph = onnx.helper.make_graph([conv], "g", ends[:1], ends[1:], [weight])
    opset = [onnx.helper.make_opsetid("", 13)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), "g.onnx")
    np.savez("g.npz", **{"serving_default_x:0": x})
    done = command("quantize", "g.onnx", "--calibrate", "g.npz", "-o", "g.relay")
    assert done.exit_code == 0, done.output
    assert tinyai.network_of("g.relay").inputs[0].name == "serving_default_x:0"
