"""What a graph computes, without the names of its tensors and layers."""

from __future__ import annotations

import hashlib

from tinyai.ir import Graph, rename_reads


def structure(graph: Graph) -> list[str]:
    """A line a node, each named by a digest of all that it computes, and the outputs: equal for
    graphs that differ in names, or in the order of independent nodes, alone."""
    names = {name: f"input {place}" for place, name in enumerate(graph.inputs)}
    for name, value in graph.constants.items():
        names[name] = _digest(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    lines = []
    for node in graph.nodes:
        read = rename_reads(node, names.__getitem__)
        line = f"{read.op!r} {read.inputs} {read.epilogue!r} {graph.type(node.output)}"
        names[node.output] = _digest(line.encode())
        lines.append(f"{names[node.output]} = {line}")
    return [*sorted(lines), f"return {[names[name] for name in graph.outputs]}"]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
