"""What .onnx files of transformers are made of, beside products: embeddings, and norms that are
spelled out by their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinyai
from tests.support.onnx_models import run_onnx
from tinyai.checking.onnxruntime import exact_session
from tinyai.errors import BoundaryError, OptionError
from tinyai.frontends.files import read_file
from tinyai.frontends.onnx.load import read_whole
from tinyai.frontends.onnx.quantized import OLDEST
from tinyai.frontends.whole import network_of
from tinyai.ir import Array, Builder, DType, Type
from tinyai.network import Port, network_of_graph
from tinyai.ops import Gather, Normalize
from tinyai.reference import run_graph
from tinyai.source import Call, post_order

RNG = np.random.default_rng(0)
WORDS, WIDTH = 12, 8
IDS = ("ids", TensorProto.INT64, (1, 5))
TABLE = RNG.normal(size=(WORDS, WIDTH)).astype(np.float32)
TABLE[-1] *= 9  # a word that no sample has
WEIGHTS = {"table": TABLE, "w": RNG.normal(size=(WIDTH, 6)).astype(np.float32)}
SAMPLES = [{"ids": RNG.integers(0, WORDS - 1, (1, 5))} for _ in range(4)]


def model(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, Array],
    source: tuple[str, int, Sequence[int]] = IDS,
    shape: Sequence[int] = (1, 5, 6),
    opset: int = 17,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info(*source)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A float file of an embedding and a layer."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], "rows"),
        helper.make_node("MatMul", ["rows", "w"], ["y"], "layer"),
    ]
    onnx.save(model(nodes, WEIGHTS), tmp_path / "words.onnx")
    return tmp_path / "words.onnx"


def test_the_grid_of_an_embedding_holds_words_that_no_sample_has(words: Path) -> None:
    file = words.parent / "int8.onnx"
    quantized = tinyai.quantize_file(words, SAMPLES)
    quantized.save(file)
    (rows,) = (each for each in quantized.report.layers if each.name == "rows")
    assert rows.scale * 255 == pytest.approx(TABLE.max() - TABLE.min(), rel=1e-3)
    stored = {each.name: each.data_type for each in onnx.load(file).graph.initializer}
    assert stored["table_quantized"] in (TensorProto.INT8, TensorProto.UINT8)
    assert "table" not in stored
    ids = np.array([[WORDS - 1, 0, -1, 3, -WORDS]])
    (wanted,) = run_onnx(onnx.load(file), {"ids": ids})
    (found,) = run_graph(network_of(read_file(file), "net", "onnx").graph, [ids])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", ["library", "package"])
def test_indices_that_no_word_has_are_an_error(words: Path, kind: str) -> None:
    file, made = words.parent / "int8.onnx", words.parent / "made"
    tinyai.quantize_file(words, SAMPLES).save(file)
    if kind == "package":
        tinyai.emit_c(file, made)
    else:
        made = tinyai.compile(file, made.with_suffix(".so"))
    model, ids = tinyai.Model(made), np.array([[0, 1, 2, 3, WORDS]])
    with pytest.raises(OptionError, match="indices in input 'ids'") as error:
        model.run(ids)
    assert error.value.found == f"0 .. {WORDS}"
    assert error.value.allowed == f"-{WORDS} .. {WORDS - 1}"
    assert model.run(ids - 1)[0].shape == (1, 5, 6)


def test_random_inputs_of_indices_are_within_the_table(words: Path) -> None:
    tinyai.quantize_file(words, SAMPLES).save(words.parent / "int8.onnx")
    result = tinyai.check(words.parent / "int8.onnx", samples=5)
    assert result.equal


def test_a_port_with_limits_is_the_same_behind_json(words: Path) -> None:
    tinyai.quantize_file(words, SAMPLES).save(words.parent / "int8.onnx")
    (port,) = network_of(read_file(words.parent / "int8.onnx"), "net", "onnx").inputs
    assert port.limits == (-WORDS, WORDS - 1)
    assert Port.from_dict(port.to_dict()) == port


def test_indices_are_limited_where_they_are_cast_first(words: Path) -> None:
    proto = onnx.load(words)
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    proto.graph.node[0].input[1] = "wide"
    proto.graph.node.insert(0, helper.make_node("Cast", ["ids"], ["wide"], to=TensorProto.INT64))
    onnx.save(proto, words)
    samples = [{"ids": each["ids"].astype(np.int32)} for each in SAMPLES]
    tinyai.quantize_file(words, samples).save(words.parent / "int8.onnx")
    (port,) = network_of(read_file(words.parent / "int8.onnx"), "net", "onnx").inputs
    assert port.limits == (-WORDS, WORDS - 1)
    assert tinyai.check(words.parent / "int8.onnx", samples=3).equal


@pytest.mark.parametrize(
    ("mode", "limits"), [("clip", None), ("wrap", None), ("fast", (0, 8)), ("raise", (-9, 8))]
)
def test_only_indices_that_are_promised_have_limits(
    mode: str, limits: tuple[int, int] | None
) -> None:
    """TVM's clip and wrap say what becomes of any other."""
    builder = Builder("g")
    table = builder.constant(np.arange(18, dtype=np.int8).reshape(9, 2))
    ids = builder.input(Type((3,), DType.INT64))
    graph = builder.graph([builder.add(Gather(0, mode), [table, ids])])
    assert network_of_graph(graph).inputs[0].limits == limits


