"""The emitted C: its words, one region as a whole, and what compilers and sanitizers say of it."""

from __future__ import annotations

import functools
import itertools
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.c_checks import (
    COMPILERS,
    QUICK_COMPILERS,
    SANITIZERS,
    WARNINGS,
    assert_warning_free,
    build_sanitized,
    language,
    run_command,
    run_sanitized,
)
from tests.support.example_graphs import (
    EPILOGUES,
    NETWORKS,
    all_examples,
    examples_graph,
    orders_as_given,
    random_inputs,
    small_network,
)
from tests.support.machines import require_isa
from tests.support.paths import ROOT
from tinyai.backend import Compiled, compile_graph, lower, write
from tinyai.codegen import templates
from tinyai.codegen.c import comment_text, identifier, literal
from tinyai.codegen.constants import ConstantArray
from tinyai.codegen.index import Axis, element, merge_dims
from tinyai.codegen.isa import MICROKERNELS
from tinyai.codegen.lowered import Lowered
from tinyai.errors import OptionError
from tinyai.ir import (
    Array,
    Builder,
    DType,
    Graph,
    Op,
    Operand,
    QParams,
    Step,
    Tensor,
    Type,
    strides,
)
from tinyai.ops import Conv2d, Elementwise, MaxPool2d
from tinyai.ops.steps import (
    Add,
    Cast,
    Clip,
    FixedPointMultiply,
    LeakyRelu,
    Lookup,
    Relu,
)
from tinyai.ops.window import Window
from tinyai.reference import run_graph
from tinyai.target import ARCHITECTURES, PORTABLE, Target

SCALAR = Target(isa="scalar")
GOLDEN = Path(__file__).parent / "golden"
ABIS = ("plain", "packed", "unpacked")


# --- Words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (-128, DType.INT8, "-128"),
        (255, DType.UINT8, "255"),
        (np.int16(-32768), DType.INT16, "-32768"),
        (2**31 - 1, DType.INT32, "2147483647"),
        (-(2**31), DType.INT32, "(-2147483647 - 1)"),
        (7, DType.INT64, "7LL"),
        (-(2**63), DType.INT64, "(-9223372036854775807LL - 1)"),
        (0.5, DType.FLOAT32, "0.5f"),
        (3, DType.FLOAT32, "3.0f"),
        (-0.0, DType.FLOAT32, "-0.0f"),
        (1e20, DType.FLOAT32, "1.0e+20f"),
        (math.inf, DType.FLOAT32, "__builtin_inff()"),
        (-math.inf, DType.FLOAT32, "-__builtin_inff()"),
        (math.nan, DType.FLOAT32, '__builtin_nanf("")'),
    ],
)
def test_a_literal_is_a_c_constant_of_its_value(value: float, dtype: DType, text: str) -> None:
    assert literal(value, dtype) == text


def interesting_values(dtype: DType) -> Array:
    if dtype.is_float:
        info = np.finfo(np.float32)
        special = [0.0, -0.0, 1.0, 1 / 3, 1e-4, 9.9999e-5, 1e7, 9999999.0, 16777217.0, 0.1]
        special += [info.max, info.min, info.tiny, info.smallest_subnormal, info.eps]
        bits = np.random.default_rng(1).integers(0, 2**32, 500, np.uint32).view(np.float32)
        values = np.concatenate([np.array(special, np.float32), bits])
        return values[np.isfinite(values)]
    low, high = dtype.range
    edges = np.array([low, low + 1, -1 if low else 1, 0, 1, high - 1, high], dtype.numpy)
    drawn = np.random.default_rng(1).integers(low, high, 100, dtype.numpy, endpoint=True)
    return np.concatenate([edges, drawn])


