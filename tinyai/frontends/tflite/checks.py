"""What a .tflite file declares, held against itself before anyone trusts it: data against shapes,
indices, the order of operators, quantization."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinyai.frontends.faults import Fault, check_shape, shown
from tinyai.ir import QParams

# Inputs of a file by name with their dimensions, None where it does not tell.
Inputs = dict[str, list[int] | None]
# Bytes of an element by TFLite's TensorType; others (strings, resources) are not measured.
_BYTES = {
    kind: size
    for size, kinds in (
        *((0.5, (17,)), (1, (3, 6, 9)), (2, (1, 7, 16))),
        *((4, (0, 2, 15)), (8, (4, 8, 10, 12)), (16, (11,))),
    )
    for kind in kinds
}
DTYPES = {0: "float32", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 9: "int8"}
RANGES = {3: (0, 255), 7: (-(2**15), 2**15 - 1), 9: (-128, 127)}


def check_identifier(content: bytes) -> None:
    if content[4:8] != b"TFL3":
        raise Fault(f"{len(content)} bytes that begin with {content[:8]!r}", "TFL3 from byte 4 on")


def check_model(model: Any, content: bytes, *, by_tvm: bool = True) -> Inputs:
    """The model's inputs; ``model`` is the root table of ``content``. ``by_tvm`` is whether TVM's
    importer is going to read it, which tells tensors apart by their names and knows one subgraph.

    Raises ``Fault`` where the file contradicts itself.
    """
    if model.SubgraphsLength() < 1 or (by_tvm and model.SubgraphsLength() > 1):
        raise Fault(
            f"{model.SubgraphsLength()} subgraphs", "1", "export one function, no control flow"
        )
    graph = model.Subgraphs(0)
    inputs, used = check_graph(model, graph, content)
    if not graph.OutputsLength():
        raise Fault("a model without outputs", "one and more")
    if by_tvm:
        _check_names(graph, sorted(used))
    return {name_of(graph.Tensors(i)): shape_of(graph.Tensors(i)) for i in inputs}


def check_graph(model: Any, graph: Any, content: bytes) -> tuple[list[int], set[int]]:
    """The numbers of a subgraph's inputs, and of the tensors that it uses. Raises ``Fault``."""
    for length in (graph.TensorsLength(), graph.OperatorsLength(), model.BuffersLength()):
        if 4 * length > len(content):
            raise Fault(f"a list of {length} entries in {len(content)} bytes", "one that fits")
    count, codes = graph.TensorsLength(), model.OperatorCodesLength()
    inputs = _indices(graph.InputsAsNumpy(), 0, count, "an input of the model")
    outputs = _indices(graph.OutputsAsNumpy(), 0, count, "an output of the model")
    sizes = [_check_tensor(model, graph.Tensors(i), i, content) for i in range(count)]
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
            raise Fault(
                f"operator {number} reads tensor {missing[0]}, which nothing before it makes",
                "inputs, constants, and results of operators before",
            )
        again = [i for i in makes if i in made - variables]
        if again:
            raise Fault(f"operator {number} makes tensor {again[0]} anew", "one maker a tensor")
        made.update(makes)
        known.update(makes)
        used.update(i for i in (*reads, *makes) if i != -1)
    lost = [i for i in outputs if i not in known]
    if lost:
        raise Fault(f"output {lost[0]} of the model, which nothing makes", "a tensor that is made")
    return inputs, used


def name_of(tensor: Any) -> str:
    return (tensor.Name() or b"").decode(errors="replace")


def shape_of(tensor: Any) -> list[int]:
    shape = tensor.ShapeAsNumpy()
    return [] if isinstance(shape, int) else [int(dim) for dim in shape]


def _indices(values: Any, low: int, end: int, what: str) -> list[int]:
    """``values`` as numbers from ``low`` up to ``end``; the readers give 0 for an absent list."""
    found = [] if isinstance(values, int) else np.asarray(values).tolist()
    bad = [value for value in found if not low <= value < end]
    if bad:
        raise Fault(f"{what}: number {bad[0]}", f"{low} to {end - 1}")
    return found


def data_of(model: Any, tensor: Any, content: bytes) -> bytes | memoryview | None:
    """The bytes of a constant: in its buffer, or behind the flatbuffer in the same file; None where
    a tensor has none. Raises ``Fault`` for some beyond the file's end."""
    buffer = model.Buffers(tensor.Buffer())
    if buffer.DataLength():
        return memoryview(buffer.DataAsNumpy())
    start, size = buffer.Offset(), buffer.Size()
    if start <= 1 or not size:  # the schema's word for none
        return None
    if start + size > len(content):
        raise Fault(
            f"a buffer of {size} bytes from byte {start} on", f"within {len(content)} bytes"
        )
    return memoryview(content)[start : start + size]


