"""Model files that are broken on purpose: 500 of them, the same each time.

Case n is made of a small source model, a kind of mutation and a random generator that is seeded
with n. ``python -m tests.support.mutations N FOLDER`` writes case N to a folder.
"""

from __future__ import annotations

import functools
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.support.paths import MODELS

TFLITE = ("kws_ref_model", "ad01_int8", "pretrainedResnet_quant")
CASES = 500
MARKER = "HOSTILE"

Rng = np.random.Generator
HOSTILE_NAMES = (
    f'*/ system("{MARKER}"); /*',
    f"*/{MARKER}/*",
    f"*{MARKER}\n/{MARKER}\r\nint {MARKER};",
    f"??/\n{MARKER} ??/*/ {MARKER}",
    f"*??/\n/ {MARKER}",
    f"\\\n{MARKER} *\\\n/ {MARKER}",
    f"../../{MARKER}",
    f"/tmp/{MARKER}",
    f"%s%n%d%{MARKER}",
    f'"{MARKER}" \'{MARKER} `{MARKER}`',
    f"{MARKER} " + "x" * 10_000,
    f"{MARKER} " + "*/" * 5_000,
    f"{MARKER} Größe 名前 \u202e\u2028 \U0001f600",
    f"{MARKER}\x00\x1b[31m\x7f",
    f"}} {MARKER} {{ {{{{ {MARKER} }}}} {{% {MARKER} %}}",
    f"@CONSTANTS@ {MARKER}\n@CONSTANTS@",
    f"#define {MARKER}\n#include <{MARKER}>",
    f"*/*/ {MARKER} /*/*",
    f"//{MARKER}//*//**//{MARKER}",
    f"[red]{MARKER}[/red] :smile:",
    f"int {MARKER}",
    f"{MARKER} ?",
    f"{MARKER} *",
    " ",
)
ABSURD = (0, -1, -5, 2**31 - 1, 2**30, 2**20, -(2**31), 65_537)
ABSURD_64 = (*ABSURD, 2**32 + 1, 2**62, -(2**63), 2**63 - 1)


@dataclass(frozen=True)
class Case:
    """``file`` is the name of the file, ``kind`` and ``source`` tell how it was made; ``told`` is
    whether the names were replaced by some that hold ``MARKER``."""

    number: int
    kind: str
    source: str
    file: str
    content: bytes
    told: bool


