"""The shapes of a .tflite file's tensors after a run in LiteRT on zeros, as JSON by their numbers:
``python -m tinyai.frontends.tflite.litert_shapes FILE SHAPES``, with the shapes of inputs."""

from __future__ import annotations

import json
import sys

import numpy as np


def _shapes(file: str, given: dict[str, list[int]]) -> dict[int, list[int]]:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_path=file,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    for number, shape in given.items():
        interpreter.resize_tensor_input(int(number), shape)
    interpreter.allocate_tensors()
    for each in interpreter.get_input_details():
        interpreter.set_tensor(each["index"], np.zeros(each["shape"], each["dtype"]))
    interpreter.invoke()
    details = interpreter.get_tensor_details()
    return {int(each["index"]): [int(size) for size in each["shape"]] for each in details}


if __name__ == "__main__":
    print(json.dumps(_shapes(sys.argv[1], json.loads(sys.argv[2]))))
