"""Mutated .tflite and .onnx files through the readers that need no TVM, in a process of their own.

``python -m tests.support.file_mutations FORM FIRST END FOLDER`` writes a line of JSON for each case
of "tflite" or "onnx": its number, and what became of it. Case n is the same each time. What was
taken is in FOLDER: the file, an input and what tinyai computes of it.
"""

from __future__ import annotations

import functools
import json
import resource
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import mutations
from tests.support.mutations import KINDS, MARKER, ONNX, TFLITE, Flat, Rng, pick, tflite
from tests.support.paths import MODELS

ADDRESS_SPACE, SECONDS = 2 * 2**30, 10
OUTSIDE = "real/i8_fd_short"  # constants behind the flatbuffer
SMALL = "real/i8_sine"
MOST_COMPARED = 2_000_000  # multiply-accumulates of numpy's reference


def buffer_places(rng: Rng, flat: Flat) -> None:
    """Of constants behind the flatbuffer: where they begin, or how long they are."""
    field = pick(rng, flat.with_field(flat.buffers, int(rng.integers(1, 3))))
    flat.put("<Q", field, int(rng.choice([0, 1, 2, 5, len(flat.data), 2**31, 2**63])))


def operator_codes(rng: Rng, flat: Flat) -> None:
    """Another operator, or none, in the field of 32 bits alone."""
    codes = flat.items(flat.field(flat.model, 1))
    field = pick(rng, flat.with_field(codes, 3))
    flat.put("<i", field, int(rng.choice([-1, 0, 3, 9, 22, 100, 127, 150, 5000])))


_OWN: dict[str, Any] = {
    "buffer: place": ((OUTSIDE,), tflite(buffer_places)),
    "operator: code": ((OUTSIDE,), tflite(operator_codes)),
}
# By format the kinds of mutations, each with the sources that it changes.
ALL = {
    "tflite": {
        name: (tuple(dict.fromkeys((*(each for each in sources if each in TFLITE), SMALL))), mutate)
        for name, (sources, mutate) in KINDS.items()
        if set(sources) & set(TFLITE)
    }
    | _OWN,
    "onnx": {
        name: (tuple(each for each in sources if each in ONNX), mutate)
        for name, (sources, mutate) in KINDS.items()
        if set(sources) & set(ONNX)
    },
}


@functools.cache
def source(name: str) -> bytes:
    return mutations.read(name) if name in ONNX else (MODELS / f"{name}.tflite").read_bytes()


def case(form: str, number: int) -> tuple[str, bytes, bool]:
    """What was done to which file, the file, and whether its names hold ``MARKER``."""
    kinds = ALL[form]
    kind = tuple(kinds)[number % len(kinds)]
    sources, mutate = kinds[kind]
    name = sources[(number // len(kinds)) % len(sources)]
    content = mutate(np.random.default_rng([30, number]), source(name))
    return f"{kind} of {name}", content, kind.startswith("names")


def run(file: Path, told: bool, kept: Path) -> str:
    from tests.support.mutation_worker import Defect, check_message
    from tinyai.backend import compile_graph
    from tinyai.errors import BoundaryError, DefectError, TinyAIError
    from tinyai.frontends.files import explain_file, network_of_file
    from tinyai.passes import optimize
    from tinyai.reference import run_graph
    from tinyai.target import Target

    target = Target(isa="scalar").for_model(file)
    try:
        network = network_of_file(file, target, "net")
        text = compile_graph(network.graph, target, abi="plain").source.text
    except DefectError as error:
        return f"DEFECT {traceback.format_exception(error)[-1][-1500:]}"
    except BoundaryError as error:
        explain_file(file, target)  # divides it
        return f"stays out: {error.report.host[0].reason.clause}"
    except TinyAIError as error:
        try:
            check_message(error)
        except Defect as defect:
            return f"DEFECT {defect}"
        return f"refused: {error.what}"
    if not text.isascii() or MARKER in mutations.text_without_comments(text):
        return "DEFECT names in C"
    if network.graph.macs() > MOST_COMPARED or told:
        return "taken"
    rng = np.random.default_rng(1)
    inputs = [
        rng.integers(-100, 100, port.type.shape).astype(port.type.dtype.numpy)
        for port in network.inputs
    ]
    results = run_graph(optimize(network.graph), inputs)
    kept.with_suffix(file.suffix).write_bytes(file.read_bytes())
    np.savez(kept.with_suffix(".in.npz"), *inputs)
    np.savez(kept.with_suffix(".out.npz"), *results)
    return "taken, to compare"


def main(form: str, first: int, end: int, folder: Path) -> None:
    for name in ONNX if form == "onnx" else ():
        source(name)  # ONNX Runtime makes them, without a limit
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    file = folder / f"model.{form}"
    for number in range(first, end):
        kind, content, told = case(form, number)
        file.write_bytes(content)
        print(json.dumps([number, kind, "begin"]), flush=True)
        signal.alarm(SECONDS)  # ends the process: the last line tells which case hangs
        try:
            found = run(file, told, folder / f"case{number}")
        except BaseException:
            found = f"DEFECT {traceback.format_exc()[-1500:]}"
        signal.alarm(0)
        print(json.dumps([number, kind, found]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
