"""From a model to a library, and to results in Python: what needs a front end is imported when a
model has to be read."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tinyai._version import __version__
from tinyai.errors import EnvironmentProblem, OptionError
from tinyai.files import check_place
from tinyai.model_file import (
    FileOptions,
    InputShapes,
    ModelOptions,
    check_model,
    check_no_params,
    check_path,
)
from tinyai.runtime.kept import kept_library
from tinyai.runtime.library import Library
from tinyai.runtime.toolchain import Toolchain
from tinyai.target import Target

if TYPE_CHECKING:
    from tinyai.network import Network

# What a model may be: a path, a module of a front end's, a model that was read, a ``tinyai.Graph``
# or a ``tinyai.Network``.
Source: TypeAlias = Any

LIBRARIES = (".so", ".dylib")
BUNDLE = ".tinyai"
ARCHIVE = ".tar"  # of a C package


def compile(
    model: Source,
    output: str | os.PathLike[str],
    target: str | Target | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    name: str = "",
    ends: str = "model",
    input_shapes: InputShapes = "",
    signature: str = "",
    state: Mapping[str, str] | None = None,
    backend: str = "",
    toolchain: Toolchain | None = None,
    html: str | os.PathLike[str] = "",
) -> Path:
    """Compile the whole of ``model`` to a library with a plain C interface, which ``tinyai.Model``
    loads without TVM. Returns its path.

    ``model`` is the path of an .onnx or .tflite file or of Relay's text, a Relay module with its
    ``params``, a model of ``tinyai.quantize_file``, a ``tinyai.Graph`` or a ``tinyai.Network``.
    ``output`` ends with .so. ``target``
    is a ``tinyai.Target`` or a string such as "tinyai -isa=avx2 -threads=2"; the integers are those
    of a file's own framework, if it names no other ``rounding``. ``name``, a C identifier, is the
    entry's; without one it is made of the file's. ``ends="int8"`` leaves out the quantize and
    dequantize at the ends. ``input_shapes``, as in "x:1x3x32x32 y:1x8" or
    ``{"x": (1, 3, 32, 32)}``, are for a file that leaves them open, and "rate=16000" between them
    is for an input of an .onnx file that always has this value; ``signature`` is the name of one of
    a .tflite file that has several; ``state`` names outputs of an .onnx file that are inputs of the
    next call, as in ``{"h_out": "h_in"}``, from zeros on. For another architecture its cross
    compiler is called, if ``toolchain`` names no other.
    ``backend`` is the name of a back end of one's own (``tinyai.register_backend``), which takes
    its composites and operators first, and whose passes and kernels are used. ``html`` is the path
    of a page that shows what became of the model.

    Raises ``OptionError`` for bad options, a file that is not there or cannot be written;
    ``ModelError`` for a model that cannot be read; ``BoundaryError``, with the report of
    ``explain``, where an operator would stay on a host; ``LimitError`` where a limit of the target
    is exceeded; ``ToolchainError`` where the C compiler fails; ``EnvironmentProblem`` where what
    reads the model is missing: the package onnx for an .onnx file, for others a TVM with Relay.
    """
    path = Path(output)
    if path.suffix not in LIBRARIES or path.name.endswith(".relay.so"):
        raise OptionError(
            "output file",
            found=repr(str(output)),
            allowed="a name that ends with .so",
            hint="tinyai.emit_c writes a C package, tinyai.build makes TVM's library",
        )
    from tinyai.runtime.jobs import CompilerJobs
    from tinyai.runtime.link import toolchain_for, write_library

    options = target_for(model, target)
    check_place(path)
    if html:
        check_place(Path(html))
    if isinstance(model, str | os.PathLike):
        check_model(model)
    compiler = toolchain_for(options, toolchain)
    compiler.check()
    file = FileOptions(input_shapes, signature, state or {})
    with CompilerJobs(compiler, options) as jobs:
        network = read_network(model, options, ModelOptions(params, name, ends, file, backend))
        compiled = write_library(network, path, options, compiler, jobs=jobs)
    if html:
        from tinyai.frontends.page import page_of_network, with_code
        from tinyai.runtime.code_sizes import function_bytes

        title = Path(model).name if isinstance(model, str | os.PathLike) else ""
        page = page_of_network(network, compiled, options, title)
        sizes = function_bytes(path, compiler)
        with_code(page, sizes).write(html)
    return path


def target_for(model: Source, target: str | Target | None) -> Target:
    """The target with a rounding: that of a network's graph, or of the model's framework, where it
    asks for none."""
    return Target.of(target).for_model(model)


def network_of(
    model: Source,
    target: str | Target | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    name: str = "",
    ends: str = "model",
    input_shapes: InputShapes = "",
    signature: str = "",
    state: Mapping[str, str] | None = None,
    backend: str = "",
) -> Network:
    """The whole of ``model`` as one graph with named and scaled inputs and outputs; arguments and
    errors are those of ``compile``."""
    file = FileOptions(input_shapes, signature, state or {})
    return read_network(model, target, ModelOptions(params, name, ends, file, backend))


def read_network(model: Source, target: str | Target | None, asked: ModelOptions) -> Network:
    """``network_of`` with its options as a value."""
    from tinyai.frontends.source_model import SourceModel
    from tinyai.frontends.whole import network_of as network_of_source
    from tinyai.ir import Graph
    from tinyai.network import Network, network_of_graph
    from tinyai.own import own_of
    from tinyai.source import Rounding
    from tinyai.stages import IMPORTS, stage

    if isinstance(model, Graph | Network | SourceModel):
        whole_graph = not isinstance(model, SourceModel)
        given = [
            word
            for word, value in (
                ("params", asked.params),
                ("input_shapes", asked.file.input_shapes),
                ("signature", asked.file.signature),
                ("state", asked.file.state),
                ("ends", whole_graph and asked.ends != "model"),
                ("name", isinstance(model, Network) and asked.name),
                ("backend", whole_graph and asked.backend),
            )
            if value
        ]
        if given:
            raise OptionError(
                f"options beside a {type(model).__name__}",
                found=", ".join(given),
                allowed="none: it is whole",
            )
    if isinstance(model, Graph | Network):
        return model if isinstance(model, Network) else network_of_graph(model, asked.name)
    from tinyai.frontends.files import is_read, network_of_file

    own = own_of(asked.backend)
    if isinstance(model, SourceModel):
        rounding = Rounding(target_for(model, target).rounding)
        with stage("model to graph"):
            return network_of_source(model, asked.name or "network", rounding, asked.ends, own)
    asked.file.require_file(model)
    if isinstance(model, str | os.PathLike):
        check_model(model)
        check_no_params(asked.params)
    if is_read(model):
        return network_of_file(model, Target.of(target), asked.name, asked.ends, asked.file, own)
    input_shapes = asked.file.shapes_for_tvm()
    try:
        with stage(IMPORTS):
            from tinyai.frontends.relay import whole
    except Exception as error:  # a broken TVM raises exceptions of any kind
        raise EnvironmentProblem(
            "to read a model tinyai needs a TVM with Relay",
            found=" ".join(str(error).splitlines()[:1]) or type(error).__name__,
            allowed="a TVM with Relay, such as 0.17",
            hint="python -m tinyai doctor tells what is there and what to do",
        ) from None
    with stage("model to graph"):
        return whole.network_of(
            model,
            target,
            asked.name,
            params=dict(asked.params) if asked.params else None,
            ends=asked.ends,
            input_shapes=input_shapes,
            own=own,
        )


def is_package(path: Path) -> bool:
    """Whether a path is to be read as a C package: an archive, or a folder."""
    return path.suffix == ARCHIVE or path.is_dir()


def is_compiled(path: Path) -> bool:
    """Whether a path is what was compiled, where ``Model`` takes no options of a target."""
    return path.suffix in (*LIBRARIES, BUNDLE) or is_package(path)


class Model(Library):
    """A model that runs: ``tinyai.Model("net.so")``, ``tinyai.Model("net.tar")``,
    ``tinyai.Model("net.tinyai", method="one")`` or ``tinyai.Model("model.tflite")``.

    A library is loaded, without TVM. So are a C package (a folder or .tar) and a method of a bundle
    of ``tinyai.lower``, whose C is compiled for this machine the first time, by ``toolchain``;
    where a bundle has one method it need not be named. A model (as ``tinyai.compile`` takes it,
    with its options) is compiled for this machine first; what became of a file is kept in
    ``~/.cache/tinyai/models`` and found again by its content, the options, the compiler and
    tinyai's own code. What was made of a path is pickled by it.
    """

    _again: partial[Model] | None

    def __init__(
        self,
        source: Source,
        target: str | Target | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        ends: str = "model",
        input_shapes: InputShapes = "",
        signature: str = "",
        state: Mapping[str, str] | None = None,
        backend: str = "",
        toolchain: Toolchain | None = None,
        method: str = "",
    ) -> None:
        """Raises what ``tinyai.compile`` raises, ``OptionError`` for options beside a library, and
        ``FormatError`` for a library or C package that is none, or of another version."""
        path, self._again = None, None
        if isinstance(source, str | os.PathLike):
            check_path(source)
            path = Path(source)
            self._again = partial(
                Model,
                os.path.abspath(path),
                target,
                params=params,
                ends=ends,
                input_shapes=input_shapes,
                signature=signature,
                state=state,
                backend=backend,
                toolchain=toolchain,
                method=method,
            )
        suffix = path.suffix if path else ""
        file = FileOptions(input_shapes, signature, state or {})
        options = ModelOptions(params or None, ends=ends, file=file, backend=backend)
        asked = target is not None or options != ModelOptions()
        if method and suffix != BUNDLE:
            raise OptionError("method", found=repr(method), allowed="none beside a single network")
        if path and suffix == BUNDLE:
            allowed = "a method and a toolchain: the rest was decided when it was lowered"
            _require_none(asked, "a bundle", allowed, "tinyai.lower takes compile specs")
            from tinyai.runtime.bundle import Bundle, loaded_method

            with loaded_method(Bundle.load(path), method, toolchain) as found:
                self._take(*found)
        elif path and is_package(path):
            allowed = "a toolchain: the rest was decided when it was written"
            _require_none(asked, "a C package", allowed, "tinyai.emit_c takes them")
            from tinyai.runtime.package import library_of_package

            with library_of_package(path, toolchain) as library:
                super().__init__(library)
        elif path and suffix in LIBRARIES:
            allowed = "none: it is compiled"
            _require_none(asked or toolchain, "a library", allowed, "tinyai.compile takes them")
            super().__init__(path)
        else:
            self._compile(source, target_for(source, target).here(), options, toolchain)

    def __reduce__(self) -> tuple[Any, ...]:
        """A model is pickled by its path and options: what reads it makes it again."""
        if self._again is None:
            raise OptionError(
                "model to pickle",
                found="one that was not made of a file",
                allowed="one that a path leads to",
                hint="tinyai.compile(model, 'net.so'), then tinyai.Model('net.so')",
            )
        return self._again, ()

    def _compile(
        self,
        source: Source,
        target: Target,
        options: ModelOptions,
        toolchain: Toolchain | None,
    ) -> None:
        """Become the library of a model, which may be kept from an earlier time."""
        from tinyai.runtime.jobs import CompilerJobs
        from tinyai.runtime.link import toolchain_for, write_library

        compiler = toolchain_for(target, toolchain)
        key = ""
        # Nothing tells whether the functions of a back end of one's own are as they were.
        if isinstance(source, str | os.PathLike) and not (options.params or options.backend):
            said = (str(target), options.ends, str(options.file), *compiler.command())
            key = _key(Path(source), target, said)

        def make(place: Path) -> None:
            if isinstance(source, str | os.PathLike):
                check_model(source)
            compiler.check()
            with CompilerJobs(compiler, target) as jobs:
                network = read_network(source, target, options)
                write_library(network, place, target, compiler, here=True, jobs=jobs)

        with contextlib.ExitStack() as stack:
            if key:
                place = kept_library("models", key, make, stack)
            else:
                folder = tempfile.TemporaryDirectory(prefix="tinyai-")
                place = Path(stack.enter_context(folder)) / "network.so"
                make(place)
            super().__init__(place)  # what is loaded stays, when its file goes


def _require_none(given: object, beside: str, allowed: str, hint: str) -> None:
    """Raises ``OptionError`` for options where all was decided before."""
    if given:
        raise OptionError(f"options beside {beside}", found="some", allowed=allowed, hint=hint)


def _key(file: Path, target: Target, said: tuple[str, ...]) -> str:
    """What the library of a file is kept under; nothing, if it cannot be."""
    from tinyai.doctor import cpu_description, instruction_sets

    if not file.is_file():
        return ""  # the front end tells
    content = file.read_bytes()
    if file.suffix.lower() == ".onnx" and b"location" in content:
        return ""  # its weights may lie in other files
    digest = hashlib.sha256(repr((__version__, said, file.stem, file.suffix)).encode())
    digest.update(content)
    if target.tuning and Path(target.tuning).is_file():
        digest.update(Path(target.tuning).read_bytes())
    digest.update(repr(instruction_sets(cpu_description())).encode())
    digest.update(_own_code())
    return digest.hexdigest()


def _own_code() -> bytes:
    """Which files of tinyai's there are: other ones may make other code."""
    root = Path(__file__).parents[1]
    facts = [
        (str(path.relative_to(root)), stat.st_size, stat.st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.suffix in (".py", ".j2") and (stat := path.stat())
    ]
    return repr(facts).encode()