def case(number: int) -> Case:
    """One of the 500. Raises ``FileNotFoundError`` where the shared models are missing."""
    kind = tuple(KINDS)[number % len(KINDS)]
    rng = np.random.default_rng([7, number])
    forms, mutate = KINDS[kind]
    # Round robin, so that few cases have all sources.
    source = forms[(number + number // len(KINDS)) % len(forms)]
    suffix = ".onnx" if source in ONNX else ".tflite"
    content = mutate(rng, read(source))
    return Case(number, kind, source, f"model{suffix}", content, kind.startswith("names"))


# --- Sources -----------------------------------------------------------------------------------


@functools.cache
def read(source: str) -> bytes:
    """A source model, as it is."""
    if source in TFLITE:
        return (MODELS / f"{source}.tflite").read_bytes()
    from benchmarks import onnx_networks

    net = onnx_networks.Net("tiny", 8)
    x = net.conv(net.image, 8, 3, stride=2, activation="relu")
    form, activation = ("qdq", "int8") if source == "qdq" else ("qoperator", "uint8")
    made = onnx_networks.quantize(net.classify(x, 4), form=form, activation=activation)  # type: ignore[arg-type]
    return bytes(made.SerializeToString())


ONNX = ("qdq", "qoperator")
ALL = (TFLITE[0], ONNX[0], TFLITE[1], ONNX[1], TFLITE[2])


# --- Bytes of any file -------------------------------------------------------------------------


def flip(rng: Rng, content: bytes, most: int) -> bytes:
    data = bytearray(content)
    for _ in range(int(rng.integers(1, most + 1))):
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    return bytes(data)


def flip_in_front(rng: Rng, content: bytes) -> bytes:
    """Structure comes first in most files."""
    return flip(rng, content[:400], 6) + content[400:]


def flip_at_end(rng: Rng, content: bytes) -> bytes:
    cut = len(content) * 9 // 10
    return content[:cut] + flip(rng, content[cut:], 6)


def truncate(rng: Rng, content: bytes) -> bytes:
    ends = (0, 1, 4, 8, len(content) // 2, len(content) - 1)
    return content[: int(rng.choice([*ends, int(rng.integers(len(content)))]))]


def overwrite(rng: Rng, content: bytes) -> bytes:
    length = int(rng.integers(1, 200))
    start = int(rng.integers(len(content) - length))
    fill = [bytes(length), b"\xff" * length, rng.bytes(length)][int(rng.integers(3))]
    return content[:start] + fill + content[start + length :]


def append(rng: Rng, content: bytes) -> bytes:
    return content + rng.bytes(int(rng.integers(1, 300)))


def splice(rng: Rng, content: bytes) -> bytes:
    """A part twice, or left out."""
    start, end = sorted(int(i) for i in rng.integers(len(content), size=2))
    return content[:end] + content[start:] if rng.integers(2) else content[:start] + content[end:]


# --- Flatbuffers -------------------------------------------------------------------------------


class Flat:
    """A flatbuffer to write to. What does not fit in its place goes to the end of the file."""

    def __init__(self, content: bytes) -> None:
        self.data = bytearray(content)
        self.model = self.u32(0)
        self.graph = self.items(self.field(self.model, 2))[0]

    def u32(self, at: int) -> int:
        return int(struct.unpack_from("<I", self.data, at)[0])

    def put(self, form: str, at: int, value: int | float) -> None:
        struct.pack_into(form, self.data, at, value)

    def field(self, table: int, slot: int) -> int:
        """Where a field of a table is, 0 for one that has its default."""
        vtable = table - struct.unpack_from("<i", self.data, table)[0]
        (size,) = struct.unpack_from("<H", self.data, vtable)
        if 4 + 2 * slot >= size:
            return 0
        (offset,) = struct.unpack_from("<H", self.data, vtable + 4 + 2 * slot)
        return table + offset if offset else 0

    def vector(self, field: int) -> tuple[int, int]:
        """Start and length of the list that a field points to."""
        at = field + self.u32(field)
        return at + 4, self.u32(at)

    def items(self, field: int) -> list[int]:
        """Where the tables of a list are."""
        start, count = self.vector(field)
        return [start + 4 * i + self.u32(start + 4 * i) for i in range(count)]

    def replace(self, field: int, length: int, payload: bytes) -> None:
        """Point a field to another list, at the end."""
        self.data += bytes(-(len(self.data) + 4) % 16)
        self.put("<I", field, len(self.data) - field)
        self.data += struct.pack("<I", length) + payload + b"\0"

    @property
    def tensors(self) -> list[int]:
        return self.items(self.field(self.graph, 0))

    @property
    def operators(self) -> list[int]:
        return self.items(self.field(self.graph, 3))

    @property
    def buffers(self) -> list[int]:
        return self.items(self.field(self.model, 4))

    def with_field(self, tables: list[int], slot: int, items: int = 0) -> list[int]:
        """The fields that are there, and where asked, that are lists of so many entries."""
        found = [field for table in tables if (field := self.field(table, slot))]
        return [f for f in found if self.vector(f)[1] >= items] if items else found


def tflite(change: Callable[[Rng, Flat], None]) -> Callable[[Rng, bytes], bytes]:
    def mutate(rng: Rng, content: bytes) -> bytes:
        flat = Flat(content)
        change(rng, flat)
        return bytes(flat.data)

    return mutate


def pick(rng: Rng, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def tensor_names(rng: Rng, flat: Flat) -> None:
    """All names, or one of them."""
    fields = flat.with_field(flat.tensors, 3)
    name = pick(rng, HOSTILE_NAMES)
    for number, field in enumerate(fields if rng.integers(4) else [pick(rng, fields)]):
        # Before or after a number: what is cut off differs.
        text = (f"{name}{number}" if rng.integers(2) else f"{number}{name}").encode()
        flat.replace(field, len(text), text)


def tensor_names_bytes(rng: Rng, flat: Flat) -> None:
    """No UTF-8, no name, the same name twice."""
    fields = flat.with_field(flat.tensors, 3)
    text = pick(rng, (b"\xff\xfe\x80", b"", b"same", b"\xed\xa0\x80"))
    for field in fields if rng.integers(2) else [pick(rng, fields)]:
        flat.replace(field, len(text), text)


def tensor_shape_swap(rng: Rng, flat: Flat) -> None:
    field = pick(rng, flat.with_field(flat.tensors, 0, items=2))
    start, count = flat.vector(field)
    dims = struct.unpack_from(f"<{count}i", flat.data, start)
    struct.pack_into(f"<{count}i", flat.data, start, *rng.permutation(dims))


def tensor_shape_absurd(rng: Rng, flat: Flat) -> None:
    field = pick(rng, flat.with_field(flat.tensors, 0, items=1))
    start, count = flat.vector(field)
    if rng.integers(3):
        for _ in range(int(rng.integers(1, count + 1))):
            flat.put("<i", start + 4 * int(rng.integers(count)), pick(rng, ABSURD))
    else:  # another rank
        dims = [pick(rng, (1, 2, 3, *ABSURD)) for _ in range(pick(rng, (0, 1, 3, 5, 100)))]
        flat.replace(field, len(dims), struct.pack(f"<{len(dims)}i", *dims))


def input_shape(rng: Rng, flat: Flat) -> None:
    """Of the model's input: what follows from it is large, or fits no longer."""
    start, _ = flat.vector(flat.field(flat.graph, 1))
    first, count = flat.vector(flat.field(flat.tensors[flat.u32(start)], 0))
    flat.put("<i", first + 4 * int(rng.integers(count)), pick(rng, (2, 3, 0, 33, 46_341, 2**20)))


def tensor_type(rng: Rng, flat: Flat) -> None:
    field = pick(rng, flat.with_field(flat.tensors, 1))
    flat.data[field] = int(rng.choice([0, 1, 2, 3, 4, 5, 7, 9, 11, 17, 99, 200]))


def tensor_buffer(rng: Rng, flat: Flat) -> None:
    field = pick(rng, flat.with_field(flat.tensors, 2))
    flat.put("<I", field, int(rng.choice([0, 1, len(flat.buffers) - 1, 10**6, 2**32 - 1])))


def tensor_quantization(rng: Rng, flat: Flat) -> None:
    tables = [f + flat.u32(f) for f in flat.with_field(flat.tensors, 4)]
    which = int(rng.integers(3))
    if which == 0:
        start, count = flat.vector(pick(rng, flat.with_field(tables, 2, items=1)))
        values = (0.0, -1.0, float("nan"), float("inf"), 1e-40, 1e-30, 1e30, 3.0)
        flat.put("<f", start + 4 * int(rng.integers(count)), pick(rng, values))
    elif which == 1:
        start, count = flat.vector(pick(rng, flat.with_field(tables, 3, items=1)))
        values_64 = (-129, 127, 128, 256, 2**31, -(2**63), 5)
        flat.put("<q", start + 8 * int(rng.integers(count)), pick(rng, values_64))
    else:
        field = pick(rng, flat.with_field(tables, 2, items=1))
        count = int(rng.integers(0, 5))
        flat.replace(field, count, struct.pack(f"<{count}f", *([0.5] * count)))


def operator_tensors(rng: Rng, flat: Flat) -> None:
    """An index to nothing, to another tensor, or a result that is its own operand."""
    field = pick(rng, flat.with_field(flat.operators, int(rng.integers(1, 3)), items=1))
    start, count = flat.vector(field)
    values = (-1, -2, len(flat.tensors), 2**31 - 1, *range(len(flat.tensors)))
    flat.put("<i", start + 4 * int(rng.integers(count)), pick(rng, values))


def operator_order(rng: Rng, flat: Flat) -> None:
    """Two operators change places."""
    start, count = flat.vector(flat.field(flat.graph, 3))
    a, b = (start + 4 * int(i) for i in rng.choice(count, 2, replace=False))
    x, y = a + flat.u32(a), b + flat.u32(b)
    flat.put("<I", a, (y - a) % 2**32)
    flat.put("<I", b, (x - b) % 2**32)


def operator_kind(rng: Rng, flat: Flat) -> None:
    fields = flat.with_field(flat.operators, 0)
    if fields and rng.integers(2):
        flat.put("<I", pick(rng, fields), int(rng.choice([0, 1, 2, 3, 50, 2**32 - 1])))
    else:
        codes = flat.items(flat.field(flat.model, 1))
        field = pick(rng, flat.with_field(codes, 0) or flat.with_field(codes, 3))
        flat.data[field] = int(rng.integers(0, 128))


def operator_options(rng: Rng, flat: Flat) -> None:
    """Strides, paddings, axes: each is a number in the operator's table of options."""
    tables = [f + flat.u32(f) for f in flat.with_field(flat.operators, 4)]
    fields = [f for slot in range(6) for f in flat.with_field(tables, slot)]
    form = "<i" if rng.integers(3) else "<b"
    flat.put(form, pick(rng, fields), pick(rng, (0, -1, 2, 3, 100, 127)))


def graph_ends(rng: Rng, flat: Flat) -> None:
    """Inputs and outputs of the model."""
    field = flat.field(flat.graph, int(rng.integers(1, 3)))
    values = [int(rng.choice([0, 1, 5, -1, 10**6])) for _ in range(int(rng.integers(0, 4)))]
    flat.replace(field, len(values), struct.pack(f"<{len(values)}i", *values))


def list_length(rng: Rng, flat: Flat) -> None:
    tables = [flat.graph, flat.model, *flat.tensors, *flat.operators, *flat.buffers]
    slots = {flat.graph: (0, 1, 2, 3), flat.model: (1, 2, 4)}
    table = tables[int(rng.integers(2))] if rng.integers(2) else pick(rng, tables)
    fields = flat.with_field([table], pick(rng, slots.get(table, (0,))))
    if table in flat.operators:
        fields = flat.with_field([table], 1)
    for field in fields:
        start, count = flat.vector(field)
        flat.put("<I", start - 4, pick(rng, (0, 2**32 - 1, 2**31, count + 1, 10**6, count // 2)))


def offset(rng: Rng, flat: Flat) -> None:
    """A pointer to somewhere else."""
    tables = [flat.graph, flat.model, *flat.tensors, *flat.operators]
    fields = flat.with_field([pick(rng, tables)], pick(rng, (0, 1, 2, 3)))
    for field in fields or [0]:
        flat.put("<I", field, int(rng.integers(2 ** int(rng.integers(3, 33)))))


# --- ONNX --------------------------------------------------------------------------------------


def onnx_model(change: Callable[[Rng, onnx.ModelProto], None]) -> Callable[[Rng, bytes], bytes]:
    def mutate(rng: Rng, content: bytes) -> bytes:
        model = onnx.load_from_string(content)
        change(rng, model)
        return bytes(model.SerializeToString())

    return mutate


def value_names(rng: Rng, model: onnx.ModelProto) -> None:
    """Nodes and values get hostile names, the same in every place."""
    name, graph = pick(rng, HOSTILE_NAMES), model.graph
    known: dict[str, str] = {"": ""}

    def renamed(old: str) -> str:
        return known.setdefault(old, f"{name}{len(known)}")

    for node in graph.node:
        node.name = renamed(node.name)
        node.input[:] = [renamed(old) for old in node.input]
        node.output[:] = [renamed(old) for old in node.output]
        node.doc_string = name
    for value in (*graph.initializer, *graph.input, *graph.output, *graph.value_info):
        value.name = renamed(value.name)
    graph.name = model.producer_name = model.doc_string = name


def value_names_bad(rng: Rng, model: onnx.ModelProto) -> None:
    graph = model.graph
    which = int(rng.integers(4))
    if which == 0:
        pick(rng, graph.initializer).name = pick(rng, ("", " ", "other", graph.input[0].name))
    elif which == 1:
        pick(rng, graph.node).output[0] = pick(rng, ("", "other", graph.node[0].output[0]))
    elif which == 2:
        graph.output[0].name = pick(rng, ("", "other", graph.input[0].name))
    else:
        graph.input[0].name = pick(rng, ("", "other", graph.node[0].output[0]))


def value_shape(rng: Rng, model: onnx.ModelProto) -> None:
    dims = model.graph.input[0].type.tensor_type.shape.dim
    if rng.integers(2):
        pick(rng, dims).dim_value = pick(rng, (*ABSURD_64, 2, 3, 5))
    elif rng.integers(2):
        pick(rng, dims).dim_param = pick(rng, HOSTILE_NAMES[:10])
    else:
        del dims[int(rng.integers(4)) :]


def tensor_dims(rng: Rng, model: onnx.ModelProto) -> None:
    tensor = pick(rng, [t for t in model.graph.initializer if t.dims] or model.graph.initializer)
    which = int(rng.integers(4))
    if which == 0:
        tensor.dims[:] = [int(d) for d in rng.permutation(tensor.dims)]
    elif which == 1 and tensor.dims:
        tensor.dims[int(rng.integers(len(tensor.dims)))] = pick(rng, ABSURD_64)
    elif which == 2:
        tensor.dims.extend([pick(rng, (1, 1, *ABSURD_64))] * int(rng.integers(1, 70)))
    else:
        tensor.raw_data = tensor.raw_data[: len(tensor.raw_data) // 2]


def tensor_dtype(rng: Rng, model: onnx.ModelProto) -> None:
    tensor = pick(rng, model.graph.initializer)
    tensor.data_type = int(rng.choice([0, 1, 2, 3, 6, 7, 8, 9, 11, 16, 21, 22, 99]))


def tensor_value(rng: Rng, model: onnx.ModelProto) -> None:
    """Scales and zero points that mean nothing."""
    scalars = [t for t in model.graph.initializer if "scale" in t.name or "zero" in t.name]
    tensor = pick(rng, scalars)
    old = onnx.numpy_helper.to_array(tensor)
    values = (0, -1, np.nan, np.inf, 1e-30, 1e30) if old.dtype.kind == "f" else (0, 1, 127, -128)
    new = np.full_like(old, np.array(pick(rng, values)).astype(old.dtype, casting="unsafe"))
    tensor.CopyFrom(onnx.numpy_helper.from_array(new, tensor.name))


def tensor_elsewhere(rng: Rng, model: onnx.ModelProto) -> None:
    """Data in another file, outside of the model's folder."""
    tensor = pick(rng, model.graph.initializer)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {
        "location": pick(rng, ("../../x", "/etc/hostname", "missing", "", "a\0b", "/dev/zero")),
        "offset": pick(rng, ("0", "-1", "1000000000000")),
        "length": pick(rng, ("4", "-4", "10000000000", "many")),
    }.items():
        tensor.external_data.add(key=key, value=value)


def node_attributes(rng: Rng, model: onnx.ModelProto) -> None:
    attributes = [a for node in model.graph.node for a in node.attribute]
    attribute = pick(rng, attributes)
    values = (0, -1, 2, 5, 2**31, 2**62, -(2**63))
    if attribute.ints and rng.integers(2):
        attribute.ints[int(rng.integers(len(attribute.ints)))] = pick(rng, values)
    elif attribute.ints:
        attribute.ints[:] = [pick(rng, values) for _ in range(int(rng.integers(0, 6)))]
    elif rng.integers(2):
        attribute.i = pick(rng, values)
    else:
        attribute.name = pick(rng, HOSTILE_NAMES[:12])


def node_kind(rng: Rng, model: onnx.ModelProto) -> None:
    node = pick(rng, model.graph.node)
    kinds = ("If", "Loop", "Tanh", "MatMul", "Resize", "LSTM", "Constant", *HOSTILE_NAMES[:8])
    if rng.integers(3):
        node.op_type = pick(rng, kinds)
    else:
        node.domain = pick(rng, ("com.microsoft", *HOSTILE_NAMES[:8]))


def node_order(rng: Rng, model: onnx.ModelProto) -> None:
    """Nodes in another order, a cycle, inputs that are left out."""
    nodes = model.graph.node
    which = int(rng.integers(3))
    if which == 0:
        order = [onnx.NodeProto.FromString(nodes[i].SerializeToString())
                 for i in rng.permutation(len(nodes))]  # fmt: skip
        del nodes[:]
        nodes.extend(order)
    elif which == 1:
        node = pick(rng, nodes)
        node.input[0] = node.output[0]
    else:
        node = pick(rng, nodes)
        del node.input[int(rng.integers(len(node.input))) :]


def node_huge(rng: Rng, model: onnx.ModelProto) -> None:
    """A constant of many gigabytes in few bytes."""
    graph = model.graph
    size = int(rng.choice([2**20, 2**31, 2**36, 2**45, 2**62]))
    shape = onnx.numpy_helper.from_array(np.array([size, 4], np.int64), "huge_shape")
    graph.initializer.append(shape)
    ends = [onnx.numpy_helper.from_array(np.array(v, np.int64), f"end{v}") for v in (0, 1, size)]
    graph.initializer.extend(ends)
    one = onnx.numpy_helper.from_array(np.ones((1, 1), np.float32), "one")
    graph.initializer.append(one)
    made = {
        "ConstantOfShape": ["huge_shape"],
        "Expand": ["one", "huge_shape"],
        "Tile": ["one", "huge_shape"],
        "Range": ["end0", f"end{size}", "end1"],
    }
    kind = pick(rng, tuple(made))
    node = onnx.helper.make_node(kind, made[kind], ["huge"], "huge")
    last = onnx.helper.make_node("ReduceSum", ["huge"], ["sum"], "sum", keepdims=0)
    graph.node.extend([node, last])
    graph.output.append(onnx.helper.make_tensor_value_info("sum", 1, []))


def nested(rng: Rng, content: bytes) -> bytes:
    """Graphs in graphs in graphs, deeper than protobuf's own limit, or less deep."""
    graph = b""
    for _ in range(int(rng.choice([3, 20, 40, 5_000]))):
        branch = b"\x0a\x0bthen_branch\xa0\x01\x05" + _message(6, graph)  # name, type, graph
        graph = _message(1, b"\x22\x02If" + _message(5, branch))  # a node: its kind, an attribute
    return content + _message(7, graph)  # protobuf adds it to the graph that is there


def _message(field: int, content: bytes) -> bytes:
    """A field that holds a message, as protobuf writes it."""
    length, size = len(content), bytearray()
    while length > 127:
        size.append(length & 127 | 128)
        length >>= 7
    return bytes([field << 3 | 2, *size, length]) + content


def versions(rng: Rng, model: onnx.ModelProto) -> None:
    if rng.integers(3):
        model.opset_import[0].version = pick(rng, (0, -1, 1, 7, 12, 14, 21, 1000, 2**62))
    else:
        model.ir_version = pick(rng, (0, -1, 3, 11, 99, 2**62))


# --- All kinds ---------------------------------------------------------------------------------

Kind = tuple[tuple[str, ...], Callable[[Rng, bytes], bytes]]
KINDS: dict[str, Kind] = {
    "flip one bit": (ALL, functools.partial(flip, most=1)),
    "names of tensors": (TFLITE, tflite(tensor_names)),
    "flip many bits": (ALL, functools.partial(flip, most=200)),
    "names of values": (ONNX, onnx_model(value_names)),
    "flip in front": (ALL, flip_in_front),
    "flip at the end": (ALL, flip_at_end),
    "truncate": (ALL, truncate),
    "overwrite": (ALL, overwrite),
    "append": (ALL, append),
    "splice": (ALL, splice),
    "tensor: bad names": (TFLITE, tflite(tensor_names_bytes)),
    "tensor: swapped shape": (TFLITE, tflite(tensor_shape_swap)),
    "tensor: absurd shape": (TFLITE, tflite(tensor_shape_absurd)),
    "tensor: type": (TFLITE, tflite(tensor_type)),
    "tensor: buffer": (TFLITE, tflite(tensor_buffer)),
    "tensor: quantization": (TFLITE, tflite(tensor_quantization)),
    "input: shape": (TFLITE, tflite(input_shape)),
    "operator: tensors": (TFLITE, tflite(operator_tensors)),
    "operator: order": (TFLITE, tflite(operator_order)),
    "operator: kind": (TFLITE, tflite(operator_kind)),
    "operator: options": (TFLITE, tflite(operator_options)),
    "graph: ends": (TFLITE, tflite(graph_ends)),
    "list: length": (TFLITE, tflite(list_length)),
    "offset": (TFLITE, tflite(offset)),
    "value: bad names": (ONNX, onnx_model(value_names_bad)),
    "value: shape": (ONNX, onnx_model(value_shape)),
    "initializer: dims": (ONNX, onnx_model(tensor_dims)),
    "initializer: type": (ONNX, onnx_model(tensor_dtype)),
    "initializer: value": (ONNX, onnx_model(tensor_value)),
    "initializer: elsewhere": (ONNX, onnx_model(tensor_elsewhere)),
    "node: attributes": (ONNX, onnx_model(node_attributes)),
    "node: kind": (ONNX, onnx_model(node_kind)),
    "node: order": (ONNX, onnx_model(node_order)),
    "node: huge constant": (ONNX, onnx_model(node_huge)),
    "node: nested": (ONNX, nested),
    "model: versions": (ONNX, onnx_model(versions)),
}


def main(arguments: list[str]) -> None:
    number, folder = arguments
    made = case(int(number))
    file = Path(folder) / made.file
    file.write_bytes(made.content)
    print(f"{file}: {made.kind} of {made.source}")


def text_without_comments(code: str) -> str:
    """C as a compiler sees it: trigraphs replaced, lines joined, comments gone, strings kept."""
    code = code.replace("??/", "\\").replace("\\\n", "")
    return "".join(_outside(code))


def _outside(code: str) -> Iterator[str]:
    at = 0
    while at < len(code):
        if code.startswith("/*", at):
            end = code.find("*/", at + 2)
            at = len(code) if end < 0 else end + 2
        elif code.startswith("//", at):
            end = code.find("\n", at)
            at = len(code) if end < 0 else end
        elif code[at] in "\"'":
            end = at + 1
            while end < len(code) and code[end] != code[at]:
                end += 2 if code[end] == "\\" else 1
            yield code[at : end + 1]
            at = end + 1
        else:
            yield code[at]
            at += 1


if __name__ == "__main__":
    main(sys.argv[1:])
