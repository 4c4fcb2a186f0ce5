"""What the quantizer is asked for: frozen, and checked when it is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tinyai.errors import OptionError

OBSERVERS = ("minmax", "average", "percentile", "mse", "entropy")
DTYPES = ("int8", "uint8", "int16")
RESIDUALS = ("own", "common", "int16")
# Steps of the largest weight of 8 bits, and of 7: 255 * (63 + 63) < 2^15.
LARGEST_WEIGHT, LARGEST_OF_7_BITS = 127, 63
ROUNDINGS = ("nearest", "adaptive")


@dataclass(frozen=True)
class QuantConfig:
    """How a float model becomes integers.

    ``dtype`` int8, uint8 or int16 is that of activations, each tensor with one scale; ``symmetric``
    puts their zero point in the middle, where that of int16 always is. ``int16_layers`` are those
    whose operands and results have 16 bits where others have 8, by their names in the model.
    ``observer`` chooses ranges from what it saw: ``minmax`` everything, ``average`` a moving
    average of each sample's extremes (``momentum`` is what stays of it at a sample),
    ``percentile`` all but the ends (that share in per cent stays within),
    ``mse`` the range of the least squared error, of what a function makes of a value where it alone
    reads that (``value_functions.py``), ``entropy`` that of the least divergence.
    Weights are symmetric int8: ``per_channel``, or with one scale a tensor; with ``reduce_range``
    of 7 bits (-63 to 63), so that two products fit into 16 bits: programs that add them there, as
    others do on some CPUs, then do not saturate; weights that a model has as integers stay.
    ``power_of_two`` rounds scales up to powers of two. ``residual`` gives the operands and the
    result of a sum scales of their own, or one in common; with ``int16`` sums that norms read, as
    in transformers, have 16 bits and scales of their own (``residuals.py``). ``shared_averages``
    gives an average the scale of its input. With ``separate_results`` a concatenation at the
    model's end stays float where its parts need scales that are far apart, as boxes in pixels and
    their scores do.
    ``operators`` chooses rows, all if it is empty: others stay in float. So do ``float_operators``,
    the layers with the names ``float_layers``, and the first and the last with weights.

    ``equalize`` makes the ranges of channels between two layers more alike first
    (``equalization.py``), which helps where weights have one scale a tensor.
    ``equalize_activations`` makes the ranges of activations' channels more alike by the first 32
    samples (``activation_equalization.py``), unless that, done by three quarters of these, leaves
    over half a decibel more noise in the results on the others.
    What layers compute on the first 32 samples is used further: ``rounding`` "adaptive" rounds
    each weight so that it makes up for those before it (``adaptive_rounding.py``) instead of to the
    "nearest" step; ``correct_bias`` takes the mean error of each output off its bias.

    Raises ``OptionError`` for a value that is not allowed.
    """

    dtype: str = "int8"
    symmetric: bool = False
    observer: str = "mse"
    momentum: float = 0.9
    percentile: float = 99.99
    per_channel: bool = True
    reduce_range: bool = False
    power_of_two: bool = False
    residual: str = "own"
    shared_averages: bool = False
    separate_results: bool = True
    operators: tuple[str, ...] = ()
    float_operators: tuple[str, ...] = ()
    float_layers: tuple[str, ...] = ()
    float_first: bool = False
    float_last: bool = False
    int16_layers: tuple[str, ...] = ()
    rounding: str = "adaptive"
    correct_bias: bool = True
    equalize: bool = False
    equalize_activations: bool = True

    def __post_init__(self) -> None:
        for name, allowed in (
            ("dtype", DTYPES),
            ("observer", OBSERVERS),
            ("residual", RESIDUALS),
            ("rounding", ROUNDINGS),
        ):
            self._require(name, getattr(self, name) in allowed, " or ".join(allowed))
        momentum, percentile = self.momentum, self.percentile
        self._require("momentum", is_number(momentum) and 0 <= momentum < 1, "0 <= momentum < 1")
        # Below 50 per cent "all but the ends" would be nothing.
        self._require("percentile", is_number(percentile) and 50 <= percentile <= 100, "50 to 100")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, bool):
                self._require(field.name, isinstance(value, bool), "True or False")
            if isinstance(field.default, tuple):
                object.__setattr__(self, field.name, self._names(field.name, value))
        if self.dtype == "int16":
            object.__setattr__(self, "symmetric", True)

    @property
    def largest_weight(self) -> int:
        """Steps of the largest weight."""
        return LARGEST_OF_7_BITS if self.reduce_range else LARGEST_WEIGHT

    def of_dtype(self, dtype: str) -> QuantConfig:
        """The configuration with another ``dtype``."""
        return self if dtype == self.dtype else dataclasses.replace(self, dtype=dtype)

    def _names(self, name: str, value: Any) -> tuple[str, ...]:
        listed = isinstance(value, Iterable) and not isinstance(value, str)
        found = tuple(value) if listed else ()
        strings = listed and all(isinstance(each, str) for each in found)
        self._require(name, strings, "a list of names")
        return found

    def _require(self, name: str, fits: bool, allowed: str) -> None:
        if not fits:
            raise OptionError(
                f"QuantConfig.{name}", found=repr(getattr(self, name)), allowed=allowed
            )


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