def test_numbers_of_words_make_no_quantized_model(tmp_path: Path) -> None:
    """Positions that are counted in int32 stand beside products of floats alone."""
    nodes = [
        helper.make_node("Equal", ["ids", "none"], ["off"], "off"),
        helper.make_node("Not", ["off"], ["seen"], "seen"),
        helper.make_node("Cast", ["seen"], ["ones"], "ones", to=TensorProto.INT32),
        helper.make_node("CumSum", ["ones", "one"], ["places"], "places"),
        helper.make_node("Gather", ["table", "places"], ["rows"], "rows"),
        helper.make_node("MatMul", ["rows", "w"], ["y"], "layer"),
    ]
    file, known = tmp_path / "positions.onnx", {"none": np.int64(0), "one": np.int64(1)}
    onnx.save(model(nodes, {**WEIGHTS, **known}), file)
    with pytest.raises(BoundaryError, match="a float model: no value of 8 bits"):
        tinyai.compile(file, tmp_path / "net.so")
    quantized = tinyai.quantize_file(file, SAMPLES)
    quantized.save(tmp_path / "int8.onnx")
    network = network_of(quantized.model, "net", "onnx")
    for sample in SAMPLES:
        (found,) = run_graph(network.graph, [sample["ids"]])
        np.testing.assert_array_equal(found, run_onnx(onnx.load(tmp_path / "int8.onnx"), sample)[0])


def test_elements_of_constants_are_folded_where_there_are_more_than_indices(tmp_path: Path) -> None:
    """BERT's token types: ONNX's reference fails there."""
    types = np.arange(64).reshape(1, 64) % 2
    nodes = [
        helper.make_node("GatherElements", ["types", "places"], ["chosen"], axis=1),
        helper.make_node("Gather", ["table", "chosen"], ["rows"], "rows"),
        helper.make_node("Add", ["x", "rows"], ["y"], "sum"),
    ]
    constants = {"table": TABLE, "types": types, "places": np.array([[5, -1, 0, 2]])}
    source = ("x", TensorProto.FLOAT, (1, 4, WIDTH))
    onnx.save(model(nodes, constants, source, (1, 4, WIDTH)), tmp_path / "types.onnx")
    samples = [{"x": RNG.normal(size=(1, 4, WIDTH)).astype(np.float32)} for _ in range(4)]
    quantized = tinyai.quantize_file(tmp_path / "types.onnx", samples)
    assert [each.name for each in quantized.report.layers][-1] == "sum"
    assert quantized.report.outputs[0].sqnr > 35


