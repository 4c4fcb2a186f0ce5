"""A module in TVM's own code for the CPU: whose integers ``rounding=upward`` has."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import relay
from tvm.contrib import graph_executor

from tinyai.frontends.relay.functions import deep_recursion
from tinyai.frontends.relay.modules import with_integers
from tinyai.frontends.relay.source import post_order, rounding_of, source_types, span_name
from tinyai.ir import Array

# LLVM's level does not change integers; TVM's plain convolutions take minutes at higher ones.
HOST = "llvm -opt-level=1"
_INTEGERS = ("int8", "uint8", "int16", "int32")


@contextmanager
def _quiet() -> Iterator[None]:
    """TVM warns of each layer that it has no tuned schedule for, which changes no integers."""
    loggers = [logging.getLogger(name) for name in ("autotvm", "strategy")]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


class TvmOwn:
    """A module without regions, built when its results are asked for. Samples are arrays in the
    order of ``names``, the parameters of main."""

    def __init__(
        self, mod: tvm.IRModule, params: dict[str, Any] | None, names: Sequence[str]
    ) -> None:
        self.name = f"TVM {tvm.__version__}"
        self._names = list(names)
        self._rounding = rounding_of(None)
        with deep_recursion():
            self._mod = with_integers(mod, params, self._rounding)
        self._run: Any = None

    def results(self, samples: Sequence[tuple[Array, ...]]) -> list[list[Array]]:
        self._run = self._run or self._built(self._mod)
        return [self._run(sample) for sample in samples]

    def tensors(self, sample: tuple[Array, ...]) -> Mapping[str, Array]:
        """The last integers that the source model's operators make, by their names."""
        shown: dict[str, relay.Expr] = {}
        main = self._mod["main"]
        for expr in post_order(main.body):
            if isinstance(expr, relay.Call) and span_name(expr):
                types = list(source_types(expr.checked_type))
                if len(types) == 1 and types[0].dtype in _INTEGERS:
                    shown[span_name(expr)] = expr
        body = relay.Tuple(list(shown.values()))
        mod = tvm.IRModule({"main": relay.Function(main.params, body)}, self._mod.type_definitions)
        return dict(zip(shown, self._built(mod)(sample), strict=True))

    def tensor_of(self, source: str) -> str | None:
        return source

    def _built(self, mod: tvm.IRModule) -> Any:
        config = relay.qnn.op.qnn.requantize_config(
            rounding=self._rounding.ties, compute_dtype=self._rounding.compute_dtype
        )
        with tvm.transform.PassContext(opt_level=3), config, _quiet():
            factory = relay.build(mod, target=HOST)
        executor = graph_executor.GraphModule(factory["default"](tvm.cpu()))

        def run(sample: tuple[Array, ...]) -> list[Array]:
            given = zip(self._names, sample, strict=True)
            executor.run(**{name: tvm.nd.array(value) for name, value in given})
            count = executor.get_num_outputs()
            return [executor.get_output(i).numpy() for i in range(count)]

        return run
