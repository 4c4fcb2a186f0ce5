"""The Relay front end: partition a module, and the hooks that ``relay.build`` calls."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, TypeAlias

import tvm
from tvm import relay
from tvm.relay import dataflow_pattern as dfp
from tvm.relay.expr_functor import ExprMutator

from tinyai.backend import CompileSpec, TinyAIBackend, whole_source
from tinyai.codegen.c import identifier
from tinyai.errors import OptionError
from tinyai.frontends.relay.functions import (
    compiler_of,
    deep_recursion,
    has,
    region_options,
    regions,
)
from tinyai.frontends.relay.load import load_model
from tinyai.frontends.relay.qdq import integers_of_typed
from tinyai.frontends.relay.report import check_boundary
from tinyai.frontends.relay.seal import seal, unseal, unsealed
from tinyai.frontends.relay.source import Source, attributes, graph_from_region, rounding_of
from tinyai.frontends.relay.spelling import NAMES, spelled, supported
from tinyai.frontends.relay.trial import (
    Unbuilt,
    dissolved,
    unbuildable,
    with_unbuilt,
    without_regions,
)
from tinyai.ir import Graph
from tinyai.lowering import refusal_of_composite, refusal_of_operator
from tinyai.match import (
    AnyConstant,
    Anything,
    AnyTuple,
    Chain,
    OneOf,
    Operator,
    Pattern,
    narrowed,
    operators,
)
from tinyai.patterns import (
    PATTERNS,
    PatternRow,
    computes,
)
from tinyai.source import TVMS_OWN, Call, Rounding
from tinyai.target import COMPILER, SPECS, Target, default_rounding, split_target

# Compile specs by the names of regions.
SpecsOfRegions: TypeAlias = Mapping[str, Sequence[CompileSpec]]

CONVOLUTIONS = {"conv2d", "quantized_conv2d", "quantized_conv2d_transpose"}


def partition_for_tinyai(
    mod: tvm.IRModule | str | os.PathLike[str],
    params: dict[str, Any] | None = None,
    *,
    target: str | Target | None = None,
    mod_name: str = "default",
    prune: bool | str = True,
    strict: bool | str = False,
    sealed: bool | str = False,
    compile_specs: Sequence[CompileSpec] | SpecsOfRegions | str = (),
    **options: object,
) -> tvm.IRModule:
    """Cut the parts of ``mod`` that tinyai takes into functions with ``Compiler="tinyai"``.

    ``mod`` may be the path of an .onnx or .tflite file, which is loaded, and whose framework's
    integers are the regions', if no ``rounding`` is asked for. ``params`` are bound as constants: a
    pattern needs its weights. ``options`` are fields of ``tinyai.Target`` as values or strings,
    ``target`` is all of them; ``compile_specs`` are options too, for all regions or by a
    region's name for one, where they overrule the others. A region that computes nothing goes back
    to the host unless ``prune`` is False, and what turns out to have no C, with a ``DefectWarning``
    where that is a fault of tinyai's own. ``mod_name`` begins the regions' symbols. ``sealed``
    leaves the composites as ``tinyai.seal`` makes them: the quicker way to a ``relay.build``. A
    module that has regions of tinyai's already is returned as it is, and so are regions of other
    compilers. The argument is not changed.
    Raises ``OptionError`` for an unknown option or a ``mod_name`` that is no C identifier; under
    ``strict`` ``BoundaryError``, with the report of ``tinyai.explain``, where an operator that
    computes stays on the host.
    """
    if target is not None:
        own: dict[str, Any] = {"mod_name": mod_name, "prune": prune, "strict": strict}
        own |= {"sealed": sealed, "compile_specs": compile_specs}
        said = own | split_target(target)[0] | options
        return partition_for_tinyai(mod, params, **said)
    usual = default_rounding(mod)
    mod, params = module_of(mod, params)
    whole, keep_sealed = _boolean("strict", strict), _boolean("sealed", sealed)
    if isinstance(compile_specs, str):
        allowed = "CompileSpec values; in a target string options are -name=value"
        raise OptionError("compile specs", found=repr(compile_specs), allowed=allowed)
    apart = compile_specs if isinstance(compile_specs, Mapping) else {}
    if not isinstance(compile_specs, Mapping):
        options = options_with(compile_specs, options)
    options = {**options, "rounding": options.get("rounding") or usual}
    _check_roundings(apart, options)
    partitioned = _partition(mod, params, mod_name, prune, options, apart, keep_sealed)
    if whole:
        check_boundary(partitioned, Target.from_options(options).rounding)
    return partitioned


OWN_OPTIONS = ("target", "mod_name", "prune", "strict", "sealed", "compile_specs")


def options_with(specs: Sequence[CompileSpec], options: Mapping[str, object]) -> dict[str, object]:
    """``options``, and what compile specs for all regions say. Raises ``OptionError`` for what is
    said twice."""
    said: dict[str, object] = {spec.key: _text(spec) for spec in specs}
    twice = sorted(said.keys() & options.keys())
    if twice or len(said) != len(specs):
        keys = twice or sorted(spec.key for spec in specs)
        raise OptionError("compile specs", found=f"{', '.join(keys)}, twice", allowed="once")
    return {**options, **said}


def _check_roundings(apart: SpecsOfRegions, options: Mapping[str, object]) -> None:
    """Which operators a region holds depends on the rounding."""
    for region, specs in apart.items():
        if any(spec.key == "rounding" for spec in specs):
            raise OptionError(
                f"compile spec 'rounding' of region {region}",
                found="one of its own",
                allowed=f"that of all regions: {options['rounding']}",
            )


def _check_regions(apart: SpecsOfRegions, found: Mapping[tvm.ir.GlobalVar, Any]) -> None:
    names = [variable.name_hint for variable in found]
    unknown = sorted(set(apart) - set(names))
    if unknown:
        raise OptionError(
            "compile specs of regions",
            found=", ".join(unknown),
            allowed=", ".join(names) or "none: there is no region",
        )


def of_target(options: Mapping[str, object]) -> dict[str, object]:
    """``options`` without the arguments that are ``partition_for_tinyai``'s own, which may be in
    a target string too; those of ``target`` among them."""
    target = options.get("target")
    said: dict[str, object] = {} if target is None else {**split_target(target)[0]}  # type: ignore[arg-type]
    return {name: value for name, value in (said | {**options}).items() if name not in OWN_OPTIONS}


def check_options(options: Mapping[str, object]) -> None:
    """Raise ``OptionError`` where ``partition_for_tinyai`` would because of these options."""
    for name in ("prune", "strict", "sealed"):
        _boolean(name, str(options.get(name, False)))
    identifier(str(options.get("mod_name", "default")), "mod_name")
    Target.from_options(of_target(options))


def module_of(mod: Any, params: Any) -> tuple[tvm.IRModule, dict[str, Any] | None]:
    """The module and parameters that a user hands over, or those of the file that he names.

    Raises ``OptionError`` where it is anything else.
    """
    if isinstance(mod, str | os.PathLike):
        if params:
            raise OptionError(
                "params beside a model file",
                found=f"{len(params)} of them",
                allowed="none: the file has its own",
                hint="TVM's importers give a module and its params, to be changed",
            )
        return load_model(mod)
    if not isinstance(mod, tvm.IRModule):
        function = isinstance(mod, relay.Expr)
        raise OptionError(
            "module",
            found="None" if mod is None else f"{type(mod).__module__}.{type(mod).__name__}",
            allowed="a tvm.IRModule, or the path of an .onnx or .tflite file",
            hint="tvm.IRModule.from_expr(function)" if function else "what an importer returns",
        )
    if not isinstance(params, Mapping | None):
        raise OptionError(
            "params",
            found=f"{type(params).__module__}.{type(params).__name__}",
            allowed="a dict of arrays by the names of main's parameters, or None",
            hint="options are keywords: target=, isa=, ...",
        )
    return mod, params  # type: ignore[return-value]


def _partition(
    mod: tvm.IRModule,
    params: dict[str, Any] | None,
    mod_name: str,
    prune: bool | str,
    options: Mapping[str, object],
    apart: SpecsOfRegions,
    sealed: bool,
) -> tvm.IRModule:
    target = Target.from_options(options)
    identifier(mod_name, "mod_name")
    keep_idle = not _boolean("prune", prune)
    if regions(mod):
        return seal(mod) if sealed else mod
    rounding = replace(rounding_of(None), mode=target.rounding)
    with deep_recursion():
        mod = with_composites(with_integers(mod, params, rounding), rounding=rounding)
        mod = _buildable_regions(mod, mod_name, target, rounding, apart, keep_idle=keep_idle)
    return mod if sealed else unseal(mod)


def with_integers(
    mod: tvm.IRModule, params: dict[str, Any] | None, rounding: Rounding
) -> tvm.IRModule:
    """``mod`` as composites are looked for in it: parameters bound, no let bindings, integers where
    it quantizes, types inferred. The argument is not changed."""
    return integers_of_typed(with_constants(mod, params), rounding)


def with_constants(mod: tvm.IRModule, params: dict[str, Any] | None) -> tvm.IRModule:
    """``mod`` with its parameters bound, without let bindings, its types inferred."""
    mod = tvm.IRModule(mod.functions, mod.type_definitions, mod.attrs)
    if params:
        mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    if any(_has_let(func) for func in mod.functions.values()):
        # PartitionGraph cannot follow a region through let bindings.
        mod = relay.transform.ToGraphNormalForm()(relay.transform.InferType()(mod))
    return relay.transform.InferType()(mod)


def _buildable_regions(
    mod: tvm.IRModule,
    mod_name: str,
    target: Target,
    rounding: Rounding,
    apart: SpecsOfRegions,
    *,
    keep_idle: bool,
) -> tvm.IRModule:
    """A module of composites in regions that can be built: what cannot stays on the host."""
    unbuilt: list[Unbuilt] = []
    while True:
        cut = annotated_regions(mod, mod_name, rounding)
        cut = cut if keep_idle else _inline_idle_regions(cut)
        cut = _with_attributes(cut, target, apart)
        found = regions(cut)
        leaving = [part for func in found.values() for part in unbuildable(func)]
        if not leaving:
            _check_regions(apart, found)
            return with_unbuilt(dissolved(cut), unbuilt) if unbuilt else cut
        unbuilt += [why for _, why in leaving]
        mod = without_regions(cut, found, [call for call, _ in leaving])


def cut_regions(
    mod: tvm.IRModule,
    mod_name: str = "default",
    patterns: tuple[PatternRow, ...] = PATTERNS,
    *,
    sealed: bool = False,
) -> tvm.IRModule:
    """TVM's four passes, under the composites of ``patterns`` and the operators' predicates. The
    types of ``mod`` are inferred, and so are those of the result. ``sealed``: its composites too.
    """
    mod = annotated_regions(with_composites(mod, patterns), mod_name)
    return mod if sealed else unseal(mod)


def with_composites(
    mod: tvm.IRModule,
    patterns: tuple[PatternRow, ...] = PATTERNS,
    rounding: Rounding = TVMS_OWN,
) -> tvm.IRModule:
    """The composites of a module whose types are inferred, sealed."""
    mod = relay.transform.FoldConstant()(mod)
    for rows in _up_to_convolutions(patterns):
        table = pattern_table(_for_module(rows, mod), rounding)
        mod = relay.transform.MergeComposite(table)(mod)
        # A composite was checked as a whole: nothing below has to look into one.
        mod = seal(mod)
    return mod


def composites_of(
    mod: tvm.IRModule, patterns: tuple[PatternRow, ...], *, compiler: str
) -> tvm.IRModule:
    """The composites of a module whose types are inferred, for another compiler."""
    mod = relay.transform.FoldConstant()(mod)
    table = pattern_table(_for_module(patterns, mod), compiler=compiler)
    return relay.transform.MergeComposite(table)(mod)


def annotated_regions(
    mod: tvm.IRModule, mod_name: str, rounding: Rounding = TVMS_OWN
) -> tvm.IRModule:
    """The regions of a module of composites, and of single operators between them."""
    register_operators()
    token = _ANNOTATED_FOR.set(rounding)
    try:
        return annotated_by(COMPILER, mod, mod_name)
    finally:
        _ANNOTATED_FOR.reset(token)


def annotated_by(compiler: str, mod: tvm.IRModule, mod_name: str) -> tvm.IRModule:
    """The regions of a compiler, in a module of its composites."""
    symbols = _symbols_of_others(mod)
    passes = [
        relay.transform.AnnotateTarget([compiler]),
        relay.transform.MergeCompilerRegions(),
        relay.transform.PartitionGraph(mod_name),
    ]
    return _restore_symbols(tvm.transform.Sequential(passes)(mod), symbols)


def _up_to_convolutions(rows: tuple[PatternRow, ...]) -> list[tuple[PatternRow, ...]]:
    """``rows`` up to the last of convolutions, whose types take so long to infer, and the rest."""
    places = [i for i, row in enumerate(rows, 1) if operators(row.pattern) & CONVOLUTIONS]
    cut = max(places, default=0)
    return [part for part in (rows[:cut], rows[cut:]) if part]


def _for_module(rows: tuple[PatternRow, ...], mod: tvm.IRModule) -> tuple[PatternRow, ...]:
    """``rows`` without what no operator of ``mod`` can match.

    For each pattern MergeComposite types the whole module anew. And where a call is matched it
    looks at attributes last: a chain is walked once for each dtype that a cast might have, at each
    of its casts again.
    """
    calls: dict[str, list[relay.Call]] = {}

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            calls.setdefault(expr.op.name, []).append(expr)

    for func in mod.functions.values():
        if isinstance(func, relay.Function):
            relay.analysis.post_order_visit(func, visit)

    @functools.cache
    def attributes_of(name: str) -> list[dict[str, Any]]:
        return [attributes(call.attrs) for call in calls[name]]

    def occurs(operator: Operator) -> bool:
        name, asked = spelled(operator.op), operator.attrs.items()
        if name not in calls:
            return False
        return not asked or any(asked <= has.items() for has in attributes_of(name))

    found = ((row, narrowed(row.pattern, occurs)) for row in rows)
    return tuple(replace(row, pattern=pattern) for row, pattern in found if pattern)


def _has_let(func: Any) -> bool:
    found: list[bool] = []
    if isinstance(func, relay.Function):
        relay.analysis.post_order_visit(func, lambda e: found.append(isinstance(e, relay.Let)))
    return any(found)


def _boolean(name: str, value: bool | str) -> bool:
    words = {"true": True, "1": True, "false": False, "0": False}
    if str(value).lower() not in words:
        raise OptionError(f"option {name!r}", found=repr(value), allowed="True, False, or as text")
    return words[str(value).lower()]


def _with_attributes(mod: tvm.IRModule, target: Target, apart: SpecsOfRegions) -> tvm.IRModule:
    """Compile specs as an attribute of every region: the hook sees nothing but the function.
    Those of regions ``apart`` overrule the target's."""

    def specs(region: str) -> list[CompileSpec]:
        own = {spec.key: _text(spec) for spec in apart.get(region, ())}
        options = Target.from_options(target.options() | own).options()
        return [CompileSpec(name, text.encode()) for name, text in options.items()]

    return with_specs(mod, regions(mod), specs)


