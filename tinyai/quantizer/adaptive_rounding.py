"""Weights rounded so that a layer's results stay near, each one after what was rounded before it.

Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers"
(2023), after Hassibi and Stork's "Optimal Brain Surgeon" (1993): with ``H`` the mean products of
the layer's terms, a weight's rounding error changes the squared error of the results by a quadratic
form, and the weights that are not rounded yet take up what makes that least. With ``U`` the upper
Cholesky factor of the inverse of ``H``, rounding weight ``i`` by ``e`` moves the later ones by
``-e * U[i, later] / U[i, i]``.
"""

from __future__ import annotations

import numpy as np

from tinyai.quantizer.config import LARGEST_WEIGHT
from tinyai.quantizer.params import Array

# Of the mean diagonal, added to it: what few samples show of rare terms is not believed wholly.
DAMPING = 0.05
BLOCK = 128
# Layers whose sums have more terms are rounded to nearest: the inverse would take long.
MOST_TERMS = 5000
# Of a model that is only compared with another one: of few layers sums are longer, and most of the
# time goes to these.
MOST_TERMS_OF_TRIALS = 1000


def rounded(
    weights: Array,
    scales: Array,
    products: Array,
    damping: float = DAMPING,
    *,
    largest: int = LARGEST_WEIGHT,
) -> Array:
    """The steps, int8 up to the ``largest``, of ``weights`` [groups, outputs, terms] that have
    ``scales`` [groups, outputs], for terms with the mean ``products`` [groups, terms, terms]."""
    terms = weights.shape[2]
    diagonal = np.einsum("gii->gi", products)
    mean = diagonal.mean(axis=1, keepdims=True)
    mean = np.where(mean > 0, mean, 1.0)
    # Terms with the largest values first: the others can make up for them.
    order = np.argsort(-diagonal, axis=1, kind="stable")
    sorted_ = np.take_along_axis(products, order[:, :, None], axis=1)
    sorted_ = np.take_along_axis(sorted_, order[:, None, :], axis=2)
    np.einsum("gii->gi", sorted_)[:] += damping * mean
    # Upper R with R R' the matrix; the inverse of R is the factor of the matrix's inverse.
    factor = np.linalg.cholesky(sorted_[:, ::-1, ::-1])[:, ::-1, ::-1]
    upper = _upper_inverse(np.ascontiguousarray(factor))
    left = np.take_along_axis(weights.astype(np.float64), order[:, None, :], axis=2)
    steps = np.zeros(weights.shape, np.int8)
    for start in range(0, terms, BLOCK):
        end = min(start + BLOCK, terms)
        errors = np.zeros((*weights.shape[:2], end - start))
        for at in range(start, end):
            wanted = np.rint(left[:, :, at] / scales)
            steps[:, :, at] = np.clip(wanted, -largest, largest)
            error = (left[:, :, at] - steps[:, :, at] * scales) / upper[:, at, at, None]
            left[:, :, at:end] -= error[:, :, None] * upper[:, None, at, at:end]
            errors[:, :, at - start] = error
        left[:, :, end:] -= errors @ upper[:, start:end, end:]
    back = np.argsort(order, axis=1)
    return np.take_along_axis(steps, back[:, None, :], axis=2)


def _upper_inverse(upper: Array) -> Array:
    """Of upper triangular matrices, by halves: nearly all of it is products."""
    size = upper.shape[1]
    if size <= BLOCK:
        return np.triu(np.linalg.inv(upper))
    half = size // 2
    inverse = np.zeros_like(upper)
    inverse[:, :half, :half] = _upper_inverse(upper[:, :half, :half])
    inverse[:, half:, half:] = _upper_inverse(upper[:, half:, half:])
    across = inverse[:, :half, :half] @ upper[:, :half, half:] @ inverse[:, half:, half:]
    inverse[:, :half, half:] = -across
    return inverse
