"""Weights and biases of integers by what layers compute on samples, one layer at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from tinyai.qdq.operands import Grid
from tinyai.quantizer.adaptive_rounding import MOST_TERMS, rounded
from tinyai.quantizer.bias_correction import correction, correction_of_weights
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.folding import weight_channels
from tinyai.quantizer.layers import PLACES, Moments, WeightedLayer, layers
from tinyai.quantizer.params import Array, quantized_weights
from tinyai.quantizer.points import Points
from tinyai.quantizer.write import Changes, scales_of
from tinyai.source import Expr

try:
    from threadpoolctl import ThreadpoolController
except ModuleNotFoundError:  # of the extra "check"
    _BLAS = None
else:
    _BLAS = ThreadpoolController()
# Samples that are looked at.
SAMPLES = 32
# Of more terms a layer's matrices are worth threads. Those of smaller ones wait for each other
# longer than they compute: beside a program that takes a CPU, a hundred times as long.
_THREADED = 1024


def reconstructs(config: QuantConfig) -> bool:
    return config.correct_bias or config.rounding == "adaptive"


def looks_at_samples(config: QuantConfig) -> bool:
    """Whether samples are to be kept."""
    return reconstructs(config) or config.equalize_activations


def reconstructed(
    points: Points,
    grids: Mapping[int, Grid],
    samples: Iterable[Mapping[int, Array]],
    most_terms: int = MOST_TERMS,
) -> Changes:
    """The changes that the configuration of ``points`` asks for; weights of sums of more than
    ``most_terms`` are rounded to nearest. A sample has the float values of the points that layers
    read, by the point's number."""
    config, moments = points.config, _moments(points, grids, samples, most_terms)
    steps: dict[Expr, Array] = {}
    biases: dict[Expr, Array] = {}
    by_weights: dict[Expr, Array] = {}
    for layer, seen in moments.items():
        weights = layer.weights
        if not layer.is_integer:
            axis = weight_channels(layer.product) if config.per_channel else None
            scales = scales_of(points, layer.product, grids)
            near = quantized_weights(layer.weights, scales, axis, config.largest_weight)
            if seen.products is not None:
                matrix = layer.matrix(layer.weights)
                each = np.broadcast_to(scales.astype(np.float64), (layer.outputs,))
                spread = seen.spread(centred=config.correct_bias)
                scales_of_rows = each.reshape(matrix.shape[:2])
                with _threads_for(layer.terms):
                    made = rounded(matrix, scales_of_rows, spread, largest=config.largest_weight)
                near = steps[layer.product] = layer.unmatrix(made)
            shape = [-1 if d == axis else 1 for d in range(near.ndim)]
            weights = near * scales.astype(np.float64).reshape(shape)
        if config.correct_bias:
            biases[layer.product] = correction(layer, weights, seen)
            by_weights[layer.product] = correction_of_weights(layer, weights, seen)
    return Changes(steps, biases, by_weights)


def _moments(
    points: Points,
    grids: Mapping[int, Grid],
    samples: Iterable[Mapping[int, Array]],
    most_terms: int,
) -> dict[WeightedLayer, Moments]:
    adaptive, found = points.config.rounding == "adaptive", dict[WeightedLayer, Moments]()
    waiting = defaultdict[WeightedLayer, list[tuple[Array, Array]]](list)

    def take(layer: WeightedLayer) -> None:
        rows, quantized = (
            np.concatenate(each, axis=1) for each in zip(*waiting.pop(layer), strict=True)
        )
        products = adaptive and not layer.is_integer and layer.terms <= most_terms
        with _threads_for(layer.terms):
            seen = Moments.of(rows, quantized, products=products)
        found[layer] = found[layer].merge(seen) if layer in found else seen

    all_layers = [*layers(points)]
    for sample in samples:
        for layer in all_layers:
            at = grids[points.points[layer.point].grid]
            rows = layer.rows(sample[layer.point]).astype(np.float64)
            quantized = (at.quantize(rows).astype(np.float64) - at.zero_point) * at.scale
            waiting[layer].append((rows, quantized))
            # Few rows would cost as much as many: the matrix of all products is written anew.
            if sum(floats.shape[1] for floats, _ in waiting[layer]) >= PLACES:
                take(layer)
    for layer in [*waiting]:
        take(layer)
    return found


def _threads_for(terms: int) -> AbstractContextManager[object]:
    """In this, matrices of so many terms have the threads that they are worth."""
    if _BLAS is None or terms > _THREADED:
        return nullcontext()
    one: AbstractContextManager[object] = _BLAS.limit(limits=1, user_api="blas")
    return one