def with_specs(
    mod: tvm.IRModule,
    found: Mapping[tvm.ir.GlobalVar, relay.Function],
    specs: Callable[[str], Sequence[CompileSpec]],
) -> tvm.IRModule:
    """``mod``, whose regions carry what ``specs`` says of each by its name."""
    for variable, func in found.items():
        said = {spec.key: _text(spec) for spec in specs(variable.name_hint)}
        mod.update_func(variable, func.with_attr(SPECS, json.dumps(said, sort_keys=True)))
    return mod


def _text(spec: CompileSpec) -> str:
    return spec.value.decode(errors="surrogateescape")


# --- Patterns and predicates -------------------------------------------------------------------


def pattern_table(
    rows: tuple[PatternRow, ...] = PATTERNS,
    rounding: Rounding = TVMS_OWN,
    compiler: str = COMPILER,
) -> list[tuple[str, dfp.DFPattern, Callable[[relay.Expr], bool]]]:
    """The composites as TVM's MergeComposite takes them: name, pattern, check."""

    def check(row: PatternRow, root: relay.Expr) -> bool:
        return refusal_of_composite(row, Source()(root), rounding) is None

    return [
        (f"{compiler}.{row.name}", _compiled(row), functools.partial(check, row)) for row in rows
    ]


@functools.lru_cache
def _compiled(row: PatternRow) -> dfp.DFPattern:
    return compile_pattern(row.pattern)


