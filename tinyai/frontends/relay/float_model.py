"""A float module of Relay's for the quantizer, and TVM's CPU build that runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor
from tvm.relay.build_module import bind_params_by_name

from tinyai.doctor import cpu_description, instruction_sets
from tinyai.errors import EnvironmentProblem, OptionError
from tinyai.frontends.relay.build import build
from tinyai.frontends.relay.qdq import folding, is_plain
from tinyai.frontends.relay.source import Source, source_types
from tinyai.frontends.relay.writer import Writer
from tinyai.qdq.operands import Fold
from tinyai.quantizer.config import QuantConfig
from tinyai.quantizer.data import Sample
from tinyai.quantizer.params import Array
from tinyai.quantizer.points import Points
from tinyai.quantizer.write import with_results
from tinyai.source import Expr
from tinyai.tensor_spec import TensorSpec


class RelayModel:
    """The ``FloatModel`` of a float module of Relay's, whose ``main`` is read into the vocabulary.

    Raises ``OptionError`` for a module that is no plain graph of operators of fixed shapes.
    """

    def __init__(self, mod: tvm.IRModule, params: dict[str, Any] | None) -> None:
        mod = tvm.IRModule({**mod.functions}, mod.type_definitions, mod.attrs)
        if params:
            bound = {
                name: tvm.nd.array(np.asarray(value.numpy() if hasattr(value, "numpy") else value))
                for name, value in params.items()
            }
            mod["main"] = bind_params_by_name(mod["main"], bound)
        mod = relay.transform.InferType()(mod)
        mod = relay.transform.SimplifyInference()(mod)
        self.main: relay.Function = relay.transform.InferType()(mod)["main"]
        if not is_plain(self.main):
            raise OptionError(
                "module to quantize",
                found="let, if, regions or inner functions in main",
                allowed="a plain graph of operators",
                hint="quantize before anything is partitioned",
            )
        self.inputs = tuple(map(_input, self.main.params))
        self.results = tuple(source_types(self.main.ret_type))
        self._source = Source()
        self.fold: Fold | None = folding(self._source)
        self.image_channels: tuple[int, ...] | None = (1, 3)
        self.root = self._source(self.main.body)

    def points(self, root: Expr, config: QuantConfig, **chosen: Any) -> Points:
        return Points(root, config, self.fold, **chosen)

    def written(self, root: Expr, switches: Mapping[Expr, str] | None = None) -> tvm.IRModule:
        """A rewritten root as a module of Relay's; ``switches`` name inputs beside the model's."""
        variables = {
            expr: relay.var(name, shape=expr.type.shape, dtype=expr.type.dtype)
            for expr, name in (switches or {}).items()
        }
        body = Writer(self._source, variables)(root)
        params = [*self.main.params, *variables.values()]
        main = relay.Function(params, body, None, [], self.main.attrs, self.main.span)
        return relay.transform.InferType()(tvm.IRModule.from_expr(main))

    def key(self, root: Expr) -> str:
        return f"{tvm.ir.structural_hash(self.written(root)) % 2**64:016x}"

    def original(self, sample: Sample) -> None:
        """None: TVM's build of it would take as long as all samples."""

    def runner(
        self, root: Expr, values: Sequence[Expr] = (), switches: Mapping[Expr, str] | None = None
    ) -> RelayRunner:
        module = self.written(with_results(root, values), switches)
        return _float_runner(module, len(self.results), len(values))

    def recipe(self, root: Expr, values: Sequence[Expr]) -> RelayRecipe:
        """Raises ``OptionError`` for a module that does not come back from TVM's JSON."""
        written = self.written(with_results(root, values))
        try:
            module = str(tvm.ir.save_json(written))
            tvm.ir.load_json(module)
        except Exception as error:  # TVM raises exceptions of any kind
            raise OptionError(
                "module to calibrate in other processes",
                found=" ".join(str(error).split())[-200:],
                allowed="one that can be pickled",
                hint="attributes that hold functions keep it from that; or without client=",
            ) from error
        return RelayRecipe(module, cpu_target(), len(self.results), len(values))

    def integers(self, root: Expr, values: Sequence[Expr]) -> RelayRunner:
        library = build(self.written(with_results(root, values)))
        return RelayRunner(library, len(self.results), len(values))

    def attempt(self, root: Expr) -> RelayRunner:
        """The integers: TVM needs three times as long for the floats of pairs."""
        return self.integers(root, ())


@dataclass(frozen=True)
class RelayRecipe:
    """A float module as TVM's JSON, with ``values`` after its own ``results``."""

    module: str = field(repr=False)
    target: str
    results: int
    values: int

    def runner(self) -> RelayRunner:
        """Raises ``EnvironmentProblem`` where this CPU is another than that of who wrote it."""
        if self.target != cpu_target():
            raise EnvironmentProblem(
                "a worker's CPU",
                found=f"code for {cpu_target()!r}",
                allowed=f"{self.target!r}, as where tinyai.calibrate was called",
                hint="floats of other instructions are not the same bit for bit",
            )
        return _float_runner(tvm.ir.load_json(self.module), self.results, self.values)


class RelayRunner:
    """The ``FloatRunner`` of a compiled module, whose ``values`` follow its own ``results``."""

    def __init__(self, library: Any, results: int, values: int) -> None:
        self._results, self._values = results, values
        self._executor = graph_executor.GraphModule(library["default"](tvm.cpu()))

    def set(self, switch: str, value: Array) -> None:
        self._executor.set_input(switch, value)

    def run(self, sample: Sample) -> list[Array]:
        self._executor.run(**sample)
        return [self._output(number) for number in range(self._results)]

    def values(self) -> Iterator[Array]:
        return map(self._output, range(self._results, self._results + self._values))

    def _output(self, number: int) -> Array:
        return np.asarray(self._executor.get_output(number).numpy())


def cpu_target() -> str:
    """TVM's own CPU code; as LLVM 10 knows this CPU, if it has what nearly all have."""
    return "llvm -mcpu=core-avx2" if "avx2" in instruction_sets(cpu_description()) else "llvm"


def _float_runner(module: tvm.IRModule, results: int, values: int) -> RelayRunner:
    """A float module that TVM's CPU build runs."""
    with tvm.transform.PassContext(opt_level=2):
        return RelayRunner(relay.build(module, target=cpu_target()), results, values)


def _input(param: relay.Var) -> TensorSpec:
    (of,) = source_types(param.checked_type)
    shape = tuple(dim for dim in of.shape if dim is not None)
    if len(shape) != len(of.shape):
        raise OptionError(
            f"input {param.name_hint}",
            found=of,
            allowed="a fixed shape",
            hint="import the model with shapes (the importers' shape=, --input-shapes)",
        )
    return TensorSpec(param.name_hint, shape, of.dtype)
