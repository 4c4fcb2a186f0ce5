"""The digits images and their one fixed split; needs numpy and scikit-learn, never PyTorch.

The images are scans of handwritten digits that scikit-learn bundles: nothing is downloaded.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

CLASSES = 10
SPLIT_SEED = 2024
_BRIGHTEST = 16.0  # load_digits stores pixels as whole numbers 0..16


@dataclass(frozen=True)
class Digits:
    """Images of digits with the digits that they show, in ascending order of ``indices``.

    Attributes:
        images: float32 [n, 1, 8, 8] (NCHW), 0.0 (background) to 1.0 (ink).
        labels: int64 [n], 0 to 9.
        indices: int64 [n], the rows of scikit-learn's ``load_digits`` that were taken.
    """

    images: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """Return n, the number of images."""
        return len(self.labels)


@dataclass(frozen=True)
class Split:
    """Two disjoint parts that together hold all 1,797 images.

    Attributes:
        train: two thirds of each class; calibration data is to be taken from here too.
        held_out: one third of each class, seen neither in training nor in calibration.
    """

    train: Digits
    held_out: Digits


def load_split() -> Split:
    """Return the split that the committed network was trained and measured on.

    It is stratified (a third of each class, rounded, is held out) and the same on every
    machine and at every call.
    """
    bunch = load_digits()
    images = (bunch.images[:, np.newaxis] / _BRIGHTEST).astype(np.float32)
    labels = bunch.target.astype(np.int64)
    held_out = _held_out_mask(labels)
    return Split(train=_take(images, labels, ~held_out), held_out=_take(images, labels, held_out))


def _held_out_mask(labels: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return bool [n] for labels [n]: True where the image is held out."""
    # numpy promises that RandomState's numbers never change; those of default_rng may.
    random = np.random.RandomState(SPLIT_SEED)
    mask = np.zeros(len(labels), dtype=np.bool_)
    for digit in range(CLASSES):
        rows = random.permutation(np.flatnonzero(labels == digit))
        mask[rows[: round(len(rows) / 3)]] = True
    return mask


def _take(
    images: npt.NDArray[np.float32], labels: npt.NDArray[np.int64], mask: npt.NDArray[np.bool_]
) -> Digits:
    """Return the rows of images [n, 1, 8, 8] and labels [n] where the mask [n] is True."""
    return Digits(images=images[mask], labels=labels[mask], indices=np.flatnonzero(mask))
