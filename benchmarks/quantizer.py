"""How near int8 networks stay to their floats: tinyai's quantizer beside ONNX Runtime's.

    TOPHUB_LOCATION=NONE python -m benchmarks.quantizer --networks kws,ad01 --setting nearest

``--door`` file reads the network as a file and runs it by ONNX Runtime, without TVM; the number
behind the seconds is how many values of the file with pairs differ, in ONNX Runtime, from ours.
Both have the same float model, samples and bits: weights of int8 a channel, activations of int8 a
tensor. Printed is the signal to quantization noise in dB at the last tensor, on samples that
neither saw before; ONNX Runtime's is of ``quantize_static`` in QDQ form by its own int8 kernels.
Networks that are TFLite files, too, have LiteRT's by ``ai-edge-quantizer``; beside them are the
int8 files that come with some networks. Both run on LiteRT's reference kernels. A setting is
``name=value`` of ``QuantConfig``, several joined by a comma: ``observer=minmax,equalize=True``.
"""

from __future__ import annotations

import ast
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import flatbuffers
import numpy as np
import onnx
import onnxruntime
import tvm
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from rich.console import Console
from rich.table import Table
from tvm import relay
from tvm.contrib import graph_executor

import tinyai
from benchmarks import onnx_networks
from benchmarks.float_networks import CALIBRATED, NETWORKS, Array, FloatNetwork, folded, sqnr
from benchmarks.kind_networks import KINDS
from benchmarks.onnx_networks import INPUT
from tinyai import Mixed, QuantConfig
from tinyai.checking.onnxruntime import exact_session
from tinyai.frontends.onnx.float_model import FileModel

# The outputs of each sample.
Results = list[list[Array]]

SETTINGS = {
    "default": QuantConfig(),
    "nearest": QuantConfig(rounding="nearest", correct_bias=False),
}


def module_of(model: onnx.ModelProto) -> tvm.IRModule:
    """As Relay, with its parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        mod, params = relay.frontend.from_onnx(model)
    mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
    return mod


def floats(network: FloatNetwork) -> Results:
    session = onnxruntime.InferenceSession(network.model.SerializeToString())
    return [session.run(None, each) for each in network.unseen]


def by_tinyai(network: FloatNetwork, config: QuantConfig) -> Results:
    mod, calibration = module_of(network.model), network.calibration
    found = tinyai.quantize(mod, None, calibration, config, compared=1)
    executor = graph_executor.GraphModule(tinyai.build(found.module)["default"](tvm.cpu()))
    results: Results = []
    for sample in network.unseen:
        executor.run(**sample)
        outputs = range(executor.get_num_outputs())
        results.append([np.asarray(executor.get_output(each).numpy()) for each in outputs])
    return results


def by_file(network: FloatNetwork, config: QuantConfig, mixed: Mixed | None) -> tuple[Results, str]:
    """Without TVM, in its own code, or the pairs as floats where an operator stays in float; and
    how many values differ, of the file with pairs in it, between that and ONNX Runtime."""
    with tempfile.TemporaryDirectory() as folder:
        given, pairs = Path(folder) / "given.onnx", Path(folder) / "pairs.onnx"
        onnx.save(network.model, given)
        start, source = time.perf_counter(), network.file or given
        found = tinyai.quantize_file(
            source, network.calibration, config, compared=8 if mixed else 1, mixed=mixed
        )
        seconds = f"{time.perf_counter() - start:.0f} s"
        if found.report.mixed is not None:
            wide = sum(row.dtype == "int16" for row in found.report.layers)
            seconds += f", {wide} of {len(found.report.layers)} values of 16 bits"
        floats_left = len(found.report.left)
        if floats_left:
            run = FileModel(found.model).runner(found.model.result)
            results = [run.run(each) for each in network.unseen]
            return results, f"{seconds}, {floats_left} in float"
        ours = tinyai.Model(found.model)
        results = [ours.run(each) for each in network.unseen]
        if network.file is not None or mixed is not None:  # with 16 bits, TVM's integers
            return results, seconds
        found.save(pairs)
        written = tinyai.Model(pairs)
        theirs = by_kernels(onnx.load(pairs), network)
    again = [written.run(each) for each in network.unseen]
    differing = sum(
        int((a != b).sum())
        for one, other in zip(again, theirs, strict=True)
        for a, b in zip(one, other, strict=True)
    )
    return results, f"{seconds}, {differing}"


def by_kernels(model: onnx.ModelProto, network: FloatNetwork) -> Results:
    """ONNX Runtime's results, with int8 activations as they are."""
    session = exact_session(model.SerializeToString())
    return [session.run(None, each) for each in network.unseen]