def test_literals_of_every_type_survive_the_compiler(compiler: str, tmp_path: Path) -> None:
    """Each literal twice: alone, and after a minus sign."""
    types = {"int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "int32": "int32_t"}
    types |= {"int64": "int64_t", "float32": "float", "bool": "uint8_t"}
    lines = ["#include <stdint.h>", "#include <stdio.h>", "int main(void) {"]
    values = {dtype: interesting_values(dtype) for dtype in DType}
    for dtype, array in values.items():
        for i, value in enumerate(array):
            text = literal(value, dtype)
            lines.append(f"const {types[dtype]} {dtype}_{i} = {text};")
            lines.append(f"fwrite(&{dtype}_{i}, sizeof {dtype}_{i}, 1, stdout);")
            lines.append(f"if ({dtype}_{i} - {text} != 0) return 1;")
    lines.append("return 0; }")
    source = tmp_path / "literals.c"
    source.write_text("\n".join([*lines, ""]))
    program = tmp_path / "literals"
    run_command([*language(compiler), *WARNINGS, str(source), "-o", str(program)])
    printed = subprocess.run([program], capture_output=True, check=True).stdout
    assert printed == b"".join(array.tobytes() for array in values.values())


HOSTILE = {
    "end of comment": '*/ system("x"); /*',
    "end of comment, twice": "**//**/ */*/",
    "newline": "a\nb\r\n#error c\x0b\x0c",
    "line continuation": "a\\\nb\\",
    "trigraphs": "??/ ??) ???/ ????",
    "line separator": "a\u2028b\x85c",
    "unicode": "Größe 层 🙂 \u202e",
    "null": "a\0b",
    "format": "%s%n{{ x }}{% endif %}{# #}",
    "placeholder": "@CONSTANTS@\n",
    "braces": "{{{{ }} {",
    "10 kB": "*/" * 5000,
    "slash": "/",
    "star": "*",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_comment_text_holds_nothing_that_ends_the_comment_or_the_line(name: str) -> None:
    shown = comment_text(HOSTILE[name])
    assert len(shown) <= 200
    assert re.fullmatch(r"[ -~]*", shown)
    for forbidden in ("*/", "/*", "\\", "??"):
        assert forbidden not in f" {shown} "


@given(st.text(alphabet=st.sampled_from("*/?\\\n{}a"), max_size=40))
@settings(derandomize=True, deadline=None)
def test_comment_text_of_any_text_is_safe(text: str) -> None:
    assert not re.search(r"\*/|/\*|\?\?|\\|\n", comment_text(text))


def test_comment_text_keeps_what_is_harmless() -> None:
    assert comment_text("conv1/BiasAdd (8x8), 50% * 2?") == "conv1/BiasAdd (8x8), 50% * 2?"


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_of_layers_leave_the_code_as_it_is(name: str) -> None:
    def without_comments(graph: Graph) -> str:
        text = compile_graph(graph, Target(), abi="packed").source.text
        return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)

    graph = small_network()
    nodes = tuple(replace(node, sources=(HOSTILE[name],)) for node in graph.nodes)
    hostile = replace(graph, nodes=nodes)
    assert without_comments(hostile) == without_comments(graph)
    assert_warning_free(compile_graph(hostile, Target(), abi="packed").source.text)


@pytest.mark.parametrize("name", ["a", "_", "tinyai_main_0", "A9", "a" * 300])
def test_an_identifier_is_returned_as_it_is(name: str) -> None:
    assert identifier(name, "name") == name


@pytest.mark.parametrize("name", ["", "9a", "a b", "a-b", "a\n", "ä", "a;", "a" * 300 + "!"])
def test_what_is_no_identifier_is_an_error(name: str) -> None:
    with pytest.raises(OptionError, match="name of a region") as error:
        identifier(name, "name of a region")
    assert error.value.found == ascii(name)[:80]


def odd_lines(text: str) -> list[str]:
    """Lines of C that are not indented by the depth of their braces. Lists of constants are not,
    nor what goes on: comments, parameters, macros."""
    odd = []
    depth, before, comment, constant = 0, "", False, False
    for line in text.splitlines():
        code = line.strip()
        constant = (constant or code.startswith("TINYAI_CONSTANT(")) and not before.endswith("};")
        goes_on = (
            comment or constant or before.endswith(("\\", ",")) or code.startswith(("#", "* "))
        )
        closing = len(code) - len(code.lstrip("}"))
        if code and not goes_on and len(line) - len(line.lstrip()) != 4 * (depth - closing):
            odd.append(line)
        comment = (comment or code.startswith("/*")) and not code.endswith("*/")
        if not comment and not code.startswith(("/*", "#", '"')) and not before.endswith("\\"):
            depth += code.count("{") - code.count("}")
        before = code
    return odd


@pytest.mark.long
@pytest.mark.parametrize("arch", sorted({*ARCHITECTURES} - {PORTABLE}))
def test_code_is_indented_as_its_braces_say(arch: str) -> None:
    for epilogue in ("qnn", "residual"):
        graph = examples_graph(all_examples(), epilogue)
        for isa in ("auto", "scalar"):
            target = Target(isa=isa, arch=arch, threads=3)
            assert odd_lines(compile_graph(graph, target).source.text) == []


# --- Element numbers -----------------------------------------------------------------------------

SHAPES = st.lists(st.integers(1, 4), min_size=0, max_size=5).map(tuple)


@st.composite
def broadcast_shapes(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to ``shape``."""
    kept = draw(st.integers(0, len(shape)))
    tail = shape[len(shape) - kept :]
    return tuple(size if draw(st.booleans()) else 1 for size in tail)


def positions(axes: list[Axis]) -> Iterator[dict[str, int]]:
    for counters in itertools.product(*(range(axis.count) for axis in axes)):
        yield dict(zip((axis.var for axis in axes), counters, strict=True))


def evaluate(expression: str, variables: dict[str, int]) -> int:
    """A C expression of non-negative integers: its division is Python's floor division."""
    return int(eval(expression.replace("/", "//"), {}, dict(variables)))


def numbers(of: tuple[int, ...], shape: tuple[int, ...]) -> list[int]:
    """Element numbers of a tensor of shape ``of`` where numpy broadcasts it to ``shape``."""
    dense = np.arange(math.prod(of)).reshape(of)
    return [int(number) for number in np.broadcast_to(dense, shape).reshape(-1)]


@given(st.data())
@settings(max_examples=200, derandomize=True, deadline=None)
def test_element_numbers_are_numpys_for_any_grouping_of_dimensions(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    of = data.draw(broadcast_shapes(shape))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(shape) - 1)))))
    bounds = [0, *(cut for cut in cuts if cut < len(shape)), len(shape)]
    groups = [shape[a:b] for a, b in itertools.pairwise(bounds)]
    axes = [Axis(f"i{n}", group) for n, group in enumerate(groups)]
    expression = element(of, axes)
    assert [evaluate(expression, at) for at in positions(axes)] == numbers(of, shape)