# --- Norms ---------------------------------------------------------------------------------------

GAMMA, BETA = (RNG.normal(m, 1, WIDTH).astype(np.float32) for m in (0.5, 0))
SQUARE = RNG.normal(size=(WIDTH, WIDTH)).astype(np.float32)
NUMBERS = {"gamma": GAMMA, "beta": BETA, "two": 2.0, "one": 1.0, "epsilon": 1e-5, "tiny": 1e-12}
NUMBERS |= {"share": 1 / WIDTH, "zero": 0.0, "least": -np.inf}
ROOT = "v = ReduceMean s; e = Add v epsilon; r = Sqrt e; "
CENTERED = "m = ReduceMean x; d = Sub x m; s = Pow d two; " + ROOT
SPELLED = {
    "as torch writes it": CENTERED + "q = Div d r; g = Mul q gamma; y = Add g beta",
    "by products": "m = ReduceMean x; d = Sub x m; s = Mul d d; "
    + ROOT
    + "i = Reciprocal r; q = Mul d i; g = Mul gamma q; y = Add beta g",
    "deviations of their own": "m = ReduceMean x; d = Sub x m; n = ReduceMean x; f = Sub x n; "
    "s = Mul f f; " + ROOT + "y = Div d r",
    "as TensorFlow writes it": CENTERED + "i = Reciprocal r; g = Mul i gamma; p = Mul x g; "
    "t = Mul m g; u = Sub beta t; y = Add p u",
    "without numbers": CENTERED + "y = Div d r",
    "with beta alone": CENTERED + "q = Div d r; y = Add q beta",
    "of roots of mean squares": "s = Pow x two; " + ROOT + "i = Div one r; q = Mul x i; "
    "y = Mul gamma q",
    "of roots of sums": "l = ReduceL2 x; c = Clip l tiny; y = Div x c",
    "of roots of sums, spread": "l = ReduceL2 x; c = Max l tiny; e = Expand c shape; q = Div x e; "
    "y = Mul q gamma",
    "as flax writes it": "t = ReduceSum x along; m = Mul t share; a = Mul x x; "
    "b = ReduceSum a along; c = Mul b share; n = Mul m m; v = Sub c n; h = Max zero v; "
    "k = Reshape h kept; o = Expand k kept; e = Add o epsilon; r = Sqrt e; i = Reciprocal r; "
    "g = Mul i gamma; w1 = Reshape m kept; d = Sub x w1; q = Mul d g; y = Add q beta",
    "of roots, divided": "s = Mul x x; " + ROOT + "q = Div x r; y = Mul q gamma",
}
APART = {
    "its mean is a result": CENTERED + "q = Div d r; y = Add q m",
    "the mean of another axis": "m = ReduceMean x 0; d = Sub x m; s = Pow d two; "
    + ROOT
    + "y = Div d r",
    "a sum of squares that is bounded": "l = ReduceL2 x; c = Clip l one; y = Div x c",
    "a sum of squares that is bounded above": "l = ReduceL2 x; c = Clip l tiny one; y = Div x c",
    "moments of another number": SPELLED["as flax writes it"].replace("Mul b share", "Mul b tiny"),
    "moments of another value": SPELLED["as flax writes it"].replace("Mul x x", "Mul x beta"),
    "a product with a root": "s = Mul x x; " + ROOT + "y = Mul x r",
}


