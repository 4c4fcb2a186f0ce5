"""What TVM's Python lacks for Relay's functions."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from tvm import relay


def has(func: relay.Function, attribute: str) -> bool:
    return func.attrs is not None and attribute in list(func.attrs.keys())


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """TVM's Python visitors recurse once an operator; networks are deeper than Python's default."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 50_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
