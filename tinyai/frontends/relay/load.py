"""Model files on their way in: what a file declares is checked, then TVM's importers read it.

The importers trust a file: they follow indices out of range, tell tensors apart by names alone,
and compute constants of whatever size it asks for. So the file's own claims are held against each
other first, and what came out of the importer is typed and measured before anyone works on it.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from tinyai.errors import EnvironmentProblem, ModelError, OptionError
from tinyai.frontends.relay.source import source_types, span_name
from tinyai.frontends.relay.text import module_of
from tinyai.ir import QParams
from tinyai.stages import stage

IMPORTED = (".onnx", ".tflite")
RELAY_TEXT = (".relay", ".txt")
# Shapes of inputs by name; dimensions are numbers or relay.Any.
Shapes = Mapping[str, Sequence[Any]]
# Inputs of a file by name with their dimensions, None where it does not tell.
Inputs = dict[str, list[int] | None]
# Names of inputs or outputs, in order, with what their integers stand for where the file says it.
FilePorts = tuple[tuple[str, QParams | None], ...]
LARGEST = 2**31 - 1  # bytes of a tensor
_AGAIN = "export or convert the model again: the file is damaged or was made by a faulty tool"


class _Fault(Exception):
    """What a check found in a file, what is allowed, what to try."""

    def __init__(self, found: str, allowed: str, hint: str = _AGAIN) -> None:
        super().__init__(found)
        self.found, self.allowed, self.hint = found, allowed, hint


def load_model(
    file: str | os.PathLike[str], input_shapes: str | Shapes = "", kind: str = ""
) -> tuple[tvm.IRModule, dict[str, Any]]:
    """Module and parameters of an .onnx or .tflite file, by TVM's importers, or of Relay's text.

    ``input_shapes`` are tvmc's: ``"data:[1,3,32,32] other:[1,8]"``, "" for those of the file.
    ``kind`` is one of ``IMPORTED`` or ``RELAY_TEXT``, "" for the one that the name ends with.
    Relay's text is what ``mod.astext()`` gives, with the constants that it holds; TVM prints scales
    that are in it with six digits.
    Raises ``OptionError`` for no such file, another kind or bad shapes, ``ModelError`` for a file
    that cannot be read or imported. A file is refused too where it contradicts itself (a weight of
    more or fewer bytes than its shape says, an index to nothing, a value that is read before it is
    made) or has a tensor above ``LARGEST``.
    """
    from tinyai.report import safe  # brings rich, which import tinyai does without

    shapes = parse_shapes(input_shapes) if isinstance(input_shapes, str) else input_shapes
    path = Path(file)
    kind = kind or path.suffix.lower()
    known = (*IMPORTED, *RELAY_TEXT)
    if kind not in known:
        raise OptionError(
            "model file",
            found=safe(str(file)),
            allowed="*" + ", *".join(known),
            hint="TVM's own importers read others; pass the module that they make",
        )
    check_file(path)
    with stage(f"read {safe(path.name, 60)}"):
        return _read(path, kind, shapes)


def _read(path: Path, kind: str, shapes: Shapes) -> tuple[tvm.IRModule, dict[str, Any]]:
    if kind in RELAY_TEXT:
        return _relay_text(path, shapes), {}
    try:
        inputs = _check_tflite(path.read_bytes()) if kind == ".tflite" else _check_onnx(path)
    except _Fault as fault:
        raise _refusal(path, fault) from None
    except EnvironmentProblem:
        raise
    except Exception as error:  # readers of files raise what they like
        found = f"{type(error).__name__}: {_last_line(error)}"
        raise _refusal(path, _Fault(found, f"a whole {kind} file")) from error
    _check_asked(shapes, inputs)
    try:
        mod, params = _imported(path, kind, shapes)
    except Exception as error:  # importers and parsers of files raise what they like
        raise importers_refusal(path, kind, error) from error
    try:
        _check_sizes(mod)
    except _Fault as fault:
        raise _refusal(path, fault) from None
    return mod, params


def _relay_text(path: Path, shapes: Shapes) -> tvm.IRModule:
    if shapes:
        raise OptionError(
            "input shapes",
            found=f"some, beside the text {path.name!r}",
            allowed="none: the text has them",
            hint="change the types of main's parameters",
        )
    try:
        mod = module_of(path.read_text(encoding="utf-8"))
        mod["main"]  # raises where there is none
    except Exception as error:  # parsers of files raise what they like
        raise importers_refusal(path, "Relay", error) from error
    try:
        _check_sizes(mod)
    except _Fault as fault:
        raise _refusal(path, fault) from None
    return mod


def check_file(path: Path) -> None:
    from tinyai.report import safe

    if not path.is_file():
        raise OptionError(
            "model file",
            found=f"{safe(str(path))}, no file",
            allowed="a file to read",
            hint="the path, seen from the current folder",
        )


def importers_refusal(file: str | Path, kind: str, error: Exception) -> ModelError:
    """What an importer of TVM's raised, as a message."""
    from tinyai.report import safe

    return ModelError(
        f"TVM's importer for {kind} files",
        found=f"{safe(str(file))}: {type(error).__name__}: {safe(_last_line(error))}",
        allowed="a model that it reads",
        hint="python -m tinyai doctor, or --input-shapes where a shape is missing",
    )