def compile_pattern(pattern: Pattern) -> dfp.DFPattern:
    """A pattern of ``tinyai.match`` in Relay's pattern language.

    The levels of a chain are shared, or the result would grow exponentially. A leaf is made anew
    for each place: in Relay one pattern object stands for one expression.
    """
    levels: dict[int, dfp.DFPattern] = {}
    kept: list[Pattern] = []  # an id stays unique while its pattern lives

    def build(each: Pattern) -> dfp.DFPattern:
        match each:
            case Anything():
                return dfp.wildcard()
            case AnyConstant():
                return dfp.is_constant()
            case AnyTuple():
                return dfp.is_tuple(None)
            case Chain():
                return build(each.unroll())
            case OneOf(options):
                if id(each) not in levels:
                    kept.append(each)
                    levels[id(each)] = functools.reduce(lambda a, b: a | b, map(build, options))
                return levels[id(each)]
            case Operator(name, args, attrs):
                call = dfp.is_op(spelled(name))(*map(build, args))
                return call.has_attr(dict(attrs)) if attrs else call
        raise TypeError(f"no pattern: {each!r}")

    return build(pattern)


# Whose arithmetic the predicates ask for: TVM has one for each operator, and calls it with an
# expression and nothing else.
_ANNOTATED_FOR: ContextVar[Rounding] = ContextVar("_ANNOTATED_FOR", default=TVMS_OWN)


