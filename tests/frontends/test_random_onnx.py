"""Random ONNX files beside ONNX Runtime: read as it reads them, or refused with a reason.

A file in QDQ form is compared with its floats, and QOperators with ONNX Runtime's own integers;
then both with what ONNX Runtime makes of them by default, which runs kernels of integers where it
has some. What TVM's host would compute is compared too, so that an importer that misreads is found
although no integers come of it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib import graph_executor

from tests.support.misread_onnx import CASES, IMAGE, REFUSED, made, model_of
from tests.support.onnx_bounds import bound, differences, steps_off
from tests.support.random_onnx import OPERATORS, QOPERATORS, OnnxModel, random_onnx, run, write
from tinyai.errors import BoundaryError, ModelError
from tinyai.frontends.onnx import spellings
from tinyai.frontends.relay.load import load_model
from tinyai.frontends.relay.whole import network_of
from tinyai.ir import Array
from tinyai.passes import optimize
from tinyai.reference import run_graph
from tinyai.target import Target

# TVM's importer reads onnx.mapping, which onnx deprecates, and calls what TVM itself does.
pytestmark = [
    pytest.mark.filterwarnings(r"ignore:.mapping\.\w+. is now deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings(r"ignore:NDArray.asnumpy\(\) will be:DeprecationWarning"),
]
MODELS = 60
MANY = 3000  # in the slow tests
PARTS = 10


def mode_of(seed: int) -> str:
    return "upward" if seed % 5 == 0 else "onnx"


def integers(file: Path, model: OnnxModel, mode: str, shapes: str) -> Array:
    network = network_of(file, Target(rounding=mode), input_shapes=shapes)
    inputs = [model.inputs[port.name] for port in network.inputs]
    (result,) = run_graph(optimize(network.graph), inputs)
    return result


def on_host(file: Path, model: OnnxModel, shapes: str = "") -> Array:
    """By TVM's CPU, as it imports the file."""
    mod, params = load_model(file, shapes)
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(mod, target="llvm", params=params)
    executor = graph_executor.GraphModule(built["default"](tvm.cpu()))
    executor.run(**model.inputs)
    return np.asarray(executor.get_output(0).numpy())


def faults_of(seeds: range, folder: Path, *, host: bool) -> tuple[list[str], Counter[str]]:
    """Results beyond their bounds, and what became of how many models."""
    faults, ends = [], Counter[str]()
    for seed in seeds:
        model, mode, file = random_onnx(seed), mode_of(seed), folder / "model.onnx"
        if mode != "onnx" and model.floats is None and len(model.operators) > 1:
            continue  # of which the second may enlarge what the first one is off
        is_open = seed % 7 == 0 and all(array.ndim for array in model.inputs.values())
        shapes = write(file, model, is_open=is_open)
        try:
            result, end = integers(file, model, mode, shapes), "compiled"
        except ModelError:
            ends["refused"] += 1
            continue
        except BoundaryError:
            if not host:
                continue
            result, end = on_host(file, model, shapes), "host"
        ends[end] += 1
        off, most = steps_off(model, result), bound(model, mode if end == "compiled" else "upward")
        if off > most:
            names = ", ".join(model.operators)
            faults.append(f"seed {seed}, {mode}, {end}: {names}: {off:.2f} off, {most:.2f} allowed")
        if mode == "onnx" and end == "compiled":
            more, held = differences(model, [result])
            faults += [f"seed {seed}: {', '.join(model.operators)}: {fault}" for fault in more]
            ends += held
    return faults, ends


def test_random_files_are_read_as_onnx_runtime_reads_them(tmp_path: Path) -> None:
    faults, ends = faults_of(range(MODELS), tmp_path, host=False)
    assert not faults, "\n".join(faults)
    assert ends["compiled"] > MODELS / 3
    assert ends["equal"] > MODELS / 5


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_so_are_many_on_the_host_too(tmp_path: Path, part: int) -> None:
    count = MANY // PARTS
    faults, ends = faults_of(range(count * part, count * (part + 1)), tmp_path, host=True)
    assert not faults, "\n".join(faults)
    assert ends["refused"] < count / 10


def test_the_models_have_every_operator() -> None:
    seen = Counter(op for seed in range(400) for op in random_onnx(seed).operators)
    assert len(seen) > len(OPERATORS) + len(QOPERATORS)
    assert min(seen.values()) >= 1


# --- What was misread once -----------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_what_was_misread_once_is_read_right(case: str, tmp_path: Path) -> None:
    """By TVM's host, whatever becomes integers."""
    proto, inputs = made(case)
    (expected,) = run(proto, inputs)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    model = OnnxModel(proto, None, inputs, (), 0.0, 0, 0.0)
    result = on_host(tmp_path / "model.onnx", model)
    assert np.unique(expected).size >= 10
    assert result.shape == expected.shape
    assert np.abs(result.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_right_spelling_is_refused_by_name(case: str, tmp_path: Path) -> None:
    make, words = REFUSED[case]
    (tmp_path / "model.onnx").write_bytes(make()[0].SerializeToString())
    with pytest.raises(ModelError) as raised:
        load_model(tmp_path / "model.onnx")
    assert words in str(raised.value)
    assert "it" in str(raised.value)


def test_a_misread_shape_is_found_whatever_the_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the spelling of axes the importer takes the first; ONNX's types tell."""
    monkeypatch.setitem(spellings._SPELLINGS, ("ReduceSum", ""), [])
    proto, _ = CASES["axes of a sum"]()
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="TVM's importer reads the value 'y0' as float32"):
        load_model(tmp_path / "model.onnx")


def test_minus_one_is_an_open_dimension(tmp_path: Path) -> None:
    proto, inputs = model_of("Relu", IMAGE)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    file = tmp_path / "model.onnx"
    file.write_bytes(proto.SerializeToString())
    load_model(file)
    mod, _ = load_model(file, "x:[1,4,7,9]")
    assert tuple(mod["main"].checked_type.arg_types[0].shape) == IMAGE
    network = network_of(file, Target(rounding="onnx"), input_shapes="x:[1,4,7,9]")
    (result,) = run_graph(network.graph, [inputs["x"]])
    assert result.shape == IMAGE
