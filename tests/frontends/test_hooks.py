"""What TVM finds of tinyai under its own names: pattern table, tvmc, annotation by hand."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import tvm
from click.testing import CliRunner
from tvm import relay
from tvm.relay.op.contrib.register import get_pattern_table

import tests.support.relay_nets as nets
import tinyai
from tests.support.paths import DIGITS
from tinyai.cli import main
from tinyai.errors import OptionError
from tinyai.frontends.relay import regions
from tinyai.frontends.relay.annotate import (
    annotate_whole_graph,
    register_predicate,
    restore_predicates,
)
from tinyai.patterns import PATTERNS

USERS_OWN_SCRIPT = """
import sys, numpy as np, tvm, tinyai
from tvm import relay
from tvm.contrib import graph_executor
from tvm.relay.op.contrib.register import get_pattern_table
mod = tvm.ir.load_json(open(sys.argv[1]).read())
passes = [relay.transform.InferType(), relay.transform.MergeComposite(get_pattern_table("tinyai")),
          relay.transform.AnnotateTarget("tinyai"), relay.transform.MergeCompilerRegions(),
          relay.transform.PartitionGraph()]
mod = tvm.transform.Sequential(passes)(mod)
with tvm.transform.PassContext(opt_level=3):
    relay.build(mod, target="llvm").export_library(sys.argv[2])
executor = graph_executor.GraphModule(tvm.runtime.load_module(sys.argv[2])["default"](tvm.cpu()))
executor.run(**np.load(sys.argv[3]))
np.save(sys.argv[4], executor.get_output(0).numpy())
"""


def test_a_script_that_knows_only_tvms_api_and_imports_tinyai_works(tmp_path):
    mod = nets.module(nets.residual())
    inputs = nets.random_inputs(mod)
    (expected,) = nets.run_tvm(mod, inputs)
    files = [str(tmp_path / name) for name in ("mod.json", "net.so", "in.npz", "out.npy")]
    (tmp_path / "mod.json").write_text(tvm.ir.save_json(mod))
    np.savez(files[2], **inputs)
    assert len(USERS_OWN_SCRIPT.strip().splitlines()) <= 15
    subprocess.run([sys.executable, "-c", USERS_OWN_SCRIPT, *files], check=True)
    np.testing.assert_array_equal(np.load(files[3]), expected)


def test_the_pattern_table_is_tvms_to_find():
    """But for what Relay has no name for."""
    names = [name for name, *_ in get_pattern_table("tinyai")]
    assert names == [f"tinyai.{row.name}" for row in PATTERNS if row.name != "layer_norm"]


def test_importing_tinyai_makes_no_pattern():
    """They take seconds, and are those of ``pattern_table`` for whoever asks TVM for them."""
    script = """
        import tvm, tinyai
        from tvm.relay.op.contrib.register import get_pattern_table
        from tinyai.frontends.relay.composites import compile_pattern, pattern_table
        assert compile_pattern.cache_info().misses == 0
        found = get_pattern_table("tinyai")
        assert [name for name, *_ in found] == [name for name, *_ in pattern_table()]
        mine = [("mine.add", compile_pattern, None)]
        assert [*(found + mine)] == [*found, *mine] and [*(mine + found)] == [*mine, *found]
        assert len(found[1:3]) == 2
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


def test_annotate_target_takes_tinyai_in_a_list():
    mod = tvm.transform.Sequential(
        [
            relay.transform.InferType(),
            relay.transform.MergeComposite(get_pattern_table("tinyai")),
            relay.transform.AnnotateTarget(["tinyai", "dnnl"]),
            relay.transform.MergeCompilerRegions(),
            relay.transform.PartitionGraph(),
        ]
    )(nets.module(nets.residual()))
    assert len(regions(mod)) == 1


def tvmc_model(mod):
    from tvm.driver import tvmc

    return tvmc.model.TVMCModel(mod, {})


@pytest.fixture
def garbage_collected():
    """What a test leaves over is collected before the next one begins."""
    yield
    gc.collect()


# tvmc leaves files of its own to the garbage collector.
tvmc_leaves_files_open = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:unclosed file:ResourceWarning"
)


