"""How near int8 networks stay to their floats: tinyai's quantizer beside ONNX Runtime's.

    TOPHUB_LOCATION=NONE python -m benchmarks.quantizer --networks kws,ad01 --setting nearest

``--door`` file reads the network as a file and runs it by ONNX Runtime, without TVM; the number
behind the seconds is how many values of the file with pairs differ, in ONNX Runtime, from ours.
Both have the same float model, samples and bits: weights of int8 a channel, activations of int8 a
tensor. Printed is the signal to quantization noise in dB at the last tensor, on samples that
neither saw before; ONNX Runtime's is of ``quantize_static`` in QDQ form by its own int8 kernels,
and beside them are the TFLite files that come with some networks, on LiteRT's reference kernels. A
setting is
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
import numpy as np
import onnx
import onnxruntime
import tvm
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from rich.console import Console
from rich.table import Table
from tvm import relay
from tvm.contrib import graph_executor

import tinyai
from benchmarks import onnx_networks
from benchmarks.float_networks import CALIBRATED, NETWORKS, Array, FloatNetwork, folded, sqnr
from tinyai import QuantConfig

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


def floats(network: FloatNetwork) -> list[Array]:
    session = onnxruntime.InferenceSession(network.model.SerializeToString())
    return [session.run(None, each)[0] for each in network.unseen]


def by_tinyai(network: FloatNetwork, config: QuantConfig) -> list[Array]:
    mod, calibration = module_of(network.model), network.calibration
    found = tinyai.quantize(mod, None, calibration, config, compared=1)
    executor = graph_executor.GraphModule(tinyai.build(found.module)["default"](tvm.cpu()))
    results = []
    for sample in network.unseen:
        executor.run(**sample)
        results.append(np.asarray(executor.get_output(0).numpy()))
    return results


def by_file(network: FloatNetwork, config: QuantConfig) -> tuple[list[Array], int]:
    """Without TVM, in its own code; and how many values differ, of the file with pairs in it,
    between that and ONNX Runtime."""
    with tempfile.TemporaryDirectory() as folder:
        given, pairs = Path(folder) / "given.onnx", Path(folder) / "pairs.onnx"
        onnx.save(network.model, given)
        found = tinyai.quantize_file(given, network.calibration, config, compared=1)
        found.save(pairs)
        ours, written = tinyai.Model(found.model), tinyai.Model(pairs)
        theirs = by_kernels(onnx.load(pairs), network)
    results = [ours.run(each)[0] for each in network.unseen]
    again = [written.run(each)[0] for each in network.unseen]
    return results, sum(int((a != b).sum()) for a, b in zip(again, theirs, strict=True))


def by_kernels(model: onnx.ModelProto, network: FloatNetwork) -> list[Array]:
    """ONNX Runtime's results, with int8 activations as they are."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return [session.run(None, each)[0] for each in network.unseen]


def by_onnx_runtime(network: FloatNetwork) -> list[Array]:
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


def by_tflite(network: FloatNetwork) -> list[Array]:
    """The int8 file that comes with the network."""
    assert network.int8 is not None
    run = Interpreter(
        model_content=network.int8.read_bytes(),
        experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
    )
    run.allocate_tensors()
    (given,), (result,) = run.get_input_details(), run.get_output_details()
    (scale, zero), (out_scale, out_zero) = given["quantization"], result["quantization"]
    outputs = []
    for sample in network.unseen:
        (values,) = sample.values()
        steps = np.clip(np.rint(values / scale) + zero, -128, 127).astype(np.int8)
        run.set_tensor(given["index"], steps.reshape(given["shape"]))
        run.invoke()
        value = run.get_tensor(result["index"])
        outputs.append((value.astype(np.float64) - out_zero) * out_scale)
    return outputs


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


def row(network: FloatNetwork, settings: Sequence[QuantConfig], door: str) -> list[str]:
    signal = floats(network)
    cells = []
    for config in settings:
        start = time.perf_counter()
        if door == "relay":
            results, more = by_tinyai(network, config), ""
        else:
            results, differing = by_file(network, config)
            more = f", {differing}"
        seconds = f"{time.perf_counter() - start:.0f} s"
        cells.append(f"{sqnr(signal, results):.2f} ({seconds}{more})")
    peers = [by_onnx_runtime(network)]
    peers += [by_tflite(network)] if network.int8 is not None else []
    cells += [f"{sqnr(signal, peer):.2f}" for peer in peers]
    return [network.name, *cells, *([] if network.int8 is not None else ["-"])]


@click.command()
@click.option("--networks", default=",".join(NETWORKS), show_default=True)
@click.option("--setting", "settings", multiple=True, default=[*SETTINGS], show_default=True)
@click.option("--door", type=click.Choice(["relay", "file"]), default="relay", show_default=True)
def main(networks: str, settings: tuple[str, ...], door: str) -> None:
    """Print a row a network, in dB; beside ours the seconds from the float model to its results."""
    os.environ.setdefault("TOPHUB_LOCATION", "NONE")
    configs = [setting_of(each) for each in settings]
    table = Table("network", *settings, "ONNX Runtime", "TFLite file")
    console = Console(width=max(80, 40 + 30 * len(settings)))
    for name in networks.split(","):
        if name not in NETWORKS:
            raise click.BadParameter(f"{name!r} is none of {', '.join(NETWORKS)}")
        cells = row(NETWORKS[name], configs, door)
        console.print(" | ".join(cells))
        table.add_row(*cells)
    console.print(table)


if __name__ == "__main__":
    main()
