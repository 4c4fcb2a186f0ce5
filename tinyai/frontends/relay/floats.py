"""A float module of Relay's in neutral form, and TVM's CPU build that runs it."""

from __future__ import annotations

import threading
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
from tinyai.frontends.relay.qdq import folding, is_plain
from tinyai.frontends.relay.source import Source, source_types
from tinyai.frontends.relay.writer import Writer
from tinyai.quantizer.calibration import places
from tinyai.quantizer.data import Input, Sample
from tinyai.quantizer.equalization import Equalizer
from tinyai.quantizer.folding import Folding
from tinyai.quantizer.params import Array
from tinyai.quantizer.points import Points
from tinyai.quantizer.write import with_results
from tinyai.source import Expr
from tinyai.stages import stage


class Model:
    """A float module in neutral form, with batch norm folded, and channels equalized if asked."""

    def __init__(
        self, mod: tvm.IRModule, params: dict[str, Any] | None, *, equalize: bool = False
    ) -> None:
        mod = tvm.IRModule({**mod.functions}, mod.type_definitions, mod.attrs)
        if params:
            bound = {name: tvm.nd.array(_numpy(value)) for name, value in params.items()}
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
        self._source = Source()
        self.fold = folding(self._source)
        self.root = Folding(self._source(self.main.body), self.fold).result
        if equalize:
            self.root = Equalizer(self.root, self.fold).result

    def written(self, root: Expr, inputs: Mapping[Expr, relay.Var] | None = None) -> tvm.IRModule:
        """``inputs`` are those that the model did not have."""
        body = Writer(self._source, inputs)(root)
        params = [*self.main.params, *(inputs or {}).values()]
        main = relay.Function(params, body, None, [], self.main.attrs, self.main.span)
        return relay.transform.InferType()(tvm.IRModule.from_expr(main))

    def outputs(self) -> int:
        return len([*source_types(self.main.ret_type)])

    def key(self) -> str:
        """Which model this is: its operators and weights."""
        return f"{tvm.ir.structural_hash(self.written(self.root)) % 2**64:016x}"


def _numpy(value: Any) -> Array:
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)


def _input(param: relay.Var) -> Input:
    (of,) = source_types(param.checked_type)
    shape = tuple(dim for dim in of.shape if dim is not None)
    if len(shape) != len(of.shape):
        raise OptionError(
            f"input {param.name_hint}",
            found=of,
            allowed="a fixed shape",
            hint="import the model with shapes (the importers' shape=, --input-shapes)",
        )
    return Input(param.name_hint, shape, of.dtype)


@dataclass(frozen=True)
class Recipe:
    """What a process needs to run a float model and to see its values: plain data.

    ``module`` is TVM's JSON of it, with the values of ``places`` after its own ``results``.
    """

    module: str = field(repr=False)
    target: str
    results: int
    places: tuple[int, ...]

    @classmethod
    def of(cls, model: Model, points: Points) -> Recipe:
        """For the values of all points. Raises ``OptionError`` for what does not come back from
        JSON."""
        written = model.written(with_results(model.root, [p.expr for p in points.points]))
        try:
            module = str(tvm.ir.save_json(written))
            tvm.ir.load_json(module)
        except Exception as error:  # TVM raises what it likes
            raise OptionError(
                "module to calibrate in other processes",
                found=" ".join(str(error).split())[-200:],
                allowed="one that can be pickled",
                hint="attributes that hold functions keep it from that; or without client=",
            ) from error
        return cls(module, cpu_target(), model.outputs(), tuple(places(points)))


class Floats:
    """A float model that TVM's CPU build runs, one sample at a time: ``alone`` is held meanwhile
    where there are threads."""

    def __init__(self, module: tvm.IRModule, results: int, places: Sequence[int]) -> None:
        self.results, self.places = results, tuple(places)
        with stage("build of the float model"), tvm.transform.PassContext(opt_level=2):
            built = relay.build(module, target=cpu_target())
        self._executor = graph_executor.GraphModule(built["default"](tvm.cpu()))
        self.alone = threading.Lock()

    @classmethod
    def of(cls, model: Model, points: Points) -> Floats:
        written = model.written(with_results(model.root, [p.expr for p in points.points]))
        return cls(written, model.outputs(), places(points))

    @classmethod
    def made(cls, recipe: Recipe) -> Floats:
        """Raises ``EnvironmentProblem`` where this CPU is another than that of who wrote it."""
        if recipe.target != cpu_target():
            raise EnvironmentProblem(
                "a worker's CPU",
                found=f"code for {cpu_target()!r}",
                allowed=f"{recipe.target!r}, as where tinyai.calibrate was called",
                hint="floats of other instructions are not the same bit for bit",
            )
        return cls(tvm.ir.load_json(recipe.module), recipe.results, recipe.places)

    def run(self, sample: Sample) -> list[Array]:
        """The results; ``values`` are then those of this run."""
        self._executor.run(**sample)
        return [self._output(number) for number in range(self.results)]

    def values(self) -> Iterator[tuple[int, Array]]:
        """The value at each place, one after the other."""
        for number, place in enumerate(self.places, self.results):
            yield place, self._output(number)

    def _output(self, number: int) -> Array:
        return np.asarray(self._executor.get_output(number).numpy())


def cpu_target() -> str:
    """TVM's own CPU code; as LLVM 10 knows this CPU, if it has what nearly all have."""
    return "llvm -mcpu=core-avx2" if "avx2" in instruction_sets(cpu_description()) else "llvm"
