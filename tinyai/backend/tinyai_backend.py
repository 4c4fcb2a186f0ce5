"""tinyai as a back end: C for a graph, and constants that graphs share."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tinyai.backend.debug_handles import DebugHandleMapBuilder
from tinyai.backend.details import (
    BackendDetails,
    CompileSpec,
    PreprocessResult,
    Programs,
    Results,
    Specs,
    check_specs,
)
from tinyai.backend.library import library_of
from tinyai.backend.named_data import NamedData, NamedDataStore
from tinyai.backend.pipeline import (
    Compiled,
    check_limits,
    choose,
    compile_graph,
    compile_once,
    lower,
    with_useful_threads,
    write,
)
from tinyai.backend.sharing import Packing, shared_pieces, stored, whole
from tinyai.codegen.kernels import Kernel
from tinyai.codegen.lowered import Lowered
from tinyai.errors import OptionError, owning_faults
from tinyai.ir import Graph
from tinyai.target import OPTIONS, Target

# The option of the back end that is none of the target.
BINARY = "binary"
# Entries beside those of TVM's that a target can ask for: what is called without a runtime, and the
# same that tells when each layer ended, if it is asked.
PLAIN, TRACED = "plain", "traced"
# What the key of a library that several programs share begins with.
LIBRARY = "tinyai_library_"


class TinyAIBackend(BackendDetails):
    """C for a graph. A compile spec is the name of an option of ``Target`` and its value as UTF-8
    text, or one of the back end's own:

    - ``abi``: beside the target's, ``plain``: an entry that is called without TVM; ``traced``: the
      same, which tells when each layer ended, if it is asked.
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
        return preprocess_with(program, compile_specs)

    @classmethod
    def preprocess_multimethod(
        cls, programs: Programs, compile_specs: Mapping[str, Sequence[Specs]]
    ) -> Results:
        """``preprocess`` of the programs of each method, which share what they have in common:
        constants, and functions as named data that the C includes by name. Weights that several
        programs have are packed as the first one packs them. Programs whose specs ask for a binary
        are one library, also named data, and ``processed_bytes`` are its key.

        Raises ``OptionError`` where a method has no specs, or not as many as programs, or two
        programs of one library have one name, and what ``preprocess`` raises.
        """
        check_specs(programs, compile_specs)
        options = {
            method: [BackendOptions.of(each) for each in several]
            for method, several in compile_specs.items()
        }
        return preprocess_all(programs, options)


def preprocess_all(programs: Programs, options: Mapping[str, Sequence[BackendOptions]]) -> Results:
    """``TinyAIBackend.preprocess_multimethod`` with what compile specs say as values."""
    packing = Packing()
    places, made = [], []
    for method, each in programs.items():
        for program, own in zip(each, options[method], strict=True):
            places.append((method, own))
            made.append(own.compiled_beside(program, packing))
    pieces = shared_pieces([compiled.source for compiled in made])
    codes = [stored(compiled.source, pieces) for compiled in made]
    binaries = [n for n, (_, own) in enumerate(places) if own.binary]
    _check_names([made[n] for n in binaries])
    library = _library([codes[n] for n in binaries])
    results: Results = {method: [] for method in programs}
    for (method, own), compiled, (code, data) in zip(places, made, codes, strict=True):
        if own.binary:
            code, data = next(iter(library)).encode(), library
        results[method].append(PreprocessResult(code, _handles(compiled.graph), data))
    return results


def preprocess_with(
    program: Graph, compile_specs: Sequence[CompileSpec], kernels: Sequence[Kernel] = ()
) -> PreprocessResult:
    """``TinyAIBackend.preprocess``, where ``kernels`` of another back end go before tinyai's."""
    options = replace(BackendOptions.of(compile_specs), kernels=tuple(kernels))
    compiled = options.compiled(program)
    handles = _handles(compiled.graph)
    code, data = stored(compiled.source, set())
    if options.binary:
        return PreprocessResult(library_of([code], data), handles)
    return PreprocessResult(code, handles, data)


def _check_names(programs: Sequence[Compiled]) -> None:
    names = Counter(program.source.symbol for program in programs)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise OptionError(
            "names of programs",
            found=f"{twice[0]} {names[twice[0]]} times",
            allowed="a name each: they become functions of one library",
            hint='dataclasses.replace(graph, name="...")',
        )


def _library(codes: Sequence[tuple[bytes, NamedData]]) -> NamedData:
    """One library of programs as named data, under the hash of its content; nothing of none."""
    store, together = NamedDataStore(), NamedDataStore()
    for _, data in codes:
        together.merge(data)
    if codes:
        library = library_of([code for code, _ in codes], together.output())
        store.add(f"{LIBRARY}{hashlib.sha256(library).hexdigest()[:32]}", library)
    return store.output()


@dataclass(frozen=True)
class BackendOptions:
    """What compile specs say."""

    target: Target
    entry: str = ""  # one of the back end's own
    binary: bool = False
    kernels: tuple[Kernel, ...] = ()  # before tinyai's

    @classmethod
    def of(cls, compile_specs: Sequence[CompileSpec]) -> BackendOptions:
        """Raises ``OptionError`` for unknown keys, twice the same one, and values that are no text
        or that the option does not allow."""
        options: dict[str, object] = {**_texts(compile_specs)}
        entry = str(options.get("abi", ""))
        entry = entry if entry in (PLAIN, TRACED) else ""
        if entry:
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
        return cls(Target.from_options(options), entry, binary == "1")

    def compiled_beside(self, program: Graph, packing: Packing) -> Compiled:
        """The program's C, within the target's limits, with functions named by content and weights
        packed as those of other programs."""
        with owning_faults(f"the code of {program.name}"):
            chosen = choose(program, self.target, self.kernels)
            target = with_useful_threads(chosen, self.target)
            agreed = packing.agreed(chosen)
            chosen = lower(chosen, target, agreed, self.kernels) if agreed else chosen
            compiled = write(chosen, target, abi=self.entry or None, by_content=True)
        check_limits(compiled, self.target)
        return compiled

    def compiled(self, program: Graph) -> Compiled:
        """The program's C, within the target's limits."""
        if self.entry:
            return compile_graph(program, self.target, abi=self.entry, kernels=self.kernels)
        compiled = compile_once(program, self.target, last=True, kernels=self.kernels)
        check_limits(compiled, self.target)
        return compiled


def whole_source(result: PreprocessResult) -> str:
    """The C file of a result, with its constants. Raises ``OptionError`` where it is a library, C
    of another version of tinyai, or the data that it names is missing."""
    try:
        return whole(result.processed_bytes.decode(), result.data_store_output or NamedData())
    except (KeyError, ValueError) as error:
        raise OptionError(
            "C of a result",
            found=error,
            allowed="C, and the data that it names",
            hint="compile it again",
        ) from None


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