def spelled(text: str, tmp_path: Path) -> Path:
    """A file of a layer, x, and nodes such as "y = Add a b"; a number at the end is an axis."""
    nodes = [helper.make_node("MatMul", ["data", "w"], ["x"], "layer")]
    for number, line in enumerate(text.split("; ")):
        result, kind, *inputs = line.replace(" = ", " ").split()
        attrs = {"axes": [1]} if kind.startswith("Reduce") else {}
        if kind == "ReduceSum":  # whose axes are an operand
            attrs = {"keepdims": 0}
        if inputs[-1] == "0":
            attrs["axes"] = [int(inputs.pop())]
        nodes.append(helper.make_node(kind, inputs, [result], f"{kind}{number}", **attrs))
    constants = {k: np.asarray(v, np.float32) for k, v in NUMBERS.items()} | {"w": SQUARE}
    constants |= {"shape": np.array([6, WIDTH]), "kept": np.array([6, 1]), "along": np.array([1])}
    source = ("data", TensorProto.FLOAT, (6, WIDTH))
    onnx.save(model(nodes, constants, source, (6, WIDTH), opset=13), tmp_path / "spelled.onnx")
    return tmp_path / "spelled.onnx"


def quantized_layers(file: Path) -> tuple[list[str], Path]:
    """The quantized values of a file, whose integers are ONNX Runtime's, and it with pairs."""
    samples = [{"data": RNG.normal(0.4, 2, (6, WIDTH)).astype(np.float32)} for _ in range(4)]
    quantized, int8 = tinyai.quantize_file(file, samples), file.parent / "int8.onnx"
    quantized.save(int8)
    for sample in samples:
        (wanted,) = run_onnx(onnx.load(int8), sample)
        for source in (read_file(int8), quantized.model):
            (found,) = run_graph(network_of(source, "net", "onnx").graph, [sample["data"]])
            np.testing.assert_array_equal(found, wanted)
    return [each.operator for each in quantized.report.layers], int8


@pytest.mark.parametrize("form", SPELLED)
def test_a_norm_that_is_spelled_out_is_one_layer(form: str, tmp_path: Path) -> None:
    operators, _ = quantized_layers(spelled(SPELLED[form], tmp_path))
    assert operators == ["input", "MatMul", "rms_norm" if "roots" in form else "layer_norm"]


SOFTMAX = "l = ReduceMax x; d = Sub x l; p = Exp d; t = ReduceSum p along; k = Reshape t kept; "
POWERS = {
    "as JAX writes it": SOFTMAX.replace("Sub x l", "Sub x h").replace(
        "d =", "c = Max least l; h = Expand c kept; d ="
    )
    + "o = Expand k kept; y = Div p o",
    "short": SOFTMAX + "y = Div p k",
}


@pytest.mark.parametrize("form", POWERS)
def test_a_softmax_that_is_spelled_out_is_one_layer(form: str, tmp_path: Path) -> None:
    operators, int8 = quantized_layers(spelled(POWERS[form], tmp_path))
    assert operators == ["input", "MatMul", "softmax"]
    assert "Softmax" in {node.op_type for node in onnx.load(int8).graph.node}


@pytest.mark.parametrize(
    ("found", "other"),
    [("ReduceMax x", "ReduceMin x"), ("Div p k", "Div k p"), ("Sub x l", "Sub l x")],
)
def test_what_is_like_a_softmax_stays_apart(found: str, other: str, tmp_path: Path) -> None:
    file = spelled(POWERS["short"].replace(found, other), tmp_path)
    calls = post_order(read_whole(file, "", OLDEST).source.result)
    assert "softmax" not in {each.op for each in calls if isinstance(each, Call)}


def test_a_softmax_between_pairs_is_that_of_the_file_s_framework(tmp_path: Path) -> None:
    """ONNX Runtime computes its parts in floats, and a Softmax in integers."""
    calls = post_order(read_file(spelled(POWERS["short"], tmp_path)).result)
    assert "exp" in {each.op for each in calls if isinstance(each, Call)}


@pytest.mark.parametrize("form", APART)
def test_what_is_like_a_norm_stays_apart(form: str, tmp_path: Path) -> None:
    source = read_file(spelled(APART[form], tmp_path))
    calls = {each.op for each in post_order(source.result) if isinstance(each, Call)}
    assert calls & {"sqrt", "l2"} or "another" in form
    assert "layer_norm" not in calls
    assert "rms_norm" not in calls or "another" in form


