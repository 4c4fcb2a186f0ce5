"""tinyai as a back end: C for a graph, and constants that graphs share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyai.backend.debug_handles import DebugHandleMapBuilder
from tinyai.backend.details import BackendDetails, CompileSpec, PreprocessResult
from tinyai.backend.library import library_of
from tinyai.backend.named_data import NamedData, NamedDataStore
from tinyai.backend.pipeline import Compiled, check_limits, compile_graph, compile_once
from tinyai.codegen.constants import with_declarations, with_definitions
from tinyai.codegen.emit import CSource
from tinyai.codegen.lowered import Lowered
from tinyai.errors import OptionError
from tinyai.ir import Graph
from tinyai.target import OPTIONS, Target

# The option of the back end that is none of the target.
BINARY = "binary"
# What is called without a runtime: an entry beside those of TVM's that a target can ask for.
PLAIN = "plain"
# Constants begin at a line of memory.
ALIGNMENT = 64


class TinyAIBackend(BackendDetails):
    """C for a graph. A compile spec is the name of an option of ``Target`` and its value as UTF-8
    text, or one of the back end's own:

    - ``abi``: beside the target's, ``plain``: an entry that is called without TVM.
    - ``binary``: ``1`` for the compiled library instead of C, for this machine or the one that the
      environment's ``CC`` compiles for.
    """

    @staticmethod
    def preprocess(program: Graph, compile_specs: Sequence[CompileSpec]) -> PreprocessResult:
        """The C file as ``processed_bytes``, its constants as ``data_store_output``, and for each
        layer, by its number, the nodes of the source model that it came from. The C declares its
        constants by the keys that they are stored under, which are hashes of their contents;
        ``whole_source`` puts them in. A library has them in it, and stores none.

        Raises what ``compile_graph`` raises, ``OptionError`` for specs that it does not know or
        cannot read, and ``ToolchainError`` where the C compiler fails.
        """
        options = BackendOptions.of(compile_specs)
        compiled = options.compiled(program)
        handles = _handles(compiled.graph)
        code = with_declarations(compiled.source.frame).encode()
        data = _stored(compiled.source)
        if options.binary:
            return PreprocessResult(library_of([code], data), handles)
        return PreprocessResult(code, handles, data)


@dataclass(frozen=True)
class BackendOptions:
    """What compile specs say."""

    target: Target
    plain: bool = False
    binary: bool = False

    @classmethod
    def of(cls, compile_specs: Sequence[CompileSpec]) -> BackendOptions:
        """Raises ``OptionError`` for unknown keys, twice the same one, and values that are no text
        or that the option does not allow."""
        options: dict[str, object] = {**_texts(compile_specs)}
        plain = options.get("abi") == PLAIN
        if plain:
            del options["abi"]
        binary = options.pop(BINARY, "0")
        if binary not in ("0", "1"):
            raise OptionError(
                f"compile spec {BINARY!r}", found=repr(binary), allowed="b'0' or b'1'"
            )
        unknown = sorted(name for name in options if name.replace("-", "_") not in OPTIONS)
        if unknown:
            raise OptionError(
                "compile spec", found=", ".join(unknown), allowed=", ".join((*OPTIONS, BINARY))
            )
        return cls(Target.from_options(options), plain, binary == "1")

    def compiled(self, program: Graph) -> Compiled:
        """The program's C, within the target's limits."""
        if self.plain:
            return compile_graph(program, self.target, abi=PLAIN)
        compiled = compile_once(program, self.target, last=True)
        check_limits(compiled, self.target)
        return compiled


def whole_source(result: PreprocessResult) -> str:
    """The C file of a result, with its constants. Raises ``OptionError`` where it is a library, or
    the data that it names is missing."""
    try:
        text = result.processed_bytes.decode()
        return with_definitions(text, (result.data_store_output or NamedData()).__getitem__)
    except (KeyError, UnicodeDecodeError) as error:
        raise OptionError(
            "C of a result", found=error, allowed="C, and the data that it names"
        ) from None


def _stored(source: CSource) -> NamedData:
    store = NamedDataStore()
    for constant in source.constants:
        store.add(constant.name, constant.data, ALIGNMENT)
    return store.output()


def _texts(compile_specs: Sequence[CompileSpec]) -> dict[str, str]:
    options: dict[str, str] = {}
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
    return options


def _handles(graph: Lowered) -> dict[int, tuple[int | str, ...]]:
    """For each layer, by its number, the source model's nodes. Layers that stand for none, such as
    a transposition between two orders, have no entry."""
    builder = DebugHandleMapBuilder()
    for number, node in enumerate(graph.nodes):
        if node.sources:
            builder.insert(nodes=node, identifier=number)
    return builder.output()  # type: ignore[return-value]  # the identifiers are numbers