def _missing(package: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"the package {package}, which reads .{package} files, is missing",
        found="no such module",
        allowed="an installed one",
        hint=f'pip install "tinyai[{package}]"',
    )


def _refusal(file: Path, fault: _Fault) -> ModelError:
    from tinyai.report import safe

    return ModelError(
        "model file",
        found=f"{safe(str(file))}: {safe(fault.found, 240)}",
        allowed=fault.allowed,
        hint=fault.hint,
    )


def _imported(file: Path, kind: str, shapes: Shapes) -> tuple[tvm.IRModule, dict[str, Any]]:
    from tvm.driver.tvmc.frontends import get_frontend_by_name

    importer = get_frontend_by_name(kind.removeprefix("."))
    mod, params = importer.load(str(file), dict(shapes) if shapes else None)
    # The importers leave contradictions between operators to whoever types the module first.
    return relay.transform.InferType()(mod), params


def _last_line(error: Exception) -> str:
    """TVM's errors end with what happened, after the frames of the C++ stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


# --- Names and scales of inputs and outputs ------------------------------------------------------


def ports_of_file(file: Path) -> tuple[FilePorts, FilePorts] | None:
    """The inputs and the outputs of a file that ``load_model`` has read, in its order; None for
    Relay's text."""
    kind = file.suffix.lower()
    if kind == ".tflite":
        graph = (
            import_module("tflite.Model").Model.GetRootAsModel(file.read_bytes(), 0).Subgraphs(0)
        )
        ends = (graph.InputsAsNumpy(), graph.OutputsAsNumpy())
        first, last = (tuple(_tflite_port(graph.Tensors(int(i))) for i in end) for end in ends)
        return first, last
    if kind == ".onnx":
        import onnx

        graph = onnx.load(file, load_external_data=False).graph
        constants = {tensor.name for tensor in graph.initializer}
        first = tuple((v.name, None) for v in graph.input if v.name not in constants)
        return first, tuple((v.name, None) for v in graph.output)
    return None


def _tflite_port(tensor: Any) -> tuple[str, QParams | None]:
    name, quant = (tensor.Name() or b"").decode(errors="replace"), tensor.Quantization()
    if tensor.Type() not in _TFLITE_RANGES or quant is None or quant.ScaleLength() != 1:
        return name, None
    zero = int(quant.ZeroPoint(0)) if quant.ZeroPointLength() else 0
    return name, QParams((float(quant.Scale(0)),), zero)


# --- Shapes that are asked for -----------------------------------------------------------------

_SHAPE = re.compile(
    r"(?P<name>[^][\s,][^][]*?)\s*:\s*\[(?P<dims>[^][]*)\](?:\s*,\s*|\s+|$)", re.DOTALL
)


def parse_shapes(text: str) -> dict[str, list[Any]]:
    """``"data:[1,3,32,32] other:[-1,8]"`` as importers take it: -1 leaves a dimension open.

    Raises ``OptionError`` for a text that is anything else.
    """
    from tinyai.report import safe

    def fail(found: str) -> OptionError:
        return OptionError(
            "input shapes",
            found=safe(found),
            allowed="name:[1,3,32,32] other:[-1,8], each name once, -1 for an open dimension",
            hint="python -m tinyai explain FILE without shapes takes those of the file",
        )

    shapes: dict[str, list[Any]] = {}
    rest = text.strip()
    while rest:
        found = _SHAPE.match(rest)
        if found is None:
            raise fail(rest)
        try:
            dims = [int(dim) for dim in found["dims"].split(",")] if found["dims"].strip() else []
        except ValueError:
            raise fail(found[0]) from None
        if found["name"] in shapes or any(dim < 1 and dim != -1 for dim in dims):
            raise fail(found[0])
        shapes[found["name"]] = [relay.Any() if dim == -1 else dim for dim in dims]
        rest = rest[found.end() :]
    return shapes