def register_operators() -> None:
    """Tell AnnotateTarget about single operators, which it takes between composites."""
    key = f"target.{COMPILER}"
    for name in supported():
        operator = tvm.ir.Op.get(name)
        # has_attr tells whether any operator has it, get_attr fails where none has.
        if not operator.has_attr(key) or operator.get_attr(key) is None:
            tvm.ir.register_op_attr(name, key, _takes)


def _takes(expr: relay.Expr) -> bool:
    call = Source()(expr)
    return isinstance(call, Call) and refusal_of_operator(call, _ANNOTATED_FOR.get()) is None


# --- Hooks -------------------------------------------------------------------------------------


def compile_region(func: relay.Function) -> tvm.runtime.Module:
    """``relay.ext.tinyai``: the C source module of one region."""
    module = compile_with(lambda *args: whole_source(TinyAIBackend.preprocess(*args)), func)
    _give_memory_back()
    return module


def compile_with(
    code_of: Callable[[Graph, Sequence[CompileSpec]], str], func: relay.Function
) -> tvm.runtime.Module:
    """The C source module of a region: what ``code_of`` says of its graph and compile specs."""
    specs = [
        CompileSpec(name, text.encode(errors="surrogateescape"))
        for name, text in region_options(func).items()
    ]
    graph = graph_from_region(func)
    create = tvm.get_global_func("runtime.CSourceModuleCreate")
    return create(code_of(graph, specs), "c", [graph.name], [])


