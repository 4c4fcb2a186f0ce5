"""One float network for the quantizers of torch and of files, and the grids that both choose.

The environment of torch has no ONNX, so each builds the network by itself, of these numbers: two
convolutions, the second depthwise with a hard-swish behind it, their sum, its mean and a dense
layer.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

SHAPE = (1, 3, 8, 8)


def _drawn(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


WEIGHTS = {
    "conv": (_drawn(0, 4, 3, 3, 3), _drawn(1, 4)),
    "depthwise": (_drawn(6, 4, 1, 3, 3), _drawn(7, 4)),
    "dense": (_drawn(4, 5, 4), _drawn(5, 5)),
}
SAMPLES = [_drawn(10 + number, *SHAPE) for number in range(4)]

# By the extremes of the samples, in order: scale and zero point of the input, the first convolution
# with its ReLU, the second, the hard-swish, the sum, the mean, the dense layer.
GRIDS = (
    (0.0235273391, 3),
    (0.0548709333, -128),
    (0.2844911516, -8),
    (0.1520547867, -126),
    (0.1790189296, -126),
    (0.0531119443, -128),
    (0.1513080001, 38),
)
