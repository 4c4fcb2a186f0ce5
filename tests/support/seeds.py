"""What becomes of random models, by their seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence


def require_no_fault(
    seeds: Iterable[int],
    fault_of: Callable[[int], tuple[str, str]],
    operators_of: Callable[[int], Sequence[str]],
) -> Counter[str]:
    """How many models came to which end; ``fault_of`` says it, and what is wrong, if anything."""
    ends, faults = Counter[str](), []
    for seed in seeds:
        end, fault = fault_of(seed)
        ends[end] += 1
        if fault:
            faults.append(f"seed {seed}, {', '.join(operators_of(seed))}: {fault}")
    assert not faults, "\n".join(faults)
    return ends