def test_a_norm_is_found_where_each_reader_has_a_pair_of_its_own(tmp_path: Path) -> None:
    """So ONNX Runtime's quantizer writes files with dedicated pairs."""
    _, int8 = quantized_layers(spelled(SPELLED["as torch writes it"], tmp_path))
    proto = onnx.load(int8)
    (pair,) = [n for n in proto.graph.node if n.name == "x_DequantizeLinear"]
    readers = [node for node in proto.graph.node if pair.output[0] in node.input]
    assert len(readers) > 1
    for number, reader in enumerate(readers[1:]):
        own = onnx.NodeProto.FromString(pair.SerializeToString())
        own.output[0], own.name = f"own{number}", f"own{number}"
        proto.graph.node.insert(list(proto.graph.node).index(pair), own)
        reader.input[list(reader.input).index(pair.output[0])] = own.output[0]
    onnx.save(proto, int8)
    network = network_of(read_file(int8), "net", "onnx")
    assert any(isinstance(node.op, Normalize) for node in network.graph.nodes)


# --- Masks ---------------------------------------------------------------------------------------

LENGTH = 6
SEEN = np.tril(np.ones((LENGTH, LENGTH), bool))


def attention(hidden: float, tmp_path: Path, *, guard: bool = False) -> Path:
    """Attention of each place to those before it, by a constant mask; ``guard`` is torch's."""
    nodes = [
        helper.make_node("MatMul", ["x", "wq"], ["q"], "q"),
        helper.make_node("MatMul", ["x", "wk"], ["k"], "k"),
        helper.make_node("MatMul", ["x", "wv"], ["v"], "v"),
        helper.make_node("Transpose", ["k"], ["t"], "t", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "t"], ["scores"], "scores"),
        helper.make_node("Add", ["scores", "mask"], ["masked"], "masked"),
        helper.make_node("Softmax", ["masked"], ["shares"], "shares", axis=-1),
    ]
    if guard:
        nodes.append(helper.make_node("IsNaN", ["shares"], ["nan"], "nan"))
        nodes.append(helper.make_node("Where", ["nan", "zero", "shares"], ["kept"], "kept"))
    last = helper.make_node("MatMul", ["kept" if guard else "shares", "v"], ["y"], "y")
    rng = np.random.default_rng(1)
    weights = {f"w{n}": rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) / 2 for n in "qkv"}
    mask = np.where(SEEN, 0, np.float32(hidden)).astype(np.float32)
    constants = {**weights, "mask": mask, "zero": np.zeros((), np.float32)}
    shape = (2, LENGTH, WIDTH)
    source = ("x", TensorProto.FLOAT, shape)
    onnx.save(model([*nodes, last], constants, source, shape), tmp_path / "attention.onnx")
    return tmp_path / "attention.onnx"


@pytest.mark.long
@pytest.mark.parametrize("hidden", [-1e4, -3.4028235e38, -np.inf])
@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("observer", ["mse", "minmax", "entropy"])
def test_a_mask_takes_no_bits_of_what_is_seen(
    hidden: float, guard: bool, observer: str, tmp_path: Path
) -> None:
    file, int8 = attention(hidden, tmp_path, guard=guard), tmp_path / "int8.onnx"
    rng = np.random.default_rng(2)
    samples = [{"x": rng.normal(size=(2, LENGTH, WIDTH)).astype(np.float32)} for _ in range(8)]
    quantized = tinyai.quantize_file(file, samples, tinyai.QuantConfig(observer=observer))
    (masked,) = (each for each in quantized.report.layers if each.name == "masked")
    assert masked.scale < 0.4
    assert quantized.report.outputs[0].sqnr > 22
    quantized.save(int8)
    for sample in samples:
        (wanted,) = run_onnx(onnx.load(int8), sample)
        (floats,) = run_onnx(onnx.load(file), sample)
        for source in (read_file(int8), quantized.model):
            (found,) = run_graph(network_of(source, "net", "onnx").graph, [sample["x"]])
            np.testing.assert_array_equal(found, wanted)
        assert np.square(floats).sum() > 100 * np.square(floats - wanted).sum()


