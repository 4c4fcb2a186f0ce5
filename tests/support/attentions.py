"""Models around an Attention, what ONNX says of them, and what the quantizer makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tinyai
from tinyai.checking.onnxruntime import exact_session
from tinyai.frontends.onnx.load import read_whole
from tinyai.frontends.onnx.quantized import OLDEST
from tinyai.ir import Array

BATCH, ROWS, SIZE = 2, 7, 4
Sample = dict[str, Array]
Mask = Callable[[np.random.Generator], Array]


def some_hidden(rng: np.random.Generator) -> Array:
    """Each query sees itself at least."""
    return (rng.random((ROWS, ROWS)) < 0.5) | np.eye(ROWS, dtype=bool)


def all_hidden_of_one(rng: np.random.Generator) -> Array:
    mask = np.broadcast_to(some_hidden(rng), (BATCH, 1, ROWS, ROWS)).copy()
    mask[0, 0, 3] = False
    return mask


def bias(rng: np.random.Generator) -> Array:
    return rng.normal(size=(4, ROWS, ROWS)).astype(np.float32)


def infinite(rng: np.random.Generator) -> Array:
    return np.where(some_hidden(rng), bias(rng), -np.inf).astype(np.float32)


@dataclass(frozen=True)
class Way:
    """``mask`` is an input, or a ``constant``; rows of keys are ``past`` and ``keys``."""

    attributes: Mapping[str, Any] = field(default_factory=dict)
    mask: Mask | None = None
    constant: bool = False
    past: int = 0
    keys: int = ROWS
    has_heads: bool = False

    @property
    def opset(self) -> int:
        return 25 if any("window" in name for name in self.attributes) else 23

    @property
    def heads(self) -> tuple[int, int]:
        return self.attributes.get("q_num_heads", 4), self.attributes.get("kv_num_heads", 4)


def model_of(way: Way) -> onnx.ModelProto:
    """Products of matrices make queries, keys and values; another one reads the result."""
    rng = np.random.default_rng(0)
    heads, groups = way.heads
    sizes = {"q": heads * SIZE, "k": groups * SIZE, "v": groups * 3}
    rows = {"q": ROWS, "k": way.keys, "v": way.keys}
    inputs = {"x": (BATCH, ROWS, 6), "other": (BATCH, way.keys, 6)}
    values = {f"w{n}": rng.normal(size=(6, size)) / 2 for n, size in sizes.items()}
    values["o"] = rng.normal(size=(heads * 3, 5)) / 2
    nodes = []
    for name, size in sizes.items():
        made = [f"{name}h" if way.has_heads else name]
        source = "x" if name == "q" else "other"
        nodes.append(helper.make_node("MatMul", [source, f"w{name}"], made, made[0]))
        if way.has_heads:
            count = heads if name == "q" else groups
            values[f"{name}s"] = np.array([BATCH, rows[name], count, size // count])
            apart = [f"{name}a"]
            nodes.append(helper.make_node("Reshape", [made[0], f"{name}s"], apart, apart[0]))
            nodes.append(helper.make_node("Transpose", apart, [name], name, perm=[0, 2, 1, 3]))
    operands = ["q", "k", "v", "mask" if way.mask else ""]
    types = dict.fromkeys(inputs, TensorProto.FLOAT)
    if way.past:
        operands += ["pk", "pv"]
        for name, size in (("pk", SIZE), ("pv", 3)):
            inputs[name], types[name] = (BATCH, groups, way.past, size), TensorProto.FLOAT
    mask = way.mask(rng) if way.mask else None
    if mask is not None and way.constant:
        values["mask"] = mask
    elif mask is not None:
        inputs["mask"] = mask.shape
        types["mask"] = TensorProto.BOOL if mask.dtype == bool else TensorProto.FLOAT
    counts = {} if way.has_heads else {"q_num_heads": heads, "kv_num_heads": groups}
    given = {k: v for k, v in way.attributes.items() if k not in counts and "heads" not in k}
    results = ["attended", *(["present_key", "present_value"] if way.past else [])]
    nodes.append(helper.make_node("Attention", operands, results, "attend", **counts, **given))
    last = "attended"
    if way.has_heads:
        values["flat"] = np.array([BATCH, ROWS, heads * 3])
        nodes.append(helper.make_node("Transpose", [last], ["turned"], "t", perm=[0, 2, 1, 3]))
        nodes.append(helper.make_node("Reshape", ["turned", "flat"], ["joined"], "joined"))
        last = "joined"
    nodes.append(helper.make_node("MatMul", [last, "o"], ["y"], "y"))
    constants = [
        numpy_helper.from_array(v.astype(np.float32) if v.dtype == np.float64 else v, name)
        for name, v in values.items()
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, types[name], inputs[name]) for name in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (BATCH, ROWS, 5))],
        constants,
    )
    opset = helper.make_opsetid("", way.opset)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10)


def samples_of(model: onnx.ModelProto, way: Way, count: int = 8) -> list[Sample]:
    rng = np.random.default_rng(1)
    samples = []
    for _ in range(count):
        sample = {}
        for value in model.graph.input:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            sample[value.name] = rng.normal(size=shape).astype(np.float32)
            if value.name == "mask":
                assert way.mask
                sample["mask"] = way.mask(rng)
        samples.append(sample)
    return samples


def formula(model: onnx.ModelProto, way: Way, sample: Sample) -> Array:
    """What ONNX says, in float64."""
    known = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    at = {**known, **sample}
    heads, groups = way.heads

    def apart(name: str, count: int) -> Array:
        made = at["x" if name == "q" else "other"].astype(np.float64) @ at[f"w{name}"]
        batch, rows, wide = made.shape
        return made.reshape(batch, rows, count, wide // count).transpose(0, 2, 1, 3)

    q, k, v = apart("q", heads), apart("k", groups), apart("v", groups)
    if way.past:
        k, v = np.concatenate([at["pk"], k], 2), np.concatenate([at["pv"], v], 2)
    k, v = (np.repeat(each, heads // groups, axis=1) for each in (k, v))
    scores = q @ k.swapaxes(-1, -2) * way.attributes.get("scale", SIZE**-0.5)
    if cap := way.attributes.get("softcap"):
        scores = cap * np.tanh(scores / cap)
    mask = at.get("mask", np.zeros(1))
    scores = scores + (np.where(mask, 0, -np.inf) if mask.dtype == bool else mask)
    distance = np.arange(k.shape[2]) - (np.arange(ROWS)[:, None] + way.past)
    before, behind = (way.attributes.get(f"{side}_window_size", -1) for side in ("left", "right"))
    behind = 0 if "is_causal" in way.attributes else behind
    seen = np.ones(distance.shape, bool)
    if before >= 0:
        seen &= distance >= -before
    if behind >= 0:
        seen &= distance <= behind
    scores = np.where(seen, scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    total = powers.sum(-1, keepdims=True)
    made = (powers / np.where(total > 0, total, 1)) @ v
    joined = made.transpose(0, 2, 1, 3).reshape(BATCH, ROWS, -1)
    return np.asarray(joined @ at["o"])


def run(model: onnx.ModelProto, sample: Sample) -> Array:
    return np.asarray(exact_session(model.SerializeToString()).run(None, sample)[0])


def require_spelled_out_and_quantized(way: Way, folder: Path) -> None:
    """What ONNX says and ONNX Runtime computes, in floats; and its integers, once quantized."""
    model, file, made = model_of(way), folder / "float.onnx", folder / "int8.onnx"
    onnx.save(model, file)
    samples = samples_of(model, way)

    spelled = read_whole(file, "", OLDEST).proto
    assert "Attention" not in {node.op_type for node in spelled.graph.node}
    for sample in samples:
        wanted = formula(model, way, sample)
        np.testing.assert_allclose(run(spelled, sample), wanted, atol=1e-5)
        np.testing.assert_allclose(run(model, sample), wanted, atol=1e-5)
    quantized = tinyai.quantize_file(file, samples)
    quantized.save(made)
    noise = quantized.report.outputs[0].sqnr
    assert noise is not None
    assert noise > 20
    np.savez(folder / "sample.npz", **samples[0])
    result = tinyai.check(made, samples=2, inputs=[folder / "sample.npz"])
    assert result.equal, result
