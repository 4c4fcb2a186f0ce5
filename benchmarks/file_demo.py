"""The first lines of `make demo`: a quantized model file becomes C and results, without TVM.

ONNX Runtime quantizes the digits network (``benchmarks/digits``) to a file, of which the commands
make a library, compare it with ONNX Runtime, and read a digit. The exit code is 1 where a value
differs. The file and the library stay in build/demo.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file

import numpy as np
import onnx
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks import onnx_networks
from benchmarks.digits.data import load_split

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = (
    "tinyai compile digits.onnx -o digits.so",
    "tinyai check digits.onnx --with digits.so",
    "tinyai run digits.so --input digit.npy --top 3",
)


def main(folder: Path = ROOT / "build" / "demo") -> int:
    begun = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    split = load_split()
    file = folder / "digits.onnx"
    digits = ROOT / "benchmarks" / "digits" / "digits.onnx"
    quant_pre_process(digits, file, skip_symbolic_shape=True)  # folds batch norms
    samples = [image[np.newaxis] for image in split.train.images[:100]]
    onnx.save(onnx_networks.quantize(onnx.load(file), calibration=samples), file)
    np.save(folder / "digit.npy", split.held_out.images[:1])
    print(
        f"A file without TVM, in {folder} (the digit is a {split.held_out.labels[0]}):", flush=True
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for command in COMMANDS:
        print(f"$ {command}", flush=True)
        words = [sys.executable, "-m", *shlex.split(command)]
        if subprocess.run(words, cwd=folder, env=environment, check=False).returncode:
            return 1
    print(f"after {time.perf_counter() - begun:.0f} s\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
