"""tinyai as a back end: C for a graph."""

from __future__ import annotations

from collections.abc import Sequence

from tinyai.backend.debug_handles import DebugHandleMapBuilder
from tinyai.backend.details import BackendDetails, CompileSpec, PreprocessResult
from tinyai.backend.pipeline import check_limits, compile_once
from tinyai.codegen.lowered import Lowered
from tinyai.errors import OptionError
from tinyai.ir import Graph
from tinyai.target import Target


class TinyAIBackend(BackendDetails):
    """C for a graph, with the entry that TVM calls. A compile spec is the name of a field of
    ``Target`` and its value as UTF-8 text."""

    @staticmethod
    def preprocess(program: Graph, compile_specs: Sequence[CompileSpec]) -> PreprocessResult:
        """The C file as ``processed_bytes``, and which nodes of the source model each layer, by
        its number, came from. Raises what ``compile_graph`` raises, and ``OptionError`` for specs
        that it does not know or cannot read."""
        target = target_of(compile_specs)
        compiled = compile_once(program, target, last=True)
        check_limits(compiled, target)
        return PreprocessResult(compiled.source.text.encode(), _handles(compiled.graph))


def target_of(compile_specs: Sequence[CompileSpec]) -> Target:
    """The target that specs say. Raises ``OptionError`` for unknown keys, twice the same one, and
    values that are no text or that the option does not allow."""
    options: dict[str, object] = {}
    for spec in compile_specs:
        if not isinstance(spec, CompileSpec):
            raise OptionError(
                "compile spec", found=repr(spec), allowed='CompileSpec("isa", b"scalar")'
            )
        if spec.key in options:
            raise OptionError(f"compile spec {spec.key!r}", found="twice", allowed="once")
        try:
            options[spec.key] = spec.value.decode()
        except (AttributeError, UnicodeDecodeError):
            raise OptionError(
                f"compile spec {spec.key!r}", found=repr(spec.value), allowed="UTF-8 text as bytes"
            ) from None
    return Target.from_options(options)


def _handles(graph: Lowered) -> dict[int, tuple[int | str, ...]]:
    """For each layer, by its number, the source model's nodes. Layers that stand for none, such as
    a transposition between two orders, have no entry."""
    builder = DebugHandleMapBuilder()
    for number, node in enumerate(graph.nodes):
        if node.sources:
            builder.insert(nodes=node, identifier=number)
    return builder.output()  # type: ignore[return-value]  # the identifiers are numbers
