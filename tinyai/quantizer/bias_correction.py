"""What the results of a layer with integers lack on average goes into its bias.

Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction" (2019), in
the form that measures: for each output the mean over samples of what the layer computes in float,
minus that with int8 weights on the quantized values of the float network. So each layer makes up
for the rounding and the clipping that arise at it. What layers before it cause is corrected there:
if all were measured at once behind one another, each would correct it again.
"""

from __future__ import annotations

from tinyai.quantizer.layers import Moments, WeightedLayer
from tinyai.quantizer.params import Array


def correction(layer: WeightedLayer, quantized: Array, moments: Moments) -> Array:
    """The correction of a layer's bias, one number an output, for weights that became
    ``quantized``."""
    return _mean_of(layer, layer.weights, moments.floats / moments.count) - _mean_of(
        layer, quantized, moments.quantized / moments.count
    )


def correction_of_weights(layer: WeightedLayer, quantized: Array, moments: Moments) -> Array:
    """The part of it that the weights cause, on a value that stays as it is."""
    return _mean_of(layer, layer.weights - quantized, moments.floats / moments.count)


def _mean_of(layer: WeightedLayer, weights: Array, terms: Array) -> Array:
    mean: Array = layer.matrix(weights) @ terms[:, :, None]
    return mean.reshape(-1)
