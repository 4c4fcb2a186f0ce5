"""Whose integers a model has where no rounding is asked for: those of its file's framework."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm

import tinyai
from tests.support.paths import MODELS
from tinyai.backend import CompileSpec
from tinyai.errors import OptionError
from tinyai.frontends.relay.functions import region_target, regions
from tinyai.frontends.relay.load import load_model
from tinyai.frontends.relay.text import text_of
from tinyai.target import Target, default_rounding

KWS = MODELS / "kws_ref_model.tflite"
SCALAR = "tinyai -isa=scalar"


def results(model: object, target: str | Target) -> np.ndarray:
    """Of enough samples that the roundings tell apart."""
    graph, rng = tinyai.network_of(model, target).graph, np.random.default_rng(0)
    samples = rng.integers(-128, 128, (8, 1, 49, 10, 1)).astype(np.int8)
    return np.stack([tinyai.run_graph(graph, [sample])[0] for sample in samples])


def roundings(mod: tvm.IRModule) -> set[str]:
    return {region_target(func).rounding for func in regions(mod).values()}


@pytest.mark.parametrize(
    ("model", "rounding"),
    [("a.tflite", "tflite"), ("b.ONNX", "onnx"), (Path("c.onnx"), "onnx"), ("d.relay", "upward")],
)
def test_the_name_of_a_file_decides_and_what_is_asked_for_wins(
    model: object, rounding: str
) -> None:
    assert default_rounding(model) == rounding
    assert Target().for_model(model).rounding == rounding
    assert Target(rounding="torch").for_model(model).rounding == "torch"
    assert default_rounding(tvm.IRModule()) == "upward"


def test_a_file_has_its_frameworks_integers_and_its_module_and_text_have_tvms(
    tmp_path: Path,
) -> None:
    tflite, upward = (results(KWS, f"{SCALAR} -rounding={how}") for how in ("tflite", "upward"))
    assert not np.array_equal(tflite, upward)
    assert np.array_equal(results(KWS, SCALAR), tflite)
    assert np.array_equal(results(KWS, Target()), tflite)
    mod, params = load_model(KWS)
    with tvm.transform.PassContext(opt_level=3):
        mod["main"] = tvm.relay.build_module.bind_params_by_name(mod["main"], params)
    assert np.array_equal(results(mod, SCALAR), upward)
    text = tmp_path / "net.relay"
    text.write_text(text_of(tvm.relay.transform.InferType()(mod)))
    assert np.array_equal(results(text, SCALAR), upward)


@pytest.mark.long
@pytest.mark.parametrize(("asked", "rounding"), [("", "tflite"), (" -rounding=upward", "upward")])
def test_every_way_in_takes_the_files_rounding_unless_another_is_asked_for(
    asked: str, rounding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    target, said = SCALAR + asked, f"-rounding={rounding}"
    tinyai.compile(KWS, tmp_path / "net.so", target)
    assert said in tinyai.Model(tmp_path / "net.so").target
    assert said in tinyai.Model(KWS, target).target
    network = tinyai.network_of(KWS, target)
    assert network.rounding == rounding
    assert said in tinyai.package_of(network, SCALAR).report.target
    assert said in tinyai.emit_c(KWS, tmp_path / "net", target).report.target
    assert roundings(tinyai.partition_for_tinyai(KWS, target=target)) == {rounding}
    words = {"rounding": "upward"} if asked else {}
    assert roundings(tinyai.partition_for_tinyai(KWS, **words)) == {rounding}
    assert tinyai.explain(KWS, **words) == tinyai.explain(KWS, rounding=rounding)
    specs = [CompileSpec(name, text.encode()) for name, text in words.items()]
    bundle = tinyai.lower({"net": KWS}, [CompileSpec("isa", b"scalar"), *specs])
    assert said.encode() in bundle.methods["net"].program
    library = tinyai.build(KWS, target=f"{target}, llvm")
    assert said in tinyai.runtime.tvm_module.c_sources(library)[0]


@pytest.mark.long
def test_tvmc_takes_the_rounding_of_its_file_or_format(tmp_path: Path) -> None:
    shutil.copy(KWS, tmp_path / "net.tflite")
    shutil.copy(KWS, tmp_path / "net.bin")
    command = [sys.executable, "-m", "tinyai", "tvmc", "compile", "--dump-code", "relay"]
    for more, target, rounding in (
        (["net.tflite"], SCALAR, "tflite"),
        (["--model-format", "tflite", "net.bin"], SCALAR, "tflite"),
        (["net.tflite"], f"{SCALAR} -rounding=upward", "upward"),
    ):
        done = subprocess.run(
            [*command, "--target", f"{target}, llvm", "--output", "net.tar", *more],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        )
        told = "rounding: tflite (TFLite's integers)\n"
        assert (told in done.stderr) == ("-rounding" not in target)
        relay = (tmp_path / "net.tar.relay").read_text()
        assert f'\\"rounding\\": \\"{rounding}\\"' in relay


def test_a_target_that_says_upward_is_not_compared_with_another_program() -> None:
    with pytest.raises(OptionError, match="rounding of code to compare with litert"):
        tinyai.check(KWS, Target(rounding="upward"))
