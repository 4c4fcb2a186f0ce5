"""What ONNX Runtime's optimizers fuse: spelled out as its own kernels compute it, and quantized."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import tinyai
from tinyai.errors import BoundaryError
from tinyai.frontends.onnx.facts import CONTRIB
from tinyai.frontends.onnx.fused import FUSED
from tinyai.frontends.onnx.load import read_whole
from tinyai.frontends.onnx.quantized import OLDEST
from tinyai.ir import Array

Sample = dict[str, Array]
Made = Callable[[np.random.Generator], Array]
BATCH, ROWS, WIDE, WORDS = 2, 6, 8, 11
RNG = np.random.default_rng(0)


def numbers(*shape: int) -> Made:
    return lambda rng: rng.normal(size=shape).astype(np.float32)


def whole(low: int, high: int, *shape: int) -> Made:
    return lambda rng: rng.integers(low, high, shape).astype(np.int32)


def seen(*shape: int) -> Made:
    """Places that a mask leaves, the first of each row among them."""

    def made(rng: np.random.Generator) -> Array:
        mask = rng.integers(0, 2, shape)
        mask[..., 0] = 1
        return mask.astype(np.int32)

    return made


def seen_of_some(*shape: int) -> Made:
    """Of the first of a batch nothing: ONNX Runtime's numbers are those of no mask then."""

    def made(rng: np.random.Generator) -> Array:
        mask = rng.integers(0, 2, shape)
        mask[0] = 0
        return mask.astype(np.int32)

    return made


ROW = numbers(BATCH, ROWS, WIDE)
IMAGE = numbers(1, 4, 5, 6)


