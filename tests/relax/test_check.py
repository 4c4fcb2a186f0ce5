"""``tinyai check --against relax``: what the commands compile beside what TVM's Relax runs."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

from benchmarks.onnx_networks import quantize
from tests.relax.nets import ONNX
from tests.support.paths import MODELS
from tinyai.cli import main


def checked(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["check", *arguments, "--samples", "3"])
    return done.exit_code, done.output


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_an_onnx_file_is_equal_through_tvm_s_relax(tmp_path: Path, form: str) -> None:
    file = tmp_path / "net.onnx"
    onnx.save(quantize(ONNX["squeezenet"](), form=form, activation="uint8"), file)
    code, told = checked(str(file), "--against", "relax")
    assert code == 0, told
    assert "Relax" in told


def test_a_tflite_file_is_equal_through_tvm_s_relax() -> None:
    file = MODELS / "ad01_int8.tflite"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    code, told = checked(str(file), "--against", "relax")
    assert code == 0, told


def test_what_tvm_does_not_import_is_an_error_with_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    model = quantize(ONNX["squeezenet"](), form="qdq", activation="uint8")
    model.graph.node[-1].op_type = "NoSuchOperator"
    onnx.save(model, file)
    code, told = checked(str(file), "--against", "relax")
    assert code != 0
    assert "Traceback" not in told


def test_a_shape_that_only_the_file_s_reader_takes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    onnx.save(quantize(ONNX["squeezenet"](), form="qdq", activation="uint8"), file)
    code, told = checked(str(file), "--against", "relax", "--input-shapes", "image:1x3x64x64")
    assert code == 2
    assert "none beside TVM's Relax" in told
