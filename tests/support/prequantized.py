"""Networks that come quantized: TFLite files of the shared folder, ONNX files of our builder."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import onnx
import pytest
import tflite
import tvm
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from tvm import relay

from benchmarks import onnx_networks
from tests.support.disk import on_disk
from tests.support.oracle import Array, digest
from tests.support.paths import MODELS

TFLITE = (
    "ad01_int8",
    "kws_ref_model",
    "pretrainedResnet_quant",
    "vww_96_int8",
    "mcunet_vww",
    "mobilenet_v1_int8",
    "mobilenet_v2_int8",
)
LARGE = ("mobilenet_v1_int8", "mobilenet_v2_int8")
# TVM's unscheduled NHWC convolutions take minutes to build.
SLOW_TO_BUILD = ("mcunet_vww", *LARGE)
SAMPLES = {"ad01_int8": "ad_int8", "kws_ref_model": "kws_int8", "pretrainedResnet_quant": "ic_int8"}
Values = dict[str, Array]


def tflite_path(name: str) -> Path:
    """A TFLite file of the shared folder; the test skips where the folder is missing."""
    path = MODELS / f"{name}.tflite"
    if not path.exists():
        pytest.skip(f"the folder of shared models lacks {path.name}")
    return path


def tflite_file(name: str) -> bytes:
    """What is in it."""
    return tflite_path(name).read_bytes()


@functools.cache
def from_tflite(content: bytes) -> tvm.IRModule:
    """The file as TVM imports it, parameters bound."""
    mod, params = relay.frontend.from_tflite(tflite.Model.GetRootAsModel(content, 0))
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    return relay.transform.InferType()(mod)


def without_softmax(content: bytes) -> bytes:
    """The file without its last operator, which has to be a softmax.

    LiteRT's reference softmax aborts the process on the two MobileNets: their random weights give
    scales that its fixed point cannot hold.
    """
    model = schema.ModelT.InitFromPackedBuf(content, 0)
    (graph,) = model.subgraphs
    last = graph.operators.pop()
    code = model.operatorCodes[last.opcodeIndex]
    builtin = max(code.builtinCode, code.deprecatedBuiltinCode)
    assert builtin == schema.BuiltinOperator.SOFTMAX
    graph.outputs = [last.inputs[0]]
    model.signatureDefs = []
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def input_of(mod: tvm.IRModule) -> tuple[str, tuple[int, ...], str]:
    """Name, shape and dtype of the one input."""
    (param,) = mod["main"].params
    of = param.checked_type
    return param.name_hint, tuple(int(d) for d in of.shape), of.dtype


def random_inputs(mod: tvm.IRModule, count: int) -> Iterator[Values]:
    name, shape, dtype = input_of(mod)
    rng = np.random.default_rng(3)
    for _ in range(count):
        if dtype == "float32":
            yield {name: rng.normal(size=shape).astype(dtype)}
        else:
            info = np.iinfo(dtype)
            yield {name: rng.integers(info.min, info.max, shape, dtype, endpoint=True)}


def sample_inputs(network: str, mod: tvm.IRModule, most: int) -> Iterator[Values]:
    """Real inputs of the network, where the shared folder has some."""
    name, shape, dtype = input_of(mod)
    key = SAMPLES.get(network)
    if key is None:
        return
    with np.load(MODELS / "sample_inputs.npz") as samples:
        values = samples[key]
    for value in values.reshape(-1, *shape[1:])[:most]:
        yield {name: value.reshape(shape).astype(dtype)}


class LiteRT:
    """A file run by LiteRT's reference kernels."""

    def __init__(self, content: bytes) -> None:
        self._interpreter = Interpreter(
            model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
        )
        self._interpreter.allocate_tensors()

    def __call__(self, *values: Array) -> list[Array]:
        """The outputs for inputs in the order of the file."""
        for given, value in zip(self._interpreter.get_input_details(), values, strict=True):
            self._interpreter.set_tensor(given["index"], value)
        self._interpreter.invoke()
        details = self._interpreter.get_output_details()
        return [self._interpreter.get_tensor(each["index"]) for each in details]


@dataclass(frozen=True)
class OnnxCase:
    """A network of the ONNX builder in one of the forms that ONNX Runtime writes."""

    network: onnx_networks.Network
    form: str
    activation: str
    per_channel: bool = True
    full: bool = False

    def __str__(self) -> str:
        parts = [str(self.network), self.form, self.activation]
        parts += [] if self.per_channel else ["per_tensor"]
        return "-".join([*parts, *(["full"] if self.full else [])])

    @functools.cached_property
    def size(self) -> int:
        return onnx_networks.image_size(self._float())

    def _float(self) -> onnx.ModelProto:
        network = self.network
        return network.build(**(network.full if self.full else network.small))

    @functools.cached_property
    def model(self) -> onnx.ModelProto:
        arguments: dict[str, Any] = {"form": self.form, "activation": self.activation}
        return onnx_networks.quantize(self._float(), per_channel=self.per_channel, **arguments)

    @functools.cached_property
    def module(self) -> tvm.IRModule:
        """As TVM imports it; kept on the disk, for the importer takes long."""
        name = digest(self.model.SerializeToString(), onnx.__version__)
        return tvm.ir.load_json(on_disk("imported", f"{name}.json", self._import).decode())

    def _import(self) -> bytes:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            mod, _ = relay.frontend.from_onnx(self.model, freeze_params=True)
        return str(tvm.ir.save_json(relay.transform.InferType()(mod))).encode()

    def images(self, count: int) -> list[Array]:
        return onnx_networks.images(self.size, count, 7)