@given(st.data())
@settings(max_examples=200, derandomize=True, deadline=None)
def test_merged_loops_visit_each_element_once_and_keep_operands_whole(data: st.DataObject) -> None:
    shape = data.draw(SHAPES)
    others = data.draw(st.lists(broadcast_shapes(shape), max_size=3))
    axes = merge_dims(shape, others)
    assert [size for axis in axes for size in axis.sizes] == list(shape)
    assert [evaluate(element(shape, axes), at) for at in positions(axes)] == list(
        range(math.prod(shape))
    )
    for other in others:
        expression = element(other, axes)
        assert not re.search(r"[/%]", expression), "a division in the innermost loop"
        assert [evaluate(expression, at) for at in positions(axes)] == numbers(other, shape)


@given(SHAPES)
@settings(derandomize=True, deadline=None)
def test_tensors_of_one_shape_are_one_loop(shape: tuple[int, ...]) -> None:
    assume(shape)
    assert [axis.sizes for axis in merge_dims(shape, [shape, shape])] == [shape]


def test_strides_are_those_of_a_dense_tensor() -> None:
    assert strides((2, 3, 4, 5)) == (60, 20, 5, 1)
    assert strides(()) == ()


def test_a_variable_that_is_an_expression_keeps_its_parentheses() -> None:
    axes = [Axis("n", (2,)), Axis("(q + p)", (4, 5)), Axis("c", (3,))]
    assert element((2, 4, 5, 3), axes) == "n * 60 + (q + p) * 3 + c"
    assert element((4, 1, 3), axes) == "((q + p) / 5) * 3 + c"
    assert element((5, 1), axes) == "(((q + p)) % 5)"
    assert element((), axes) == "0"


@pytest.mark.parametrize("shape", [(1, 1, 2, 3), (3, 3), (2, 4)])
def test_loops_that_do_not_count_through_a_tensor_are_an_error(shape: tuple[int, ...]) -> None:
    """As those of a kernel of one's own may be: the place would be another element's."""
    with pytest.raises(ValueError, match=r"loops over \(2, 3\) for a tensor of shape"):
        element(shape, [Axis("i", (2,)), Axis("j", (3,))])


# --- Constants -----------------------------------------------------------------------------------


