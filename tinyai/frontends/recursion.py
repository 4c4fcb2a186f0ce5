"""Room for TVM's Python visitors."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """TVM's Python visitors recurse once an operator; networks are deeper than Python's default."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 50_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