def _give_memory_back() -> None:
    """Weights as text are several times as large as they are. glibc keeps what was freed of them,
    and the C compiler, which comes next, takes as much again."""
    with contextlib.suppress(OSError, AttributeError):  # another libc
        ctypes.CDLL(None).malloc_trim(0)


def update_constants(func: relay.Function, symbol: str) -> dict[str, tvm.nd.NDArray]:
    """``relay.ext.tinyai.constant_updater``: none, for the weights are in the source. Without it
    TVM would store every constant a second time."""
    return {}


def register_hooks() -> None:
    """Register the hooks by name; again changes nothing."""
    tvm.register_func(f"relay.ext.{COMPILER}", compile_region, override=True)
    tvm.register_func(f"relay.ext.{COMPILER}.constant_updater", update_constants, override=True)
    register_operators()


# --- Rewriting partitioned modules -------------------------------------------------------------


class _Replace(ExprMutator):  # type: ignore[misc]
    """Calls of global functions: renamed, or replaced by the function's flattened body."""

    def __init__(
        self,
        names: dict[str, tvm.ir.GlobalVar],
        bodies: dict[str, relay.Function],
    ) -> None:
        super().__init__()
        self.names, self.bodies = names, bodies

    def visit_global_var(self, gvar: tvm.ir.GlobalVar) -> tvm.ir.GlobalVar:
        return self.names.get(gvar.name_hint, gvar)

    def visit_call(self, call: relay.Call) -> relay.Expr:
        body = None
        if isinstance(call.op, tvm.ir.GlobalVar):
            body = self.bodies.get(call.op.name_hint)
        elif isinstance(call.op, relay.Function) and self.bodies and has(call.op, "Composite"):
            body = call.op
        if body is None:
            return super().visit_call(call)
        body = unsealed(body)
        bound = dict(zip(body.params, map(self.visit, call.args), strict=True))
        return self.visit(relay.bind(body.body, bound))

    def visit_function(self, fn: relay.Function) -> relay.Function:
        body = self.visit(fn.body)
        return relay.Function(list(fn.params), body, fn.ret_type, fn.type_params, fn.attrs)