def constants() -> dict[str, Array]:
    rng = np.random.default_rng(2)
    each = np.arange(256, dtype=np.uint8)
    pairs = np.stack(np.meshgrid(each, each), -1).astype(np.uint8)  # what may follow what
    found: dict[str, Array] = {
        "all_bytes": each,
        "all_signed_bytes": each.view(np.int8),
        "all_pairs": pairs,
        "all_zeros": np.zeros(65, np.int8),
        "all_short": np.arange(-3, 61, dtype=np.int8),
        "all_one": np.array([[-128]], np.int8),
        "all_turned": rng.integers(-128, 128, (30, 40), np.int8).T,
        "all_digits_behind_escapes": np.frombuffer(b"\0001\1772\377789" * 20, np.uint8),
    }
    for dtype in DType:
        found[f"values_{dtype}"] = interesting_values(dtype)
    return found


def test_constants_are_the_same_bytes_behind_the_compiler(compiler: str, tmp_path: Path) -> None:
    arrays = constants()
    lines = ["#include <stdint.h>", "#include <stdio.h>"]
    for template in ("language.h.j2", "constants.h.j2"):
        lines.append(files("tinyai.codegen").joinpath("templates", template).read_text())
    lines[-1] = lines[-1].split("#}\n", 1)[1]
    lines += [ConstantArray.of(name, value).definition for name, value in arrays.items()]
    lines.append("int main(void) {")
    for name, value in arrays.items():
        lines.append(f"if ((uintptr_t){name} % 64 != 0) return 1;")
        lines.append(f"fwrite({name}, sizeof {name}[0], {value.size}, stdout);")
    lines.append("return 0; }")
    source, program = tmp_path / "constants.c", tmp_path / "constants"
    source.write_text("\n".join([*lines, ""]))
    run_command([*language(compiler), *WARNINGS, str(source), "-o", str(program)])
    printed = subprocess.run([program], capture_output=True, check=True).stdout
    assert printed == b"".join(np.ascontiguousarray(a).tobytes() for a in arrays.values())


# --- One region as a whole -----------------------------------------------------------------------


def test_a_small_region_is_emitted_as_in_the_golden_file(request: pytest.FixtureRequest) -> None:
    """``pytest --update-golden`` writes the file anew: read the difference before you commit."""
    text = compile_graph(small_network(), SCALAR).source.text
    file = GOLDEN / "small_network.c"
    if request.config.getoption("--update-golden"):
        beside = file.with_suffix(".new")
        beside.write_text(text)
        beside.replace(file)
    assert text == file.read_text()


def test_comments_name_operator_types_epilogue_sources_and_quantization() -> None:
    graph = small_network()
    output = graph.outputs[0]
    tensors = dict(graph.tensors)
    pooled = graph.nodes[-2].output
    tensors[pooled] = Tensor(pooled, graph.type(pooled), QParams((0.25,), 3))
    graph = replace(graph, tensors=tensors, outputs=(pooled, output))
    text = compile_graph(graph, SCALAR, abi="plain").source.text
    for line in (
        "1: conv2d  int8[1,4,4,2], int8[2,3,3,2] -> int8[1,4,4,2]",
        "from conv, residual",
        "quantized: scale 0.25, zero point 3",
    ):
        assert f"/* {line} */" in text
    assert "then add(int32[2]) >> relu() >> add(128) >> right_shift(8)" in text


def test_equal_layers_share_a_function_and_equal_constants_a_definition() -> None:
    def three_layers(*, same_shift: bool) -> str:
        builder = Builder("region")
        x = builder.input(Type((1, 4, 4, 8), DType.INT8))
        weight = np.arange(64, dtype=np.int8).reshape(8, 1, 1, 8)
        outputs = []
        for shift in range(3):
            number = builder.constant(np.full((8,), 5 if same_shift else 1 + shift, np.int32))
            op = Conv2d(Window((1, 1), padding=(0, 0, 0, 0)))
            steps = (Add(operand=Operand(number)),)
            outputs.append(builder.add(op, [x, builder.constant(weight)], steps))
        return compile_graph(builder.graph(outputs), SCALAR, abi="plain").source.text

    for same, constants_wanted in ((True, 2), (False, 4)):
        text = three_layers(same_shift=same)
        assert text.count("static void tinyai_conv2d_patches_scalar_") == 1
        assert text.count("\nTINYAI_CONSTANT(") == constants_wanted


# --- Rows that were rejected ---------------------------------------------------------------------


