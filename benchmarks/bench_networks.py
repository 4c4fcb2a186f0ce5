"""What `make bench` measures: model files, networks of our ONNX builder and of relay.quantize.

A case is a name and where the network comes from, small enough to be handed to another process;
``load`` makes the network.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import flatbuffers
import numpy as np
import numpy.typing as npt
import onnxruntime
import tflite
import tvm
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from benchmarks import onnx_networks, workloads
from tinyai.errors import OptionError
from tinyai.frontends.relay.load import load_model

Array = npt.NDArray[Any]
Values = dict[str, Array]
Kind = Literal["tflite", "onnx", "relay"]

MODELS = workloads.ROOT.parent / "shared" / "models"
# Real inputs of a network, in the file of sample inputs beside it.
SAMPLES = {"ad01_int8": "ad_int8", "kws_ref_model": "kws_int8", "pretrainedResnet_quant": "ic_int8"}
INPUTS = 4
ALIVE = 16
RELAY: dict[str, Callable[[Path], workloads.Workload]] = {
    "relay_resnet18": workloads.resnet18,
    "relay_mobilenet_v1": workloads.mobilenet_v1_nchw,
    "relay_mobilenet_v1_nhwc": workloads.mobilenet_v1,
}
_BUILDERS = {f"onnx_{network.name}": network for network in onnx_networks.NETWORKS}


@dataclass(frozen=True)
class Case:
    """A network to measure. ``file`` is None where a builder of ours makes it."""

    name: str
    kind: Kind
    file: Path | None = None


@dataclass(frozen=True, eq=False)
class Network:
    """A loaded case: the quantized module with its parameters bound, the bytes of the model file
    (None for a network of relay.quantize), and inputs by name, of which the first is timed."""

    case: Case
    mod: tvm.IRModule
    content: bytes | None
    inputs: tuple[Values, ...]


def known(models: Path, *, relay: bool) -> tuple[list[Case], list[str]]:
    """The cases that need no file of the user's, and why others of the folder are left out."""
    cases, notes = shared(models)
    cases += [Case(name, "onnx") for name in _BUILDERS]
    if relay:
        cases += [Case(name, "relay") for name in RELAY]
    return cases, notes


def shared(models: Path) -> tuple[list[Case], list[str]]:
    """The int8 TFLite files that the README of the folder names, and notes on what is left out."""
    readme = models / "README.md"
    if not readme.is_file():
        return [], [f"no networks from files: {models} has no README.md"]
    cases, floats, missing = [], [], []
    for name in dict.fromkeys(re.findall(r"`([\w.-]+\.tflite)`", readme.read_text())):
        path = models / name
        if not path.is_file():
            missing.append(name)
        elif not _is_quantized(path.read_bytes()):
            floats.append(name)
        else:
            cases.append(Case(path.stem, "tflite", path))
    notes = [f"left out, float: {', '.join(floats)}"] if floats else []
    notes += [f"left out, not there: {', '.join(missing)}"] if missing else []
    return cases, notes


def _is_quantized(content: bytes) -> bool:
    """Whether 8-bit integers with a scale are computed; weights alone may be stored so."""
    model = tflite.Model.GetRootAsModel(content, 0)
    graph = model.Subgraphs(0)
    return any(
        tensor.Type() in (tflite.TensorType.INT8, tflite.TensorType.UINT8)
        and model.Buffers(tensor.Buffer()).DataLength() == 0
        and tensor.Quantization() is not None
        and tensor.Quantization().ScaleLength() > 0
        for tensor in map(graph.Tensors, range(graph.TensorsLength()))
    )


def of_files(files: Sequence[Path]) -> list[Case]:
    """Cases of the user's files, by their stems; equal stems get the folder in front."""
    stems = [file.stem for file in files]
    cases = []
    for file in files:
        kind = file.suffix.lower().removeprefix(".")
        if kind not in ("tflite", "onnx"):
            raise OptionError("model file", found=file, allowed="*.tflite, *.onnx")
        name = file.stem if stems.count(file.stem) == 1 else f"{file.parent.name}/{file.stem}"
        cases.append(Case(name, "onnx" if kind == "onnx" else "tflite", file))
    return cases


def chosen(cases: Sequence[Case], names: Sequence[str]) -> list[Case]:
    """The cases of these names, in the order of the names; all where none is given.

    Raises ``OptionError`` for a name that no case has.
    """
    by_name = {case.name: case for case in cases}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise OptionError(
            "network",
            found=", ".join(unknown),
            allowed=", ".join(by_name),
            hint="--relay adds the networks of relay.quantize, --models names the folder of files",
        )
    return [by_name[name] for name in names] if names else list(cases)


def load(case: Case, cache: Path) -> Network:
    """Make or read the network; what takes long is kept in ``cache``.

    Raises ``OptionError`` for a file that cannot be imported or has dynamic shapes.
    """
    if case.kind == "relay":
        work = RELAY[case.name](cache)
        inputs = tuple({work.input: sample} for sample in work.samples[:INPUTS])
        return Network(case, work.quantized, None, inputs)
    path = case.file or _built(case.name, cache)
    content = path.read_bytes()
    mod = _imported(path, content, cache)
    return Network(case, mod, content, tuple(_inputs(case, mod)))