@dataclass(frozen=True)
class Fused:
    """A node on ``inputs`` and ``constants`` in the order of ``operands``, "" for one left out."""

    operator: str
    operands: str
    inputs: Mapping[str, Made]
    constants: Mapping[str, Made] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    results: Sequence[str] = ("y",)
    domain: str = CONTRIB
    opset: int = 17

    def model(self) -> onnx.ModelProto:
        """Behind a product of the rows ``x``, so that something is quantized before it."""
        drawn = {name: made(RNG) for name, made in self.inputs.items()}
        known = {name: made(RNG) for name, made in self.constants.items()}
        names = [name.strip("-") for name in self.operands.split()]
        nodes = [
            helper.make_node(
                self.operator, names, self.results, "fused", domain=self.domain, **self.attributes
            )
        ]
        if "x" in drawn and drawn["x"].shape[-1] == WIDE:
            known["first"] = numbers(WIDE, WIDE)(RNG)
            nodes.insert(0, helper.make_node("MatMul", ["x", "first"], ["made"], "first"))
            nodes[1].input[:] = ["made" if name == "x" else name for name in names]
        values = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in drawn.items()
        ]
        graph = helper.make_graph(
            nodes,
            "net",
            values,
            [onnx.ValueInfoProto(name=name) for name in self.results if name],
            [numpy_helper.from_array(value, name) for name, value in known.items()],
        )
        for end in graph.output:
            end.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(CONTRIB, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def samples(self, count: int = 6) -> list[Sample]:
        return [{name: made(RNG) for name, made in self.inputs.items()} for _ in range(count)]


def attention(operands: str = "x w b", sizes: Sequence[int] = (8, 8, 8), **more: Any) -> Fused:
    inputs = {
        "x": ROW,
        "mask": seen(BATCH, ROWS),
        "rows": seen(BATCH, ROWS, ROWS),
        "counts": whole(1, ROWS + 1, BATCH),
        "added": numbers(1, 2, ROWS, ROWS),
        "nothing": seen_of_some(BATCH, ROWS),
    }
    total = sum(sizes)
    given = {name: made for name, made in inputs.items() if name in operands.split()}
    constants = {"w": numbers(WIDE, total), "b": numbers(total)}
    known = {name: made for name, made in constants.items() if name in operands.split()}
    return Fused("Attention", operands, given, known, {"num_heads": 2, **more})


def heads(operands: str = "q k v", keys: int = ROWS, **more: Any) -> Fused:
    inputs = {
        "q": ROW,
        "k": numbers(BATCH, keys, WIDE),
        "v": numbers(BATCH, keys, WIDE),
        "cut": numbers(BATCH, 2, keys, WIDE // 2),
        "cut_v": numbers(BATCH, 2, keys, WIDE // 2),
        "mask": seen(BATCH, keys),
        "counts": whole(1, keys + 1, BATCH),
        "added": numbers(BATCH, 2, ROWS, keys),
        "old": numbers(BATCH, 2, 3, WIDE // 2),
        "old_v": numbers(BATCH, 2, 3, WIDE // 2),
    }
    given = {name: made for name, made in inputs.items() if name in operands.split()}
    known = {"b": numbers(3 * WIDE)} if "b" in operands.split() else {}
    results = ("y", "new", "new_v") if "old" in operands.split() else ("y",)
    return Fused("MultiHeadAttention", operands, given, known, {"num_heads": 2, **more}, results)


def rotary(shape: Sequence[int] = (BATCH, ROWS, WIDE), half: int = 2, **more: Any) -> Fused:
    """Of heads of four channels: the places are an operand, or that of the first row is known."""
    x = {"x": numbers(*shape)}
    at = {"at": lambda rng: rng.integers(0, WORDS, (BATCH, ROWS))}
    first = {"first_at": lambda rng: np.array([3])}
    angles = np.arange(WORDS)[:, None] / 3.0 ** np.arange(half)
    tables = {
        "cosine": lambda rng: np.cos(angles).astype(np.float32),
        "sine": lambda rng: np.sin(angles).astype(np.float32),
    }
    if more.pop("first", False):
        return Fused("RotaryEmbedding", "x first_at cosine sine", x, {**first, **tables}, more)
    return Fused("RotaryEmbedding", "x at cosine sine", {**x, **at}, tables, more)


NORM = {"scale": numbers(WIDE), "bias": numbers(WIDE), "more": numbers(WIDE)}
SCALE = {"scale": NORM["scale"]}
TWO = {"x": ROW, "skip": ROW}
TABLES = {
    "words": numbers(WORDS, WIDE),
    "places": numbers(ROWS + 2, WIDE),
    "kinds": numbers(2, WIDE),
    "scale": NORM["scale"],
    "bias": NORM["bias"],
}
IDS = {"ids": whole(0, WORDS, BATCH, ROWS)}
CONV = {"w": numbers(4, 4, 3, 3), "b": numbers(4)}
WINDOW = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
CASES: dict[str, Fused] = {
    "BiasGelu": Fused("BiasGelu", "x bias", {"x": ROW}, {"bias": NORM["bias"]}),
    "FastGelu": Fused("FastGelu", "x", {"x": ROW}),
    "FastGelu with a bias": Fused("FastGelu", "x bias", {"x": ROW}, {"bias": NORM["bias"]}),
    "FusedMatMul": Fused("FusedMatMul", "x w", {"x": ROW}, {"w": numbers(WIDE, 5)}),
    "FusedMatMul of values": Fused("FusedMatMul", "x skip", TWO, {}, {"transB": 1, "alpha": 0.125}),
    "FusedMatMul of turned values": Fused(
        "FusedMatMul", "x skip", TWO, {}, {"transA": 1, "alpha": -2.0}
    ),
    **{
        f"FusedConv, {kind}": Fused(
            "FusedConv", "x w b", {"x": IMAGE}, CONV, {**WINDOW, "activation": kind, **more}
        )
        for kind, more in {
            "Relu": {},
            "Tanh": {"strides": [2, 1]},
            "Sigmoid": {},
            "LeakyRelu": {"activation_params": [0.3]},
            "Clip": {"activation_params": [-0.5, 2.0]},
            "HardSigmoid": {"activation_params": [0.3, 0.4]},
        }.items()
    },
    "FusedConv and a sum": Fused(
        *("FusedConv", "x w b x", {"x": IMAGE}, CONV, {**WINDOW, "activation": "Relu"})
    ),
    "FusedConv and a sum without a bias": Fused(
        *("FusedConv", "x w - x", {"x": IMAGE}, {"w": CONV["w"]}),
        {**WINDOW, "activation": "Relu"},
    ),
    "FusedGemm": Fused(
        *("FusedGemm", "x w b", {"x": numbers(3, WIDE)}),
        {"w": numbers(5, WIDE), "b": numbers(5)},
        {"transB": 1, "alpha": 0.5, "activation": "Relu"},
    ),
    "FusedGemm, LeakyRelu": Fused(
        *("FusedGemm", "x w", {"x": numbers(3, WIDE)}, {"w": numbers(WIDE, 5)}),
        {"activation": "LeakyRelu", "activation_alpha": 0.3},
    ),
    **{
        f"{kind} of opset {opset}": Fused(
            *(kind, operands, {"x": ROW}, {name: NORM[name] for name in operands.split()[1:]}),
            *({"epsilon": 1e-3}, ("y",), "", opset),
        )
        for opset in (13, 16, 18)
        for kind, operands in (
            ("LayerNormalization", "x scale bias"),
            ("SimplifiedLayerNormalization", "x scale"),
        )
    },
    "LayerNormalization of opset 14 without a bias": Fused(
        *("LayerNormalization", "x scale", {"x": ROW}, {"scale": numbers(ROWS, WIDE)}),
        *({"axis": 1}, ("y",), "", 14),
    ),
    "SkipLayerNormalization": Fused("SkipLayerNormalization", "x skip scale", TWO, SCALE),
    "SkipLayerNormalization of opset 14": Fused(
        *("SkipLayerNormalization", "x skip scale bias more", TWO, NORM),
        *({"epsilon": 1e-3}, ("y", "", "", "sum"), CONTRIB, 14),
    ),
    "SkipLayerNormalization of one row for all": Fused(
        *("SkipLayerNormalization", "x one scale - more", {"x": ROW}),
        {"one": numbers(ROWS, WIDE), "scale": NORM["scale"], "more": NORM["more"]},
    ),
    "SkipSimplifiedLayerNormalization": Fused(
        *("SkipSimplifiedLayerNormalization", "x skip scale more", TWO),
        *({"scale": NORM["scale"], "more": NORM["more"]}, {}, ("y", "", "", "sum")),
    ),
    "EmbedLayerNormalization": Fused(
        *("EmbedLayerNormalization", "ids kind words places kinds scale bias"),
        *({**IDS, "kind": whole(0, 2, BATCH, ROWS)}, TABLES, {"epsilon": 1e-3}, ("y", "")),
    ),
    "EmbedLayerNormalization of places": Fused(
        *("EmbedLayerNormalization", "ids - words places - scale bias - at"),
        {**IDS, "at": whole(0, ROWS, BATCH, ROWS)},
        {name: made for name, made in TABLES.items() if name != "kinds"},
        *({"epsilon": 1e-3}, ("y", "", "sum")),
    ),
    "RotaryEmbedding": rotary(),
    "RotaryEmbedding of neighbours": rotary(interleaved=1),
    "RotaryEmbedding from a place on": rotary(first=True),
    "RotaryEmbedding of heads": rotary((BATCH, 3, ROWS, 4), first=True, interleaved=1),
    "RotaryEmbedding of heads of one row's size": rotary((BATCH, ROWS, ROWS, 4)),
    "RotaryEmbedding of some channels": rotary(half=1, num_heads=2, rotary_embedding_dim=2),
    "RotaryEmbedding of some neighbours": rotary(
        (BATCH, 2, ROWS, 9), 2, num_heads=2, rotary_embedding_dim=4, interleaved=1
    ),
    "Attention": attention(),
    "Attention with a scale": attention("x w b mask", scale=0.3),
    "Attention with a mask": attention("x w b mask", mask_filter_value=-300.0),
    "Attention with a mask of rows": attention("x w b rows"),
    "Attention of so many places": attention("x w b counts", unidirectional=1),
    "Attention, causal with a mask": attention("x w b mask", unidirectional=1),
    "Attention that sees nothing": attention("x w b nothing"),
    "Attention, causal, that sees nothing": attention("x w b nothing", unidirectional=1),
    "Attention with numbers": attention("x w b - - added"),
    "Attention with a mask and numbers": attention("x w b mask - added"),
    "Attention of other sizes": attention(sizes=(8, 8, 4), qkv_hidden_sizes=[8, 8, 4]),
    "MultiHeadAttention": heads(),
    "MultiHeadAttention with a bias": heads("q k v b", scale=0.3),
    "MultiHeadAttention with a mask": heads("q k v b mask added", keys=4),
    "MultiHeadAttention, causal with a mask": heads("q k v - mask", keys=4, unidirectional=1),
    "MultiHeadAttention of the past with a mask": heads(
        "q k v - counts - old old_v", unidirectional=1
    ),
    "MultiHeadAttention of so many places": heads("q k v - counts"),
    "MultiHeadAttention of heads": heads("q cut cut_v", keys=3),
    "MultiHeadAttention of the past": heads("q k v - - - old old_v", unidirectional=1),
}


UNREAD = {operator for domain, operator in FUSED if domain} | {"SimplifiedLayerNormalization"}
QUANTIZED = (
    *("BiasGelu", "FastGelu", "FusedMatMul of values", "FusedConv, Clip"),
    *("FusedConv and a sum", "FusedGemm", "LayerNormalization of opset 13"),
    *("SimplifiedLayerNormalization of opset 18", "SkipLayerNormalization of opset 14"),
    *("EmbedLayerNormalization", "Attention with a mask and numbers"),
    *("Attention of so many places", "MultiHeadAttention with a mask"),
    *("RotaryEmbedding", "RotaryEmbedding of some neighbours"),
)


def run(model: onnx.ModelProto, sample: Sample) -> list[Array]:
    """Of ONNX Runtime without optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return [np.asarray(each) for each in session.run(None, sample)]


@pytest.mark.parametrize("name", CASES)
def test_what_is_fused_is_spelled_out(name: str, tmp_path: Path) -> None:
    case, file = CASES[name], tmp_path / "float.onnx"
    model = case.model()
    onnx.save(model, file)

    spelled = read_whole(file, "", OLDEST).proto
    assert not {node.op_type for node in spelled.graph.node} & UNREAD
    for sample in case.samples(3):
        for wanted, found in zip(run(model, sample), run(spelled, sample), strict=True):
            # Scores beside -10000 have steps of 0.001.
            most = 1e-2 if "nothing" in name else 2e-5
            np.testing.assert_allclose(found, wanted, atol=most)


@pytest.mark.long
@pytest.mark.parametrize("name", QUANTIZED)
def test_what_is_fused_is_quantized(name: str, tmp_path: Path) -> None:
    case, file, made = CASES[name], tmp_path / "float.onnx", tmp_path / "int8.onnx"
    samples = case.samples(6)
    onnx.save(case.model(), file)

    quantized = tinyai.quantize_file(file, samples)
    quantized.save(made)
    assert not quantized.report.left
    noise = quantized.report.sqnr
    assert noise is None or noise > 15
    np.savez(tmp_path / "sample.npz", **samples[0])
    result = tinyai.check(made, samples=0, inputs=[tmp_path / "sample.npz"])
    assert result.equal, result


REFUSED = {
    "FusedMatMul": ({"transBatchA": 1}, "transBatchA: 1"),
    "FusedConv, Relu": ({"activation": "Mish"}, "activation: Mish"),
    "FusedConv, Clip": ({"activation_params": [1.0]}, "parameters of Clip: \\[1.0\\]"),
    "Attention": ({"qkv_hidden_sizes": [8, 8, 9]}, "qkv_hidden_sizes: \\[8, 8, 9\\]"),
    "Attention with a scale": ({"num_heads": 3}, "q_num_heads: 3"),
    "Attention with a mask": ({"do_rotary": 1}, "attribute do_rotary: 1"),
    "RotaryEmbedding": ({"is_packed_batching": 1}, "is_packed_batching: 1"),
    "RotaryEmbedding of some channels": ({"rotary_embedding_dim": 6}, "rotary_embedding_dim: 6"),
    "LayerNormalization of opset 13": ({"stash_type": 10}, "stash_type: 10"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_of_it_is_refused(name: str, tmp_path: Path) -> None:
    changed, told = REFUSED[name]
    case, file = CASES[name], tmp_path / "net.onnx"
    model = replace(case, attributes={**case.attributes, **changed}).model()
    onnx.save(model, file)

    with pytest.raises(BoundaryError) as error:
        tinyai.compile(file, tmp_path / "net.so")
    rows = [row for row in error.value.report.host if row.operator == case.operator]
    assert re.search(told, " ".join(f"{r.reason.clause}: {r.reason.found}" for r in rows))


def test_a_bias_is_added_to_the_product_that_a_norm_reads(tmp_path: Path) -> None:
    case = CASES["SkipLayerNormalization of opset 14"]
    onnx.save(case.model(), tmp_path / "net.onnx")

    spelled = read_whole(tmp_path / "net.onnx", "", OLDEST).proto
    biased = next(node for node in spelled.graph.node if node.output[0] == "fused/biased")
    assert list(biased.input) == ["made", "more"]