def said_to_be_slower(op: Op, types: Sequence[Type], *chain: Step, isa: str) -> list[str]:
    """The reasons in the comment above the one layer of a graph; all inputs but the first are
    constants."""
    builder = Builder("region")
    data, *weights = types
    inputs = [builder.input(data)]
    inputs += [builder.constant(np.ones(of.shape, of.dtype.numpy)) for of in weights]
    graph = builder.graph([builder.add(op, inputs, chain)])
    target = Target(isa=isa)
    text = write(lower(graph, target), target, abi="plain").source.text
    return re.findall(r"/\* slower: (.*) \*/", text)


IMAGE, KERNEL = Type((1, 6, 6, 16), DType.UINT8), Type((16, 3, 3, 16), DType.INT8)
TO_INT8 = FixedPointMultiply((2**30,), (-5,)), Clip(-128, 127), Cast(DType.INT8)
WINDOW = Window((3, 3))


@pytest.mark.parametrize("isa", ["avx512vnni", "avx2", "generic", "scalar"])
def test_nothing_is_said_of_a_layer_that_the_best_row_serves(isa: str) -> None:
    layers = (Conv2d(WINDOW), (IMAGE, KERNEL), *TO_INT8), (MaxPool2d(WINDOW), (IMAGE,))
    for op, types, *chain in layers:
        assert said_to_be_slower(op, types, *chain, isa=isa) == []


def test_the_comment_of_a_layer_says_why_a_better_row_was_rejected() -> None:
    shorts = Type(IMAGE.shape, DType.INT16)
    for isa in ("avx512vnni", "avx2", "generic"):
        (reason,) = said_to_be_slower(Conv2d(WINDOW), (shorts, KERNEL), isa=isa)
        assert reason == f"conv2d_tile_{isa} rejected: data of int16"
    assert said_to_be_slower(Conv2d(WINDOW), (shorts, KERNEL), isa="scalar") == []
    each = Type((16, 3, 3, 1), DType.INT8)
    assert said_to_be_slower(Conv2d(WINDOW, groups=16), (shorts, each), isa="avx2") == [
        "conv2d_depthwise_avx2 rejected: data of int16",
        "conv2d_tile_avx2 rejected: data of int16",
        "conv2d_patches_avx2 rejected: one input channel a group",
    ]
    wide = (Cast(DType.INT64), Cast(DType.INT8))
    assert said_to_be_slower(MaxPool2d(WINDOW), (IMAGE,), *wide, isa="avx512vnni") == [
        "max_pool2d_bytes_avx512vnni rejected: no vector form of steps after the pooling",
        "max_pool2d_lanes_avx512vnni rejected: no vector form of int64",
    ]


@pytest.mark.parametrize(
    ("start", "chain", "lacking"),
    [
        (DType.INT32, (Relu(), Cast(DType.INT8)), None),
        (DType.INT64, (), "elements of int64"),
        (DType.INT32, (Cast(DType.INT64), Relu()), "int64"),
        (DType.FLOAT32, (LeakyRelu(0.5),), "leaky_relu of float32"),
        (DType.INT8, (Lookup((0,) * 256, DType.INT32),), "a table from int8 to int32"),
        (DType.INT32, (FixedPointMultiply((1, 2), (0, 0), axis=0),), "numbers along axis 0"),
        (
            DType.INT32,
            (Add(operand=Operand("in1")),),
            "an operand of int32[2,1] that is broadcast inside",
        ),
        (DType.INT64, (Add(operand=Operand("in2")),), "elements of int64"),
    ],
)
def test_the_first_step_without_a_vector_form_is_told(
    start: DType, chain: tuple[Step, ...], lacking: str | None
) -> None:
    b = Builder("g")
    for shape, dtype in (((2, 3), start), ((2, 1), DType.INT32), ((2, 3), DType.INT64)):
        b.input(Type(shape, dtype))
    graph = Lowered.of(b.graph([]))
    flat = [Axis("i", (2, 3))]
    every = [each.vectors for each in MICROKERNELS if each.vectors]
    assert every
    for vectors in every:
        assert str(vectors.lacks(graph, flat, start, chain)).startswith(str(lacking))


