"""An ``If`` whose condition a file's shapes and constants decide: the branch that is taken."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tinyai.frontends.onnx.reader import Site, needed_of
from tinyai.frontends.onnx.unread import names_made, renamed
from tinyai.source import require


def taken_branch(site: Site, names: Iterable[str]) -> list[Any]:
    """The nodes of the branch of an If that is taken; ``names`` are those of the file's values, and
    what is made inside of the branch has another one. Raises ``Refusal`` for a condition of run
    time."""
    from onnx import helper

    condition = site.known(0)
    allowed = "one that is known; --input-shapes NAME=VALUE gives an input one value"
    require(condition is not None, "operator", "If with a condition of run time", allowed)
    way = "then_branch" if condition is not None and condition.item() else "else_branch"
    (graph,) = (each.g for each in site.node.attribute if each.name == way)
    taken = {*names}
    new: dict[str, str] = {}
    for name in sorted(names_made(graph)):
        new[name] = name
        while new[name] in taken:
            new[name] = f"{site.name}/{new[name]}"
        taken.add(new[name])
    nodes, _ = needed_of(graph)
    ends = zip(graph.output, site.node.output, strict=True)
    return [
        *(
            helper.make_node("Constant", [], [new[tensor.name]], new[tensor.name], value=tensor)
            for tensor in graph.initializer
        ),
        *(renamed(node, new, f"{site.name}/") for node in nodes),
        *(
            helper.make_node("Identity", [new.get(end.name, end.name)], [result], result)
            for end, result in ends
            if result
        ),
    ]