def _check_tensor(model: Any, tensor: Any, index: int, content: bytes) -> tuple[int, int]:
    """The bytes that a tensor's shape says, 0 for types of no fixed size, and those of its data."""
    what = f"tensor {index}"
    shape = shape_of(tensor)
    item = _BYTES.get(tensor.Type())
    size = check_shape(what, shape, item or 0)
    _indices([tensor.Buffer()], 0, model.BuffersLength(), f"the buffer of {what}")
    data = data_of(model, tensor, content)
    length = 0 if data is None else len(data)
    if length and item and tensor.Sparsity() is None and length != size:
        raise Fault(f"{what}: {length} bytes of data", f"{size} for its shape {shown(shape)}")
    _check_quantization(tensor.Quantization(), tensor.Type(), shape, what)
    return size, length


def _check_quantization(quant: Any, kind: int, shape: Sequence[int], what: str) -> None:
    if quant is not None and quant.DetailsType():
        raise Fault(
            f"{what}: quantization of another kind (details {quant.DetailsType()})",
            "scales and zero points",
            "quantize it per tensor or per channel",
        )
    if quant is None or quant.ScaleLength() == 0:
        return
    scales, zeros = quant.ScaleAsNumpy(), quant.ZeroPointAsNumpy()
    bad = scales[~(np.isfinite(scales) & (scales >= 0))]
    if bad.size:
        raise Fault(f"{what}: scale {float(bad[0])}", "finite numbers of 0 and more")
    low, high = RANGES.get(kind, (-(2**31), 2**31 - 1))
    if not isinstance(zeros, int):
        _indices(zeros, low, high + 1, f"the zero point of {what}")
    if len(scales) > 1:
        (axis,) = _indices(
            [quant.QuantizedDimension()], 0, len(shape), f"the quantized dimension of {what}"
        )
        if len(scales) != shape[axis]:
            raise Fault(f"{what}: {len(scales)} scales", f"1, or {shape[axis]} for its shape")


def _check_names(graph: Any, used: Iterable[int]) -> None:
    """TVM's importer tells tensors apart by their names."""
    first: dict[bytes, int] = {}
    for index in used:
        name = graph.Tensors(index).Name()
        if name is not None and first.setdefault(name, index) != index:
            raise Fault(
                f"tensors {first[name]} and {index} are both named {name.decode(errors='replace')}",
                "names that differ: TVM's importer tells tensors apart by them",
                "rename one of them",
            )


@dataclass(frozen=True)
class DeclaredResult:
    """What the file says of the result of an operator; ``quant`` where it has one scale."""

    shape: tuple[int, ...]
    dtype: str
    quant: QParams | None


def results_of(model: Any) -> dict[str, DeclaredResult]:
    """By name of a tensor, for each that an operator makes."""
    graph, results = model.Subgraphs(0), {}
    for number in range(graph.OperatorsLength()):
        for index in graph.Operators(number).OutputsAsNumpy():
            tensor = graph.Tensors(int(index))
            dtype = DTYPES.get(tensor.Type())
            if dtype is not None:
                shape = tuple(shape_of(tensor))
                results[name_of(tensor)] = DeclaredResult(shape, dtype, quant_of(tensor))
    return results


# Names of inputs or outputs, in order, with what their integers stand for.
Ports = tuple[tuple[str, QParams | None], ...]


def ports_of(content: bytes) -> tuple[Ports, Ports]:
    """The inputs and outputs of a file that was checked."""
    import tflite

    graph = tflite.Model.GetRootAsModel(content, 0).Subgraphs(0)
    first, last = (
        tuple((name_of(tensor), quant_of(tensor)) for tensor in map(graph.Tensors, map(int, end)))
        for end in (graph.InputsAsNumpy(), graph.OutputsAsNumpy())
    )
    return first, last


def quant_of(tensor: Any) -> QParams | None:
    """What a tensor's integers stand for, where the file has one scale for them."""
    quant = tensor.Quantization()
    if tensor.Type() not in RANGES or quant is None or quant.ScaleLength() != 1:
        return None
    zero = int(quant.ZeroPoint(0)) if quant.ZeroPointLength() else 0
    return QParams((float(quant.Scale(0)),), zero)
