"""A pipeline with faults in it: what turns out to have no C, though its builders took it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tinyai.backend import pipeline
from tinyai.errors import UnsupportedError
from tinyai.ir import Graph

Fault = Callable[[Graph], None]


def raises(error: Exception, *kinds: type) -> Fault:
    """Fails where a graph has nodes of all of these kinds."""

    def fault(graph: Graph) -> None:
        if set(kinds) <= {type(node.op) for node in graph.nodes}:
            raise error

    return fault


NO_KERNEL = UnsupportedError("no kernel", found="a large one", allowed="a small one")


@contextmanager
def broken(fault: Fault, where: str = "prepare") -> Iterator[None]:
    """The pipeline with a fault in it, and without what was compiled before."""
    whole = getattr(pipeline, where)

    def faulty(graph: Graph, *rest: Any) -> Any:
        fault(graph)
        return whole(graph, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "_KEPT", type(pipeline._KEPT)())
        patch.setattr(pipeline, where, faulty)
        yield