# How files make a mask of what a caller passes: (1 - seen) * hidden, as older exports of BERT have
# it, or by bools; or they fill scores with a number.
MASKS = {
    "numbers": [
        helper.make_node("Cast", ["seen"], ["kept"], "kept", to=TensorProto.FLOAT),
        helper.make_node("Sub", ["one", "kept"], ["off"], "off"),
        helper.make_node("Mul", ["off", "hidden"], ["mask"], "mask"),
    ],
    "bools": [
        helper.make_node("Cast", ["seen"], ["kept"], "kept", to=TensorProto.BOOL),
        helper.make_node("And", ["kept", "some"], ["both"], "both"),
        helper.make_node("Where", ["both", "zero", "hidden"], ["mask"], "mask"),
    ],
    "fill": [
        helper.make_node("Equal", ["seen", "none"], ["off"], "off"),
        helper.make_node("Where", ["off", "hidden", "scores"], ["masked"], "masked"),
    ],
    "keep": [
        helper.make_node("Equal", ["seen", "none"], ["off"], "off"),
        helper.make_node("Not", ["off"], ["kept"], "kept"),
        helper.make_node("Where", ["kept", "scores", "hidden"], ["masked"], "masked"),
    ],
}


HIDDEN = (-1e4, -3.4028235e38, -np.inf)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.bool_])
@pytest.mark.parametrize(
    ("form", "hidden"),
    # 0 times infinity is no number.
    [(f, h) for f in MASKS for h in HIDDEN if f != "numbers" or np.isfinite(h)],
)
def test_a_mask_may_be_an_input(form: str, dtype: type, hidden: float, tmp_path: Path) -> None:
    proto = onnx.load(attention(-1e4, tmp_path))
    nodes = [*proto.graph.node]
    (at,) = (place for place, each in enumerate(nodes) if each.name == "masked")
    fills = form in ("fill", "keep")
    made = [*nodes[:at], *MASKS[form], *nodes[at + 1 :]] if fills else [*MASKS[form], *nodes]
    del proto.graph.node[:]
    proto.graph.node.extend(made)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto.graph.input.append(helper.make_tensor_value_info("seen", kind, (2, 1, LENGTH)))
    known = [each for each in proto.graph.initializer if each.name != "mask"]
    known += [
        numpy_helper.from_array(np.array(value, of), name)
        for name, value, of in (
            *(("one", 1, np.float32), ("hidden", hidden, np.float32)),
            *(("none", 0, dtype), ("some", np.ones((1, LENGTH, LENGTH)), np.bool_)),
        )
    ]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(known)
    onnx.save(proto, tmp_path / "masked.onnx")
    samples, rng = [], np.random.default_rng(3)
    for _ in range(8):
        seen = np.arange(LENGTH) < rng.integers(2, LENGTH + 1, (2, 1, 1))
        x = rng.normal(size=(2, LENGTH, WIDTH)).astype(np.float32)
        samples.append({"x": x, "seen": seen.astype(dtype)})
    quantized = tinyai.quantize_file(tmp_path / "masked.onnx", samples)
    assert quantized.report.outputs[0].sqnr > 25
    # What a mask hides has no share, however far its grid reaches: no noise of the mask's own.
    mask = next(each for each in quantized.report.layers if each.name in ("mask", "masked"))
    assert (mask.sqnr or 99) > 25
    assert mask.saturated < 0.01
    quantized.save(tmp_path / "int8.onnx")
    for sample in samples:
        (wanted,) = run_onnx(onnx.load(tmp_path / "int8.onnx"), sample)
        for source in (read_file(tmp_path / "int8.onnx"), quantized.model):
            network = network_of(source, "net", "onnx")
            inputs = [sample[port.name] for port in network.inputs]
            (found,) = run_graph(network.graph, inputs)
            np.testing.assert_array_equal(found, wanted)


