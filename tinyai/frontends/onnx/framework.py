"""An .onnx file as it is, in ONNX Runtime: what was read of it is compared with that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tinyai.errors import EnvironmentProblem
from tinyai.frontends.onnx.facts import set_shapes, set_values
from tinyai.frontends.shapes import parse_inputs
from tinyai.ir import Array
from tinyai.model_file import InputShapes
from tinyai.quantizer.data import Sample
from tinyai.quantizer.float_runner import Framework
from tinyai.safe_text import safe

# Of values that are float32 in a model that was read.
_FLOATS = {"tensor(float16)": np.float16, "tensor(double)": np.float64}


def framework_of(file: Path, input_shapes: InputShapes = "") -> Framework:
    """What runs an .onnx file as it is, with the ``input_shapes`` of ``tinyai.compile``."""

    def call(sample: Sample) -> list[Array]:
        import onnxruntime

        try:
            content = model_with(file, input_shapes).SerializeToString()
            options = options_of_floats()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            session = onnxruntime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
            given = {
                each.name: value.astype(_FLOATS.get(each.type, value.dtype), copy=False)
                for each in session.get_inputs()
                if (value := sample.get(each.name)) is not None
            }
            return [np.asarray(each) for each in session.run(None, given)]
        except Exception as error:  # of many kinds
            raise EnvironmentProblem(
                "ONNX Runtime cannot run the file",
                found=safe(str(error), 200),
                allowed="a file that it runs",
            ) from error

    return call


def model_with(file: Path, input_shapes: InputShapes) -> Any:
    """The model of an .onnx file whose inputs have the shapes and values of ``tinyai.compile``."""
    import onnx

    model = onnx.load(file)
    shapes, values = parse_inputs(input_shapes)
    set_shapes(model, shapes)
    set_values(model, values)
    return model


def options_of_floats() -> Any:
    """One thread and floats alone, so that the values are the same at each run."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # what it fails at is told by who runs it
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return options