@tvmc_leaves_files_open
@pytest.mark.usefixtures("garbage_collected")
def test_tvmc_compiles_for_tinyai_with_options_in_the_target_string(tmp_path):
    from tvm.driver import tvmc

    mod = nets.module(nets.residual())
    inputs = nets.random_inputs(mod)
    (expected,) = nets.run_tvm(mod, inputs)
    package = tvmc.compile(
        tvmc_model(mod),
        target="tinyai -isa=scalar -threads=2, llvm",
        package_path=str(tmp_path / "net.tar"),
        dump_code=["relay"],
    )
    result = tvmc.run(package, device="cpu", inputs=inputs)
    np.testing.assert_array_equal(result.get_output("output_0"), expected)
    (dumped,) = tmp_path.glob("*.relay")
    assert "tinyai" in dumped.read_text()


@tvmc_leaves_files_open
@pytest.mark.usefixtures("garbage_collected")
def test_tvmc_tells_of_an_unknown_option(tmp_path):
    from tvm.driver import tvmc

    with pytest.raises(OptionError, match=r"(?s)speed.*isa"):
        tvmc.compile(
            tvmc_model(nets.module(nets.layers(1))),
            target="tinyai -speed=1, llvm",
            package_path=str(tmp_path / "net.tar"),
        )


def shell(*arguments):
    """Exit code and what was written to stderr by ``python -m tinyai tvmc compile``."""
    result = CliRunner().invoke(main, ["tvmc", "compile", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, result.stderr


@pytest.fixture
def never_compiled(monkeypatch):
    from tvm.driver.tvmc import compiler

    def fail(*_, **__):
        raise AssertionError("compiled before the mistake was told")

    monkeypatch.setattr(compiler, "compile_model", fail)


@tvmc_leaves_files_open
@pytest.mark.usefixtures("garbage_collected", "never_compiled")
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("tinyai -speed=1, llvm", "found:   speed"),
        ("tinyai -isa=best, llvm", "option 'isa'"),
        ("tinyai -strict=maybe, llvm", "option 'strict'"),
        ("tinyai fast, llvm", "found:   'fast'"),
    ],
)
def test_the_shells_tvmc_tells_a_bad_option_before_the_model_is_read(tmp_path, target, told):
    (tmp_path / "net.tflite").write_bytes(b"none")
    output = tmp_path / "net.tar"
    code, text = shell("--target", target, "--output", output, tmp_path / "net.tflite")
    assert code == 2
    assert text.startswith("error: ")
    assert told in text
    assert not output.exists()


@tvmc_leaves_files_open
@pytest.mark.usefixtures("garbage_collected", "never_compiled")
@pytest.mark.parametrize("output", ["none/net.tar", "."])
def test_the_shells_tvmc_tells_an_output_that_cannot_be_written_at_once(tmp_path, output):
    code, text = shell("--target", "tinyai, llvm", "--output", tmp_path / output, DIGITS)
    assert code == 2
    assert text.startswith("error: output file\n")
    assert not list(tmp_path.iterdir())


@tvmc_leaves_files_open
@pytest.mark.usefixtures("garbage_collected")
@pytest.mark.parametrize(
    "found", [RuntimeError("Compilation error:\nno space"), OSError(28, "full")]
)
def test_the_shells_tvmc_leaves_no_half_of_an_output(tmp_path, monkeypatch, found):
    from tvm.driver.tvmc import compiler

    def half(*_, package_path, **__):
        Path(package_path).write_text("half")
        raise found

    monkeypatch.setattr(compiler, "compile_model", half)
    output = tmp_path / "net.tar"
    output.write_text("before")
    code, text = shell("--target", "tinyai, llvm", "--output", output, DIGITS)
    assert code == 2
    assert "no space" in text or "No space" in text or "full" in text
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


@tvmc_leaves_files_open
@pytest.mark.usefixtures("garbage_collected")
def test_the_shells_tvmc_writes_the_library_and_its_dumps(tmp_path):
    output = tmp_path / "net.tar"
    code, text = shell(
        "--target", "tinyai, llvm", "--dump-code", "relay", "--output", output, DIGITS
    )
    assert code == 0, text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.tar", "net.tar.relay"]


@tvmc_leaves_files_open
@pytest.mark.usefixtures("garbage_collected", "never_compiled")
@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("cut.tflite", b"\xff\xff\xff\xffTFL3" * 9, "error: model file"),
        ("cut.onnx", DIGITS.read_bytes()[:3000], "error: model file"),
        ("none.onnx", None, "no file"),
        ("bad.relay", b'#[version = "0.0.5"]\ndef @main(', "TVM's importer for Relay files"),
    ],
)
def test_the_shells_tvmc_reads_models_by_the_checked_loader(tmp_path, name, content, told):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    output = tmp_path / "net.tar"
    code, text = shell("--target", "tinyai, llvm", "--output", output, tmp_path / name)
    assert code == (2 if content is None else 1)
    assert told in text
    assert "try:" in text
    assert not output.exists()