def test_a_choice_by_what_is_no_number_is_refused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("IsNaN", ["x"], ["nan"], "nan"),
        helper.make_node("MatMul", ["x", "w"], ["h"], "h"),
        helper.make_node("Where", ["nan", "h", "x"], ["y"], "chosen"),
    ]
    shape = (6, WIDTH)
    source = ("x", TensorProto.FLOAT, shape)
    onnx.save(model(nodes, {"w": SQUARE}, source, shape), tmp_path / "where.onnx")
    samples = [{"x": RNG.normal(size=shape).astype(np.float32)}]
    with pytest.raises(BoundaryError, match="found:       IsNaN"):
        tinyai.quantize_file(tmp_path / "where.onnx", samples, whole=True)


# --- Operators of norms --------------------------------------------------------------------------

NORMS = {
    "RMSNormalization": (23, ("g8",), {"epsilon": 1e-3}),
    "RMSNormalization of two dimensions": (23, ("g48",), {"axis": 1}),
    "GroupNormalization": (21, ("g4", "b4"), {"num_groups": 2}),
    "GroupNormalization by groups": (18, ("g2", "b2"), {"num_groups": 2}),
    "GroupNormalization of one": (21, ("g4", "b4"), {"num_groups": 1, "epsilon": 0.1}),
    "GroupNormalization of channels": (21, ("g4", "b4"), {"num_groups": 4}),
    "LpNormalization": (18, (), {"axis": 1}),
}


@pytest.mark.parametrize("case", NORMS)
def test_norms_are_within_a_step_of_onnx_runtimes(case: str, tmp_path: Path) -> None:
    opset, inputs, attrs = NORMS[case]
    shape = (2, 4, WIDTH)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "h"),
        helper.make_node(case.split()[0], ["h", *inputs], ["y"], "norm", **attrs),
    ]
    sizes = {"g8": (8,), "g48": (4, 8), "g4": 4, "b4": 4, "g2": 2, "b2": 2}
    constants = {n: RNG.normal(0.5, 1, sizes[n]).astype(np.float32) for n in inputs}
    source = ("x", TensorProto.FLOAT, shape)
    proto = model(nodes, {**constants, "w": SQUARE}, source, shape, opset)
    proto.ir_version = 10
    onnx.save(proto, tmp_path / "norm.onnx")
    samples = [{"x": RNG.normal(0.5, 1, shape).astype(np.float32)} for _ in range(8)]
    samples[0]["x"][0] = 0  # which has no norm
    quantized = tinyai.quantize_file(tmp_path / "norm.onnx", samples)
    quantized.save(tmp_path / "int8.onnx")
    assert quantized.report.outputs[0].sqnr > 25
    (norm,) = (each for each in quantized.report.layers if each.name == "norm")
    for sample in samples:
        (wanted,) = run_onnx(onnx.load(tmp_path / "int8.onnx"), sample)
        for each in (read_file(tmp_path / "int8.onnx"), quantized.model):
            (found,) = run_graph(network_of(each, "net", "onnx").graph, [sample["x"]])
            assert np.abs(found - wanted).max() < 1.01 * norm.scale
            assert (found == wanted).mean() > 0.95