def _check_asked(shapes: Shapes, inputs: Inputs) -> None:
    """The shapes are of inputs that the file has, of as many dimensions where it tells."""
    from tinyai.report import safe

    known = ", ".join(f"{name}:{_shown(dims or ['...'])}" for name, dims in inputs.items())
    for name, shape in shapes.items():
        dims = inputs.get(name)
        if name not in inputs or (dims is not None and len(dims) != len(shape)):
            asked = ["-1" if isinstance(dim, tvm.tir.Any) else dim for dim in shape]
            raise OptionError(
                "input shapes",
                found=safe(f"{name}:{_shown(asked)}"),
                allowed=safe(f"the model's inputs, with as many dimensions: {known}", 240),
                hint="names and numbers of dimensions as in the file",
            )


# --- Sizes -------------------------------------------------------------------------------------


def _check_sizes(mod: tvm.IRModule) -> None:
    """No value of an imported module is larger than ``LARGEST``; dynamic shapes are not known."""

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call | relay.Var):
            for of in source_types(expr.checked_type):
                if None not in of.shape and of.dtype in _BYTES_OF:
                    name = span_name(expr) or getattr(expr, "name_hint", "")
                    _check_shape(f"result {name!r}", of.shape, _BYTES_OF[of.dtype])  # type: ignore[arg-type]

    for func in mod.functions.values():
        relay.analysis.post_order_visit(func, visit)


_BYTES_OF = {"bool": 1} | {
    f"{kind}{8 * size}": size for kind in ("int", "uint", "float") for size in (1, 2, 4, 8)
}


def _check_shape(what: str, shape: Sequence[int], item: float) -> int:
    """The bytes of a tensor; ``item`` are those of one element."""
    if any(dim < 0 for dim in shape):
        raise _Fault(f"{what} of shape {_shown(shape)}", "dimensions of 0 and more")
    count = math.prod(shape)  # of a hostile file perhaps too large for a float
    if count > LARGEST or count * item > LARGEST:
        raise _Fault(
            f"{what} of shape {_shown(shape)}, {item or 'unknown'} bytes an element",
            f"at most {LARGEST:,} bytes a tensor",
            "a smaller batch or image, or " + _AGAIN,
        )
    return math.ceil(count * item)