def _built(name: str, cache: Path) -> Path:
    """The file of a network of our builder: QDQ, uint8 activations, weights per channel."""
    network = _BUILDERS[name]
    model = network.build(**network.full)
    digest = _digest(model.SerializeToString(), onnxruntime.__version__)
    path = cache / f"{network.name}-{digest}.onnx"
    if not path.exists():
        quantized = onnx_networks.quantize(model, form="qdq", activation="uint8")
        workloads.write_whole(path, quantized.SerializeToString())
    return path


def _imported(path: Path, content: bytes, cache: Path) -> tvm.IRModule:
    """TVM's importer folds constants anew at each node: a minute for a large ONNX file."""
    kept = cache / f"imported-{_digest(content, tvm.__version__)}.json"
    if not kept.exists():
        mod, params = load_model(str(path))
        workloads.write_whole(kept, tvm.ir.save_json(workloads.bind(mod, params)))
    return tvm.ir.load_json(kept.read_text())


def alive_part(network: Network, cache: Path) -> tuple[Network, str] | None:
    """A TFLite network up to its last operator whose result takes more than ``ALIVE`` values, and
    how many operators that are in words; None for other networks, and where there is none.

    Random weights may let a network die out: from some layer on every result is the same, whatever
    the input, and equal results prove nothing.
    """
    if network.content is None or network.case.kind != "tflite":
        return None
    alive, count = _last_alive(network)
    if not alive:
        return None
    content = _first_operators(network.content, alive)
    path = cache / f"alive-{_digest(content)}.tflite"
    workloads.write_whole(path, content)
    case = Case(f"{network.case.name}-alive", "tflite", path)
    part = Network(case, _imported(path, content, cache), content, network.inputs)
    return part, f"first {alive} of {count} operators"


def _last_alive(network: Network) -> tuple[int, int]:
    """How many operators there are up to the last that is alive (0: none is), and in all."""
    interpreter = Interpreter(
        model_content=network.content,
        experimental_preserve_all_tensors=True,
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    set_inputs(interpreter, network.inputs[0])
    interpreter.invoke()
    results = [each["outputs"][0] for each in interpreter._get_ops_details()]
    values = [interpreter.get_tensor(index) for index in results]
    alive = [i + 1 for i, each in enumerate(values) if len(np.unique(each)) > ALIVE]
    return max(alive, default=0), len(results)


def set_inputs(interpreter: Interpreter, values: Values) -> None:
    """By name; the only input has whatever name."""
    details = interpreter.get_input_details()
    for each in details:
        value = next(iter(values.values())) if len(details) == 1 else values[each["name"]]
        interpreter.set_tensor(each["index"], value)


def _first_operators(content: bytes, count: int) -> bytes:
    """The TFLite file cut after an operator, whose result becomes its output."""
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    (graph,) = model.subgraphs
    graph.operators = graph.operators[:count]
    graph.outputs = [graph.operators[-1].outputs[0]]
    model.signatureDefs = []
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _digest(content: bytes, *others: str) -> str:
    return hashlib.sha256(repr(others).encode() + content).hexdigest()[:32]


def _inputs(case: Case, mod: tvm.IRModule) -> Iterator[Values]:
    """``INPUTS`` sets of values: the sample beside the file if there is one, then random ones."""
    types = {param.name_hint: param.checked_type for param in mod["main"].params}
    dynamic = [name for name, of in types.items() if not all(hasattr(d, "value") for d in of.shape)]
    if dynamic:
        raise OptionError(
            "shape of an input", found=f"{dynamic[0]}: {types[dynamic[0]]}", allowed="fixed sizes"
        )
    samples = list(_samples(case, types))
    yield from samples
    rng = np.random.default_rng(3)
    if case.file is None:  # a network of our builder
        ((name, of),) = types.items()
        for image in onnx_networks.images(int(of.shape[-1]), INPUTS, seed=7):
            yield {name: image}
        return
    for _ in range(INPUTS - len(samples)):
        yield {name: _random(rng, of) for name, of in types.items()}


def _samples(case: Case, types: dict[str, Any]) -> Iterator[Values]:
    file = case.file.parent / "sample_inputs.npz" if case.file else None
    if case.name not in SAMPLES or file is None or not file.is_file():
        return
    ((name, of),) = types.items()
    with np.load(file, allow_pickle=False) as samples:
        value = samples[SAMPLES[case.name]]
    shape = tuple(int(d) for d in of.shape)
    yield {name: value.reshape(-1, *shape[1:])[:1].astype(of.dtype)}


def _random(rng: np.random.Generator, of: Any) -> Array:
    """Normal floats, integers of the whole range."""
    shape, dtype = tuple(int(d) for d in of.shape), np.dtype(of.dtype)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
