"""Ways of choosing a region by hand, beside the patterns: TVM's first tutorial on BYOC showed them.

An operator predicate says which calls of one operator are taken; the whole-graph annotator takes
a function as it is. Both leave bare operators, which the hook builds like composites.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import relay
from tvm.relay.expr_functor import ExprMutator
from tvm.relay.op.annotation import compiler_begin, compiler_end

from tinyai.frontends.relay.spelling import supported
from tinyai.target import COMPILER

Predicate = Callable[[Any, Sequence[relay.Expr]], bool]


def register_predicate(operator: str, predicate: Predicate, *, compiler: str = "tinyai") -> None:
    """Let ``predicate(attrs, args)`` decide which calls of ``operator`` AnnotateTarget takes.

    It replaces tinyai's own rule for that operator; what it takes, the hook has to build: float32
    and integer elementwise operators, and those of ``tinyai.patterns.OPERATORS``, in
    Relay's spelling, on their types.
    ``restore_predicates`` brings the rules back. Raises ``KeyError`` for an operator that the
    hook knows no builder for.
    """
    if operator not in supported():
        raise KeyError(f"{operator}: no operator of tinyai; known are {', '.join(supported())}")
    tvm.ir.Op.get(operator).reset_attr(f"target.{compiler}")

    def takes(expr: relay.Expr) -> bool:
        return bool(predicate(expr.attrs, expr.args))

    tvm.ir.register_op_attr(operator, f"target.{compiler}", takes)


def restore_predicates() -> None:
    """Undo every ``register_predicate`` for tinyai."""
    from tinyai.frontends.relay.cut import register_operators

    for operator in supported():
        tvm.ir.Op.get(operator).reset_attr(f"target.{COMPILER}")
    register_operators()


class _WholeGraph(ExprMutator):  # type: ignore[misc]
    """``compiler_begin`` after every input of a function."""

    def __init__(self, compiler: str) -> None:
        super().__init__()
        self.compiler = compiler

    def visit_var(self, var: relay.Var) -> relay.Expr:
        return compiler_begin(var, self.compiler)


def annotate_whole_graph(func: relay.Function, compiler: str = "tinyai") -> relay.Function:
    """``func`` with ``compiler_begin`` after every input and ``compiler_end`` before the output,
    so that PartitionGraph makes one region of it."""
    body = _WholeGraph(compiler).visit(func.body)
    return relay.Function(func.params, compiler_end(body, compiler), func.ret_type)
