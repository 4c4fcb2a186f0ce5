"""A block of which tinyai takes regions, as Relax: a function for each, and its call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import tvm
from tvm import relax

from tinyai.frontends.relax.block import substituted, with_value
from tinyai.frontends.relax.division import Divided
from tinyai.frontends.relax.reader import free_variables
from tinyai.frontends.relax.versions import name_of, typed
from tinyai.target import COMPILER, SPECS

# The attribute of a region with the name of a back end of one's own.
OWN = f"{COMPILER}.backend"
Functions: TypeAlias = dict[tvm.ir.GlobalVar, relax.Function]
# A variable's binding, or the region of this number.
_Node: TypeAlias = "relax.Var | int"


class Writer:
    """Writes a divided block; ``functions`` are its regions, with the ``options`` as an attribute,
    once its ``bindings`` were asked for."""

    def __init__(self, divided: Divided, options: Mapping[str, str]) -> None:
        self.block, self.symbols, self.options = divided.block, divided.symbols, options
        self.functions: Functions = {}
        self._regions = [region.items for region in divided.division.regions]
        self._region_of = {
            item: number for number, items in enumerate(self._regions) for item in items
        }
        # On the host the readers of a dequantize share one again.
        self._shared: dict[relax.Var, relax.Var] = {}
        for copy, source in self.block.copy_of.items():
            if copy not in self._region_of:
                first = copy if source in self._region_of else source
                self._shared[copy] = self._shared.setdefault(source, first)

    def bindings(self) -> list[Any]:
        """What is bound on the host, each behind what it reads."""
        written: list[Any] = []
        done: set[_Node] = set()
        for variable in self._written():
            stack: list[tuple[_Node, bool]] = [(self._node(variable), False)]
            while stack:
                node, ready = stack.pop()
                if node in done:
                    continue
                if ready:
                    done.add(node)
                    written += self._called(node) if isinstance(node, int) else [self._bound(node)]
                else:
                    below = filter(self.block.bindings.__contains__, self._reads(node))
                    stack += [(node, True), *((self._node(each), False) for each in below)]
        return written

    def _written(self) -> list[relax.Var]:
        """All but other names of values and tuples of them, which their readers look through."""
        through = self.block.seen_through
        inner = relax.DataflowVar
        return [v for v in self.block.bindings if v not in through or not isinstance(v, inner)]

    def _node(self, variable: relax.Var) -> _Node:
        return self._region_of.get(variable, variable)

    def _reads(self, node: _Node) -> list[relax.Var]:
        if isinstance(node, int):
            return self._inputs(self._regions[node])
        return [*free_variables(self._bound(node).value)]

    def _bound(self, variable: relax.Var) -> Any:
        binding = self.block.bindings[variable]
        value = self.block.resolved(binding.value)
        value = substituted(value, lambda each: self._shared.get(each, each))
        return with_value(binding, value)

    def _inputs(self, items: Sequence[relax.Var]) -> list[relax.Var]:
        """What a region reads from outside, as the graph of its trial has it."""
        read = {each for item in items for each in self.block.reads(item)} - {*items}
        return [each for each in self.block.order if each in read]

    def _called(self, number: int) -> list[Any]:
        """The bindings of a region's results."""
        items, block = self._regions[number], self.block
        inputs, inside = self._inputs(items), set(items)
        outputs = [
            item
            for item in items
            if item in block.outputs or not inside.issuperset(block.users(item))
        ]
        attrs = {
            "Codegen": COMPILER,
            "global_symbol": self.symbols[number],
            SPECS: json.dumps(dict(self.options), sort_keys=True),
        }
        attrs |= {OWN: self.block.own.name} if self.block.own.name else {}
        function = self._function(items, inputs, outputs).with_attrs(attrs)
        variable = typed(tvm.ir.GlobalVar(self.symbols[number]), function.ty)
        self.functions[variable] = function
        call = typed(relax.Call(variable, inputs), function.ret_ty)
        if len(outputs) == 1:
            return [relax.VarBinding(outputs[0], call)]
        whole = relax.DataflowVar(self.symbols[number], function.ret_ty)
        parts = (typed(relax.TupleGetItem(whole, n), o.ty) for n, o in enumerate(outputs))
        fields = (relax.VarBinding(o, part) for o, part in zip(outputs, parts, strict=True))
        return [relax.VarBinding(whole, call), *fields]

    def _function(
        self,
        items: Sequence[relax.Var],
        inputs: Sequence[relax.Var],
        outputs: Sequence[relax.Var],
    ) -> relax.Function:
        """What a region computes, with variables of its own."""
        new = {each: relax.Var(name_of(each), each.ty) for each in inputs}
        bindings: list[Any] = []

        for item in items:
            value = substituted(self.block.resolved(self.block.value(item)), new.__getitem__)
            kind = relax.Var if [item] == outputs else relax.DataflowVar
            new[item] = kind(self.block.name(item), item.ty)
            bindings.append(relax.VarBinding(new[item], value))
        result = new[outputs[0]]
        if len(outputs) > 1:
            fields = typed_tuple([new[each] for each in outputs])
            result = relax.Var("results", fields.ty)
            bindings.append(relax.VarBinding(result, fields))
        return function_of([new[each] for each in inputs], bindings, result)


def typed_tuple(fields: Sequence[relax.Var]) -> relax.Tuple:
    return typed(relax.Tuple(fields), relax.TupleType([each.ty for each in fields]))


def function_of(
    params: Sequence[relax.Var], bindings: Sequence[Any], result: relax.Var
) -> relax.Function:
    """A function of one dataflow block."""
    body = typed(relax.SeqExpr([relax.DataflowBlock(bindings)], result), result.ty)
    return relax.Function(params, body, result.ty, True)