@pytest.mark.parametrize("bounds", ["Relu", "Clip"])
@pytest.mark.parametrize("names", ["values", "gemm_input_shape"])
def test_a_product_with_a_bias_and_bounds_has_integers_in_onnx_runtime(
    bounds: str, names: str, tmp_path: Path
) -> None:
    """Of three dimensions, as in T5: the bias is that of the product, or of the quantizer. Names
    of constants may be those that ONNX Runtime gave them."""
    shape = (2, 5, WIDTH)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "first"),
        helper.make_node("Add", ["h", "b"], ["s"], "added"),
        helper.make_node(
            bounds, ["s", *(["", "high"] if bounds == "Clip" else [])], ["r"], "bounds"
        ),
        helper.make_node("MatMul", ["r", "v"], ["f"], "second"),
        helper.make_node("Reshape", ["f", names], ["m"], "moved"),
        helper.make_node("Add", ["m", "x"], ["y"], "sum"),
    ]
    rng = np.random.default_rng(2)
    constants: dict[str, Array] = {
        **{name: rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) for name in "wv"},
        "b": rng.normal(size=WIDTH).astype(np.float32),
        "high": np.float32(2),
        names: np.array(shape),
    }
    source = ("x", TensorProto.FLOAT, shape)
    onnx.save(model(nodes, constants, source, shape), tmp_path / "net.onnx")
    samples = [{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(6)]
    tinyai.quantize_file(tmp_path / "net.onnx", samples).save(tmp_path / "int8.onnx")

    result = tinyai.check(tmp_path / "int8.onnx", samples=5)
    assert result.equal, result
    exact_session(tmp_path / "int8.onnx", optimized=tmp_path / "run.onnx")
    run = [node.op_type for node in onnx.load(tmp_path / "run.onnx").graph.node]
    assert run.count("QGemm") == 2
    assert "Gemm" not in run


@pytest.mark.parametrize("layer", ["Gemm", "MatMul", "Conv"])
@pytest.mark.parametrize("shape", ["keeps channels", "changes them", "has as many others"])
def test_a_bias_behind_another_shape_is_that_of_memory(
    layer: str, shape: str, tmp_path: Path
) -> None:
    """A layer with a bias, a Reshape, and one more bias; the file has both in one."""
    rng = np.random.default_rng(3)
    if layer == "Conv":
        source, weights, sizes = (1, 3, 4, 4), (4, 3, 1, 1), (4,)
        moved, bias = {
            "keeps channels": ((1, 4, 2, 8), (4, 1, 1)),
            "changes them": ((1, 2, 8, 4), (2, 1, 1)),
            "has as many others": ((4, 4, 4), (4, 1)),
        }[shape]
    else:
        source, weights, sizes = (4, 3), (3, 4), (4,)
        moved, bias = {
            "keeps channels": ((1, 2, 2, 4), (4,)),
            "changes them": ((2, 4, 2), (2,)),
            "has as many others": ((4, 4, 1), (4, 1)),
        }[shape]
    constants: dict[str, Array] = {
        "w": rng.normal(size=weights).astype(np.float32),
        "b": rng.normal(size=sizes).astype(np.float32),
        "c": rng.normal(size=bias).astype(np.float32),
        "shape": np.array(moved),
    }
    nodes = [
        helper.make_node(layer, ["x", "w", *(["b"] if layer != "MatMul" else [])], ["h"], "layer"),
        helper.make_node("Reshape", ["h", "shape"], ["m"], "moved"),
        helper.make_node("Add", ["m", "c"], ["y"], "added"),
    ]
    file = model(nodes, constants, ("x", TensorProto.FLOAT, source), moved)
    onnx.save(file, tmp_path / "net.onnx")
    samples = [{"x": rng.normal(size=source).astype(np.float32)} for _ in range(5)]
    quantized = tinyai.quantize_file(tmp_path / "net.onnx", samples)
    quantized.save(tmp_path / "int8.onnx")

    of_file = network_of(read_file(tmp_path / "int8.onnx"), "net", "onnx").graph
    in_memory = network_of(quantized.model, "net", "onnx").graph
    for sample in samples:
        (wanted,) = run_onnx(onnx.load(tmp_path / "int8.onnx"), sample)
        for graph in (of_file, in_memory):
            (found,) = run_graph(graph, [sample["x"]])
            np.testing.assert_array_equal(found, wanted)
