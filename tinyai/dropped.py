"""What a region computes less than its source model."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Dropped:
    """Channels of convolutions and dense layers by reason (the same for every input, equal to
    another one, read by nobody), multiply-accumulates of a run, bytes of constants before kernels
    pack them."""

    constant: int = 0
    equal: int = 0
    unread: int = 0
    macs: int = 0
    weight_bytes: int = 0

    @property
    def channels(self) -> int:
        return self.constant + self.equal + self.unread

    def __add__(self, other: Dropped) -> Dropped:
        return Dropped(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __str__(self) -> str:
        """What is gone and why; "" for nothing."""
        reasons = (
            (self.constant, "constant"),
            (self.equal, "equal to another"),
            (self.unread, "unread"),
        )
        why = ", ".join(f"{count:,} {reason}" for count, reason in reasons if count)
        more = f"{self.macs:,} MACs, {self.weight_bytes:,} bytes of weights"
        return f"{self.channels:,} channels ({why}), {more}" if why else ""


NOTHING = Dropped()
