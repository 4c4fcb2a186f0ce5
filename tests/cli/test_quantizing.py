"""``tinyai quantize`` and ``tinyai compile --calibrate`` of model files, without TVM."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import tinyai
from benchmarks.digits.data import load_split
from tests.support.paths import DIGITS, MODELS, ROOT
from tinyai import Mixed, QuantConfig
from tinyai.cli import main


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with float models and samples, as the current one."""
    shutil.copy(DIGITS, tmp_path / "model.onnx")
    shutil.copy(MODELS / "ad01_fp32.tflite", tmp_path / "sound.tflite")
    images = load_split().train.images[:8]
    np.savez(tmp_path / "samples.npz", image=images)
    sounds = np.random.default_rng(0).normal(size=(4, 1, 640)).astype("float32")
    np.savez(tmp_path / "sounds.npz", input_1=sounds)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: str) -> Result:
    return CliRunner().invoke(main, command.split())


BOTH = ("model.onnx --calibrate samples.npz", "sound.tflite --calibrate sounds.npz")


@pytest.mark.long
@pytest.mark.parametrize("model", BOTH)
def test_no_command_of_a_file_imports_tvm(inside: Path, model: str) -> None:
    script = """
import sys
sys.modules["tvm"] = None  # import tvm raises ModuleNotFoundError
from tinyai.__main__ import run
sys.argv = ["tinyai", *sys.argv[1:]]
run()
"""
    for command in (
        f"quantize {model} --rank --plot report.png",
        f"compile {model} --observer percentile --mixed-sqnr 30 -o net.so",
        f"compile {model} --isa scalar --round-weights adaptive -o net.tar",
    ):
        done = subprocess.run(
            [sys.executable, "-c", script, *command.split()],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert {each.name for each in inside.iterdir()} >= {"report.png", "net.so", "net.tar"}


def test_a_goal_of_what_is_compiled_is_reached_by_16_bits_alone(inside: Path) -> None:
    plain = "--round-weights nearest --no-correct-bias"
    command = f"sound.tflite --calibrate sounds.npz --mixed-sqnr 50 {plain}"
    told = run(f"quantize {command}")
    assert re.search("goal: SQNR of 50 dB, reached with .*left in float", told.stdout)
    told = run(f"compile {command} -o net.so")
    assert told.exit_code == 0, told.output
    assert re.search(r"goal: SQNR of 50 dB, (not )?reached with \d layers at 16 bits", told.stderr)
    quiet = run(f"compile {command} -o net.so -q").stderr
    assert (quiet.startswith("goal: SQNR of 50 dB"), "result 0" in quiet) == (True, False)
    config, goal = QuantConfig(rounding="nearest", correct_bias=False), Mixed(50, floats=False)
    found = tinyai.quantize_file("sound.tflite", "sounds.npz", config, mixed=goal)
    assert found.report.mixed is not None
    assert {each.dtype for each in found.report.mixed.layers} == {"int16"}


def test_options_of_the_quantizer_are_those_of_python(inside: Path) -> None:
    options = "--observer minmax --float-last --mixed-agreement 0.5 --compared 4"
    told = run(f"quantize model.onnx --calibrate samples.npz {options} --json")
    assert told.exit_code == 0, told.output
    config = QuantConfig(observer="minmax", float_last=True)
    goal = Mixed(agreement=0.5)
    found = tinyai.quantize_file("model.onnx", "samples.npz", config, mixed=goal, compared=4)
    assert json.loads(told.stdout) == json.loads(found.report.json())


def test_what_is_compiled_in_one_go_is_what_python_quantizes(inside: Path) -> None:
    told = run("compile model.onnx --calibrate samples.npz --per-channel --symmetric -o net.so")
    assert told.exit_code == 0, told.output
    found = tinyai.quantize_file("model.onnx", "samples.npz", QuantConfig(symmetric=True))
    assert str(found.report) in told.stderr, "what was lost is told, too"
    tinyai.compile(found.model, "other.so", name="model")
    one, other = tinyai.Model("net.so"), tinyai.Model("other.so")
    assert one.name == other.name == "model"
    for image in load_split().train.images[:8]:
        np.testing.assert_array_equal(one(image[None])[0], other(image[None])[0])


def test_a_file_with_pairs_is_written_and_compared_with_onnx_runtime(inside: Path) -> None:
    command = "quantize model.onnx --calibrate samples.npz --compared 4 -o int8.onnx"
    told = run(command)
    assert told.exit_code == 0, told.output
    assert "result 0: SQNR" in told.stdout
    assert "samples:    4 given, 0 random" in told.stdout
    assert "output logits: float32[1,10]: 40 values, all equal" in told.stdout
    told = run(f"{command} --json")
    assert json.loads(told.stdout)["schema"] == "tinyai.quantization/1"
    assert "40 values, all equal" in told.stderr


def test_what_has_no_code_is_written_and_not_compared(inside: Path) -> None:
    told = run("quantize model.onnx --calibrate samples.npz --float-last -o int8.onnx")
    assert told.exit_code == 0, told.output
    assert "left in float: Gemm '/dense/Gemm'" in told.stdout
    assert "not compared with tinyai's code:" in told.stdout
    noise = re.search(r"result 0 in ONNX Runtime: SQNR (\S+) dB", told.stdout)
    assert noise is not None
    assert float(noise[1]) > 25
    assert "tinyai explain int8.onnx" in told.output
    assert (inside / "int8.onnx").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("compile model.onnx --observer minmax -o net.so", "beside --calibrate SAMPLES"),
        ("compile model.onnx --mixed-sqnr 30 -o net.so", "beside --calibrate SAMPLES"),
        ("quantize model.onnx --calibrate samples.npz --observer most", "QuantConfig.observer"),
        ("quantize model.onnx --calibrate samples.npz -o model.so", ".onnx or .relay"),
        ("quantize sound.tflite --calibrate sounds.npz -o int8.onnx", "ends with .relay"),
        ("quantize missing.onnx --calibrate samples.npz", "model file"),
        ("quantize sound.tflite --calibrate samples.npz", "arrays of samples.npz"),
    ],
)
def test_wrong_uses_end_with_a_message(inside: Path, command: str, message: str) -> None:
    result = run(command)
    assert result.exit_code in (1, 2), result.output
    assert message in result.output
    assert not (inside / "net.so").exists()