@tvmc_leaves_files_open
@pytest.mark.usefixtures("garbage_collected", "never_compiled")
def test_the_shells_tvmc_refuses_shapes_of_no_input():
    code, text = shell("--target", "tinyai", "--input-shapes", "x:[1]", DIGITS)
    assert code == 2
    assert "found:   x:[1]" in text
    code, text = shell("--target", "tinyai", "--input-shapes", "image:[1", DIGITS)
    assert code == 2
    assert "argument --input-shapes" in text


@tvmc_leaves_files_open
@pytest.mark.usefixtures("garbage_collected")
def test_tvms_own_names_are_back_after_the_shells_tvmc(tmp_path):
    from tvm.driver.tvmc import compiler, frontends

    before = frontends.load_model, compiler.drive_compile, compiler.parse_shape_string
    assert shell("--target", "tinyai", tmp_path / "none.onnx")[0] == 2
    assert before == (frontends.load_model, compiler.drive_compile, compiler.parse_shape_string)


@tvmc_leaves_files_open
@pytest.mark.usefixtures("garbage_collected")
def test_the_shells_tvmc_knows_tinyai():
    result = CliRunner().invoke(main, ["tvmc", "compile", "--help"])
    assert result.exit_code == 0, result.output


# --- TVM's first tutorial on BYOC: add, subtract, multiply with four inputs ---------------------


def tutorial_graph(dtype):
    a, b, c, d = (nets.data((10, 10), dtype, name) for name in "abcd")
    return nets.module(relay.multiply(relay.subtract(relay.add(a, b), c), d))


def build_and_compare(mod, annotated):
    inputs = nets.random_inputs(mod)
    (expected,) = nets.run_tvm(mod, inputs)
    partitioned = relay.transform.PartitionGraph()(relay.transform.InferType()(annotated))
    (region,) = regions(partitioned).values()
    assert nets.composites(region) == [], "bare operators"
    assert nets.host_operators(partitioned) == []
    factory = tinyai.runtime.compile(relay.build(partitioned, "llvm"))
    (found,) = nets.run_factory(factory, inputs)
    np.testing.assert_array_equal(found, expected)


@pytest.fixture
def predicates():
    """Predicates of the tutorial's kind, undone afterwards."""

    def small(attrs, args):
        return all(arg.checked_type.dtype in ("float32", "int32") for arg in args)

    for name in ("add", "subtract", "multiply"):
        register_predicate(name, small)
    yield
    restore_predicates()


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_operator_predicates_choose_a_region(dtype, predicates):
    mod = relay.transform.InferType()(tutorial_graph(dtype))
    passes = [relay.transform.AnnotateTarget("tinyai"), relay.transform.MergeCompilerRegions()]
    build_and_compare(mod, tvm.transform.Sequential(passes)(mod))


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_the_whole_graph_annotator_makes_one_region(dtype):
    mod = tutorial_graph(dtype)
    build_and_compare(mod, tvm.IRModule.from_expr(annotate_whole_graph(mod["main"])))


def test_a_predicate_with_rules_on_dtype_and_kernel_size():
    def only_1x1(attrs, args):
        return args[0].checked_type.dtype == "int8" and tuple(attrs.kernel_size) == (1, 1)

    body = nets.conv(nets.requantize(nets.conv(nets.data(), 1, size=1)), 2, size=3)
    mod = relay.transform.InferType()(nets.module(body))
    register_predicate("nn.conv2d", only_1x1)
    try:
        partitioned = tvm.transform.Sequential(
            [
                relay.transform.AnnotateTarget("tinyai"),
                relay.transform.MergeCompilerRegions(),
                relay.transform.PartitionGraph(),
            ]
        )(mod)
    finally:
        restore_predicates()
    assert nets.host_operators(partitioned) == ["nn.conv2d"]
    assert len(regions(partitioned)) == 1
    assert len(regions(tinyai.partition_for_tinyai(mod))) == 1
    assert nets.host_operators(tinyai.partition_for_tinyai(mod)) == []


def test_a_predicate_for_an_unknown_operator_is_an_error():
    with pytest.raises(KeyError, match=r"nn\.lrn"):
        register_predicate("nn.lrn", lambda attrs, args: True)
