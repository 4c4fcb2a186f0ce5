"""Files of one node each, of any operator of ONNX: numbers of operands and attributes that the
operator may have, with shapes and values that often do not fit.

    python -m tests.support.misfit_nodes FOLDER FIRST LAST

reads such files, as the compiler and the quantizer do, and prints the name of each before.
"""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tinyai.errors import TinyAIError
from tinyai.frontends.onnx.load import OLDEST as FIRST_OPSET
from tinyai.frontends.onnx.load import read_whole
from tinyai.frontends.onnx.quantized import OLDEST

NUMBERS = (0, 0, 1, 1, 2, 3, -1, -2, 5, 100, 2**31, -(2**63))
WORDS = ("", "NOTSET", "SAME_UPPER", "VALID", "bidirectional", "linear", "ij,jk->ik", "...a->b")
DTYPES = (np.float32, np.float32, np.float32, np.int64, np.int64, np.bool_, np.int32, np.int8)
ROOT = Path(__file__).resolve().parents[2]
MOST = 6  # operands
INSIDE = 0.25  # of the nodes are inside of an If
MEMORY, SECONDS = 4 * 2**30, 1800  # bytes, of any number of files


def misfit(schema: Any, seed: int) -> onnx.ModelProto:
    rng = np.random.default_rng([seed, *map(ord, schema.name)])

    def one(values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    def attribute(kind: str) -> Any:
        match kind:
            case "INT":
                return one(NUMBERS)
            case "INTS":
                return [one(NUMBERS) for _ in range(rng.integers(0, 5))]
            case "FLOAT":
                return float(one((0, 1, -1, np.inf, np.nan)))
            case "FLOATS":
                return rng.normal(size=rng.integers(0, 4)).tolist()
            case "STRING":
                return one(WORDS)
            case "STRINGS":
                return ["Relu"] * int(rng.integers(0, 4))
            case "TENSOR":
                shape = rng.integers(0, 3, rng.integers(0, 3))
                return numpy_helper.from_array(rng.normal(size=shape).astype(np.float32))
        return None

    counts = [
        int(rng.integers(least, max(min(most, MOST), least) + 1))
        for least, most in (
            (schema.min_input, schema.max_input),
            (schema.min_output, schema.max_output),
        )
    ]
    inputs, outputs = (
        [f"{name}{n}" for n in range(count)] for name, count in zip("xy", counts, strict=True)
    )
    node = helper.make_node(schema.name, inputs, outputs, "node")
    for name, of in schema.attributes.items():
        kind = str(of.type).rpartition(".")[-1]
        value = attribute(kind)
        if value is not None and (of.required or rng.random() < 0.6):
            number = getattr(onnx.AttributeProto, kind)
            node.attribute.append(helper.make_attribute(name, value, attr_type=number))
    declared, constants = [], []
    for name in inputs:
        dtype = np.dtype(one(DTYPES))
        shape = rng.choice([0, 1, 2, 3, 4, 8], rng.integers(0, 6))
        if rng.random() < 0.4:
            values = rng.integers(-3, 9, shape[:2]).astype(dtype)
            constants.append(numpy_helper.from_array(values, name))
        else:
            kind = helper.np_dtype_to_tensor_dtype(dtype)
            sizes = [max(int(size), 1) for size in shape]
            declared.append(helper.make_tensor_value_info(name, kind, sizes))
    if rng.random() < INSIDE:
        made = [onnx.ValueInfoProto(name=f"{name}i") for name in outputs]
        node.output[:] = [value.name for value in made]
        branch = helper.make_graph([node], "branch", [], made)
        branches = {"then_branch": branch, "else_branch": branch}
        node = helper.make_node("If", ["condition"], outputs, "choice", **branches)
        declared.append(helper.make_tensor_value_info("condition", onnx.TensorProto.BOOL, []))
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([node], "misfit", declared, results, constants)
    opset = max(schema.since_version, FIRST_OPSET)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def misfits(seeds: range) -> Iterator[tuple[str, onnx.ModelProto]]:
    for schema in onnx.defs.get_all_schemas_with_history():
        for seed in seeds if not schema.domain and not schema.deprecated else ():
            yield f"{schema.name}-{schema.since_version}, seed {seed}", misfit(schema, seed)


def read_misfits(folder: Path, seeds: range) -> None:
    """All such files, in a process of their own, which has to come to its end."""
    command = [sys.executable, "-m", "tests.support.misfit_nodes", str(folder)]
    ends = [str(seeds.start), str(seeds.stop)]
    # One that reads without an end raises TimeoutExpired.
    run = subprocess.run(
        [*command, *ends], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    last = run.stdout.strip().rpartition("\n")[2]
    assert run.returncode == 0, f"{last}: {run.stderr[-2000:]}"
    assert last.endswith(f"seed {seeds[-1]}")


def main(folder: str, first: str, last: str) -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    file = Path(folder) / "misfit.onnx"
    for name, model in misfits(range(int(first), int(last))):
        print(name, flush=True)
        onnx.save(model, file)
        for oldest in (0, OLDEST):
            with contextlib.suppress(TinyAIError):
                read_whole(file, "", oldest)


if __name__ == "__main__":
    main(*sys.argv[1:])
