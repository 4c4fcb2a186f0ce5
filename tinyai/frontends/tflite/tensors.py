"""The tensors and options of a .tflite file as plain values."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import flatbuffers
import numpy as np
import tflite

from tinyai.frontends.tflite.checks import DTYPES, data_of, name_of, quant_of, shape_of
from tinyai.frontends.tflite.sparse import densified
from tinyai.ir import Array, QParams
from tinyai.ops.scales import require_positive
from tinyai.source import Refusal, SourceType, require

INTEGERS = ("int8", "uint8", "int16")


def names_of(enumeration: type) -> dict[int, str]:
    """The names of an enumeration of the schema, by number."""
    return {number: name for name, number in vars(enumeration).items() if not name.startswith("_")}


TYPES = {number: name.lower() for number, name in names_of(tflite.TensorType).items()}
BUILTINS = names_of(tflite.BuiltinOperator)
_OPTIONS = names_of(tflite.BuiltinOptions)


@dataclass(frozen=True)
class FileTensor:
    """A tensor of the file. ``scales`` are float32, one or one along ``axis``, none where it is not
    quantized; ``value`` is None of a tensor that is no constant."""

    name: str
    type: SourceType
    value: Array | None
    scales: Array | None
    zero_points: Array
    axis: int
    quant: QParams | None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(dim for dim in self.type.shape if dim is not None)

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def is_quantized(self) -> bool:
        return self.scales is not None and self.dtype in INTEGERS

    @property
    def scale(self) -> np.float32:
        """The one scale of a quantized tensor."""
        scales = self._scales()
        found = f"{scales.size}, of {self.name!r}"
        require(scales.size == 1, "scales", found, "one for the tensor")
        return np.float32(scales[0])

    @property
    def zero_point(self) -> int:
        return int(self.zero_points[0]) if self.zero_points.size else 0

    def along(self, axis: int) -> Array:
        """The scales: one, or one for each channel along ``axis``."""
        scales = self._scales()
        fits = scales.size == 1 or self.axis == axis
        require(fits, "axis of the scales", f"{self.axis}, of {self.name!r}", axis)
        return scales.reshape(()) if scales.size == 1 else scales

    def _scales(self) -> Array:
        if self.scales is None:
            raise Refusal("scale", f"none, of {self.type} {self.name!r}", "a quantized tensor")
        require_positive(self.scales, "scale")
        return self.scales


def tensors_of_graph(model: Any, graph: Any, content: bytes) -> list[FileTensor]:
    """The tensors of a file that was checked. They are told apart by their names later: one without
    a name, or with that of another, gets its number too."""
    tensors = map(graph.Tensors, range(graph.TensorsLength()))
    found = [_tensor(model, each, content) for each in tensors]
    counts = Counter(each.name for each in found) + Counter([""] * 2)
    return [
        replace(each, name=f"{each.name}#{number}") if counts[each.name] > 1 else each
        for number, each in enumerate(found)
    ]


def _tensor(model: Any, tensor: Any, content: bytes) -> FileTensor:
    dtype = DTYPES.get(tensor.Type()) or TYPES.get(tensor.Type(), f"type {tensor.Type()}")
    of = SourceType(tuple(shape_of(tensor)), dtype)
    quant, scales, zeros, axis = tensor.Quantization(), None, np.zeros(0, np.int64), 0
    if quant is not None and quant.ScaleLength():
        scales, axis = quant.ScaleAsNumpy(), quant.QuantizedDimension()
        zeros = quant.ZeroPointAsNumpy() if quant.ZeroPointLength() else zeros
    value, data = None, data_of(model, tensor, content)
    data = b"" if 0 in of.shape else data
    # What is no plain array of numbers (packed, texts) is refused by who reads it.
    if data is not None and hasattr(np, dtype):
        stored = np.dtype(dtype).newbyteorder("<")
        value = np.frombuffer(data, stored, len(data) // stored.itemsize).astype(dtype)
        sparsity, what = tensor.Sparsity(), f"constant {name_of(tensor)!r}"
        shape = shape_of(tensor)
        dense = sparsity is None
        value = value.reshape(shape) if dense else densified(sparsity, value, shape, what)
    return FileTensor(name_of(tensor), of, value, scales, zeros, axis, quant_of(tensor))


# --- Options -------------------------------------------------------------------------------------


class OperatorOptions:
    """The options of an operator, by the names of the schema's accessors. What nobody asks for has
    to have its default."""

    def __init__(self, operator: Any) -> None:
        kind, second = operator.BuiltinOptionsType(), operator.BuiltinOptions2Type()
        self.table = _OPTIONS.get(kind, str(kind)) if kind or not second else f"another, {second}"
        self.custom = operator.CustomOptionsLength()
        self._found: dict[str, Any] = {}
        self._asked: set[str] = set()
        given, accessors = operator.BuiltinOptions(), getattr(tflite, self.table, None)
        if given is not None and accessors is not None:
            table = accessors()
            table.Init(given.Bytes, given.Pos)
            self._found = {field: getattr(table, field)() for field in _defaults(self.table)}

    def require(self, table: str) -> None:
        """Raises ``Refusal`` unless they are those of ``table``, "" for none, or left out."""
        require(self.table in ("NONE", table), "options", self.table, table or "none")
        require(not self.custom, "custom options", f"{self.custom} bytes", "none")
        self._found = {**(_defaults(table) if table else {}), **self._found}

    def __call__(self, field: str) -> Any:
        self._asked.add(field)
        return self._found[field]

    def get(self, field: str, default: Any) -> Any:
        """A field, ``default`` where the operator has no table of options."""
        return self._found.get(field, default)

    def left(self) -> Iterator[tuple[str, Any, Any]]:
        """The fields that nobody asked for and that differ from their defaults, with these."""
        for field, found in self._found.items():
            default = _defaults(self.table)[field] if self.table != "NONE" else found
            if field not in self._asked and not np.array_equal(found, default):
                yield field, found, default


@functools.cache
def _defaults(table: str) -> dict[str, Any]:
    """What the accessors of a table give that has no field, of a list the one for all of it."""
    builder = flatbuffers.Builder(16)
    builder.StartObject(0)
    builder.Finish(builder.EndObject())
    content = bytes(builder.Output())
    accessors = getattr(tflite, table)
    names = {name for name in vars(accessors) if not name.startswith(("_", "GetRootAs"))}
    names -= {name for name in names if name.endswith("BufferHasIdentifier")} | {"Init"}
    lists = {name.removesuffix("AsNumpy") for name in names if name.endswith("AsNumpy")}
    names -= {f"{name}{end}" for name in lists for end in ("", "Length", "IsNone")}
    empty = accessors()
    empty.Init(content, int.from_bytes(content[:4], "little"))
    return {name: getattr(empty, name)() for name in sorted(names)}