def _shown(shape: Iterable[object]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


# --- TFLite ------------------------------------------------------------------------------------

# Bytes of an element by TFLite's TensorType; others (strings, resources) are not measured.
_TFLITE_BYTES = {
    kind: size
    for size, kinds in (
        *((0.5, (17,)), (1, (3, 6, 9)), (2, (1, 7, 16))),
        *((4, (0, 2, 15)), (8, (4, 8, 10, 12)), (16, (11,))),
    )
    for kind in kinds
}
_TFLITE_RANGES = {3: (0, 255), 7: (-(2**15), 2**15 - 1), 9: (-128, 127)}


def _check_tflite(content: bytes) -> Inputs:
    """The model's inputs."""
    if content[4:8] != b"TFL3":
        raise _Fault(f"{len(content)} bytes that begin with {content[:8]!r}", "TFL3 from byte 4 on")
    if find_spec("tflite") is None:
        raise _missing("tflite")
    model = import_module("tflite.Model").Model.GetRootAsModel(content, 0)
    if model.SubgraphsLength() != 1:
        raise _Fault(
            f"{model.SubgraphsLength()} subgraphs", "1", "export one function, no control flow"
        )
    graph = model.Subgraphs(0)
    for length in (graph.TensorsLength(), graph.OperatorsLength(), model.BuffersLength()):
        if 4 * length > len(content):
            raise _Fault(f"a list of {length} entries in {len(content)} bytes", "one that fits")
    count, codes = graph.TensorsLength(), model.OperatorCodesLength()
    inputs = _indices(graph.InputsAsNumpy(), 0, count, "an input of the model")
    outputs = _indices(graph.OutputsAsNumpy(), 0, count, "an output of the model")
    if not outputs:
        raise _Fault("a model without outputs", "one and more")
    sizes = [_check_tensor(model, graph.Tensors(i), i) for i in range(count)]
    variables = {i for i in range(count) if graph.Tensors(i).IsVariable()}
    # An empty tensor is a constant without data, or the result of an operator.
    made = {i for i, (_, length) in enumerate(sizes) if length} | set(inputs)
    known = made | variables | {i for i, (size, _) in enumerate(sizes) if size == 0}
    used = set(inputs)
    for number in range(graph.OperatorsLength()):
        operator = graph.Operators(number)
        _indices([operator.OpcodeIndex()], 0, codes, f"the kind of operator {number}")
        reads = _indices(operator.InputsAsNumpy(), -1, count, f"an input of operator {number}")
        makes = _indices(operator.OutputsAsNumpy(), 0, count, f"an output of operator {number}")
        missing = [i for i in reads if i not in known and i != -1]  # -1: an input that is left out
        if missing:
            raise _Fault(
                f"operator {number} reads tensor {missing[0]}, which nothing before it makes",
                "inputs, constants, and results of operators before",
            )
        again = [i for i in makes if i in made - variables]
        if again:
            raise _Fault(f"operator {number} makes tensor {again[0]} anew", "one maker a tensor")
        made.update(makes)
        known.update(makes)
        used.update(i for i in (*reads, *makes) if i != -1)
    lost = [i for i in outputs if i not in known]
    if lost:
        raise _Fault(f"output {lost[0]} of the model, which nothing makes", "a tensor that is made")
    _check_names(graph, sorted(used))
    return {
        (graph.Tensors(i).Name() or b"").decode(errors="replace"): _tflite_shape(graph.Tensors(i))
        for i in inputs
    }


def _tflite_shape(tensor: Any) -> list[int]:
    shape = tensor.ShapeAsNumpy()
    return [] if isinstance(shape, int) else [int(dim) for dim in shape]


def _indices(values: Any, low: int, end: int, what: str) -> list[int]:
    """``values`` as numbers from ``low`` up to ``end``; the readers give 0 for an absent list."""
    found = [] if isinstance(values, int) else [int(value) for value in values]
    bad = [value for value in found if not low <= value < end]
    if bad:
        raise _Fault(f"{what}: number {bad[0]}", f"{low} to {end - 1}")
    return found


def _check_tensor(model: Any, tensor: Any, index: int) -> tuple[int, int]:
    """The bytes that a tensor's shape says, 0 for types of no fixed size, and those of its data."""
    what = f"tensor {index}"
    shape = _tflite_shape(tensor)
    item = _TFLITE_BYTES.get(tensor.Type())
    size = _check_shape(what, shape, item or 0)
    _indices([tensor.Buffer()], 0, model.BuffersLength(), f"the buffer of {what}")
    data = model.Buffers(tensor.Buffer()).DataAsNumpy()
    length = 0 if isinstance(data, int) else len(data)
    if length and item and tensor.Sparsity() is None and length != size:
        raise _Fault(f"{what}: {length} bytes of data", f"{size} for its shape {_shown(shape)}")
    _check_quantization(tensor.Quantization(), tensor.Type(), shape, what)
    return size, length


def _check_quantization(quant: Any, kind: int, shape: Sequence[int], what: str) -> None:
    if quant is None or quant.ScaleLength() == 0:
        return
    scales, zeros = quant.ScaleAsNumpy(), quant.ZeroPointAsNumpy()
    bad = [float(scale) for scale in scales if not (math.isfinite(scale) and scale >= 0)]
    if bad:
        raise _Fault(f"{what}: scale {bad[0]}", "finite numbers of 0 and more")
    low, high = _TFLITE_RANGES.get(kind, (-(2**31), 2**31 - 1))
    if not isinstance(zeros, int):
        _indices(zeros, low, high + 1, f"the zero point of {what}")
    if len(scales) > 1:
        (axis,) = _indices(
            [quant.QuantizedDimension()], 0, len(shape), f"the quantized dimension of {what}"
        )
        if len(scales) != shape[axis]:
            raise _Fault(f"{what}: {len(scales)} scales", f"1, or {shape[axis]} for its shape")


def _check_names(graph: Any, used: Iterable[int]) -> None:
    """TVM's importer tells tensors apart by their names."""
    first: dict[bytes, int] = {}
    for index in used:
        name = graph.Tensors(index).Name()
        if name is not None and first.setdefault(name, index) != index:
            raise _Fault(
                f"tensors {first[name]} and {index} are both named {name.decode(errors='replace')}",
                "names that differ: TVM's importer tells tensors apart by them",
                "rename one of them",
            )


# --- ONNX --------------------------------------------------------------------------------------


def _check_onnx(path: Path) -> Inputs:
    """The model's inputs."""
    if find_spec("onnx") is None:
        raise _missing("onnx")
    import onnx

    model = onnx.load(path, load_external_data=False)
    if not model.graph.output:
        raise _Fault("a model without outputs", "one and more")
    _check_onnx_graph(model.graph, set())
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = {v.name: _onnx_dims(v) for v in model.graph.input if v.name not in constants}
    try:
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # what it objects to is the importer's to judge; more than 2 GB it cannot
        return inputs
    # Before the importer computes constants of these shapes.
    for value in model.graph.value_info:
        _check_value(value, "result")
    return inputs


def _onnx_dims(value: Any) -> list[int] | None:
    of = value.type.tensor_type
    if not of.HasField("shape"):
        return None
    return [dim.dim_value if dim.HasField("dim_value") else -1 for dim in of.shape.dim]


def _check_onnx_graph(graph: Any, outer: set[str]) -> None:
    known = outer | {tensor.name for tensor in graph.initializer}
    known.update(tensor.values.name for tensor in graph.sparse_initializer)
    known.update(value.name for value in graph.input)
    for tensor in graph.initializer:
        _check_onnx_tensor(tensor, f"initializer {tensor.name!r}")
    for value in (*graph.input, *graph.output):
        _check_value(value, "value")
    for number, node in enumerate(graph.node):
        what = f"node {number} ({node.op_type} {node.name!r})"
        for name in node.input:
            if name and name not in known:
                raise _Fault(
                    f"{what} reads {name!r}, which nothing before it makes",
                    "inputs, initializers, and results of nodes before",
                )
        for attribute in node.attribute:
            for tensor in (attribute.t, *attribute.tensors):
                _check_onnx_tensor(tensor, f"a constant of {what}")
            for inner in (attribute.g, *attribute.graphs):
                _check_onnx_graph(inner, known)
        for name in filter(None, node.output):
            if name in known:
                raise _Fault(f"{what} makes {name!r} anew", "one maker a value")
            known.add(name)
    lost = [value.name for value in graph.output if value.name not in known]
    if lost:
        raise _Fault(f"output {lost[0]!r} of the model, which nothing makes", "a value of a node")


def _check_value(value: Any, what: str) -> None:
    dims = value.type.tensor_type.shape.dim
    shape = [dim.dim_value if dim.HasField("dim_value") else 1 for dim in dims]
    kind = value.type.tensor_type.elem_type
    _check_shape(f"{what} {value.name!r}", shape, _onnx_bytes(kind) if kind else 0)


def _check_onnx_tensor(tensor: Any, what: str) -> None:
    """As much data as the shape says; data in other files are onnx's to check."""
    import onnx

    shape = list(tensor.dims)
    if tensor.data_type == onnx.TensorProto.UNDEFINED and not shape:
        return  # an attribute that holds no tensor
    item = _onnx_bytes(tensor.data_type)
    if not item:
        raise _Fault(f"{what}: element type {tensor.data_type}", "a type of onnx.TensorProto")
    size = _check_shape(what, shape, item)
    if tensor.data_location == onnx.TensorProto.EXTERNAL or item < 1:
        return
    if tensor.HasField("raw_data"):
        found, unit = len(tensor.raw_data), "bytes"
    else:
        field = onnx.helper.tensor_dtype_to_field(tensor.data_type)
        found, unit, size = len(getattr(tensor, field)), "numbers", math.prod(shape)
        if tensor.data_type in (onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128):
            size *= 2
    if found != size:
        raise _Fault(f"{what}: {found} {unit} of data", f"{size} for its shape {_shown(shape)}")


def _onnx_bytes(kind: int) -> float:
    """Bytes of an element of one of TensorProto's types, 0 for others."""
    import onnx

    if kind not in onnx.TensorProto.DataType.values() or kind == onnx.TensorProto.UNDEFINED:
        return 0
    # 23 is FLOAT4E2M1, which older versions of onnx do not name.
    if kind in (onnx.TensorProto.UINT4, onnx.TensorProto.INT4, 23):
        return 0.5
    return int(onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize)