def test_the_comment_of_a_layer_says_why_its_steps_are_not_done_in_registers() -> None:
    away = (Cast(DType.INT64), Cast(DType.INT32), *TO_INT8)
    first = "requantized from memory: no multiplication after the bias"
    for op, types in (
        (Conv2d(WINDOW), (IMAGE, KERNEL)),
        (Conv2d(WINDOW, groups=16), (IMAGE, Type((16, 3, 3, 1), DType.INT8))),
    ):
        assert said_to_be_slower(op, types, *away, isa="avx512vnni") == [
            first,
            "steps one element at a time: no vector form of int64",
        ]
        assert said_to_be_slower(op, types, *away, isa="avx2") == [first]
        raw = said_to_be_slower(op, types, Cast(DType.FLOAT32), isa="avx512vnni")
        assert raw == [], "what does not end in 8 bits has no better way"


# --- Compilers -----------------------------------------------------------------------------------


# Instruction sets whose code is run; "auto" would run but the strongest of the machine.
RUN = ["scalar", "generic", "avx2", "avxvnni", "avx512vnni", "amx"]


@functools.cache
def compiled_examples(epilogue: str, isa: str) -> Compiled:
    """After "nothing" every example; after an epilogue every third, which is enough to meet each
    template with each kind of step."""
    examples = all_examples()
    examples = examples if epilogue == "nothing" else examples[::3]
    with orders_as_given():
        return compile_graph(examples_graph(examples, epilogue), Target(isa=isa), abi="plain")


@functools.cache
def compiled_network(name: str, abi: str, isa: str) -> Compiled:
    return compile_graph(NETWORKS[name](), Target(isa=isa), abi=abi)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_default_file_stores_its_weights_once(name: str) -> None:
    """The variants of a file for every machine read the same arrays."""
    alone = compiled_network(name, "plain", "avx512vnni").source
    default = compiled_network(name, "plain", "auto").source
    bodies = re.findall(
        rf"^TINYAI_VARIANT void {default.symbol}_run_\w+\(.*\) {{$", default.text, re.M
    )
    assert len(bodies) == 3
    assert default.weight_bytes == alone.weight_bytes > 0


def by_compiler(names: Iterable[str], compilers: Sequence[str], quick: Sequence[str]) -> list[Any]:
    """Each name with each compiler; in `make test` those of ``quick`` take turns."""
    return [
        pytest.param(name, each, marks=() if each == quick[turn % len(quick)] else pytest.mark.slow)
        for turn, name in enumerate(names)
        for each in compilers
    ]


# gcc warns while it optimizes, which takes it long for the code of all instruction sets; that of
# one set is warned of where test_kernels.py compiles it.
OF_ALL_SETS = ("nothing", "broadcast")


def is_long(epilogue: str, compiler: str, isa: str) -> bool:
    return isa == "auto" and "clang" not in compiler and epilogue not in OF_ALL_SETS


@pytest.mark.long
@pytest.mark.parametrize(
    ("epilogue", "compiler", "isa"),
    [
        pytest.param(
            *(epilogue, compiler, isa),
            marks=pytest.mark.slow if is_long(epilogue, compiler, isa) else each.marks,
        )
        for each in by_compiler(EPILOGUES, COMPILERS, QUICK_COMPILERS)
        for epilogue, compiler in [each.values]
        for isa in ("scalar", "auto")
    ],
    indirect=["compiler"],
)
def test_examples_compile_without_a_warning(epilogue: str, isa: str, compiler: str) -> None:
    assert_warning_free(compiled_examples(epilogue, isa).source.text, compiler)


@pytest.mark.long
@pytest.mark.parametrize("isa", ["scalar", "auto"])
@pytest.mark.parametrize("abi", ABIS)
@pytest.mark.parametrize(
    ("name", "compiler"), by_compiler(NETWORKS, COMPILERS, QUICK_COMPILERS), indirect=["compiler"]
)
def test_networks_compile_without_a_warning(name: str, abi: str, isa: str, compiler: str) -> None:
    assert_warning_free(compiled_network(name, abi, isa).source.text, compiler)


def test_code_is_generated_where_compiled_templates_cannot_be_kept(tmp_path: Path) -> None:
    cache = templates._Compiled(str(tmp_path / "gone"))
    name = "constants.h.j2"
    text = templates._TEMPLATES.overlay(bytecode_cache=cache).get_template(name).render()
    assert text == templates.render(name)


@pytest.mark.parametrize("abi", ABIS)
def test_a_long_symbol_compiles_without_a_warning(abi: str, compiler: str) -> None:
    graph = replace(small_network(), name="a" * 500)
    assert_warning_free(compile_graph(graph, Target(), abi=abi).source.text, compiler)