def by_onnx_runtime(network: FloatNetwork) -> Results:
    """Of its own quantizer, in its own int8 kernels."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        made = onnx_networks.quantize(
            folded(network.model),
            activation="int8",
            calibration=network.samples[:CALIBRATED],
        )
    finally:
        logging.disable(before)
    return by_kernels(made, network)


def by_tflite(content: bytes, network: FloatNetwork) -> Results:
    """A quantized TFLite file's, in LiteRT's reference kernels."""
    run = Interpreter(
        model_content=content, experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    run.allocate_tensors()
    (given,), results = run.get_input_details(), run.get_output_details()
    outputs: Results = []
    for sample in network.unseen:
        (values,) = sample.values()
        run.set_tensor(given["index"], _as_stored(values, given).reshape(given["shape"]))
        run.invoke()
        outputs.append([_as_floats(run.get_tensor(end["index"]), end) for end in results])
    return outputs


def _as_stored(values: Array, end: dict[str, Any]) -> Array:
    if end["dtype"] == np.float32:
        return values
    scale, zero_point = end["quantization"]
    return np.clip(np.rint(values / scale) + zero_point, -128, 127).astype(np.int8)


def _as_floats(values: Array, end: dict[str, Any]) -> Array:
    scale, zero_point = end["quantization"] if end["dtype"] != np.float32 else (1.0, 0)
    return (values.astype(np.float64) - zero_point) * scale


def by_litert_s_quantizer(network: FloatNetwork) -> Results:
    """Of ai-edge-quantizer: int8 weights a channel, int8 activations, ranges of all values."""
    from ai_edge_quantizer import recipe
    from ai_edge_quantizer.quantizer import Quantizer

    assert network.tflite is not None
    model = schema.ModelT.InitFromPackedBuf(network.tflite.read_bytes())
    for code in model.operatorCodes:  # older files have the deprecated field alone
        code.builtinCode = max(code.builtinCode, code.deprecatedBuiltinCode)
    key = _signature(model)
    builder = flatbuffers.Builder()
    builder.Finish(model.Pack(builder), b"TFL3")
    made = Quantizer(bytes(builder.Output()))
    made.load_quantization_recipe(recipe.static_wi8_ai8())
    samples = [next(iter(each.values())) for each in network.calibration]
    shape, name = model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]].shape, INPUT
    found = made.calibrate({key: [{name: each.reshape(shape)} for each in samples]})
    return by_tflite(bytes(made.quantize(found).quantized_model), network)


def _signature(model: Any) -> str:
    """The key of the file's only signature, which ai-edge-quantizer needs: a new one."""
    graph, signature = model.subgraphs[0], schema.SignatureDefT()
    ends = (("inputs", graph.inputs, INPUT), ("outputs", graph.outputs, "output"))
    for kind, tensors, name in ends:
        maps = [schema.TensorMapT() for _ in tensors]
        for number, (each, tensor) in enumerate(zip(maps, tensors, strict=True)):
            each.name, each.tensorIndex = f"{name}{number or ''}", tensor
        setattr(signature, kind, maps)
    signature.signatureKey, signature.subgraphIndex = "serving_default", 0
    model.signatureDefs = [signature]
    return signature.signatureKey


def setting_of(text: str) -> QuantConfig:
    """A name in ``SETTINGS``, or fields of ``QuantConfig`` with their values."""
    if text in SETTINGS:
        return SETTINGS[text]
    known: dict[str, Any] = {}
    for part in text.split(","):
        name, equal, value = part.partition("=")
        if not equal:
            raise click.BadParameter(f"{text!r} is neither {', '.join(SETTINGS)} nor name=value")
        try:
            known[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            known[name] = value
    try:
        return QuantConfig(**known)
    except TypeError as error:
        raise click.BadParameter(f"{text!r}: {error}") from error


def decibels(signal: Results, values: Results) -> str:
    """The SQNR of each output."""
    outputs = zip(zip(*signal, strict=True), zip(*values, strict=True), strict=True)
    return " / ".join(f"{sqnr(floats, others):.2f}" for floats, others in outputs)


def row(
    network: FloatNetwork, settings: Sequence[QuantConfig], door: str, mixed: Mixed | None
) -> list[str]:
    signal = floats(network)
    cells = []
    for config in settings:
        start = time.perf_counter()
        if door == "relay":
            results = by_tinyai(network, config)
            more = f"{time.perf_counter() - start:.0f} s"
        else:
            results, more = by_file(network, config, mixed)
        cells.append(f"{decibels(signal, results)} ({more})")
    cells.append(decibels(signal, by_onnx_runtime(network)))
    cells.append(_by_litert_s_quantizer(network, signal) if network.tflite is not None else "-")
    given = by_tflite(network.int8.read_bytes(), network) if network.int8 is not None else None
    cells.append(decibels(signal, given) if given else "-")
    return [network.name, *cells]


def _by_litert_s_quantizer(network: FloatNetwork, signal: Results) -> str:
    try:
        return decibels(signal, by_litert_s_quantizer(network))
    except (AttributeError, RuntimeError) as error:  # constants of float16, for one
        return f"fails: {error}"


@click.command()
@click.option("--networks", default=",".join(NETWORKS), show_default=True)
@click.option("--setting", "settings", multiple=True, default=[*SETTINGS], show_default=True)
@click.option("--door", type=click.Choice(["relay", "file"]), default="relay", show_default=True)
@click.option("--mixed-sqnr", type=float, help="Layers of 16 bits for this; by the file alone.")
def main(networks: str, settings: tuple[str, ...], door: str, mixed_sqnr: float | None) -> None:
    """Print a row a network, in dB; beside ours the seconds from the float model to its results."""
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")
    configs = [setting_of(each) for each in settings]
    mixed = None if mixed_sqnr is None else Mixed(sqnr=mixed_sqnr, floats=False)
    table = Table("network", *settings, "ONNX Runtime", "LiteRT", "TFLite file")
    console = Console(width=max(80, 40 + 30 * len(settings)))
    for name in networks.split(","):
        known = NETWORKS | KINDS
        if name not in known:
            raise click.BadParameter(f"{name!r} is none of {', '.join(known)}")
        cells = row(known[name], configs, "file" if name in KINDS else door, mixed)
        console.print(" | ".join(cells))
        table.add_row(*cells)
    console.print(table)


if __name__ == "__main__":
    main()