def _inline_idle_regions(mod: tvm.IRModule) -> tvm.IRModule:
    """Regions that only cast, reshape or mark a place go back to the host."""
    idle = {v.name_hint: f for v, f in regions(mod).items() if not _computes(f)}
    if not idle:
        return mod
    replace = _Replace({}, idle)
    functions = {
        v: f if compiler_of(f) is not None else replace.visit(f)
        for v, f in mod.functions.items()
        if v.name_hint not in idle
    }
    return relay.transform.InferType()(tvm.IRModule(functions, mod.type_definitions, mod.attrs))


def _computes(region: relay.Function) -> bool:
    found: list[bool] = []

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and isinstance(expr.op, tvm.ir.Op):
            found.append(computes(NAMES.get(expr.op.name, expr.op.name)))
        elif isinstance(expr, relay.Function) and (hidden := unsealed(expr)) is not expr:
            found.append(_computes(hidden))

    relay.analysis.post_order_visit(region.body, visit)
    return any(found)


def _symbols_of_others(mod: tvm.IRModule) -> set[str]:
    return {v.name_hint for v, f in mod.functions.items() if compiler_of(f) is not None}


def _restore_symbols(mod: tvm.IRModule, symbols: set[str]) -> tvm.IRModule:
    """PartitionGraph puts its prefix in front of other compilers' symbols: take it off again."""
    names: dict[str, tvm.ir.GlobalVar] = {}
    for variable, func in mod.functions.items():
        old = next((s for s in symbols if variable.name_hint.endswith(f"_{s}")), None)
        if old is not None and compiler_of(func) not in (None, COMPILER):
            names[variable.name_hint] = tvm.ir.GlobalVar(old)
    if not names:
        return mod
    replace = _Replace(names, {})
    functions = {}
    for variable, func in mod.functions.items():
        if variable.name_hint in names:
            variable = names[variable.name_hint]
            func = func.with_attr("global_symbol", variable.name_hint)
        elif compiler_of(func) is None:
            func = replace.visit(func)
        functions[variable] = func
    return relay.transform.InferType()(tvm.IRModule(functions, mod.type_definitions, mod.attrs))