def test_a_region_without_arena_compiles_without_a_warning(compiler: str) -> None:
    for abi in ABIS:
        builder = Builder("region")
        x = builder.input(Type((), DType.INT8))
        graph = builder.graph([builder.add(Elementwise(()), [x])])
        compiled = compile_graph(graph, Target(), abi=abi)
        assert compiled.source.arena_bytes == 0
        assert_warning_free(compiled.source.text, compiler)


def test_a_region_without_inputs_compiles_without_a_warning_and_runs(compiler: str) -> None:
    for abi in ABIS:
        builder = Builder("region")
        number = builder.constant(np.array([3, -4], np.int32))
        graph = builder.graph([builder.add(Elementwise((2,)), [number])])
        compiled = compile_graph(graph, Target(), abi=abi)
        assert_warning_free(compiled.source.text, compiler)
        if abi != "unpacked":
            (found,) = run_sanitized(compiled, [], abi=abi)
            np.testing.assert_array_equal(found, [3, -4])


def assert_sanitized(compiled: Compiled, compiler: str, **options: str) -> None:
    inputs = random_inputs(compiled.graph, 11)
    found = run_sanitized(compiled, inputs, compiler, **options)  # type: ignore[arg-type]
    expected = run_graph(compiled.graph, inputs)
    for node, got, want in zip(compiled.graph.outputs, found, expected, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(got, want, node)


@pytest.mark.long
@pytest.mark.parametrize(
    ("epilogue", "sanitizer", "isa"),
    [
        # An epilogue meets every second instruction set, and its successor the others.
        pytest.param(
            *(*each.values, isa),
            marks=each.marks or (pytest.mark.slow if (turn // 4 + number) % 2 else ()),
        )
        for turn, each in enumerate(by_compiler(EPILOGUES, SANITIZERS, SANITIZERS))
        for number, isa in enumerate(RUN)
    ],
    indirect=["sanitizer"],
)
def test_examples_are_clean_under_the_sanitizers(epilogue: str, isa: str, sanitizer: str) -> None:
    require_isa(isa)
    assert_sanitized(compiled_examples(epilogue, isa), sanitizer, optimize="-O0")


@pytest.mark.parametrize(
    "isa",
    ["scalar", *(pytest.param(isa, marks=pytest.mark.long) for isa in RUN if isa != "scalar")],
)
@pytest.mark.parametrize("abi", ["plain", "packed"])
@pytest.mark.parametrize(
    ("name", "sanitizer"), by_compiler(NETWORKS, SANITIZERS, SANITIZERS), indirect=["sanitizer"]
)
def test_networks_are_clean_under_the_sanitizers(
    name: str, abi: str, isa: str, sanitizer: str
) -> None:
    require_isa(isa)
    assert_sanitized(compiled_network(name, abi, isa), sanitizer, abi=abi)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("in0[i0] *", "in0[i0 + 32] *", "heap-buffer-overflow"),
        ("int32_t v9 = (int32_t)p1", "int32_t v9 = 2147483647 + (int32_t)p1", "integer overflow"),
        (
            "const int8_t v5 = (int8_t)v4;",
            "const int8_t v5 = (int8_t)(v4 * 9);",
            "outside the range",
        ),
        ("* 2 + c] = v2;", "* 2 + (c & 2)] = v2;", "what the memory held before"),
        ("out[i0] = v5;", "out[i0] = v5; ((float *)(uintptr_t)in0)[i0] = 0;", "input was written"),
    ],
    ids=["overrun", "signed overflow", "float out of range", "unwritten output", "written input"],
)
def test_the_sanitized_run_sees_faults(right: str, wrong: str, said: str, sanitizer: str) -> None:
    """Proves the driver: code made faulty on purpose is found out."""
    compiled = compiled_network("small NHWC", "plain", "scalar")
    assert compiled.source.text.count(right) == 1
    body = compiled.source.text.removeprefix("".join(compiled.source.head.lines))
    faulty = replace(compiled, source=replace(compiled.source, parts=(body.replace(right, wrong),)))
    with pytest.raises(AssertionError, match=said):
        run_sanitized(faulty, [np.full((1, 4, 4, 2), 9, np.float32)], sanitizer)


def test_a_warning_is_an_error() -> None:
    with pytest.raises(AssertionError, match="unused"):
        assert_warning_free("static int f(void) { return 0; }\n")


# --- The entry for TVM ---------------------------------------------------------------------------


def entry_region() -> Graph:
    """What drivers/refusals.c expects."""
    builder = Builder("region")
    x = builder.input(Type((1, 2, 3, 4), DType.INT8))
    bias = builder.input(Type((4,), DType.INT32))
    weight = builder.constant(np.arange(-8, 8, dtype=np.int8).reshape(4, 1, 1, 4))
    steps = (Add(operand=Operand(bias)),)
    return builder.graph([builder.add(Conv2d(Window((1, 1))), [x, weight], steps)])


@pytest.fixture(scope="module")
def entry_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiled = compile_graph(entry_region(), SCALAR, abi="packed")
    assert compiled.source.arena_bytes > 0
    folder = tmp_path_factory.mktemp("entry")
    return build_sanitized(compiled.source.text, "refusals.c", folder, "gcc", optimize="-O1")


def call_entry(program: Path, name: str) -> tuple[int, bool, int, str]:
    """Return code, whether the outputs are right, workspaces left, and the message."""
    answer, equal, workspaces, message = run_command([str(program), name]).splitlines()[:4]
    return int(answer), equal == "1", int(workspaces), message


@pytest.mark.parametrize(
    "name",
    [
        "nothing",
        "NDArray handles",
        "byte_offset",
        "dense strides",
        "any stride of a dimension of one",
    ],
)
def test_the_entry_honours(name: str, entry_program: Path) -> None:
    assert call_entry(entry_program, name) == (0, True, 0, "")


REFUSED = {
    "dtype code": "input 0: dtype",
    "dtype bits": "input 1: dtype",
    "dtype lanes": "output 0: dtype",
    "ndim": "input 0: number of dimensions: found 5, allowed 4",
    "shape": "input 0: size of a dimension: found 5, allowed 4",
    "shape of the output": "output 0: size of a dimension: found 5, allowed 4",
    "stride": "input 0: stride of a dimension: found 16, allowed 12",
    "stride of the vector": "input 1: stride of a dimension: found 2, allowed 1",
    "misaligned data": "input 1: alignment of the data, remainder: found 2, allowed 0",
    "misaligned offset": "output 0: alignment of the data, remainder: found 1, allowed 0",
    "no data": "input 0: data pointers: found 0, allowed 1",
    "no data but an offset": "input 0: data pointers: found 0, allowed 1",
    "no output data": "output 0: data pointers: found 0, allowed 1",
    "no tensor": "input 1: tensors: found 0, allowed 1",
    "device": "input 0: device type: found 2, allowed 1",
    "device of the output": "output 0: device type: found 8, allowed 1",
    "no argument": "call: number of arguments: found 0, allowed 3",
    "one argument less": "call: number of arguments: found 2, allowed 3",
    "one argument more": "call: number of arguments: found 4, allowed 3",
    "an integer for a tensor": "input 0: argument type code: found 0, allowed 7",
    "no memory": "arena: bytes: found 0, allowed",
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_entry_refuses_with_a_message_and_leaves_the_outputs_alone(
    name: str, entry_program: Path
) -> None:
    answer, equal, workspaces, message = call_entry(entry_program, name)
    assert (answer, equal, workspaces) == (-1, False, 0)
    assert message.startswith(f"region: {REFUSED[name]}")


def test_the_entry_reports_memory_that_cannot_be_freed(entry_program: Path) -> None:
    assert call_entry(entry_program, "memory that cannot be freed")[:3] == (-1, True, 0)


# --- The same bytes ------------------------------------------------------------------------------

HASHES = """
import hashlib, json
from tests.support.example_graphs import EPILOGUES, NETWORKS, all_examples, examples_graph
from tinyai.backend import compile_graph
from tinyai.target import ARCHITECTURES, PORTABLE, Target
graphs = [make() for make in NETWORKS.values()]
graphs += [examples_graph(all_examples()[::7], epilogue) for epilogue in EPILOGUES]
texts = [compile_graph(graph, Target()).source.text for graph in graphs]
print(json.dumps([hashlib.sha256(text.encode()).hexdigest() for text in texts]))
"""


def test_two_processes_emit_the_same_bytes() -> None:

    def start(seed: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", HASHES]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )

    def hashes(process: subprocess.Popen[str]) -> list[str]:
        printed, _ = process.communicate()
        assert process.returncode == 0
        return list(json.loads(printed))

    first, second = map(hashes, [start("1"), start("2")])
    assert len(set(first)) == len(first) > 10
    assert second == first
