"""Names under which people know the operators of a program: those of the source model's modules."""

from __future__ import annotations

from collections import Counter

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from tinyai.frontends.executorch.reader import QUANTIZATION, operator_of
from tinyai.safe_text import safe

LONGEST = 120


def names_of(program: ExportedProgram | GraphModule) -> dict[str, str]:
    """For each call of a program, by its node's name, the path of the module that it is in and the
    operator, as in ``features.3.conv (convolution)``; the node's own name where torch knows no
    module. An operator that a module calls again has a number: ``block (add 2)``. What quantization
    put into the program is not there.

    Names are on one line, of at most ``LONGEST`` characters.
    """
    counts: Counter[tuple[str, str]] = Counter()
    names = {}
    for node in program.graph.nodes:
        operator = operator_of(node)
        if node.op != "call_function" or operator.startswith(QUANTIZATION):
            continue
        path, operator = module_of(node), operator.rpartition(".")[2]
        counts[path, operator] += 1
        count = counts[path, operator]
        again = f"{operator} {count}" if count > 1 else operator
        names[node.name] = safe(f"{path} ({again})" if path else node.name, LONGEST)
    return names


def module_of(node: Node) -> str:
    """The path of the innermost module that called an operator; nothing for the model itself, and
    where torch did not note it."""
    stack = node.meta.get("nn_module_stack")
    innermost = list(stack.values())[-1] if isinstance(stack, dict) and stack else None
    path = innermost[0] if isinstance(innermost, tuple | list) and innermost else ""
    return path if isinstance(path, str) else ""
