"""Random .tflite files beside LiteRT's reference kernels: read to the same integers, or refused
with a reason.

To see file 123: ``random_tflite.random_file(123).content()``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tests.support.random_tflite import OPERATORS, RARE, Writer, random_file, unsigned
from tinyai.errors import BoundaryError
from tinyai.frontends.tflite.load import read_model
from tinyai.frontends.whole import network_of
from tinyai.ir import Array
from tinyai.passes import optimize
from tinyai.reference import run_graph

FILES, MANY, PARTS = 100, 1000, 10


REFERENCE = OpResolverType.BUILTIN_REF
OWN = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES


def by_litert(content: bytes, x: Array, kernels: OpResolverType = REFERENCE) -> Array | None:
    """The result; None of a file that LiteRT refuses."""
    try:
        interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kernels)
        interpreter.allocate_tensors()
        (first,) = interpreter.get_input_details()
        interpreter.set_tensor(first["index"], x)
        interpreter.invoke()
    except (RuntimeError, ValueError):
        return None
    (last,) = interpreter.get_output_details()
    return np.array(interpreter.get_tensor(last["index"]))


def outcome(written: Writer, file: Path, kernels: OpResolverType = REFERENCE) -> str:
    """What became of a file: a row of the report, where one is refused."""
    content = written.content()
    file.write_bytes(content)
    try:
        network = network_of(read_model(file), "net", "tflite")
    except BoundaryError as error:
        (row, *_) = error.report.host
        assert row.operator in written.kinds
        assert row.reason.clause
        assert row.reason.allowed
        return f"refused: {row.operator}"
    (port,) = network.inputs
    assert port.name == "t0"
    dtype = port.type.dtype.numpy
    limits = np.iinfo(dtype)
    values = np.random.default_rng(1).integers(limits.min, limits.max + 1, port.type.shape)
    x = values.astype(dtype)
    expected = by_litert(content, x, kernels)
    if expected is None:
        return "refused by LiteRT"
    (found,) = run_graph(optimize(network.graph), [x])
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected, str(written.kinds))
    return "equal"


def check(seeds: range, folder: Path) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in seeds:
        try:
            found[outcome(random_file(seed), folder / "model.tflite")] += 1
        except Exception as error:
            raise AssertionError(f"file {seed}, of {random_file(seed).kinds}") from error
    return found


def test_random_files_give_litert_s_integers_or_a_reason(tmp_path: Path) -> None:
    found = check(range(FILES), tmp_path)
    assert found["equal"] > 0.6 * FILES, found


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_many_random_files_give_litert_s_integers_or_a_reason(part: int, tmp_path: Path) -> None:
    seeds = range(FILES + part * MANY // PARTS, FILES + (part + 1) * MANY // PARTS)
    found = check(seeds, tmp_path)
    assert found["equal"] > 0.6 * len(seeds), found


@pytest.mark.parametrize("name", sorted(set(OPERATORS) - set(RARE)))
def test_each_operator_gives_litert_s_integers(name: str, tmp_path: Path) -> None:
    """Each of the files alone, some of which no integers were compared of (SUM, odd betas)."""
    files = [written for seed in range(8) if (written := random_file(seed, name)).kinds]
    found = Counter(outcome(written, tmp_path / "model.tflite") for written in files)
    assert found["equal"] >= 0.3 * len(files), found


# LiteRT has no reference kernel of these, or tinyai none.
NOT_UNSIGNED = {"batch_matmul", "l2_norm", "softmax", "squared_difference", *RARE}


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_files_of_uint8_give_litert_s_integers_or_a_reason(name: str, tmp_path: Path) -> None:
    """As TensorFlow 1 wrote them."""
    files = [written for seed in range(8) if (written := random_file(seed, name)).kinds]
    found = Counter(outcome(unsigned(each), tmp_path / "model.tflite") for each in files)
    assert (found["equal"] > 0) == (name not in NOT_UNSIGNED), found


def test_an_elu_gives_the_integers_of_litert_s_own_kernel(tmp_path: Path) -> None:
    """Of which there is no reference kernel."""
    files = [random_file(seed, "function") for seed in range(300)]
    elus = [written for written in files if written.kinds == ["ELU"]]
    found = {outcome(written, tmp_path / "model.tflite", OWN) for written in elus}
    assert (len(elus) > 5, found) == (True, {"equal"})
